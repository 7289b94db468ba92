"""Down: slowly, after quiet and dwell, and only where it gains something."""

import numpy as np
import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Tier
from tests.tiering.building import HOUR, Fleet, load, policy

COLD, WARM, HOT = 0, 1, 2
QUIET = {"t": load(4000.0)}  # 1.1 replicas, below half of the three that made it HOT
SLOTS = 3  # for two adapters: not each twice


def hot(for_s: float = 24 * HOUR, **seen) -> Fleet:
    fleet = Fleet(**seen)
    fleet.tick({"t": load(15_000.0)})
    fleet.starts("t", HOT, for_s)
    return fleet


def test_a_hot_tenant_that_was_quiet_for_the_dwell_goes_back_to_the_ring():
    fleet = hot()
    plan = fleet.ticks(QUIET, for_s=2 * HOUR)
    assert (plan.explain("t").after, plan.explain("t").reason) == (Tier.HOT, Reason.DWELL)
    got = fleet.tick(QUIET, 60.0).explain("t")
    assert (got.before, got.after, got.reason) == (Tier.HOT, Tier.WARM, Reason.QUIET)
    assert got.trail[-1].message == (
        "upper band 4400 tokens/s, below 6000 for 2.0 h (needs 2.0 h): HOT is worse than WARM by 0.13 replicas "
        "(isolation 0.37, a group's rounding 0.50)"
    )


def test_what_the_next_hour_may_bring_back_is_not_quiet():
    fleet = hot(later=[6500.0])
    got = fleet.ticks(QUIET, for_s=6 * HOUR, every_s=300.0).explain("t")
    assert (got.after, got.reason) == (Tier.HOT, Reason.IN_BAND)
    assert "HOT is better than WARM by 0.04 replicas" in got.trail[-1].message
    assert fleet.ticks(QUIET, for_s=2 * HOUR + 300, every_s=300.0, later=[5500.0]).explain("t").after is Tier.WARM


def test_one_loud_tick_starts_the_quiet_again():
    fleet = hot()
    fleet.ticks(QUIET, for_s=1.9 * HOUR)
    fleet.tick({"t": load(7000.0)})
    assert fleet.ticks(QUIET, for_s=1.9 * HOUR).explain("t").after is Tier.HOT


def test_between_the_thresholds_it_stays_for_ever():
    got = hot().ticks({"t": load(7000.0)}, for_s=24 * HOUR, every_s=300.0).explain("t")
    assert (got.after, got.reason) == (Tier.HOT, Reason.IN_BAND)
    assert "it goes back below 6000" in got.trail[-1].message


def test_few_ticks_are_not_enough_however_long_they_last():
    fleet = hot()
    assert fleet.ticks(QUIET, for_s=7 * HOUR, every_s=HOUR).explain("t").after is Tier.HOT
    assert fleet.tick(QUIET, HOUR).explain("t").after is Tier.WARM


def test_what_is_not_heard_is_not_quiet_and_ends_no_quiet():
    fleet = hot()
    silent = {"t": load(4000.0, rate=float("nan"))}
    assert fleet.ticks(silent, for_s=6 * HOUR, every_s=300.0).explain("t").after is Tier.HOT
    fleet.ticks(QUIET, for_s=1.5 * HOUR)
    fleet.ticks(silent, for_s=600.0)
    assert fleet.ticks(QUIET, for_s=0.5 * HOUR).explain("t").after is Tier.WARM


def test_without_a_known_capacity_a_hot_tenant_stays():
    got = hot().ticks({"t": load(10.0)}, for_s=6 * HOUR, every_s=300.0, capacity=None).explain("t")
    assert (got.after, got.reason) == (Tier.HOT, Reason.IN_BAND)


def test_a_demotion_that_proved_wrong_doubles_the_next_quiet():
    fleet = hot()
    fleet.ticks(QUIET, for_s=2 * HOUR + 60)
    fleet.tick({"t": load(15_000.0)})
    assert fleet.ticks(QUIET, for_s=3.9 * HOUR).explain("t").reason is Reason.DWELL
    assert fleet.ticks(QUIET, for_s=0.2 * HOUR).explain("t").after is Tier.WARM


