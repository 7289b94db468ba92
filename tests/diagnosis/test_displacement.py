"""Who pushes whom out of adapter slots and of memory, how often, and what would cure it."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.diagnosis import DiagnosisMemory, diagnose
from autoscaler.diagnosis.slots import loads_per_s
from autoscaler.domain.diagnosis import Basis, Cause, Diagnosis, Place
from autoscaler.domain.fleet import Replica
from autoscaler.policy.groups import ColdGroup, Groups
from tests.diagnosis.building import NOW, POLICY, observation, once, replica, signals

RATES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40)
WAITS = signals(waiting=16, deferred=13, kv_usage_ratio=0.02)


def on_one(rates: list[float], slots: int) -> np.ndarray:
    return loads_per_s(np.array(rates), np.zeros(len(rates), np.int64), np.array([slots]))


@given(RATES, st.integers(1, 50))
def test_an_adapter_is_loaded_no_more_often_than_it_is_asked_for_and_never_where_all_fit(rates, slots):
    loads = on_one(rates, slots)
    assert np.all((loads >= 0) & (loads <= np.array(rates)))
    assert np.any(loads > 0) <= (len(rates) > slots)


@given(RATES, st.integers(1, 20))
def test_another_slot_never_makes_more_loads(rates, slots):
    fewer, more = on_one(rates, slots + 1).sum(), on_one(rates, slots).sum()
    assert fewer <= more * 1.01 + 1e-9


@given(RATES, st.integers(1, 20), st.randoms(use_true_random=False))
def test_replicas_are_reckoned_apart_and_in_any_order(rates, slots, random):
    order = list(range(2 * len(rates)))
    random.shuffle(order)
    both = np.array(rates + [3 * r for r in rates])[order]
    where = np.repeat([0, 1], len(rates))[order]
    loads = loads_per_s(both, where, np.array([slots, slots + 1]))
    assert np.allclose(loads[where == 0].sum(), on_one(rates, slots).sum(), rtol=1e-2, atol=1e-9)
    assert np.allclose(loads[where == 1].sum(), 3 * on_one(rates, slots + 1).sum(), rtol=1e-2, atol=1e-9)


def lru(rates: np.ndarray, slots: int, requests: int) -> tuple[np.ndarray, np.ndarray]:
    """What a least-recently-used cache does: evictions/s of each, and of each by each."""
    held: OrderedDict[int, None] = OrderedDict()
    by = np.zeros((rates.size, rates.size))
    for one in np.random.default_rng(0).choice(rates.size, requests, p=rates / rates.sum()).tolist():
        if one in held:
            held.move_to_end(one)
            continue
        if len(held) == slots:
            victim, _ = held.popitem(last=False)
            by[victim, one] += 1
        held[one] = None
    seconds = requests / rates.sum()
    return by.sum(1) / seconds, by / seconds


@pytest.mark.parametrize(("adapters", "slots", "skew"), [(6, 2, 0.0), (24, 6, 1.0), (20, 16, 1.0)])
def test_the_estimate_is_what_a_least_recently_used_cache_does(adapters: int, slots: int, skew: float):
    rates = 1.0 / np.arange(1, adapters + 1) ** skew
    evictions, by = lru(rates, slots, 60_000)
    pairs = {(f"a{i:02d}", 0): (float(r), 3.0) for i, r in enumerate(rates)}
    found = once(replica(0, WAITS, slots=slots), pairs=pairs).pushed_out
    assert sum(p.per_hour for p in found) == pytest.approx(3600 * evictions.sum(), rel=0.03)
    worst = found[0]
    row = int(worst.adapter[1:])
    assert worst.per_hour == pytest.approx(3600 * evictions[row], rel=0.1)
    shares = by[row] / by[row].sum()
    assert all(share == pytest.approx(shares[int(name[1:])], abs=0.05) for name, share in worst.by)


def test_of_six_adapters_that_share_two_slots_each_pushes_out_the_others_alike():
    pairs = {(f"a{i}", 0): (0.5, 6.0) for i in range(6)}
    found = once(replica(0, WAITS, slots=2), pairs=pairs)
    assert len(found.pushed_out) == 6
    first = found.pushed_out[0]
    assert (first.adapter, first.place, first.basis, first.replicas) == (
        "a0",
        Place.SLOT,
        Basis.ESTIMATED,
        ("warm-000",),
    )
    assert (round(first.per_hour), round(first.requests_per_hour)) == (1200, 1800)
    assert [(name, round(share, 2)) for name, share in first.by] == [(f"a{i}", 0.2) for i in range(1, 6)]
    before, after = first.without_per_hour
    assert (round(before), round(after)) == (7200, 5400)


def test_where_the_engine_counts_its_loads_the_count_goes_before_the_estimate():
    pairs = {(f"a{i}", 0): (0.5, 6.0) for i in range(6)}
    counting = replace(WAITS, adapter_loads_per_s=signals(running=0.5).running)
    found = once(replica(0, counting, slots=2), pairs=pairs).pushed_out
    assert {p.basis for p in found} == {Basis.COUNTED}
    assert sum(p.per_hour for p in found) == pytest.approx(1800)


def test_three_cures_with_what_each_would_do():
    pairs = {(f"a{i:02d}", r): (2.0 / (i + 1), 6.0) for i in range(24) for r in (0, 1)}
    told = replace(POLICY, groups=Groups(cold=ColdGroup()))
    found = once(replica(0, WAITS, slots=12), replica(1, WAITS, slots=12), pairs=pairs, told=told).groups["warm"]
    assert found.cause is Cause.THRASH
    slots, tier, placement = found.cures
    assert [c.kind for c in found.cures] == ["slots", "tier", "placement"]
    assert slots.message.startswith("24 adapter slots a replica instead of 12, and about ")
    assert (slots.after_per_hour, tier.after_per_hour, placement.after_per_hour) == (0, 0, 0)
    assert tier.message.startswith("the 12 least asked-for of 24 adapters COLD")
    assert "(17.8% of all) then load on first use in the cold group" in tier.message
    assert placement.message.startswith(
        "each adapter on one replica instead of 2.0 on average (12 a replica for 12 slots)"
    )
    assert slots.before_per_hour == tier.before_per_hour == placement.before_per_hour > 1000


def test_placement_is_not_called_a_cure_where_one_replica_has_too_many_adapters_anyway():
    pairs = {(f"a{i}", 0): (0.5, 6.0) for i in range(6)}
    (_, tier, placement) = once(replica(0, WAITS, slots=2), pairs=pairs).groups["warm"].cures
    assert (
        placement.message == "placement alone does not help: 6 adapters on 1 replicas are 6 each at best, for 2 slots"
    )
    assert placement.after_per_hour == placement.before_per_hour
    assert tier.message.endswith("which needs a cold group (`groups.cold`)")


def test_a_fleet_where_every_adapter_fits_pushes_nobody_out():
    found = once(replica(0, slots=8), pairs={(f"a{i}", 0): (0.5, 0.1) for i in range(8)})
    assert (found.pushed_out, found.groups["warm"].cures) == ((), ())


def looks(*held: frozenset[str], registered: frozenset[str] | None = None, restart_at: int | None = None) -> Diagnosis:
    """One replica over looks of a minute, each with what is in its memory."""
    memory, found = DiagnosisMemory(), Diagnosis()
    for i, now in enumerate(held):
        started_s = NOW if restart_at is not None and i >= restart_at else 0.0
        one: Replica = replace(replica(0), resident=now, registered=registered, started_at_s=started_s)
        found, memory = diagnose(observation((one,), {}, NOW + 60.0 * i), POLICY, memory, NOW + 60.0 * i)
    return found


AB, AC, BC = frozenset("ab"), frozenset("ac"), frozenset("bc")


def test_what_left_memory_while_another_came_in_was_pushed_out_by_it():
    found = {p.adapter: p for p in looks(AB, AC, AB, AC).pushed_out}
    assert found.keys() == {"b", "c"}
    assert (found["b"].place, found["b"].basis, found["b"].replicas) == (Place.MEMORY, Basis.SEEN, ("warm-000",))
    assert (found["b"].by, found["c"].by) == ((("c", 1.0),), (("b", 1.0),))
    assert found["b"].per_hour + found["c"].per_hour == pytest.approx(60, rel=0.1), "three in three minutes"


def test_several_that_came_in_between_two_looks_share_in_it():
    found = looks(frozenset("abx"), frozenset("cdx"), frozenset("cdx")).pushed_out
    assert {p.adapter: dict(p.by) for p in found} == {"a": {"c": 0.5, "d": 0.5}, "b": {"c": 0.5, "d": 0.5}}


def test_more_than_can_be_told_apart_are_called_several():
    many = frozenset(f"n{i}" for i in range(9))
    (found,) = looks(frozenset("a"), many, many).pushed_out
    assert (found.adapter, found.by) == ("a", (("", 1.0),))


@pytest.mark.parametrize(
    "found",
    [
        looks(AB, frozenset("a"), frozenset("a")),
        looks(AB, AC, AC, registered=AC),
        looks(AB, AC, AC, restart_at=1),
        looks(AB, frozenset("abc"), frozenset("abc")),
        looks(AB),
    ],
    ids=["nobody came", "it was unloaded", "another process", "nobody left", "one look"],
)
def test_what_leaves_without_being_pushed_is_not_counted(found: Diagnosis):
    assert found.pushed_out == ()


SETS = st.lists(st.frozensets(st.sampled_from("abcdefghijklmn"), max_size=6), min_size=2, max_size=6)


@settings(max_examples=50, deadline=None)
@given(SETS)
def test_evictions_seen_are_no_more_than_those_that_left_and_no_more_than_those_that_came(held):
    found = looks(*held).pushed_out
    steps = list(itertools.pairwise(held))
    most = sum(min(len(a - b), len(b - a)) for a, b in steps)
    assert sum(p.per_hour for p in found) <= 60 * most / len(steps) * 1.5 + 1e-9
    for one in found:
        assert one.adapter not in dict(one.by)
        assert sum(share for _, share in one.by) <= 1 + 1e-9
