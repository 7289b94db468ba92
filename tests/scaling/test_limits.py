"""Bounds, schedules, pauses, other actors, and the total over all groups."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Group, PauseMode, Tier
from autoscaler.policy.groups import Schedule
from autoscaler.policy.words import Day
from autoscaler.scaling import ScaleView, ScalingMemory, decide_scale
from tests.scaling.building import NOON, SILENT, demand, plan_of, policy, replicas, settled, signals, warm

CALM = signals(waiting=0, kv=0.2, tokens=300.0)
BUSY = signals(waiting=10)


def at(text: str, zone: str = "Europe/Berlin", fold: int = 0) -> float:
    """A wall-clock time as seconds since the epoch."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def test_the_minimum_holds_in_an_outage_of_all_signals():
    got = warm(1, replicas(1, SILENT), demand(None, requests=None), told=policy(warm={"min_replicas": 3}))
    assert (got.desired, got.reason) == (3, Reason.BOUNDS)
    assert got.trail[0].reason is Reason.SIGNALS_MISSING


def test_the_maximum_holds_in_an_outage_of_all_signals():
    got = warm(9, replicas(9, SILENT), demand(None, requests=None), told=policy(warm={"max_replicas": 6}))
    assert (got.desired, got.reason) == (6, Reason.BOUNDS)


def test_an_outage_of_all_signals_holds_between_the_bounds():
    got = warm(9, replicas(9, SILENT), demand(None, requests=None))
    assert (got.desired, got.reason) == (9, Reason.SIGNALS_MISSING)


def test_a_group_whose_replicas_are_all_gone_is_held():
    got = warm(4, (), demand(None, requests=None))
    assert (got.desired, got.ready, got.reason) == (4, 0, Reason.SIGNALS_MISSING)


SHIFT = Schedule(start="08:00", end="20:00", time_zone="Europe/Berlin", min_replicas=6)
SMALL_HOURS = Schedule(start="02:00", end="03:00", time_zone="Europe/Berlin", min_replicas=6)
NIGHT = Schedule(days=(Day.FRI,), start="22:00", end="06:00", time_zone="Europe/Berlin", min_replicas=2, max_replicas=3)


@pytest.mark.parametrize(
    ("when", "desired", "reason"),
    [
        ("2026-11-27T07:59:59", 3, Reason.HEADROOM),
        ("2026-11-27T08:00:00", 6, Reason.SCHEDULE),
        ("2026-11-27T19:59:59", 6, Reason.SCHEDULE),
        ("2026-11-27T20:00:00", 3, Reason.HEADROOM),
    ],
)
def test_a_schedule_raises_the_minimum_by_the_wall_clock_of_its_zone(when, desired, reason):
    told = policy(warm={"schedules": (SHIFT,)})
    got = warm(4, replicas(4, CALM), demand(1000.0), told=told, now_s=at(when))
    assert (got.desired, got.reason) == (desired, reason)


@pytest.mark.parametrize(
    ("when", "desired"),
    [
        ("2026-11-27T21:59:00", 5),
        ("2026-11-27T22:00:00", 3),
        ("2026-11-28T05:59:00", 3),
        ("2026-11-28T06:00:00", 5),
        ("2026-11-28T22:30:00", 5),
    ],
)
def test_a_schedule_over_midnight_belongs_to_the_day_on_which_it_begins(when, desired):
    told = policy(warm={"schedules": (NIGHT,)})
    got = warm(5, replicas(5, signals(kv=0.7)), demand(1000.0), told=told, now_s=at(when))
    assert got.desired == desired


def test_a_schedule_of_the_hour_that_summer_times_end_repeats_holds_in_both():
    told = policy(
        warm={"schedules": (Schedule(start="02:00", end="03:00", time_zone="Europe/Berlin", min_replicas=6),)}
    )
    for fold, utc in ((0, "2026-10-25T00:30:00"), (1, "2026-10-25T01:30:00")):
        now_s = at("2026-10-25T02:30:00", fold=fold)
        assert now_s == at(utc, "UTC")
        assert warm(4, replicas(4, CALM), demand(1000.0), told=told, now_s=now_s).desired == 6


def test_a_schedule_of_the_hour_that_summer_time_skips_does_no_harm():
    told = policy(
        warm={"schedules": (Schedule(start="02:00", end="03:00", time_zone="Europe/Berlin", min_replicas=6),)}
    )
    before, after = at("2026-03-29T00:59:00", "UTC"), at("2026-03-29T02:00:00", "UTC")
    for now_s in (before, after):
        assert warm(4, replicas(4, CALM), demand(1000.0), told=told, now_s=now_s).desired == 3


