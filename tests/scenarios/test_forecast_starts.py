"""Golden scenarios of starts, silences, gaps and clocks, through the whole decision: tier or count, and its reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import ReplicaSignals, Tier
from autoscaler.domain.observation import Catalogue, Observation, Traffic
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.forecasting import ForecastMethod
from autoscaler.planner import FleetPlan
from autoscaler.policy.groups import ColdGroup, Groups, HotGroups, WarmGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.steps import Forecasting, ScaleIn, Scaling, Tiering
from tests.planner.world import World, catalogue, policy

TICK_S, DAY_S = 60.0, 3600.0
NAN = float("nan")


def compressed() -> FleetPolicy:
    """A day is an hour, a tick and a bucket a minute."""
    forecast = Forecasting(
        bucket_s=60.0, horizons_s=(60.0, 180.0), half_lives_s=(60.0, 120.0, 600.0), day_s=DAY_S, horizon_s=60.0
    )
    groups = Groups(warm=WarmGroup(min_replicas=2, max_replicas=16), hot=HotGroups(), cold=ColdGroup(max_replicas=2))
    scaling = Scaling(capacity_tokens_per_s=1000.0, startup_s=30.0, scale_in=ScaleIn(horizon_s=180.0))
    told = policy(groups=groups, forecast=forecast, tiering=Tiering(dwell_s=600.0), scaling=scaling)
    return replace(told, tick_interval_s=TICK_S)


CALM = ReplicaSignals(
    running=Fresh(1.0), waiting=Fresh(0.0), deferred=Fresh(0.0), kv_usage_ratio=Fresh(0.1), ttft_mean_s=Fresh(0.1),
    queue_time_mean_s=Fresh(0.0), prompt_tokens_per_s=Fresh(100.0), generation_tokens_per_s=Fresh(100.0),
)  # fmt: skip


@dataclass
class Told(World):
    """A fleet whose routers say what the test says: requests/s by adapter; None = no router was heard."""

    rates: dict[str, float] | None = field(default_factory=dict)

    def observe(self) -> Observation:
        seen = super().observe()
        replicas = tuple(replace(r, signals=CALM) for r in seen.replicas)
        if self.rates is None:
            unheard = {**seen.freshness, "traffic": Missing("no router was heard")}
            unknown = Traffic.unknown(len(self.catalogue.ids))
            return replace(seen, traffic=unknown, freshness=unheard, replicas=replicas)
        rate = np.array([self.rates.get(a, 0.0) for a in self.catalogue.ids])
        tokens = rate * 250.0
        traffic = replace(seen.traffic, requests_per_s=rate, prompt_tokens_per_s=tokens, completion_tokens_per_s=tokens)
        return replace(seen, traffic=traffic, replicas=replicas)

    def go(self, minutes: int, rates: dict[str, float] | None, seconds: float = TICK_S) -> FleetPlan:
        self.rates = rates
        for _ in range(minutes):
            plan = self.tick(seconds)
        return plan


def started() -> Told:
    world = Told(compressed(), catalogue(3))
    world.start("warm", 4)
    return world


BUSY = {"t000": 4.0, "t001": 1.0, "t002": 0.5}


def changed(plan: FleetPlan) -> list[tuple[str, Tier, Reason]]:
    return [(d.tenant, d.after, d.reason) for d in plan.tiers.changed]


def test_a_new_tenant_is_warm_because_it_is_new_and_forecast_from_its_first_tick():
    world = started()
    world.go(90, BUSY)
    entries = {a: (a, f"/adapters/{a}", "", 16) for a in (*world.catalogue.ids, "t009")}
    world.catalogue = Catalogue.of(entries)
    plan = world.go(1, BUSY | {"t009": 2.0})
    decision = plan.tiers.explain("t009")
    assert (decision.after, decision.reason) == (Tier.WARM, Reason.NEW_TENANT)
    assert changed(plan) == []
    made = plan.demand.explain("t009", 60.0)
    assert made.method is ForecastMethod.LIVE
    assert made.terms["mean"] == pytest.approx(2.0, rel=0.01)
    assert made.terms["p90"] > 2.0
    assert not plan.demand.bursts.active[plan.tiers.row["t009"]]


def test_a_tenant_never_seen_is_warm_and_nothing_is_concluded():
    world = started()
    decision = world.go(1, None).tiers.explain("t002")
    assert (decision.after, decision.reason) == (Tier.WARM, Reason.NEW_TENANT)
    plan = world.go(4, None)
    assert changed(plan) == []
    assert plan.tiers.tier("t002") is Tier.WARM
    assert "Never seen" in plan.demand.explain("t002", 60.0).sentence
    assert plan.scale.decisions["warm"].desired == 4
    assert plan.scale.decisions["warm"].reason is Reason.SIGNALS_MISSING


@pytest.mark.slow
def test_a_week_of_silence_is_a_true_zero_and_the_return_is_followed_at_once():
    world = started()
    world.go(90, BUSY)
    silent = BUSY | {"t001": 0.0}
    moves = [d for _ in range(7 * 60) for d in changed(world.go(1, silent))]
    assert moves in ([], [("t001", Tier.COLD, Reason.QUIET)]), "at most once, and nobody else"
    plan = world.go(1, silent)
    made = plan.demand.explain("t001", 60.0)
    assert (made.terms["p50"], made.method) == (0.0, ForecastMethod.TABLE)
    assert made.terms["p90"] < 0.1
    assert plan.demand.explain("t000", 60.0).terms["mean"] == pytest.approx(4.0, rel=0.05)
    first, plan = world.go(1, BUSY), world.go(1, BUSY)
    assert [*changed(first), *changed(plan)] == [("t001", Tier.WARM, Reason.WOKE_UP)] * len(moves)
    assert plan.tiers.tier("t001") is Tier.WARM
    assert plan.demand.explain("t001", 60.0).terms["p90"] > 0.5


def test_a_gap_holds_tiers_and_counts_and_says_that_signals_are_missing():
    world = started()
    world.go(90, BUSY)
    count = world.groups["warm"].current_replicas
    for _ in range(120):
        plan = world.go(1, None)
        assert changed(plan) == []
        assert plan.scale.decisions["warm"].desired >= count
    assert plan.scale.decisions["warm"].reason is Reason.SIGNALS_MISSING
    assert plan.demand.explain("t000", 60.0).terms["mean"] == pytest.approx(4.0, rel=0.1)
    assert plan.demand.forecast.stale_s[0] == pytest.approx(120 * TICK_S, abs=TICK_S)
    for _ in range(5):
        plan = world.go(1, BUSY)
        assert changed(plan) == []
        assert not plan.demand.bursts.active.any()


def test_a_counter_that_starts_again_is_one_unknown_tick_and_no_burst():
    straight, reset = started(), started()
    for world in (straight, reset):
        world.go(90, BUSY)
    reset.go(1, BUSY | {"t000": NAN})
    straight.go(1, BUSY)
    plans = [world.go(3, BUSY) for world in (straight, reset)]
    assert [changed(p) for p in plans] == [[], []]
    assert not plans[1].demand.bursts.active.any()
    assert plans[1].scale.decisions["warm"].desired == plans[0].scale.decisions["warm"].desired
    means = [p.demand.explain("t000", 60.0).terms["mean"] for p in plans]
    assert means[1] == pytest.approx(means[0], rel=0.02)


@pytest.mark.parametrize("jump_s", [-3600.0, -30.0, 3600.0, 30 * 86_400.0])
def test_a_clock_that_jumps_changes_no_tier_and_raises_no_burst(jump_s: float):
    world = started()
    world.go(90, BUSY)
    count = world.groups["warm"].current_replicas
    world.now_s += jump_s
    for _ in range(10):
        plan = world.go(1, BUSY)
        assert changed(plan) == []
        assert not plan.demand.bursts.active.any()
    assert plan.scale.decisions["warm"].desired == count
    assert plan.demand.explain("t000", 60.0).terms["mean"] == pytest.approx(4.0, rel=0.05)


@pytest.mark.slow
def test_a_peak_that_comes_an_hour_earlier_changes_no_tier():
    """Time is Unix time: a daylight-saving change shows as tenants that come earlier or later by a 24th of a day."""
    world = started()

    def minute(m: int, shift: float) -> dict[str, float]:
        busy = 22.5 <= (m + shift) % 60 < 45
        return {name: rate * (1.0 if busy else 0.5) for name, rate in BUSY.items()}

    for m in range(4 * 60):
        world.go(1, minute(m, 0.0))
    bursts = 0
    for m in range(2 * 60):
        plan = world.go(1, minute(m, 2.5))
        assert changed(plan) == []
        bursts += int(plan.demand.bursts.active.any())
    assert bursts <= 8, "a doubling within a tick is an onset when it comes, for two ticks"
    assert plan.tiers.explain("t000").reason in (Reason.IN_BAND, Reason.DWELL)