def asleep(slots: int | None, for_s: float = 2 * HOUR + 60, quiet=None) -> Fleet:
    fleet = Fleet(slots=slots)
    fleet.tick({"t": load(50.0), "u": load(900.0)})
    fleet.starts("t", WARM)
    fleet.ticks({"t": quiet or load(0.1), "u": load(900.0)}, for_s=for_s)
    return fleet


def test_a_quiet_tenant_gives_its_slots_back_where_the_ring_cannot_hold_everything_twice():
    got = asleep(SLOTS).plan.explain("t")
    assert (got.after, got.reason) == (Tier.COLD, Reason.QUIET)
    assert got.trail[-1].message == (
        "upper band 0.11 tokens/s, below 0.5 for 2.0 h (needs 2.0 h): gives back 1 adapter slots of a ring that holds "
        "2 adapters in 3, not each twice, so that 1 busier adapter is on two replicas; of its own next hour 360 tokens "
        "are expected to wait for a load"
    )


@pytest.mark.parametrize("slots", [4, None])
def test_a_quiet_tenant_stays_where_its_slot_is_of_no_use_or_nobody_knows(slots):
    got = asleep(slots).plan.explain("t")
    assert (got.after, got.reason) == (Tier.WARM, Reason.IN_BAND)
    assert "COLD would gain nothing" in got.trail[-1].message


def test_it_stays_until_it_was_quiet_for_its_dwell():
    assert asleep(SLOTS, for_s=1.9 * HOUR).plan.explain("t").after is Tier.WARM


def test_only_as_many_fall_asleep_as_the_ring_lacks_slots_for_the_quietest_first():
    tenants = {f"t{i}": load(0.01 * i) for i in range(6)} | {"u": load(900.0)}
    fleet = Fleet(slots=10)
    plan = fleet.ticks(tenants, for_s=2 * HOUR + 120)
    assert [t for t in plan.ids if plan.tier(t) is Tier.COLD] == ["t0", "t1"]


def test_flapping_by_the_half_hour_changes_no_tier():
    """On for 25 minutes, off for 35, for a day: nothing is quiet for two hours."""
    fleet = Fleet(slots=SLOTS)
    changes = 0
    for _ in range(24):
        for tokens, span in ((15_000.0, 1500.0), (0.0, 2100.0)):
            fleet.ticks({"t": load(tokens), "u": load(900.0)}, for_s=span, every_s=150.0)
            changes += len(fleet.plan.changed)
    assert changes == 0
    assert fleet.plan.tier("t") is Tier.HOT


@pytest.mark.parametrize("asked", [{"pins": {"t": Tier.HOT}}, {"dedicated": ["t"]}], ids=["pin", "promise"])
def test_what_nobody_asks_for_any_more_goes_back_to_the_ring_at_once(asked):
    fleet = Fleet(policy(**asked), capacity=None)
    assert fleet.ticks({"t": load(10.0)}, for_s=600.0).tier("t") is Tier.HOT
    fleet.told = policy()
    got = fleet.tick({"t": load(10.0)}).explain("t")
    assert (got.before, got.after, got.reason) == (Tier.HOT, Tier.WARM, Reason.OVERRIDE_EXPIRED)
    assert got.trail[-1].message == "nobody asks for HOT any more, and its load does not: back to the ring"


def test_what_nobody_asks_for_any_more_stays_where_its_load_asks():
    fleet = Fleet(policy(pins={"t": Tier.HOT}))
    fleet.tick({"t": load(15_000.0)})
    fleet.told = policy()
    assert fleet.tick({"t": load(15_000.0)}).explain("t").reason is Reason.FORECAST_HOT
    got = fleet.tick({"t": load(7_000.0)}).explain("t")
    assert (got.after, got.reason) == (Tier.HOT, Reason.IN_BAND)


def test_plans_list_changes_only():
    fleet = hot()
    assert fleet.tick(QUIET).changed == ()
    assert np.all(fleet.plan.before == fleet.plan.after)
