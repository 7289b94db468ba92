"""Growth: at once, by the highest need, within its limits."""

import math
from dataclasses import replace

import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.figures import figure
from autoscaler.domain.fleet import ReplicaState
from autoscaler.scaling.batching import Level
from autoscaler.scaling.lateness import in_time
from autoscaler.scaling.memory import CapacityMemory
from autoscaler.scaling.trend import LoadMemory
from tests.scaling.building import (
    NOON,
    SILENT,
    demand,
    found,
    measured,
    policy,
    replicas,
    settled,
    signals,
    steady,
    warm,
)


def test_a_queue_over_its_target_asks_for_replicas_in_proportion():
    got = warm(4, replicas(4, signals(waiting=7.5)))
    assert (got.recommended, got.desired, got.reason) == (6, 6, Reason.SATURATION)
    assert "7.5 requests wait for compute per ready replica, target 5" in got.trail[-1].message


def test_a_queue_within_tolerance_changes_nothing():
    got = warm(4, replicas(4, signals(waiting=5.4)))
    assert (got.desired, got.reason) == (4, Reason.WITHIN_TOLERANCE)


def test_requests_that_wait_for_an_adapter_slot_are_no_queue():
    got = warm(4, replicas(4, signals(waiting=20, deferred=20)))
    assert got.desired <= 4


def test_kv_use_over_its_target_asks_for_replicas_in_proportion():
    got = warm(4, replicas(4, signals(kv=0.96)))
    assert (got.desired, got.reason) == (5, Reason.SATURATION)


def test_forecast_demand_over_capacity_asks_for_replicas():
    got = warm(4, wanted=demand(4200.0))
    assert (got.desired, got.reason) == (6, Reason.FORECAST_DEMAND)
    assert got.trail[-1].message == "4200 tokens/s (upper band) over 1000 a replica at 0.70: 6"


def test_forecast_demand_may_fill_its_share_and_no_more():
    """At .7 of 1,000 four replicas hold 2,800; the tolerance is for pressure, which is measured with noise."""
    assert warm(4, wanted=demand(2800.0)).desired == 4
    assert warm(4, wanted=demand(2810.0)).desired == 5


def test_demand_is_held_against_what_was_in_time():
    """Late from 457 tokens/s on a replica: 2,600 need nine at .7 of that, fewer by the fitted capacity."""
    late = tuple(Level(30 + i, 40.0, 8.0 * 2**i, 300.0 * (i + 1), late, 1e9) for i, late in enumerate((0.001, 0.1)))
    learnt = CapacityMemory(levels=late, most_running=64.0, at_s=NOON - 15.0)
    wanted = demand(2600.0, requests=20.0, seen=2600.0)
    got = warm(4, wanted=wanted, told=policy(capacity=None), memory=settled(4, load=steady(2600.0), capacity=learnt))
    usable = in_time(late, 0.01)[1]
    assert 300.0 < usable < 600.0
    assert (got.recommended, got.trail[0].reason) == (math.ceil(2600.0 / (0.7 * usable)), Reason.FORECAST_DEMAND)
    assert f"over {figure(usable)} a replica in time at 0.70" in got.trail[0].message


def test_without_any_known_capacity_the_forecast_asks_for_nothing():
    got = warm(4, wanted=demand(50_000.0), told=policy(capacity=None))
    assert got.desired <= 4


def test_the_highest_need_wins_and_its_reason_is_told():
    got = warm(4, replicas(4, signals(waiting=6, kv=0.9)), demand(6000.0))
    assert (got.recommended, got.reason) == (9, Reason.STEP_LIMIT)
    assert got.trail[0].reason is Reason.FORECAST_DEMAND


def test_growth_is_limited_to_the_step():
    got = warm(5, replicas(5, signals(waiting=50)))
    assert (got.recommended, got.desired, got.reason) == (10, 9, Reason.STEP_LIMIT)


def test_growth_stops_at_the_maximum():
    got = warm(14, replicas(14, signals(waiting=50)))
    assert (got.desired, got.reason) == (16, Reason.BOUNDS)
    assert "groups.warm.maxReplicas is 16" in got.trail[-1].message


def test_slow_first_tokens_with_a_queue_for_compute_ask_for_one_more():
    slow = signals(waiting=2, kv=0.5, ttft_mean_s=3.0, queue_time_mean_s=2.0, requests_per_s=2.0)
    got = warm(4, replicas(4, slow))
    assert (got.desired, got.reason) == (5, Reason.SATURATION)
    assert "mean TTFT 3 s over 1 s" in got.trail[0].message


