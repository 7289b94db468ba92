"""Scale-in, the expensive direction: every condition holds, or the one that does not is named."""

from dataclasses import replace

import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.fleet import ReplicaState
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

CALM = signals(waiting=0, kv=0.2, tokens=300.0)


def test_a_load_that_fits_fewer_replicas_gives_one_back_at_a_time():
    got = warm(5, replicas(5, CALM), demand(1000.0))
    assert (got.recommended, got.desired, got.reason) == (2, 4, Reason.HEADROOM)
    assert [step.reason for step in got.trail] == [Reason.HEADROOM, Reason.STEP_LIMIT, Reason.HEADROOM]


def test_the_step_may_be_wider():
    got = warm(6, replicas(6, CALM), demand(1000.0), told=policy(scale_in={"max_step_replicas": 3}))
    assert (got.desired, got.reason) == (3, Reason.HEADROOM)


def test_a_wider_step_goes_only_as_far_as_every_condition_allows():
    """Six at KV .4 are 2.4 in all: .8 on three is the target itself, .6 on four has margin."""
    got = warm(
        6, replicas(6, signals(kv=0.4, tokens=300.0)), demand(1000.0), told=policy(scale_in={"max_step_replicas": 4})
    )
    assert (got.recommended, got.desired) == (3, 4)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (signals(waiting=3.8), "waiting requests per replica would be 4.75 on 4 replicas, limit 4.5"),
        (signals(running=48), "running requests per replica would be 60 on 4 replicas, limit 57.6"),
        (signals(kv=0.6), "KV use would be 0.75 on 4 replicas, limit 0.72"),
        (signals(ttft_mean_s=1.2), "seconds of wait would be 1.2 on 4 replicas, limit 1"),
        (signals(tokens=620.0), "tokens/s per replica would be 775 on 4 replicas, limit 630"),
    ],
    ids=["queue", "batch", "kv", "ttft", "tokens"],
)
def test_a_load_that_would_not_fit_with_margin_keeps_the_replica(seen, why):
    got = warm(5, replicas(5, seen), demand(1000.0))
    assert (got.desired, got.reason) == (5, Reason.IN_BAND)
    assert why in got.trail[-1].message


def test_long_prompts_are_slow_on_any_number_of_replicas_and_keep_none():
    seen = signals(kv=0.2, tokens=300.0, ttft_mean_s=4.0, queue_time_mean_s=0.01)
    assert warm(5, replicas(5, seen), demand(1000.0)).desired == 4


def test_without_measured_compute_kv_use_counts_twice():
    told = policy(capacity=None)
    assert warm(5, replicas(5, signals(kv=0.25, running=4)), told=told).desired == 4
    got = warm(5, replicas(5, signals(kv=0.3, running=4)), told=told)
    assert (got.desired, got.reason) == (5, Reason.IN_BAND)
    assert "KV use would be 0.375 on 4 replicas, limit 0.36" in got.trail[-1].message


def test_demand_forecast_within_the_horizon_keeps_the_replica():
    told = policy(scale_in={"horizon_s": 3600.0})
    got = warm(5, replicas(5, CALM), demand(1000.0, horizon=3000.0), told=told)
    assert (got.desired, got.reason) == (5, Reason.FORECAST_DEMAND)
    assert "3000 tokens/s within 3600 s do not fit 4 replicas of 700" in got.trail[-1].message


def test_an_unknown_forecast_keeps_the_replica():
    got = warm(5, replicas(5, CALM), demand(None))
    assert (got.desired, got.reason) == (5, Reason.SIGNALS_MISSING)


def test_a_silent_replica_keeps_the_count():
    got = warm(5, replicas(4, CALM) + replicas(1, SILENT, first=4), demand(1000.0))
    assert (got.desired, got.reason) == (5, Reason.SIGNALS_MISSING)
    assert "1 of 5 ready replicas do not show" in got.trail[-1].message


def test_thrash_keeps_the_count():
    got = warm(5, replicas(5, CALM), demand(1000.0), diagnosis=found(Cause.THRASH))
    assert (got.desired, got.reason) == (5, Reason.THRASH_NOT_SATURATION)


def test_a_replica_on_its_way_keeps_the_count():
    seen = replicas(4, CALM) + replicas(1, SILENT, state=ReplicaState.STARTING, first=4)
    got = warm(5, seen, demand(1000.0))
    assert (got.desired, got.reason) == (5, Reason.PENDING_REPLICAS)


