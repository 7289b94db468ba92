"""What went wrong elsewhere, as whole decisions: the value and the reason that hold here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autoscaler
from autoscaler.connectors.metrics.direct import DirectScrape, ScrapeSettings
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.domain.decisions import Grow, Reason, Shrink
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaState, Tier
from autoscaler.domain.observation import Catalogue, Observation, Traffic
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.planner import FleetPlan, PlannerMemory, plan
from autoscaler.policy.groups import ColdGroup
from autoscaler.ring import Ring
from tests.planner.world import World, catalogue, policy
from tests.scenarios.troubled import TroubledWorld

SOURCES = Path(autoscaler.__file__).parent


def fleet(replicas: int, tokens_per_s: float, ticks: int = 30, **changes: object) -> TroubledWorld:
    world = TroubledWorld(policy(**changes), catalogue(12), tokens_per_s=tokens_per_s)
    world.start("warm", replicas)
    world.steps(ticks)
    return world


def warm(decided: FleetPlan):
    return decided.scale.decisions["warm"]


def test_averages_that_are_nan_without_traffic_do_not_hold_replicas_that_routers_see_idle():
    world = fleet(6, 4000.0)
    world.tokens_per_s = 0.0
    seen: list[Reason] = []
    for _ in range(60):
        decided = world.step()
        seen.append(warm(decided).reason)
    assert all(isinstance(r.signals.ttft_mean_s, Missing) for r in world.replicas.values())
    assert len(world.replicas) == world.policy.groups.warm.min_replicas == 2
    assert Reason.IDLE in seen
    assert warm(decided).reason is Reason.BOUNDS


@pytest.mark.parametrize("silent", [("traffic",), ("engines",), ("traffic", "engines")], ids="+".join)
def test_what_is_not_heard_shrinks_nothing_although_the_rest_looks_calm(silent):
    world = fleet(6, 4000.0)
    count = len(world.replicas)
    world.tokens_per_s = 100.0
    world.silent = dict.fromkeys(silent, "the query came back empty")
    for _ in range(40):
        decided = world.step(60.0)
        assert not any(isinstance(e, Shrink) for e in decided.effects)
    assert len(world.replicas) == count
    assert Reason.SIGNALS_MISSING in {s.reason for s in warm(decided).trail}


def test_silent_base_model_traffic_is_not_idleness():
    """No request for any adapter, engines not heard: the base model may be all that is served."""
    world = TroubledWorld(policy(), catalogue(12), tokens_per_s=0.0)
    world.start("warm", 6)
    world.silent["engines"] = "no series"
    observe = world.observe

    def blind() -> Observation:
        seen = observe()
        lost = Missing("the router does not count it")
        return replace(seen, traffic=replace(seen.traffic, base_requests_per_s=lost, base_tokens_per_s=lost))

    world.observe = blind  # type: ignore[method-assign]
    decided = world.steps(40, 60.0)
    assert len(world.replicas) == 6
    assert warm(decided).reason is Reason.SIGNALS_MISSING


def test_bounds_hold_while_nothing_is_heard():
    world = fleet(3, 1000.0, ticks=4)
    world.silent = {"traffic": "no answer", "engines": "no answer"}
    bounds = replace(world.policy.groups.warm, min_replicas=5)
    world.policy = replace(world.policy, groups=replace(world.policy.groups, warm=bounds))
    decided = world.step()
    assert [e.replicas for e in decided.effects if isinstance(e, Grow)] == [5]
    assert warm(decided).reason is Reason.BOUNDS


def test_replicas_without_a_machine_are_no_load_and_not_asked_for_twice():
    world = fleet(3, 1500.0)
    world.no_machines = True
    world.tokens_per_s = 9000.0
    asked = [e.replicas for _ in range(8) for e in world.step().effects if isinstance(e, Grow)]
    waiting = [r for r in world.replicas.values() if r.state is ReplicaState.PENDING]
    assert len(asked) == 1
    assert len(waiting) == asked[0] - 3
    decided = world.step()
    assert warm(decided).reason is Reason.PENDING_REPLICAS
    world.tokens_per_s = 0.0
    decided = world.steps(60)
    assert all(r.state is not ReplicaState.PENDING for r in world.replicas.values())
    assert len(world.replicas) == 2


def test_a_hand_that_changes_counts_is_held_and_named_by_the_whole_plan():
    world = fleet(3, 1500.0)
    world.groups["warm"] = replace(world.groups["warm"], foreign_actor="argocd-controller")
    world.tokens_per_s = 9000.0
    decided = world.steps(10)
    assert not any(isinstance(e, Grow | Shrink) for e in decided.effects)
    assert warm(decided).reason is Reason.FOREIGN_ACTOR
    assert "argocd-controller" in next(c.message for c in decided.conditions if c.name == "ForeignActor/warm")


async def test_a_thrashing_engines_own_page_holds_the_count_and_moves_tiers(pages, session, shared_data: Path):
    """The recorded page through the real reader into the whole plan: 16 wait, 13 of them for an adapter slot."""
    page = (shared_data / "vllm-0.32.0-cpu" / "adapter-slot-contention.prom").read_text()
    pages.by_path["/warm-0/metrics"] = page
    six = Catalogue.of({f"a{i}": (f"a{i}", f"/adapters/a{i}", "", 8) for i in range(6)})
    clock = StillClock()
    source = DirectScrape(ScrapeSettings(VLLM, ENVOY, base_models=frozenset({"base"})), session, clock)
    engine = replace(policy().engine, resolver=True, limits=replace(policy().engine.limits, max_loras=2))
    told = policy(engine=engine, groups=replace(policy().groups, cold=ColdGroup()))
    one = pages.replica(
        "warm-0", limits=EngineLimits(max_loras=2, max_cpu_loras=4, max_num_seqs=8), registered=frozenset(six.ids)
    )
    memory = PlannerMemory()
    for _ in range(4):
        clock.at_s += 15.0
        decided, memory = await _decided(source, clock.at_s, six, one, told, memory)
    assert decided.diagnosis.groups["warm"].cause is Cause.THRASH
    assert (warm(decided).current, warm(decided).recommended) == (1, 1)
    thrash = next(s for s in warm(decided).trail if s.reason is Reason.THRASH_NOT_SATURATION)
    assert thrash.message.startswith("16 requests wait, 13 of them for an adapter slot, at KV use 0.00")
    assert not any(isinstance(e, Grow) and warm(decided).reason is not Reason.BOUNDS for e in decided.effects)
    assert decided.tiers.counts()[Tier.COLD] >= 4
    cold = next(t for t in six.tenants if decided.tiers.tier(t) is Tier.COLD)
    assert decided.tiers.explain(cold).reason is Reason.ADAPTER_SLOT_BUDGET
    assert "AdapterSlotsShort" in {c.name for c in decided.conditions}


class StillClock:
    """Stands still until it is moved."""

    at_s = 1_000_000.0

    def now_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds


async def _decided(
    source: DirectScrape, now_s: float, adapters: Catalogue, one: Replica, told: object, memory: PlannerMemory
) -> tuple[FleetPlan, PlannerMemory]:
    read = await source.read(now_s, adapters, [one])
    rate, nan = np.linspace(0.5, 1.5, len(adapters.ids)), np.full(len(adapters.ids), np.nan)
    traffic = Traffic(60.0, rate, rate * 400, rate * 100, rate * 0, nan, nan, Fresh(0.0), Fresh(0.0), Fresh(0.0))
    seen = Observation(
        now_s, adapters, traffic, (replace(one, signals=read.replicas["warm-0"]),),
        {"warm": Group("warm", Tier.WARM, 1)},
        freshness={**read.freshness, "traffic": Fresh(0.0)},
    )  # fmt: skip
    return plan(seen, memory, told)  # type: ignore[arg-type]


def test_labels_that_cannot_tell_running_from_waiting_adapters_are_read_for_nothing():
    """Both lists come from one set, so a scorer of their difference never fires."""
    words = re.compile(r"running_lora_adapters|waiting_lora_adapters")
    readers = [p for p in SOURCES.rglob("*.py") if words.search(p.read_text())]
    assert {p.relative_to(SOURCES).parts[0] for p in readers} <= {"simulator"}


def test_a_hot_adapter_takes_the_owners_that_its_load_needs_and_no_more():
    """Elsewhere it piled up on one pod, or spread over all and evicted the others."""
    world = World(policy(), catalogue(64))
    world.start("warm", 8)
    for _ in range(6):
        world.tick()
    ring = Ring(world.snapshot())
    counts = {a: len(ring.owners(a).members) for a in world.catalogue.ids}
    assert counts["t000"] < 8
    assert all(1 <= n <= 3 for a, n in counts.items() if a > "t010")
    weight = 1.0 / np.arange(1, 65)
    load = dict.fromkeys((m.replica for m in world.snapshot().members), 0.0)
    for adapter, share in zip(world.catalogue.ids, weight / weight.sum(), strict=True):
        members = ring.owners(adapter).members
        for member in members:
            load[member.replica] += share / len(members)
    mean = sum(load.values()) / 8
    assert max(load.values()) <= 1.25 * mean + weight[0] / weight.sum() / counts["t000"]