@pytest.mark.parametrize(
    "seen",
    [
        signals(waiting=0, kv=0.2, ttft_mean_s=3.0, queue_time_mean_s=2.0),
        signals(waiting=2, kv=0.2, ttft_mean_s=3.0, queue_time_mean_s=0.1),
        signals(waiting=2, kv=0.5, ttft_mean_s=1.05, queue_time_mean_s=1.0),
    ],
    ids=["nobody waits", "the wait is not the queue's", "within tolerance"],
)
def test_slow_first_tokens_that_replicas_would_not_shorten_ask_for_nothing(seen):
    assert warm(4, replicas(4, seen)).recommended <= 4


def test_slow_first_tokens_from_thrash_ask_for_nothing():
    slow = signals(waiting=4, deferred=3, kv=0.5, ttft_mean_s=9.0, queue_time_mean_s=8.0)
    got = warm(4, replicas(4, slow), diagnosis=found(Cause.THRASH))
    assert (got.desired, got.reason) == (4, Reason.THRASH_NOT_SATURATION)


def test_replicas_without_a_machine_stop_growth():
    seen = replicas(4, signals(waiting=20)) + replicas(2, SILENT, state=ReplicaState.PENDING, first=4)
    got = warm(6, seen)
    assert (got.recommended, got.desired, got.reason) == (8, 6, Reason.PENDING_REPLICAS)


def test_starting_replicas_stop_growth_by_pressure():
    seen = replicas(4, signals(waiting=20)) + replicas(2, SILENT, state=ReplicaState.STARTING, first=4)
    got = warm(6, seen)
    assert (got.desired, got.reason) == (6, Reason.PENDING_REPLICAS)


def test_a_first_answer_of_one_more_does_not_stand_while_the_queue_grows():
    """4 serve, 1 starts, 8 are needed: 6 for now, half as many again as serve; then it waits for them."""
    ready, coming = replicas(4, signals(waiting=20)), replicas(1, SILENT, state=ReplicaState.STARTING, first=4)
    got = warm(5, ready + coming)
    assert (got.recommended, got.desired, got.reason) == (8, 6, Reason.PENDING_REPLICAS)
    assert "6 for now" in got.trail[-1].message
    then = warm(6, ready + coming + replicas(1, SILENT, state=ReplicaState.STARTING, first=5))
    assert then.desired == 6


def test_starting_replicas_do_not_stop_growth_that_a_forecast_asks_for():
    seen = replicas(4) + replicas(2, SILENT, state=ReplicaState.STARTING, first=4)
    got = warm(6, seen, demand(6000.0))
    assert (got.desired, got.reason) == (9, Reason.FORECAST_DEMAND)


def test_pending_replicas_count_as_no_load():
    """Four ready replicas exactly at target and four pending: 4 replicas' worth of load, not 8."""
    seen = replicas(4, signals(waiting=5)) + replicas(4, SILENT, state=ReplicaState.PENDING, first=4)
    assert warm(8, seen).recommended == 4


def test_pods_that_do_not_exist_yet_are_pending_too():
    got = warm(6, replicas(4, signals(waiting=20)))
    assert (got.desired, got.reason) == (6, Reason.PENDING_REPLICAS)
    assert "replicas without a machine yet: 2" in got.trail[-1].message


def test_a_failed_replica_is_not_waited_for():
    seen = replicas(4, signals(waiting=10)) + replicas(1, SILENT, state=ReplicaState.FAILED, first=4)
    got = warm(5, seen)
    assert (got.desired, got.reason) == (8, Reason.SATURATION)


def test_stuck_replicas_stop_nothing():
    seen = replicas(4, signals(waiting=10)) + replicas(1, SILENT, state=ReplicaState.PENDING, first=4)
    memory = settled(5, pending_since_s=NOON - 901.0)
    got = warm(5, seen, memory=memory)
    assert (got.desired, got.reason) == (8, Reason.SATURATION)


def test_capacity_is_what_was_measured_under_saturation():
    got = warm(4, wanted=demand(4200.0), told=policy(capacity=None), memory=measured(4, 2000.0))
    assert got.recommended == 3


def test_a_load_carried_calmly_raises_the_measured_capacity():
    got = warm(4, wanted=demand(4100.0), told=policy(capacity=None), memory=measured(4, 1000.0, proven=3000.0))
    assert got.recommended == 2


def test_a_queue_is_work_left_over_and_no_load():
    """3 x 40 requests of 100 tokens within 225 s are 53 tokens/s beside the 2,000 that come: still 3 of 700."""
    seen = replicas(3, signals(waiting=40, kv=0.3))
    got = warm(3, seen, demand(2000.0, requests=20.0, seen=2000.0), memory=settled(3, load=steady(2000.0, 144.0)))
    assert (got.desired, got.trail[0].reason) == (3, Reason.IN_BAND)
    assert "2000 tokens/s and the queue's 53.33 over 700 a replica: 3" in got.trail[0].message


