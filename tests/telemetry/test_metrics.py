"""Our own series follow what was seen, decided and done, and forget what is gone."""

from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.decisions import Applied, ApplyReport, Condition, Failed, LoadAdapter, Reason, Step
from autoscaler.domain.diagnosis import Cause, GroupFinding, TenantFinding
from autoscaler.domain.fleet import Override, Router, Tier
from autoscaler.domain.observation import Traffic
from autoscaler.domain.signals import Missing
from autoscaler.planner import FleetPlan, HorizonStanding
from autoscaler.planner.departures import Departure
from autoscaler.policy.groups import Groups, HotGroups, WarmGroup
from autoscaler.telemetry import FleetMetrics, FleetView, records_of
from tests.planner.world import World, catalogue, policy


class Scene:
    """A world whose ticks go into the registry."""

    def __init__(self) -> None:
        self.world = World(policy(), catalogue(12))
        self.world.start("warm", 3)
        self.metrics = FleetMetrics()
        self.before: FleetView | None = None

    def tick(self, report: ApplyReport = ApplyReport(), *, leader: bool = True, **seen: object) -> FleetPlan:  # noqa: B008
        shown = replace(self.world.observe(), **seen)
        decided = self.world.tick()
        view = FleetView("fleet", self.world.policy, shown, decided, report, (), {"decide": 0.25}, leader)
        self.show(view)
        return decided

    def show(self, view: FleetView) -> None:
        self.metrics.update(view, records_of(view, self.before))
        self.before = view

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"lora_autoscaler_{name}", {"fleet": "fleet", **labels})


@pytest.fixture
def scene() -> Scene:
    found = Scene()
    for _ in range(3):
        found.tick()
    return found


def test_replica_gauges_follow_a_minimum_that_rises(scene: Scene):
    assert scene.value("desired_replicas", group="warm") == 3
    scene.world.policy = replace(scene.world.policy, groups=Groups(warm=WarmGroup(min_replicas=5), hot=HotGroups()))
    scene.tick()
    assert scene.value("desired_replicas", group="warm") == 5
    assert scene.value("current_replicas", group="warm") == 3
    assert scene.value("recommended_replicas", group="warm") is not None
    scene.tick()
    assert scene.value("current_replicas", group="warm") == 5


def test_tenants_tier_changes_and_decisions_count_an_override(scene: Scene):
    assert scene.value("tenants", tier="warm") == 12
    now_s = scene.world.now_s
    scene.world.overrides = (Override("t003", Tier.COLD, "test", "ann", now_s, now_s + 600),)
    scene.tick()
    assert scene.value("tenants", tier="warm") == 11
    assert scene.value("tenants", tier="cold") == 1
    change = {"from": "warm", "to": "cold", "reason": "Override"}
    assert scene.value("tier_changes_total", **change) == 1
    assert scene.value("decisions_total", step="tiers", reason="Override") == 1
    scene.tick()
    assert scene.value("tier_changes_total", **change) == 1, "one change is counted once"


def test_the_ring_s_epoch_moves_and_budget_follow_a_new_member(scene: Scene):
    epoch, moves = scene.value("ring_epoch"), scene.value("ring_moves_total")
    budget = scene.value("ring_churn_budget_remaining")
    scene.world.policy = replace(scene.world.policy, groups=Groups(warm=WarmGroup(min_replicas=5), hot=HotGroups()))
    for _ in range(4):
        scene.tick()
    assert scene.value("ring_epoch") > epoch
    assert scene.value("ring_moves_total") > moves
    assert scene.value("ring_churn_budget_remaining") < budget


def test_loads_are_counted_by_reason_and_result(scene: Scene):
    effect = LoadAdapter("warm-000", "t000", "/a", "", Reason.MEMBER_JOINED)
    scene.tick(ApplyReport(((effect, Applied()), (effect, Failed("404")), (effect, Applied()))))
    assert scene.value("adapter_loads_total", reason="MemberJoined", result="ok") == 2
    assert scene.value("adapter_loads_total", reason="MemberJoined", result="failed") == 1
    scene.metrics.observed_load("fleet", 0.5)
    assert scene.value("adapter_load_seconds_sum") == 0.5


def test_ages_say_minus_one_for_what_is_missing(scene: Scene):
    assert scene.value("signal_age_seconds", signal="traffic") == 0
    fresh = scene.world.observe().freshness
    scene.tick(freshness={**fresh, "traffic": Missing("no router answers")})
    assert scene.value("signal_age_seconds", signal="traffic") == -1


def test_leadership_and_the_lag_of_routers_move(scene: Scene):
    assert scene.value("is_leader") == 1
    epoch = int(scene.value("ring_epoch"))
    scene.tick(leader=False, routers=(Router("envoy", epoch - 1, 0.0),))
    assert scene.value("is_leader") == 0
    assert scene.value("router_epoch_lag", router="envoy") == 1
    scene.tick(routers=())
    assert scene.value("router_epoch_lag", router="envoy") is None, "a router that is gone has no series"


def test_scores_follow_the_diagnosis_and_are_bounded(scene: Scene):
    assert scene.value("thrash_score", replica="warm-000") is not None
    view = scene.before
    found = {f"t{i:03d}": TenantFinding(f"t{i:03d}", aggressor=i / 100) for i in range(50)}
    scene.show(replace(view, plan=replace(view.plan, diagnosis=replace(view.plan.diagnosis, tenants=found))))
    assert scene.value("noisy_neighbour_score", tenant="t049") == 0.49
    assert scene.value("noisy_neighbour_score", tenant="t029") is None, "only the 20 highest have a series"


