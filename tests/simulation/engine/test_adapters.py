"""Adapter slots and the two caches: who is skipped over, who is evicted, what a load costs and whom it stalls."""

import numpy as np
import pytest

from autoscaler.simulator.engine.layout import A_ORDER
from autoscaler.simulator.engine.model import BASE_MODEL, FIRST_TOKEN, LOADED, RequestRefusedError
from autoscaler.simulator.engine.profile import ProfileError
from tests.simulation.engine.builders import DISK_LOAD_S, GPU_LOAD_S, STEP_S, engine, told

LOAD_S = DISK_LOAD_S + GPU_LOAD_S


def test_a_first_use_stalls_the_step_by_disk_and_gpu_load() -> None:
    one = engine()
    one.submit(0.0, 1, 0, 10, 1)
    assert told(one.advance(1.0), FIRST_TOKEN) == [(1, pytest.approx(STEP_S + LOAD_S))]
    one.submit(1.0, 2, 0, 10, 1)
    assert told(one.advance(2.0), FIRST_TOKEN) == [(2, pytest.approx(1.0 + STEP_S))]


def test_a_load_stalls_all_requests_of_the_replica() -> None:
    one = engine()
    one.submit(0.0, 1, BASE_MODEL, 10, 3)
    one.submit(0.005, 2, 0, 10, 1)
    events = one.advance(1.0)
    assert told(events, FIRST_TOKEN) == [(1, pytest.approx(STEP_S)), (2, pytest.approx(2 * STEP_S + LOAD_S))]
    assert events["time_s"][-1] == pytest.approx(3 * STEP_S + LOAD_S)


def test_a_request_without_a_slot_is_skipped_over_by_active_adapters_and_the_base_model() -> None:
    one = engine(max_loras=1)
    one.submit(0.0, 1, 0, 10, 100)
    one.submit(0.01, 2, 1, 10, 1)  # no slot while adapter 0 runs
    one.submit(0.02, 3, 0, 10, 1)
    one.submit(0.03, 4, BASE_MODEL, 10, 1)
    events = one.advance(0.5)
    gauges = one.gauges()
    assert [request for request, _ in told(events, FIRST_TOKEN)] == [1, 3, 4]
    assert (gauges.waiting, gauges.deferred, gauges.distinct_adapters) == (1, 1, 1)
    assert [request for request, _ in told(one.advance(5.0), FIRST_TOKEN)] == [2]
    assert one.gauges().deferred == 0


def test_a_cold_adapter_starves_while_active_ones_keep_coming() -> None:
    one = engine(max_loras=1)
    one.submit(0.0, 0, 0, 10, 20)
    one.submit(0.001, 999, 1, 10, 1)
    for i in range(1, 200):
        one.submit(0.1 * i, i, 0, 10, 20)
    assert 999 not in [request for request, _ in told(one.advance(20.0), FIRST_TOKEN)]
    assert one.gauges().deferred == 1


def test_without_enough_seats_nobody_is_deferred() -> None:
    one = engine(max_num_seqs=1)
    for i in range(3):
        one.submit(0.0, i, i, 10, 50)
    one.advance(0.2)
    gauges = one.gauges()
    assert (gauges.running, gauges.waiting, gauges.deferred) == (1, 2, 0)


def test_the_least_recently_used_adapter_leaves_the_gpu_and_stays_on_the_host() -> None:
    one = engine()
    for i, adapter in enumerate([0, 1, 0, 2]):
        one.submit(float(i), i, adapter, 10, 1)
    one.advance(10.0)
    assert one.resident_gpu() == [0, 2]
    assert one.resident_host() == [1, 0, 2]
    gauges = one.gauges()
    assert (gauges.gpu_loads, gauges.disk_loads, gauges.gpu_evictions, gauges.host_evictions) == (3, 3, 1, 0)


def test_coming_back_from_the_host_costs_only_the_gpu_load() -> None:
    one = engine()
    for i, adapter in enumerate([0, 1, 2]):
        one.submit(float(i), i, adapter, 10, 1)
    one.submit(5.0, 9, 0, 10, 1)
    assert told(one.advance(9.0), FIRST_TOKEN)[-1] == (9, pytest.approx(5.0 + STEP_S + GPU_LOAD_S))


def test_leaving_the_host_means_leaving_the_gpu() -> None:
    one = engine(max_cpu_loras=2)
    for i, adapter in enumerate([0, 1, 2]):
        one.submit(float(i), i, adapter, 10, 1)
    one.advance(9.0)
    assert one.resident_host() == [1, 2]
    assert one.resident_gpu() == [1, 2]
    assert one.gauges().host_evictions == 1