def test_a_load_above_what_runs_grows_by_what_is_missing():
    """Of 444 in flight 360 have come within a minute beyond those that went: 600 tokens/s that no rate shows yet."""
    seen = replicas(3, signals(waiting=140, kv=0.3))
    memory = settled(3, load=steady(2000.0, 84.0))
    got = warm(3, seen, demand(2000.0, requests=20.0, seen=2000.0), memory=memory)
    assert (got.desired, got.trail[0].reason) == (4, Reason.SATURATION)


def test_a_queue_that_lasts_although_the_load_should_fit_says_that_capacity_is_less():
    long_queued = CapacityMemory(queued_since_s=NOON - 120.0, at_s=NOON - 15.0)
    memory = settled(3, load=steady(2000.0, 144.0), capacity=long_queued)
    seen = replicas(3, signals(waiting=40, kv=0.3))
    got = warm(3, seen, demand(2000.0, requests=20.0, seen=2000.0), memory=memory)
    assert (got.recommended, got.trail[0].reason) == (6, Reason.SATURATION)
    assert got.trail[0].message == "40 requests wait for compute per ready replica, target 5: 6"


def rising(tokens_per_s_a_tick: float) -> LoadMemory:
    loads = [1000.0 + tokens_per_s_a_tick * tick for tick in range(40)]
    return LoadMemory(tuple((NOON - 15.0 * (40 - tick), load) for tick, load in enumerate(loads)))


def test_growth_looks_a_start_ahead_along_the_trend_where_no_forecast_has_proven_itself():
    """From 2,000 tokens/s, 40 more a tick: 225 s on at three quarters of it are 3,050; 5 replicas of 700."""
    wanted = demand(9000.0, requests=20.0, seen=2600.0)
    got = warm(3, replicas(3, signals(kv=0.3)), wanted, memory=settled(3, load=rising(40.0)))
    assert (got.desired, got.reason) == (5, Reason.FORECAST_DEMAND)
    assert got.trail[0].message == "3050 tokens/s (the last minutes' trend, 225 s on) over 1000 a replica at 0.70: 5"


def test_a_forecast_that_has_proven_itself_goes_before_the_trend():
    proven = replace(rising(25.0), scored=100.0, losses=(100.0, 500.0, 500.0, 500.0, 500.0))
    wanted = demand(4000.0, requests=20.0, seen=2000.0)
    got = warm(3, replicas(3, signals(kv=0.3)), wanted, memory=settled(3, load=proven))
    assert (got.desired, got.reason) == (6, Reason.FORECAST_DEMAND)
    assert "4000 tokens/s (upper band)" in got.trail[0].message


def test_thrash_that_delays_nobody_holds_nothing():
    calm = signals(waiting=1, deferred=0, kv=0.1, tokens=100.0, ttft_mean_s=0.1, queue_time_mean_s=0.01)
    got = warm(4, replicas(4, calm), demand(300.0), diagnosis=found(Cause.THRASH))
    assert (got.desired, got.reason) == (3, Reason.HEADROOM)


def test_a_group_that_saturates_and_thrashes_grows_by_its_load():
    """Fewer adapters a replica are what more replicas bring; the count is held only as far as the load fits."""
    slow = signals(waiting=9, deferred=6, kv=0.3, ttft_mean_s=4.0, queue_time_mean_s=3.0)
    wanted = demand(4000.0, requests=20.0, seen=3300.0)
    got = warm(4, replicas(4, slow), wanted, memory=settled(4, load=steady(3300.0)), diagnosis=found(Cause.THRASH))
    assert (got.desired, got.reason) == (5, Reason.FORECAST_DEMAND)


def test_before_capacity_is_known_the_batch_asks_before_a_queue_does():
    """12 in flight on each of 3, where 64 may run: a sixth is 10.7, and the load rises by 17 % within a start."""
    told = policy(capacity=None)
    wanted, seen = demand(2000.0, requests=20.0, seen=2600.0), replicas(3, signals(kv=0.1, running=12.0))
    learnt = CapacityMemory(most_running=64.0, at_s=NOON - 15.0)
    for load, expected in (
        (replace(rising(40.0), in_flight=steady(0.0, 36.0).in_flight), 4),
        (steady(2600.0, 36.0), 3),
    ):
        got = warm(3, seen, wanted, told=told, memory=settled(3, load=load, capacity=learnt))
        assert got.desired == expected
        if expected == 4:
            assert (got.reason, got.trail[0].message.startswith("14.1 requests in flight")) == (Reason.SATURATION, True)
