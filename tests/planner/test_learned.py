"""What was learnt beside the tick: history that joins what was seen, totals of groups, seasons that hold a scale-in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.decisions import Reason
from autoscaler.domain.observation import Catalogue
from autoscaler.forecasting import empty_memory, forecast, observe
from autoscaler.planner import GroupOutlook, Learned
from autoscaler.planner.demand import DemandMemory
from autoscaler.planner.learned import settings_of
from autoscaler.planner.lookahead import recorded_totals
from autoscaler.planner.refill import begun, joined, replayed
from autoscaler.policy.groups import ColdGroup, Groups, HotGroups, WarmGroup
from autoscaler.policy.steps import Forecasting, Scaling, Slo, TenantSlo
from autoscaler.policy.words import Isolation
from tests.planner.world import World, catalogue, policy
from tests.scenarios.test_forecast_starts import BUSY, started

FORECAST = Forecasting(bucket_s=60.0, horizons_s=(60.0, 180.0), half_lives_s=(60.0, 120.0, 600.0), day_s=3600.0)
SETTINGS = settings_of(policy(forecast=FORECAST))
THREE = catalogue(3)
START_S = 996_000.0


def rows(buckets: int, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.lognormal(0.0, 0.5, (buckets, 3)) * (rng.random((buckets, 3)) < 0.8)


def ends(first: int, count: int) -> np.ndarray:
    return START_S + 60.0 * np.arange(first + 1, first + count + 1)


@pytest.mark.slow
@settings(max_examples=25)
@given(closed=st.integers(0, 12), open_ticks=st.integers(0, 3), unheard=st.booleans())
def test_history_joined_with_what_was_seen_is_what_would_be_remembered(closed: int, open_ticks: int, unheard: bool):
    rates = rows(30 + closed)
    if unheard:
        rates[15:25] = np.nan
    recorded = replayed(begun(SETTINGS, THREE, START_S), THREE, ends(0, 30), rates[:30], SETTINGS)
    live = replayed(begun(SETTINGS, THREE, START_S + 1800.0), THREE, ends(30, closed), rates[30:], SETTINGS)
    always = replayed(begun(SETTINGS, THREE, START_S), THREE, ends(0, 30 + closed), rates, SETTINGS)
    for _ in range(open_ticks):
        live, always = (
            observe(m, m.last_tick_s + 15.0, THREE.tenants, [2.0, 1.0, 0.0], SETTINGS) for m in (live, always)
        )
    both = joined(recorded, live, SETTINGS)
    assert (both.last_tick_s, both.bucket_start_s) == (always.last_tick_s, always.bucket_start_s)
    np.testing.assert_array_equal(both.series.age, always.series.age)
    made, wanted = (forecast(m, [60.0, 180.0], m.last_tick_s, SETTINGS) for m in (both, always))
    for name in ("mean", "p50", "p90", "p95", "known"):
        np.testing.assert_allclose(getattr(made, name), getattr(wanted, name), rtol=1e-5, err_msg=name)


def test_what_lies_between_history_and_the_start_is_unknown():
    recorded = replayed(begun(SETTINGS, THREE, START_S), THREE, ends(0, 60), rows(60), SETTINGS)
    live = begun(SETTINGS, THREE, START_S + 3600.0 + 20 * 60.0)
    live = observe(live, live.last_tick_s + 15.0, THREE.tenants, [1.0, 1.0, 1.0], SETTINGS)
    both = joined(recorded, live, SETTINGS)
    assert both.series.age.tolist() == [60.0] * 3
    assert both.series.unknown.tolist() == [20.0] * 3
    assert both.bucket_start_s == live.bucket_start_s


def test_a_loop_that_has_not_ticked_takes_history_as_it_is():
    recorded = replayed(begun(SETTINGS, THREE, START_S), THREE, ends(0, 60), rows(60), SETTINGS)
    assert joined(recorded, empty_memory(SETTINGS), SETTINGS) is recorded


def test_tenants_that_came_meanwhile_are_new_and_those_gone_are_forgotten():
    recorded = replayed(begun(SETTINGS, THREE, START_S), THREE, ends(0, 60), rows(60), SETTINGS)
    other = Catalogue.of({a: (a, "", "", 0) for a in ("t001", "t777")})
    live = observe(begun(SETTINGS, other, START_S + 3600.0), START_S + 3615.0, other.tenants, [1.0, 5.0], SETTINGS)
    both = joined(recorded, live, SETTINGS)
    assert both.ids == ("t001", "t777")
    assert both.series.age.tolist() == [60.0, 0.0]
    assert both.live.tolist() == [1.0, 5.0]


def test_rates_are_restated_as_totals_of_the_groups_of_today():
    promised = Slo(tenants={"t003": TenantSlo(isolation=Isolation.DEDICATED)})
    groups = Groups(warm=WarmGroup(min_replicas=2, max_replicas=16), hot=HotGroups(), cold=ColdGroup())
    world = World(policy(slo=promised, groups=groups), catalogue(6))
    world.start("warm", 4)
    for _ in range(4):
        plan = world.tick()
    rates = np.ones((4, 5), np.float32)
    rates[1, 0] = np.nan
    rates[2] = np.nan
    names, totals = recorded_totals(plan, world.policy, ("t000", "t001", "t002", "t003", "gone"), rates)
    assert names == ["warm", "cold", "hot-t003"]
    lengths = plan.demand.tokens_per_request
    hot = plan.tiers.row["t003"]
    assert totals[0, 2] == pytest.approx(lengths[hot])
    recorded = plan.demand.mean_tokens_per_s[:3].sum()
    every = np.delete(plan.demand.mean_tokens_per_s, hot).sum()
    assert totals[0, 0] == pytest.approx(lengths[:3].sum() * every / recorded), "the others are made up for"
    assert totals[1, 0] < totals[0, 0]
    assert np.isnan(totals[2]).all()
    assert totals[0, 1] == 0.0


@pytest.mark.parametrize(("proven", "age_s"), [(True, 0.0), (False, 0.0), (True, 4 * 150.0)])
def test_a_proven_season_keeps_the_replicas_that_its_peak_needs(proven: bool, age_s: float):
    """3 replicas of 1000 tokens/s serve 2750 requests' tokens at .7; the season says that 9000 tokens/s are coming."""
    world = started()
    world.policy = replace(world.policy, scaling=replace(world.policy.scaling, queue_per_replica=50.0))
    world.go(40, BUSY)
    count = world.groups["warm"].current_replicas
    assert world.memory.demand is not None
    coming = GroupOutlook(world.now_s - age_s, 150.0, np.full(24, 9000.0), proven, "the season serves")
    plain = world.go(1, {name: rate / 20 for name, rate in BUSY.items()})
    world.memory = replace(
        world.memory, demand=replace(world.memory.demand, learned=Learned(outlooks={"warm": coming}))
    )
    plan = world.go(1, {name: rate / 20 for name, rate in BUSY.items()})
    view = plan.scale.decisions["warm"]
    used = proven and age_s == 0.0
    assert (plan.demand.outlooks["warm"].peak_tokens_per_s(plan.now_s, 180.0) == 9000.0) is used
    assert view.desired >= (count if used else 1)
    said = [s.message for s in view.trail if s.reason is Reason.FORECAST_DEMAND]
    assert any("by the group's daily season" in text for text in said) is used
    assert not any("season" in s.message for s in plain.scale.decisions["warm"].trail)


def test_a_policy_that_wants_nothing_learnt_gets_nothing():
    told = policy(forecast=replace(FORECAST, learned=False), scaling=Scaling())
    world = World(told, catalogue(3))
    world.start("warm", 2)
    coming = GroupOutlook(world.now_s, 150.0, np.full(24, 9000.0), True, "")
    world.memory = replace(
        world.memory, demand=DemandMemory(empty_memory(settings_of(told)), learned=Learned(outlooks={"warm": coming}))
    )
    plan = world.tick()
    assert plan.demand.outlooks == {}
    assert plan.demand.model is None
