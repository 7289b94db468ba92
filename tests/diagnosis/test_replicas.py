"""One replica by itself, and a group of them: thrash is told from saturation, with its evidence."""

import re

import pytest

from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.fleet import ReplicaSignals
from tests.diagnosis.building import once, replica, signals

SIX = {(f"a{i}", 0): (0.5, 6.0) for i in range(6)}


def test_requests_deferred_for_adapter_slots_with_kv_to_spare_are_thrash():
    found = once(replica(0, signals(waiting=16, deferred=13, kv_usage_ratio=0.002), slots=2), pairs=SIX)
    seen = found.replicas["warm-000"]
    assert (seen.cause, round(seen.thrash, 4)) == (Cause.THRASH, 0.8125)
    assert [t.message for t in seen.terms[:3]] == [
        "16 requests wait, 13 of them for an adapter slot",
        "KV use 0.002; compute is to spare below 0.5",
        "6 adapters in use, 2 adapter slots",
    ]
    group = found.groups["warm"]
    assert (group.cause, group.message) == (
        Cause.THRASH, "16 requests wait, 13 of them for an adapter slot, at KV use 0.002",
    )  # fmt: skip
    assert group.cure.startswith("6 adapter slots on warm-000 instead of 2, or fewer adapters there")
    assert "from 1 to about 3" in group.cure


def test_the_recorded_page_of_slot_contention_is_thrash(shared_data):
    page = (shared_data / "vllm-0.32.0-cpu" / "adapter-slot-contention.prom").read_text()

    def read(name: str) -> float:
        return float(re.search(rf"^vllm:{name}\S* (\S+)$", page, re.M).group(1))

    deferred = float(re.search(r'reason="deferred"\} (\S+)$', page, re.M).group(1))
    seen = signals(
        running=read("num_requests_running"), waiting=read("num_requests_waiting{"), deferred=deferred,
        kv_usage_ratio=read("kv_cache_usage_perc"),
    )  # fmt: skip
    found = once(replica(0, seen, slots=2)).groups["warm"]
    assert (found.cause, round(found.thrash, 4), round(found.saturation, 2)) == (Cause.THRASH, 0.8125, 0.6)


def test_the_recorded_page_after_preemptions_is_not_thrash(shared_data):
    """No request waits there any more and KV is free again: nothing hurts."""
    page = (shared_data / "vllm-0.32.0-cpu" / "after-preemptions.prom").read_text()
    waiting = float(re.search(r"^vllm:num_requests_waiting\{\S* (\S+)$", page, re.M).group(1))
    kv = float(re.search(r"^vllm:kv_cache_usage_perc\S* (\S+)$", page, re.M).group(1))
    found = once(replica(0, signals(waiting=waiting, kv_usage_ratio=kv), slots=2)).groups["warm"]
    assert (waiting, found.cause, found.thrash) == (0.0, Cause.NONE, 0.0)


def test_a_queue_for_compute_is_saturation():
    found = once(replica(0, signals(waiting=20, kv_usage_ratio=0.9)))
    assert (found.replicas["warm-000"].cause, found.groups["warm"].cause) == (Cause.SATURATION, Cause.SATURATION)
    assert found.groups["warm"].saturation == 4.0
    assert found.groups["warm"].cure == "more replicas"


def test_deferred_requests_on_a_full_kv_cache_are_saturation():
    """With KV full, a free adapter slot would not start anything."""
    found = once(replica(0, signals(waiting=20, deferred=12, kv_usage_ratio=0.95)))
    assert found.replicas["warm-000"].cause is Cause.SATURATION


def test_one_deferred_request_of_many_is_no_thrash():
    found = once(replica(0, signals(waiting=4, deferred=1, kv_usage_ratio=0.1)))
    assert found.replicas["warm-000"].cause is Cause.NONE


def test_loads_per_request_are_thrash_where_first_tokens_are_late():
    late = signals(adapter_loads_per_s=1.0, requests_per_s=2.0, ttft_mean_s=4.0, deferred=None)
    pairs = {(f"a{i}", 0): (0.2, 4.0) for i in range(10)}
    found = once(replica(0, late), pairs=pairs).replicas["warm-000"]
    assert found.cause is Cause.THRASH
    assert any(t.message == "500 adapter loads per 1,000 requests, many from 100" for t in found.terms)


@pytest.mark.parametrize(
    ("seen", "working_set"),
    [
        (signals(adapter_loads_per_s=1.0, requests_per_s=2.0, ttft_mean_s=0.1), 10),
        (signals(adapter_loads_per_s=1.0, requests_per_s=2.0, ttft_mean_s=4.0), 8),
        (signals(adapter_loads_per_s=0.02, requests_per_s=2.0, ttft_mean_s=4.0), 10),
        (signals(adapter_loads_per_s=0.1, requests_per_s=0.2, ttft_mean_s=4.0), 10),
    ],
    ids=["nobody is late", "everything fits", "few loads", "too few requests to conclude"],
)
def test_loads_alone_are_no_thrash(seen, working_set):
    pairs = {(f"a{i}", 0): (0.2, 0.1) for i in range(working_set)}
    assert once(replica(0, seen), pairs=pairs).replicas["warm-000"].cause is Cause.NONE


def test_engines_that_show_neither_are_judged_by_what_waits_beside_spare_compute():
    waits = signals(waiting=9, running=8, deferred=None, kv_usage_ratio=0.05)
    pairs = {(f"a{i}", 0): (0.2, 4.0) for i in range(16)}
    assert once(replica(0, waits), pairs=pairs).replicas["warm-000"].cause is Cause.THRASH
    busy = signals(waiting=9, running=63, deferred=None, kv_usage_ratio=0.05)
    assert once(replica(0, busy), pairs=pairs).replicas["warm-000"].cause is Cause.SATURATION


def test_loads_that_take_long_are_the_stores_fault():
    slow = signals(adapter_loads_per_s=0.2, adapter_load_mean_s=1.5, ttft_mean_s=3.0)
    found = once(replica(0, slow))
    assert found.groups["warm"].cause is Cause.SLOW_ADAPTER_STORE
    assert "adapter store" in found.groups["warm"].cure


def test_without_queue_and_kv_use_nothing_is_concluded():
    found = once(replica(0, ReplicaSignals()))
    assert found.replicas["warm-000"].cause is Cause.UNKNOWN
    assert found.groups["warm"].cause is Cause.UNKNOWN
    assert found.cause("nowhere") is Cause.UNKNOWN


def test_harm_is_lateness_over_each_tenants_promise():
    found = once(replica(0), pairs={("a", 0): (2.0, 1.5), ("b", 0): (1.0, 0.5)})
    assert found.replicas["warm-000"].harm == pytest.approx(1.0)
    assert found.groups["warm"].harm == pytest.approx(1.0)


def test_an_idle_replica_does_not_dilute_one_that_thrashes():
    bad = signals(waiting=40, deferred=36, kv_usage_ratio=0.02)
    found = once(replica(0, bad), replica(1), replica(2), replica(3))
    assert found.groups["warm"].cause is Cause.THRASH
