"""Up: at once, for a number that says why the tier is better than WARM, or because somebody asked."""

import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.diagnosis import Cause, Diagnosis, Effect, GroupFinding, TenantFinding
from autoscaler.domain.fleet import Tier
from autoscaler.policy.words import Trigger
from tests.tiering.building import Fleet, decide, load, policy

COLD, WARM, HOT = 0, 1, 2


def test_a_tenant_that_is_expected_to_need_several_replicas_is_hot_at_once():
    got = decide({"rate": 9000.0, "mean": 12_100.0, "upper": 15_000.0})
    assert (got.before, got.after, got.reason) == (Tier.WARM, Tier.HOT, Reason.FORECAST_HOT)
    assert got.trail[-1].message == (
        "12,100 tokens/s expected, 3.02 replicas; HOT from 3 replicas (12,000 tokens/s); HOT is better than WARM by "
        "0.51 replicas (isolation 1.01, a group's rounding 0.50)"
    )


def test_just_below_the_threshold_it_stays_on_the_ring():
    got = decide({"rate": 9000.0, "mean": 12_000.0, "upper": 15_000.0})
    assert (got.after, got.reason) == (Tier.WARM, Reason.IN_BAND)


def test_a_wide_band_alone_is_doubt_and_promotes_nobody():
    assert decide({"rate": 1000.0, "mean": 2000.0, "upper": 60_000.0}).reason is Reason.IN_BAND


def test_a_jump_that_the_forecast_does_not_know_is_answered_at_once():
    got = decide({"rate": 13_000.0, "mean": 500.0, "upper": 900.0, "burst": True})
    assert (got.after, got.reason) == (Tier.HOT, Reason.BURST_ONSET)
    assert "a jump to 13,000 tokens/s, 3.25 replicas" in got.trail[-1].message


def test_a_small_jump_is_no_reason():
    assert decide({"rate": 900.0, "mean": 50.0, "upper": 90.0, "burst": True}).reason is Reason.IN_BAND


def test_without_a_known_capacity_nobody_is_hot_by_load():
    got = decide(load(1e6), capacity=None)
    assert (got.after, got.reason) == (Tier.WARM, Reason.IN_BAND)
    assert "nobody is HOT by load before a replica's capacity is known" in got.trail[-1].message


def test_a_forecast_that_rests_on_nothing_promotes_nobody():
    got = decide({"rate": float("nan"), "upper": 1e6, "known": False})
    assert (got.after, got.reason) == (Tier.WARM, Reason.IN_BAND)
    assert "its demand is unknown, so it stays" in got.trail[-1].message


def test_load_promotes_nobody_where_the_policy_leaves_it_out():
    assert decide(load(20_000.0), policy(promote_on=())).after is Tier.WARM


def test_a_promised_isolation_is_kept_whatever_the_load():
    got = decide({}, policy(dedicated=["t"]))
    assert (got.after, got.reason) == (Tier.HOT, Reason.ISOLATION_ASKED)
    assert got.trail[-1].message == "asked for by the policy: slo.tenants.t.isolation is dedicated"


@pytest.mark.parametrize("tier", list(Tier))
def test_a_pin_fixes_the_tier(tier):
    got = decide(load(300.0), policy(pins={"t": tier}))
    assert (got.after, got.reason) == (tier, Reason.OVERRIDE)
    assert f"tiering.pins.t is {tier.value}" in got.trail[-1].message


def test_a_cold_tenant_with_traffic_wakes_up_at_once():
    got = decide({"rate": 3.0, "mean": 0.2, "upper": 0.4}, before=COLD)
    assert (got.after, got.reason) == (Tier.WARM, Reason.WOKE_UP)
    assert got.trail[-1].message == "upper band 3 tokens/s; a COLD tenant wakes up from 1"


def test_a_cold_tenant_between_the_thresholds_sleeps_on():
    got = decide({"rate": 0.7, "mean": 0.7, "upper": 0.9}, before=COLD)
    assert (got.after, got.reason) == (Tier.COLD, Reason.IN_BAND)


def test_a_new_tenant_begins_on_the_ring():
    got = decide({"rate": float("nan"), "known": False}, before=None)
    assert (got.before, got.after, got.reason) == (None, Tier.WARM, Reason.NEW_TENANT)


def test_a_new_tenant_with_a_hot_load_is_hot_at_once():
    assert decide(load(20_000.0), before=None).reason is Reason.FORECAST_HOT


def test_an_adapter_that_no_replica_loads_holds_nothing_whoever_asks():
    got = decide(load(20_000.0, loadable=False), policy(dedicated=["t"], pins={"t": Tier.HOT}))
    assert (got.after, got.reason) == (Tier.COLD, Reason.UNLOADABLE)


SLO = policy(promote_on=(Trigger.SLO,))


def test_an_slo_missed_for_long_on_a_ring_that_is_not_saturated_promotes_where_the_policy_says_so():
    fleet = Fleet(SLO)
    fleet.tick({"t": load(300.0)})
    plan = fleet.ticks({"t": load(300.0, slo_missed=True)}, for_s=7 * 60.0)
    assert plan.explain("t").after is Tier.WARM
    got = fleet.tick({"t": load(300.0, slo_missed=True)}).explain("t")
    assert (got.after, got.reason) == (Tier.HOT, Reason.SLO_MISSED)
    assert "missed for 8 ticks in a row" in got.trail[-1].message


def test_a_single_good_tick_starts_the_count_again():
    fleet = Fleet(SLO)
    fleet.ticks({"t": load(300.0, slo_missed=True)}, for_s=7 * 60.0)
    fleet.tick({"t": load(300.0)})
    assert fleet.ticks({"t": load(300.0, slo_missed=True)}, for_s=7 * 60.0).explain("t").after is Tier.WARM


def test_an_slo_missed_on_a_saturated_ring_is_for_replicas_to_cure():
    saturated = Diagnosis({"warm": GroupFinding("warm", Cause.SATURATION)})
    plan = Fleet(SLO, diagnosis=saturated).ticks({"t": load(300.0, slo_missed=True)}, for_s=600.0)
    assert plan.explain("t").reason is Reason.IN_BAND


def test_an_slo_missed_promotes_nobody_by_default():
    assert Fleet().ticks({"t": load(300.0, slo_missed=True)}, for_s=600.0).explain("t").reason is Reason.IN_BAND


NOISY = Diagnosis(tenants={"t": TenantFinding("t", 0.7, effect=Effect(0.4, 0.2, 0.6, 30), others=("a", "b"))})


def test_a_noisy_neighbour_is_isolated_where_the_policy_says_so():
    got = decide(load(300.0), policy(promote_on=(Trigger.NOISY_NEIGHBOUR,)), diagnosis=NOISY)
    assert (got.after, got.reason) == (Tier.HOT, Reason.NOISY_NEIGHBOUR)
    assert (
        "aggressor score 0.70, named from 0.50: it adds 0.4 s to the first tokens of 2 tenants" in got.trail[-1].message
    )
    assert decide(load(300.0), diagnosis=NOISY).after is Tier.WARM