def test_full_slots_cascade_through_the_batch() -> None:
    """The engine's LRU may evict a member of the batch that it has not walked past yet, and loads it again at once."""
    one = engine(adapters=5, max_loras=4, max_cpu_loras=5)
    walk = np.argsort(one.state.adapter[0, :5, A_ORDER]).tolist()
    first, middle, last, leaving, new = walk[0], walk[2], walk[3], walk[4], walk[1]
    for i, adapter in enumerate([first, middle, last]):
        one.submit(0.0, i, adapter, 5, 100)
    one.submit(0.0, 8, leaving, 5, 2)
    one.submit(0.001, 9, new, 5, 1)  # deferred until `leaving` is done, in whose next step it comes second
    one.advance(0.9)
    # `new` takes the slot of `middle`, whose turn comes next; `middle` that of `last`; `last` that of `leaving`.
    assert one.gauges().gpu_loads == 4 + 3
    assert one.gauges().disk_loads == 5
    assert set(one.resident_gpu()) == {first, new, middle, last}


def test_pinned_adapters_are_never_evicted_and_keep_their_slot() -> None:
    one = engine()
    one.submit(0.0, 0, 0, 10, 1)
    one.advance(0.5)
    one.pin(0.5, 0)
    for i, adapter in enumerate([1, 2, 3], start=1):
        one.submit(float(i), i, adapter, 10, 1)
    one.advance(9.0)
    assert set(one.resident_gpu()) == {0, 3}
    one.submit(9.0, 10, 1, 10, 50)
    one.submit(9.0, 11, 2, 10, 1)
    one.submit(9.0, 12, 0, 10, 1)
    events = one.advance(9.3)
    assert [request for request, _ in told(events, FIRST_TOKEN)] == [10, 12]  # 11 is skipped, 12 has its own slot
    with pytest.raises(RequestRefusedError, match="max_loras is 2"):
        one.pin(9.3, 1)
    one.pin(9.3, 0, pinned=False)
    assert [request for request, _ in told(one.advance(9.4), FIRST_TOKEN)] == [11]


def test_a_preload_is_announced_and_spares_the_first_request() -> None:
    one = engine()
    one.load(0.0, 3)
    events = one.advance(1.0)
    assert [(int(e["kind"]), int(e["value"])) for e in events] == [(LOADED, 3)]
    assert events["time_s"][0] == pytest.approx(LOAD_S)
    one.submit(1.0, 1, 3, 10, 1)
    assert told(one.advance(2.0), FIRST_TOKEN) == [(1, pytest.approx(1.0 + STEP_S))]


def test_a_preload_in_traffic_stalls_the_running_requests() -> None:
    one = engine()
    one.submit(0.0, 1, BASE_MODEL, 10, 4)
    one.load(0.015, 3)
    events = one.advance(1.0)
    assert events["time_s"][-1] == pytest.approx(4 * STEP_S + LOAD_S)
    assert one.gauges().load_s == pytest.approx(LOAD_S)


def test_unload_frees_idle_adapters_only() -> None:
    one = engine()
    one.submit(0.0, 1, 0, 10, 50)
    one.advance(0.1)
    assert one.unload(0.1, 0) is False
    one.advance(5.0)
    assert one.unload(5.0, 0) is True
    assert one.resident_gpu() == []
    assert one.resident_host() == []


def test_an_adapter_in_the_object_store_pays_the_way_once() -> None:
    one = engine(max_loras=1, max_cpu_loras=1)
    one.leave_in_store(0)
    one.submit(0.0, 1, 0, 10, 1)
    assert told(one.advance(9.0), FIRST_TOKEN) == [(1, pytest.approx(2.2 + LOAD_S + STEP_S))]
    one.submit(9.0, 2, 1, 10, 1)
    one.submit(10.0, 3, 0, 10, 1)
    assert told(one.advance(20.0), FIRST_TOKEN)[-1] == (3, pytest.approx(10.0 + LOAD_S + STEP_S))


def test_limits_that_the_engine_would_refuse_are_refused() -> None:
    with pytest.raises(ProfileError, match="max_cpu_loras is 1, max_loras 2"):
        engine(max_cpu_loras=1)
    with pytest.raises(RequestRefusedError, match=r"adapter 4 is not among 0..3"):
        engine().submit(0.0, 1, 4, 10, 10)