@pytest.mark.parametrize(
    ("mode", "seen", "desired", "reason"),
    [
        (PauseMode.ALL, BUSY, 5, Reason.PAUSED),
        (PauseMode.ALL, CALM, 5, Reason.PAUSED),
        (PauseMode.SCALE_IN, CALM, 5, Reason.PAUSED),
        (PauseMode.SCALE_IN, BUSY, 9, Reason.STEP_LIMIT),
        (PauseMode.SCALE_OUT, BUSY, 5, Reason.PAUSED),
        (PauseMode.SCALE_OUT, CALM, 4, Reason.HEADROOM),
    ],
)
def test_a_pause_stops_its_direction_alone(mode, seen, desired, reason):
    got = warm(5, replicas(5, seen), demand(1000.0), pause=mode, pause_reason="load test")
    assert (got.desired, got.reason) == (desired, reason)
    assert reason is not Reason.PAUSED or "(load test)" in got.trail[-1].message


def test_somebody_else_who_scales_is_named_and_not_fought_over():
    got = warm(5, replicas(5, CALM), demand(1000.0), foreign_actor="kubectl-scale")
    assert (got.desired, got.reason) == (5, Reason.FOREIGN_ACTOR)
    assert got.trail[-1].message == "kubectl-scale set 5 replicas; it is not fought over (4 would be right)"


def test_a_group_that_the_platform_cannot_act_on_is_held():
    got = warm(5, replicas(5, BUSY), blocked="rollout in progress")
    assert (got.desired, got.reason) == (5, Reason.BLOCKED)
    assert "rollout in progress" in got.trail[-1].message


def test_no_bound_is_fought_over_while_a_group_is_held():
    got = warm(20, replicas(20, CALM), demand(1000.0), foreign_actor="argocd")
    assert (got.desired, got.reason) == (20, Reason.FOREIGN_ACTOR)


def test_the_hours_changes_stop_growth_too_once_they_are_spent():
    memory = ScalingMemory(settled(5).groups, tuple(NOON - i for i in range(1, 61)))
    got = warm(5, replicas(5, BUSY), memory=memory)
    assert (got.desired, got.reason) == (5, Reason.BUDGET)
    later = ScalingMemory(settled(5).groups, tuple(NOON - 3601 - i for i in range(60)))
    assert warm(5, replicas(5, BUSY), memory=later).desired == 9


def test_changes_are_counted_where_they_are_seen():
    told, memory = policy(), settled(5)
    for now_s, count in ((NOON, 5), (NOON + 15, 6), (NOON + 15, 6), (NOON + 30, 6)):
        view = ScaleView({"warm": Group("warm", Tier.WARM, count)}, replicas(count), {"warm": demand(3000.0)})
        _, memory = decide_scale(view, told, memory, now_s)
    assert memory.changes_s == (NOON + 15,)


def hot_beside_warm(current: int, asked: bool, seen=CALM, total: int = 8, **told) -> dict[str, tuple[int, Reason]]:
    """A warm group of `current` at a full total, and a tenant that is to have a group of its own."""
    view = ScaleView(
        groups={"warm": Group("warm", Tier.WARM, current)},
        replicas=replicas(current, seen),
        demand={"warm": demand(5000.0), "hot-acme": demand(500.0)},
        hot_tenants={"hot-acme": "acme"},
        asked=frozenset({"hot-acme"} if asked else ()),
    )
    plan = plan_of(view, policy(total=total, **told), settled(current))
    return {name: (d.desired, d.reason) for name, d in plan.decisions.items()}


def test_an_asked_for_group_takes_its_first_replica_from_the_warm_group():
    assert hot_beside_warm(8, asked=True) == {"warm": (7, Reason.BUDGET), "hot-acme": (1, Reason.GROUP_FOR_TENANT)}


def test_a_group_that_load_alone_wants_waits_for_room():
    assert hot_beside_warm(8, asked=False) == {"warm": (8, Reason.FORECAST_DEMAND), "hot-acme": (0, Reason.BUDGET)}


def test_doubt_about_the_warm_group_makes_no_room_for_another():
    assert hot_beside_warm(8, asked=True, seen=SILENT) == {
        "warm": (8, Reason.SIGNALS_MISSING),
        "hot-acme": (0, Reason.BUDGET),
    }


def test_the_warm_minimum_is_no_room_either():
    got = hot_beside_warm(8, asked=True, warm={"min_replicas": 8})
    assert got == {"warm": (8, Reason.FORECAST_DEMAND), "hot-acme": (0, Reason.BUDGET)}


def test_a_lowered_total_shrinks_what_runs_also_in_doubt():
    assert hot_beside_warm(8, asked=False, seen=SILENT, total=6)["warm"] == (6, Reason.BUDGET)


def test_a_held_group_keeps_what_runs_and_others_get_the_rest():
    view = ScaleView(
        groups={
            "warm": Group("warm", Tier.WARM, 6, foreign_actor="kubectl"),
            "hot-acme": Group("hot-acme", Tier.HOT, 2, "acme"),
        },
        replicas=replicas(6, CALM) + replicas(2, BUSY, group="hot-acme"),
        demand={"warm": demand(1000.0), "hot-acme": demand(5000.0)},
        hot_tenants={"hot-acme": "acme"},
    )
    plan = plan_of(view, policy(total=7), settled(6))
    got = {name: (d.desired, d.reason) for name, d in plan.decisions.items()}
    assert got == {"warm": (6, Reason.FOREIGN_ACTOR), "hot-acme": (1, Reason.BUDGET)}
