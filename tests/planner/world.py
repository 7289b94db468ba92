"""A fleet that does what effects say at the next tick: the smallest world in which plans can be followed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.decisions import (
    AssignSlot,
    Drain,
    Effect,
    Grow,
    LoadAdapter,
    OpenGate,
    PublishRing,
    Shrink,
    Undrain,
    UnloadAdapter,
)
from autoscaler.domain.fleet import (
    EngineLimits,
    Group,
    LoadLedger,
    Override,
    Replica,
    ReplicaSignals,
    ReplicaState,
    Router,
    Tier,
)
from autoscaler.domain.observation import Catalogue, Observation, Traffic
from autoscaler.domain.signals import Fresh
from autoscaler.planner import FleetPlan, PlannerMemory, plan
from autoscaler.policy.groups import Adapters, Engine, Groups, HotGroups, StatedLimits, WarmGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Mode
from autoscaler.ring import RingSnapshot, decode

LIMITS = EngineLimits(max_loras=8, max_cpu_loras=32, max_lora_rank=16, max_num_seqs=64)


def catalogue(adapters: int) -> Catalogue:
    return Catalogue.of({f"t{i:03d}": (f"t{i:03d}", f"/adapters/t{i:03d}", "", 16) for i in range(adapters)})


def policy(**changes: object) -> FleetPolicy:
    base = FleetPolicy(
        name="fleet",
        base_model="base",
        mode=Mode.ENFORCE,
        adapters=Adapters(path_template="/adapters/{id}"),
        engine=Engine(limits=StatedLimits(max_loras=8, max_cpu_loras=32)),
        groups=Groups(warm=WarmGroup(min_replicas=2, max_replicas=16), hot=HotGroups()),
    )
    return replace(base, **changes)


@dataclass
class World:
    """Replicas start READY after `startup_ticks`; loads, drains and publications are done by the next tick."""

    policy: FleetPolicy
    catalogue: Catalogue
    tokens_per_s: float = 1000.0
    startup_ticks: int = 1
    now_s: float = 1_000_000.0
    replicas: dict[str, Replica] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    memory: PlannerMemory = field(default_factory=PlannerMemory)
    ring: tuple[int, bytes] | None = None
    router_epoch: int = 0
    loaded: dict[str, dict[str, str]] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    approvals: frozenset[str] = frozenset()
    born: int = 0
    routers_follow: bool = True
    signals: ReplicaSignals = field(default_factory=ReplicaSignals)
    busy: int | None = None
    log: list[Effect] = field(default_factory=list)

    def start(self, group: str, count: int, tier: Tier = Tier.WARM, tenant: str = "") -> None:
        self.groups[group] = Group(group, tier, count, tenant=tenant)
        self._spawn(group, count, ready=True)

    def snapshot(self) -> RingSnapshot:
        assert self.ring is not None
        return decode(self.ring[1])

    def observe(self) -> Observation:
        n = len(self.catalogue.ids)
        weight = 1.0 / np.arange(1, n + 1)
        weight[n if self.busy is None else self.busy :] = 0.0
        rate = self.tokens_per_s / 500 * weight / weight.sum()
        zero = np.zeros(n)
        traffic = Traffic(
            15.0,
            rate,
            rate * 250,
            rate * 250,
            zero,
            np.full(n, 0.1),
            np.full(n, 0.2),
            Fresh(0.0),
            Fresh(0.0),
            Fresh(0.0),
        )
        return Observation(
            now_s=self.now_s,
            catalogue=self.catalogue,
            traffic=traffic,
            replicas=tuple(sorted(self.replicas.values(), key=lambda r: r.id)),
            groups=dict(self.groups),
            routers=(Router("envoy", self.router_epoch, 0.0),),
            freshness={"traffic": Fresh(0.0), "engines": Fresh(0.0), "replicas": Fresh(0.0), "publisher": Fresh(0.0)},
            ledger=LoadLedger(loaded={k: dict(v) for k, v in self.loaded.items()}),
            ring_epoch=self.ring[0] if self.ring else 0,
            ring_body=self.ring[1] if self.ring else None,
        )

    def tick(self, seconds: float = 15.0, *, act: bool = True) -> FleetPlan:
        self.now_s += seconds
        decided, self.memory = plan(self.observe(), self.memory, self.policy, self.overrides, self.approvals)
        if self.routers_follow and self.ring is not None:
            self.router_epoch = self.ring[0]
        if act:
            for effect in decided.effects:
                self.apply(effect)
        return decided

    def apply(self, effect: Effect) -> None:
        self.log.append(effect)
        if isinstance(effect, Grow):
            tier = Tier.HOT if effect.group.startswith("hot-") else Tier.WARM
            before = self.groups.get(effect.group, Group(effect.group, tier, 0, tenant=effect.tenant))
            self.groups[effect.group] = replace(before, current_replicas=effect.replicas)
            self._spawn(effect.group, effect.replicas - before.current_replicas, ready=True)
        elif isinstance(effect, AssignSlot):
            self._change(effect.replica, slot=effect.slot)
        elif isinstance(effect, LoadAdapter):
            self.loaded.setdefault(effect.replica, {})[effect.adapter] = effect.revision
            known = self.replicas[effect.replica].registered or frozenset()
            self._change(effect.replica, registered=known | {effect.adapter})
        elif isinstance(effect, UnloadAdapter):
            self.loaded[effect.replica].pop(effect.adapter, None)
            known = self.replicas[effect.replica].registered or frozenset()
            self._change(effect.replica, registered=known - {effect.adapter})
        elif isinstance(effect, PublishRing):
            assert self.ring is None or effect.epoch > self.ring[0], "epochs only grow"
            self.ring = (effect.epoch, effect.body)
        elif isinstance(effect, Drain):
            signals = replace(self.replicas[effect.replica].signals, running=Fresh(0.0))
            self._change(effect.replica, state=ReplicaState.DRAINING, signals=signals, recallable=True)
        elif isinstance(effect, Undrain):
            self._change(effect.replica, state=ReplicaState.READY, recallable=False)
        elif isinstance(effect, Shrink):
            for victim in effect.victims:
                del self.replicas[victim]
            if effect.remove:
                del self.groups[effect.group]
            else:
                self.groups[effect.group] = replace(self.groups[effect.group], current_replicas=effect.replicas)
        elif isinstance(effect, OpenGate):
            self._change(effect.replica, gated=False)

    def crash(self, name: str) -> None:
        del self.replicas[name]
        self.loaded.pop(name, None)

    def _spawn(self, group: str, count: int, *, ready: bool) -> None:
        for _ in range(count):
            name = f"{group}-{self.born:03d}"
            self.born += 1
            state = ReplicaState.READY if ready else ReplicaState.STARTING
            idle = ReplicaSignals(
                running=Fresh(1.0), waiting=Fresh(0.0), deferred=Fresh(0.0), kv_usage_ratio=Fresh(0.05),
                ttft_mean_s=Fresh(0.1), ttft_p99_s=Fresh(0.2), prompt_tokens_per_s=Fresh(60.0),
                generation_tokens_per_s=Fresh(60.0), requests_per_s=Fresh(0.25),
            )  # fmt: skip
            self.replicas[name] = Replica(
                name, group, None, f"10.0.0.{self.born}:8000", state, started_at_s=self.now_s, limits=LIMITS,
                registered=frozenset(), signals=idle, in_flight=Fresh(0.0),
            )  # fmt: skip

    def _change(self, name: str, **changes: object) -> None:
        self.replicas[name] = replace(self.replicas[name], **changes)


def running(replicas: int = 4, adapters: int = 24, ticks: int = 6, **changes: object) -> World:
    """A fleet that has settled."""
    world = World(policy(**changes), catalogue(adapters))
    world.start("warm", replicas)
    for _ in range(ticks):
        world.tick()
    return world


def kinds(decided: FleetPlan) -> set[str]:
    """The effects of a plan, by the names of their types."""
    return {type(effect).__name__ for effect in decided.effects}