def test_a_failed_replica_carries_nothing_of_what_must_fit():
    """Four at KV .5 and one that failed: 2.0 in all is .5 on four, .67 on the three that would serve."""
    seen = replicas(4, signals(kv=0.5, tokens=300.0)) + replicas(1, SILENT, state=ReplicaState.FAILED, first=4)
    assert warm(5, seen, demand(1000.0)).desired == 4
    fuller = replicas(4, signals(kv=0.6, tokens=300.0)) + seen[4:]
    got = warm(5, fuller, demand(1000.0))
    assert (got.desired, got.reason) == (5, Reason.IN_BAND)
    assert "KV use would be 0.8 on 3 replicas" in got.trail[-1].message


def test_a_stuck_replica_keeps_nothing():
    seen = replicas(4, CALM) + replicas(1, SILENT, state=ReplicaState.PENDING, first=4)
    got = warm(5, seen, demand(1000.0), memory=settled(5, pending_since_s=NOON - 1000.0))
    assert (got.desired, got.reason) == (4, Reason.HEADROOM)


def test_a_higher_need_within_the_window_keeps_the_count():
    got = warm(5, replicas(5, CALM), demand(1000.0), memory=settled(5, needs=((NOON - 200.0, 5),)))
    assert (got.desired, got.reason) == (5, Reason.STABILISING)
    assert "the last 300 s needed up to 5" in got.trail[-1].message


def test_a_need_before_the_window_is_forgotten():
    got = warm(5, replicas(5, CALM), demand(1000.0), memory=settled(5, needs=((NOON - 301.0, 5),)))
    assert got.desired == 4


def test_a_controller_that_just_started_waits_for_its_window():
    got = warm(5, replicas(5, CALM), demand(1000.0), memory=settled(5, NOON + 3500.0))
    assert (got.desired, got.reason) == (5, Reason.STABILISING)
    assert "observed for 100 s of the 300 s" in got.trail[-1].message


def test_a_spent_budget_of_moves_keeps_the_count():
    got = warm(5, replicas(5, CALM), demand(1000.0), view={"churn_left": False})
    assert (got.desired, got.reason) == (5, Reason.CHURN_BUDGET)


def test_the_second_half_of_the_hours_changes_is_for_growth():
    memory = settled(5)
    spent = type(memory)(memory.groups, tuple(NOON - i for i in range(1, 31)))
    shrunk = warm(5, replicas(5, CALM), demand(1000.0), memory=spent)
    grown = warm(5, replicas(5, signals(waiting=10)), memory=spent)
    assert (shrunk.desired, shrunk.reason) == (5, Reason.BUDGET)
    assert (grown.desired, grown.reason) == (9, Reason.STEP_LIMIT)


def test_capacity_unknown_then_measured_turns_no_direction_round():
    told = policy(capacity=None)
    assert warm(5, replicas(5, CALM), demand(2800.0), told=told, memory=measured(5, 700.0)).desired == 6
    calm = signals(waiting=0, kv=0.2, running=4, tokens=300.0)
    assert warm(5, replicas(5, calm), demand(2800.0), told=told).desired == 4


def test_without_measured_compute_a_rise_is_not_met_with_fewer():
    """5 running on each of 5 are 6.25 on each of 4, of at most 7.2; within the horizon a rise makes them 8.9."""
    told = policy(capacity=None)
    seen = replicas(5, signals(kv=0.1, running=5, tokens=300.0))
    assert warm(5, seen, demand(100.0, requests=5.0, seen=1500.0), told=told).desired == 4
    loads = [100.0 + 35.0 * tick for tick in range(40)]
    rising = LoadMemory(tuple((NOON - 15.0 * (40 - tick), load) for tick, load in enumerate(loads)))
    got = warm(5, seen, demand(100.0, requests=5.0, seen=1500.0), told=told, memory=settled(5, load=rising))
    assert (got.desired, got.reason) == (5, Reason.IN_BAND)
    assert "running requests per replica would be 8.875 on 4 replicas, limit 7.2" in got.trail[-1].message


def test_no_traffic_scales_in_although_averages_are_missing():
    """Averages of nothing are NaN, hence Missing; the count of requests is a true zero."""
    got = warm(7, replicas(7, SILENT), demand(0.0, requests=0.0))
    assert (got.recommended, got.desired, got.reason) == (0, 6, Reason.IDLE)


