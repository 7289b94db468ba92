"""A fleet in which every effect succeeds at once, for asking where a policy would lead: the planner itself, no model.

Load is taken to spread evenly over a group's replicas, and demand to stay as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from autoscaler.domain.fleet import EngineLimits, Group, LoadLedger, Replica, ReplicaSignals, ReplicaState, Router, Tier
from autoscaler.domain.observation import Catalogue, Observation, Traffic
from autoscaler.domain.signals import Fresh, Signal
from autoscaler.planner import FleetPlan, PlannerMemory, plan
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Actuation, Mode
from autoscaler.tiering import TieringMemory
from autoscaler.tiering.memory import realign

MOST_TICKS = 240
QUIET_TICKS = 40  # longer than what holds for ticks: demoteTicks, and 300 s of stabilisation at 15 s a tick
_CODE = {Tier.COLD: 0, Tier.WARM: 1, Tier.HOT: 2}
_SPREAD = ("running", "waiting", "deferred", "kv_usage_ratio", "generation_tokens_per_s", "prompt_tokens_per_s")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a rehearsal begins: the fleet as a snapshot, and where there is one a controller, shows it.

    Attributes:
        tiers: tenant -> its tier now.
        signals: of a group's replicas, by group; a group that is not in it was not seen.
        limits: of the engines.
        freshness: by source.
    """

    catalogue: Catalogue
    tiers: Mapping[str, Tier]
    groups: Mapping[str, Group]
    replicas: tuple[Replica, ...]
    traffic: Traffic
    signals: Mapping[str, ReplicaSignals]
    limits: EngineLimits
    freshness: Mapping[str, Signal]
    epoch: int
    body: bytes


@dataclass(slots=True)
class Rehearsal:
    """One policy's run. `rehearse` gives the last plan and the ring that it led to.

    `reasons`: why each group's replicas last changed.
    """

    stage: Stage
    policy: FleetPolicy
    now_s: float
    replicas: dict[str, Replica] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    loaded: dict[str, dict[str, str]] = field(default_factory=dict)
    ring: tuple[int, bytes] = (0, b"")
    reasons: dict[str, str] = field(default_factory=dict)
    born: int = 0

    def rehearse(self) -> tuple[FleetPlan, bytes, bool]:
        """The plan once nothing changes any more, its ring, and whether that was reached within MOST_TICKS."""
        stage = self.stage
        self.replicas = {r.id: r for r in stage.replicas}
        self.groups, self.ring = dict(stage.groups), (stage.epoch, stage.body)
        policy = replace(self.policy, mode=Mode.ENFORCE, actuation=Actuation.SCALE)
        memory = PlannerMemory(tiering=_tiering(stage))
        quiet = 0
        for _ in range(MOST_TICKS):
            self.now_s += policy.tick_interval_s
            decided, memory = plan(self._observe(), memory, policy)
            changed = bool(decided.effects) or bool(decided.tiers.changed)
            quiet = 0 if changed else quiet + 1
            self.reasons |= {n: d.reason.value for n, d in decided.scale.decisions.items() if d.desired != d.current}
            for effect in decided.effects:
                self._apply(effect)
            if quiet == QUIET_TICKS:
                break
        return decided, self.ring[1], quiet == QUIET_TICKS

    def _observe(self) -> Observation:
        return Observation(
            now_s=self.now_s,
            catalogue=self.stage.catalogue,
            traffic=self.stage.traffic,
            replicas=tuple(self._shown(r) for _, r in sorted(self.replicas.items())),
            groups=dict(self.groups),
            routers=(Router("rehearsal", self.ring[0], 0.0),),
            freshness=self.stage.freshness,
            ledger=LoadLedger(loaded={r: dict(held) for r, held in self.loaded.items()}),
            ring_epoch=self.ring[0],
            ring_body=self.ring[1],
        )

    def _shown(self, replica: Replica) -> Replica:
        """A replica with its share of what its group's replicas showed at the start."""
        seen = self.stage.signals.get(replica.group)
        if seen is None:
            return replica
        before = sum(1 for r in self.stage.replicas if r.group == replica.group)
        now = sum(1 for r in self.replicas.values() if r.group == replica.group)
        spread = {name: _scaled(getattr(seen, name), before / max(now, 1)) for name in _SPREAD}
        return replace(replica, signals=replace(seen, **spread))

    def _apply(self, effect: Effect) -> None:
        match effect:
            case Grow(group=name, replicas=count, tenant=tenant):
                tier = Tier.HOT if tenant else Tier.COLD if name == "cold" else Tier.WARM
                group = self.groups.get(name, Group(name, tier, 0, tenant))
                for _ in range(count - group.current_replicas):
                    self._spawn(group)
                self.groups[name] = replace(group, current_replicas=count)
            case Shrink(group=name, replicas=count, victims=victims, remove=remove):
                for victim in victims:
                    self.replicas.pop(victim, None)
                if remove:
                    self.groups.pop(name, None)
                else:
                    self.groups[name] = replace(self.groups[name], current_replicas=count)
            case PublishRing(epoch=epoch, body=body):
                self.ring = epoch, body
            case LoadAdapter(replica=name, adapter=adapter, revision=revision):
                self.loaded.setdefault(name, {})[adapter] = revision
                self._change(name, registered=self._registered(name) | {adapter})
            case UnloadAdapter(replica=name, adapter=adapter):
                self.loaded.get(name, {}).pop(adapter, None)
                self._change(name, registered=self._registered(name) - {adapter})
            case AssignSlot(replica=name, slot=slot):
                self._change(name, slot=slot)
            case Drain(replica=name):
                self._change(name, state=ReplicaState.DRAINING, recallable=True)
            case Undrain(replica=name):
                self._change(name, state=ReplicaState.READY, recallable=False)
            case OpenGate():
                pass

    def _registered(self, name: str) -> frozenset[str]:
        replica = self.replicas.get(name)
        return frozenset() if replica is None or replica.registered is None else replica.registered

    def _change(self, name: str, **changes: object) -> None:
        if name in self.replicas:
            self.replicas[name] = replace(self.replicas[name], **changes)  # type: ignore[arg-type]

    def _spawn(self, group: Group) -> None:
        self.born += 1
        name = f"{group.name}-new-{self.born:04d}"
        self.replicas[name] = Replica(
            name, group.name, None, f"{name}:8000", ReplicaState.READY, self.now_s, limits=self.stage.limits,
            registered=frozenset(),
        )  # fmt: skip


def _tiering(stage: Stage) -> TieringMemory:
    """A memory in which every tenant has long been where the snapshot has it."""
    blank = realign(TieringMemory(), stage.catalogue.tenants)
    codes = np.array([_CODE[stage.tiers.get(t, Tier.COLD)] for t in stage.catalogue.tenants], np.int8)
    return replace(blank, tier=codes, since_s=np.zeros(len(codes)))


def _scaled(signal: Signal, factor: float) -> Signal:
    return Fresh(signal.value * factor, signal.age_s) if isinstance(signal, Fresh) else signal