def test_forecasters_are_compared_once_there_is_something_to_judge(scene: Scene):
    losses, serves = {"table": 1.0, "model": 0.8}, {"table": 0.25, "model": 0.75}
    judged = HorizonStanding(300.0, 0.2, 0.9, losses | {"last": 1.1}, losses, serves | {"last": 0.0}, serves)
    unknown = {"table": float("nan")}
    blank = HorizonStanding(600.0, float("nan"), float("nan"), unknown, unknown, unknown, unknown)
    demand = replace(scene.before.plan.demand, standing=(judged, blank))
    scene.show(replace(scene.before, plan=replace(scene.before.plan, demand=demand)))
    assert scene.value("forecast_error_ratio", horizon="300s") == 0.2
    assert scene.value("forecast_coverage_ratio", horizon="300s") == 0.9
    assert scene.value("forecast_loss_ratio", horizon="300s", quantile="0.9", forecaster="model") == 0.8
    assert scene.value("forecast_serves_ratio", horizon="300s", quantile="0.9", forecaster="model") == 0.75
    assert scene.value("forecast_loss_ratio", horizon="300s", quantile="0.9", forecaster="last") is None
    assert scene.value("forecast_error_ratio", horizon="600s") is None
    assert scene.value("forecast_loss_ratio", horizon="600s", quantile="0.5", forecaster="table") is None
    assert scene.value("forecast_model_age_seconds") is None, "there is no model"
    gone = replace(judged, band_loss={"table": 1.0}, band_serves={"table": 1.0})
    demand = replace(demand, standing=(gone,))
    scene.show(replace(scene.before, plan=replace(scene.before.plan, demand=demand)))
    assert scene.value("forecast_loss_ratio", horizon="300s", quantile="0.9", forecaster="model") is None


def test_every_step_of_a_tick_is_timed(scene: Scene):
    assert scene.value("tick_duration_seconds_count", step="decide") == 3
    assert scene.value("tick_duration_seconds_sum", step="decide") == 0.75


def test_a_fleet_s_groups_that_are_gone_have_no_series(scene: Scene):
    now_s = scene.world.now_s
    scene.world.overrides = (Override("t003", Tier.HOT, "test", "ann", now_s, now_s + 60),)
    scene.tick()
    assert scene.value("desired_replicas", group="hot-t003") == 1
    for _ in range(60):
        if "hot-t003" not in scene.tick().scale.decisions:
            break
    assert scene.value("desired_replicas", group="hot-t003") is None


def test_the_mode_and_conditions_have_series_while_they_hold(scene: Scene):
    assert scene.value("mode", mode=scene.world.policy.mode.value) == 1
    conditions = (Condition("BudgetFull/warm", "no"), Condition("BudgetFull/cold", "no"), Condition("RouterLag", "r"))
    view = scene.before
    scene.show(replace(view, plan=replace(view.plan, conditions=conditions)))
    assert scene.value("conditions", condition="BudgetFull") == 2
    assert scene.value("conditions", condition="RouterLag") == 1
    scene.show(replace(view, plan=replace(view.plan, conditions=())))
    assert scene.value("conditions", condition="RouterLag") is None


def test_what_waits_in_the_ring_is_counted_and_zero_where_nothing_does(scene: Scene):
    for _ in range(3):
        scene.tick()
    assert {scene.value("ring_waiting", reason=r) for r in ("AwaitingResidency", "ChurnBudget", "MemberLeft")} == {0}
    view = scene.before
    held = (Step(Reason.AWAITING_RESIDENCY, 2, "two load"), Step(Reason.CHURN_BUDGET, 7, "seven wait"))
    ring = replace(view.plan.ring, trail=held, departures={"warm-001": Departure("warm", 0.0)})
    scene.show(replace(view, plan=replace(view.plan, ring=ring)))
    assert scene.value("ring_waiting", reason="AwaitingResidency") == 2
    assert scene.value("ring_waiting", reason="ChurnBudget") == 7
    assert scene.value("ring_waiting", reason="MemberLeft") == 1


def test_promises_that_were_missed_are_weighed_by_requests_and_absent_where_nobody_tells(scene: Scene):
    view = scene.before
    seen, tenants = view.observation, view.observation.catalogue.tenants
    missed = np.array([t == "t003" for t in tenants])
    rates = np.where(np.array(seen.catalogue.tenant_of) == "t003", 3.0, 1.0)
    traffic = replace(seen.traffic, requests_per_s=rates, ttft_p99_s=np.where(rates == 3.0, 9.0, 0.2))
    plan = replace(view.plan, demand=replace(view.plan.demand, slo_missed=missed))
    told = replace(view, plan=plan, observation=replace(seen, traffic=traffic))
    scene.show(told)
    assert scene.value("slo_missed_requests_ratio") == pytest.approx(3 / 14)
    assert scene.value("slo_missed_tenants") == 1
    assert scene.value("ttft_p99_seconds") == 9.0
    assert scene.value("requests_per_second") == 14.0
    scene.show(replace(told, observation=replace(seen, traffic=Traffic.unknown(12))))
    assert {scene.value(n) for n in ("slo_missed_requests_ratio", "ttft_p99_seconds", "requests_per_second")} == {None}


def test_a_group_s_saturation_is_shown_unless_it_is_unknown(scene: Scene):
    view = scene.before
    found = {
        "warm": GroupFinding("warm", Cause.SATURATION, saturation=1.4),
        "cold": GroupFinding("cold", Cause.UNKNOWN),
    }
    scene.show(replace(view, plan=replace(view.plan, diagnosis=replace(view.plan.diagnosis, groups=found))))
    assert scene.value("saturation_ratio", group="warm") == 1.4
    assert scene.value("saturation_ratio", group="cold") is None