def test_an_idle_group_goes_down_to_its_minimum_and_says_so():
    got = warm(2, replicas(2, SILENT), demand(0.0, requests=0.0), told=policy(warm={"min_replicas": 2}))
    assert (got.desired, got.reason) == (2, Reason.BOUNDS)


def test_no_requests_at_routers_but_work_in_engines_is_neither_idle_nor_a_reason_to_shrink():
    got = warm(5, replicas(5, CALM), demand(1000.0, requests=0.0))
    assert (got.desired, got.reason) == (5, Reason.SIGNALS_CONTRADICT)


def test_a_disagreement_is_not_settled_by_engines_that_fall_silent():
    memory = settled(5, contradicted_since_s=NOON - 300.0)
    got = warm(5, replicas(5, SILENT), demand(0.0, requests=0.0), memory=memory)
    assert (got.desired, got.reason) == (5, Reason.SIGNALS_CONTRADICT)


def test_routers_and_engines_that_disagree_for_long_keep_the_count():
    memory = settled(5, contradicted_since_s=NOON - 300.0)
    got = warm(5, replicas(5, CALM), demand(0.0, requests=0.0), memory=memory)
    assert (got.desired, got.reason) == (5, Reason.SIGNALS_CONTRADICT)
    frozen = signals(kv=0.0, running=0.0, tokens=0.0)
    got = warm(5, replicas(5, frozen), demand(1000.0, requests=9.0), memory=memory)
    assert (got.desired, got.reason) == (5, Reason.SIGNALS_CONTRADICT)


def test_pending_replicas_do_not_stop_the_scale_in_of_what_is_idle():
    seen = replicas(4, CALM, state=ReplicaState.STARTING) + replicas(3, SILENT, first=4)
    got = warm(7, seen, demand(0.0, requests=0.0))
    assert (got.desired, got.reason) == (6, Reason.IDLE)


def test_a_departure_that_has_begun_is_finished_although_the_moves_are_spent():
    """Taking it back would cost the same moves again."""
    memory = settled(5, desired=4)
    got = warm(5, replicas(5, CALM), demand(1000.0), memory=memory, view={"churn_left": False})
    assert (got.desired, got.reason) == (4, Reason.HEADROOM)


def test_a_departure_that_has_begun_is_held_to_half_of_the_margin():
    """3,240 tokens/s on 5 replicas of 1,000 x .9: 810 on 4 are at the limit of 810 before, of 855 after."""
    for desired, expected in ((5, (5, Reason.IN_BAND)), (4, (4, Reason.HEADROOM))):
        told = policy(utilisation_ratio=0.9)
        seen = replicas(5, signals(kv=0.3, tokens=656.0))
        got = warm(5, seen, demand(3280.0), told=told, memory=settled(5, desired=desired))
        assert (got.desired, got.reason) == expected


def test_where_no_horizon_is_stated_a_start_twice_over_is_looked_ahead():
    """A replica given back and needed within that time would cost more than it saved."""
    assert policy(startup_s=325.0).scaling.scale_in_horizon_s == 650.0
    assert policy(startup_s=60.0).scaling.scale_in_horizon_s == 300.0
    assert policy(startup_s=60.0, scale_in={"horizon_s": 3600.0}).scaling.scale_in_horizon_s == 3600.0


def test_a_trend_that_would_need_the_replica_within_the_horizon_keeps_it():
    loads = [1000.0 + 35.0 * tick for tick in range(40)]
    rising = LoadMemory(tuple((NOON - 15.0 * (40 - tick), load) for tick, load in enumerate(loads)))
    wanted = demand(500.0, requests=20.0, seen=2400.0)
    got = warm(5, replicas(5, signals(kv=0.1, tokens=480.0)), wanted, memory=settled(5, load=rising))
    assert (got.desired, got.reason) == (5, Reason.FORECAST_DEMAND)
    assert "tokens/s within 360 s (the last minutes' trend, 360 s on) do not fit 4 replicas" in got.trail[-1].message


def test_a_daily_season_that_has_proven_itself_speaks_whoever_else_foresees():
    wanted = replace(demand(500.0, horizon=3500.0, requests=5.0, seen=500.0), horizon_by="by the group's daily season")
    got = warm(5, replicas(5, CALM), wanted, memory=settled(5, load=steady(500.0)))
    assert (got.desired, got.reason) == (5, Reason.FORECAST_DEMAND)
    assert "(by the group's daily season)" in got.trail[-1].message
