"""Everything around the controller fails or lies: one world with a switch for each way, made fast to copy and to run.

`TroubledWorld` has what goes wrong with replicas and loads; here are the sources that lie, the clock, routers that say
what is not so, and leaders that die between two effects or were deposed without noticing.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.decisions import Effect, LoadAdapter, PublishRing, Reason
from autoscaler.domain.fleet import Replica, ReplicaSignals, ReplicaState, Router
from autoscaler.domain.observation import Observation, Traffic
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.planner import FleetPlan, PlannerMemory, checkpoint, plan, restored
from autoscaler.ring import MemberState, decode
from tests.planner.invariants import TOLD, check
from tests.planner.world import catalogue, policy
from tests.scenarios.troubled import TroubledWorld

ADAPTERS = 12
SLOW_LOAD_S = 40.0
_RATES = ("requests_per_s", "prompt_tokens_per_s", "completion_tokens_per_s")


def _scaled(traffic: Traffic, factor: float | np.ndarray) -> Traffic:
    return replace(traffic, **{name: getattr(traffic, name) * factor for name in _RATES})


def _engines(seen: Observation, signals: Callable[[int, ReplicaSignals], ReplicaSignals]) -> Observation:
    return replace(seen, replicas=tuple(replace(r, signals=signals(i, r.signals)) for i, r in enumerate(seen.replicas)))


def _gone_nan(seen: Observation) -> Observation:
    return replace(seen, traffic=_scaled(seen.traffic, np.nan))


def _half_nan(seen: Observation) -> Observation:
    rows = np.arange(len(seen.catalogue.ids))
    return replace(seen, traffic=_scaled(seen.traffic, np.where(rows % 2, 1.0, np.nan)))


def _stale(seen: Observation) -> Observation:
    """The last answer is old: the source says so, and its old numbers are still there."""
    stale = Missing("stale by 300 s")
    return replace(seen, freshness={**seen.freshness, "traffic": stale, "engines": stale})


def _wrong_labels(seen: Observation) -> Observation:
    """Series without the expected labels: as if there were no request, while engines work."""
    return replace(seen, traffic=_scaled(seen.traffic, 0.0))


def _reset(seen: Observation) -> Observation:
    """Every engine's counters began anew and its gauges are zero, while routers see requests."""
    zero = Fresh(0.0)
    empty = ReplicaSignals(
        running=zero, waiting=zero, deferred=zero, kv_usage_ratio=zero, prompt_tokens_per_s=zero,
        generation_tokens_per_s=zero, requests_per_s=zero,
    )  # fmt: skip
    return _engines(seen, lambda i, signals: empty)


def _half_heard(seen: Observation) -> Observation:
    return _engines(seen, lambda i, signals: ReplicaSignals() if i % 2 == 0 else signals)


def _duplicated(seen: Observation) -> Observation:
    return replace(seen, traffic=_scaled(seen.traffic, 2.0))


def _huge(seen: Observation) -> Observation:
    return replace(seen, traffic=_scaled(seen.traffic, 1e15))


def _huge_engines(seen: Observation) -> Observation:
    big = Fresh(1e15)
    return _engines(seen, lambda i, signals: replace(signals, running=big, waiting=big, kv_usage_ratio=Fresh(1.0)))


def _infinite_latency(seen: Observation) -> Observation:
    endless = np.full(len(seen.catalogue.ids), np.inf)
    return replace(seen, traffic=replace(seen.traffic, ttft_mean_s=endless, ttft_p99_s=endless))


DISTORTIONS: Mapping[str, Callable[[Observation], Observation]] = {
    "nan": _gone_nan, "half_nan": _half_nan, "stale": _stale, "wrong_labels": _wrong_labels, "reset": _reset,
    "half_heard": _half_heard, "duplicated": _duplicated, "huge": _huge, "huge_engines": _huge_engines,
    "infinite_latency": _infinite_latency,
}  # fmt: skip
DOUBTFUL = frozenset({"nan", "half_nan", "stale", "wrong_labels", "reset", "half_heard"})
"""Distortions under which nothing may shrink by conclusion, as long as there is traffic at all."""

ROUTERS_SAY = ("follows", "never", "future", "back", "gone")
"""What the second router says: the epoch it applies, always the first, one that never was, an older one, nothing."""


@dataclass
class FaultyWorld(TroubledWorld):
    """A `TroubledWorld` whose sources, routers, engines, stores and leaders lie and fail.

    Attributes:
        distortion: a name of `DISTORTIONS`, empty where metrics are right.
        lists: replica -> what its adapter list is: `silent`, `ghosts` (names that nobody loaded) or `partial`.
        loads_hang, loads_slow: an engine does not answer a load, or only after `SLOW_LOAD_S`.
        looping: replicas that restart at each tick.
        says: a word of `ROUTERS_SAY`; `applied` is the second router's true epoch.
        dies_after: effects that the leader does before it dies, None for a leader that lives.
        disk_full: whether checkpoints are lost; `kept` is the last that was not.
        deposed: what another instance remembers from when it last led.
        late: a publication of a frozen leader that is still under way.
        repeats_every: each so many ticks the plan is made twice.
    """

    distortion: str = ""
    lists: dict[str, str] = field(default_factory=dict)
    loads_hang: bool = False
    loads_slow: bool = False
    arriving: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    looping: frozenset[str] = frozenset()
    says: str = "follows"
    applied: int = 0
    dies_after: int | None = None
    restarts_with: str = "nothing"
    disk_full: bool = False
    kept: str | None = None
    deposed: PlannerMemory = field(default_factory=PlannerMemory)
    late: PublishRing | None = None
    repeats_every: int = 4
    ticks: int = 0
    highest_epoch: int = 0

    def observe(self) -> Observation:
        """What can be seen now, distorted."""
        self._arrive()
        seen = super().observe()
        if self.distortion:
            seen = DISTORTIONS[self.distortion](seen)
        self.seen = replace(seen, routers=(*seen.routers, *self._second_router()))
        return self.seen

    def step(self, seconds: float = 15.0) -> FleetPlan:
        """One tick: what is planned is held to every promise, then done as far as the leader lives."""
        self.now_s += seconds
        self.ticks += 1
        for name in self.looping & self.replicas.keys():
            self.starts(name)
        seen = self.observe()
        decided, memory = plan(seen, self.memory, self.policy, self.overrides, self.approvals)
        if self.ticks % self.repeats_every == 0:
            again, same = plan(seen, self.memory, self.policy, self.overrides, self.approvals)
            assert (decided.effects, decided.inputs_digest) == (again.effects, again.inputs_digest)
            assert checkpoint(memory) == checkpoint(same)
        check(self, decided, self.highest_epoch, seen)
        self._lies_shrink_nothing(decided)
        self._overrides_hold(decided)
        self._truth_of_routers(decided)
        before, self.memory = self.memory, memory
        self._routers_follow()
        for effect in decided.effects[: self.dies_after]:
            self.apply(effect)
        self._keep(memory)
        if self.dies_after is not None:
            self._restart(before)
        return decided

    def apply(self, effect: Effect) -> None:
        """Do an effect; a publication is fenced by the epoch that is there."""
        if isinstance(effect, PublishRing) and not self.publish_fails:
            self.highest_epoch = max(self.highest_epoch, effect.epoch)
        if isinstance(effect, LoadAdapter) and (self.loads_hang or self.loads_slow):
            self._begin(effect)
            return
        super().apply(effect)

    def publish_late(self) -> None:
        """A frozen leader's publication arrives: the place refuses what is not higher than what it has."""
        if self.late is not None and (self.ring is None or self.late.epoch > self.ring[0]):
            self.apply(self.late)
        self.late = None

    def calm(self) -> None:
        """Everything answers, and says what is so."""
        self.distortion, self.says, self.lists, self.looping = "", "follows", {}, frozenset()
        self.loads_hang = self.loads_slow = self.disk_full = False
        self.dies_after = self.late = None

    def copied(self) -> FaultyWorld:
        """A world of its own with the same past; values are shared, containers are not."""
        twin = copy.copy(self)
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if isinstance(value, dict | list):
                setattr(twin, item.name, value.copy())
        twin.book = copy.deepcopy(self.book)
        return twin

    def _begin(self, effect: LoadAdapter) -> None:
        key = effect.replica, effect.adapter
        replica = self.replicas[effect.replica]
        if key not in self.arriving:
            self.book.begin(replica, effect.adapter, effect.revision)
            at_s = float("inf") if self.loads_hang else self.now_s + SLOW_LOAD_S
            self.arriving[key] = at_s, effect.revision

    def _arrive(self) -> None:
        """Slow loads that are through; those that hung end when engines answer again, without a result."""
        for (name, adapter), (at_s, revision) in list(self.arriving.items()):
            replica = self.replicas.get(name)
            ended = at_s == float("inf") and not self.loads_hang
            if replica is None or ended or replica.state is not ReplicaState.READY:
                del self.arriving[name, adapter]
            elif self.now_s >= at_s:
                del self.arriving[name, adapter]
                self.book.loaded(replica, adapter, revision, self.now_s)
                self._change(name, registered=(replica.registered or frozenset()) | {adapter})

    def _listed(self, replica: Replica) -> Replica:
        seen, how = super()._listed(replica), self.lists.get(replica.id)
        if seen.registered is None or how is None:
            return seen
        listed = {
            "silent": None,
            "ghosts": seen.registered | {"ghost", "base"},
            "partial": frozenset(sorted(seen.registered)[::2]),
        }[how]
        return replace(seen, registered=listed)

    def _second_router(self) -> tuple[Router, ...]:
        if self.says == "gone" or not self.routers_heard:
            return ()
        there = 0 if self.ring is None else self.ring[0]
        claims = {"follows": self.applied, "never": 0, "future": there + 1000, "back": max(self.applied - 2, 0)}
        return (Router("second", claims[self.says], 0.0),)

    def _routers_follow(self) -> None:
        """A router never goes back to a lower epoch, whatever is published."""
        if self.ring is None or not self.routers_follow:
            return
        self.router_epoch = max(self.router_epoch, self.ring[0])
        if self.says in ("follows", "back"):
            self.applied = max(self.applied, self.ring[0])

    def _keep(self, memory: PlannerMemory) -> None:
        if not self.disk_full:
            self.kept = checkpoint(memory)

    def _restart(self, before: PlannerMemory) -> None:
        """The leader died: the next one has what was kept, what was there before this tick, or nothing."""
        self.dies_after = None
        kept = PlannerMemory() if self.kept is None else restored(self.kept)
        self.memory = {"nothing": PlannerMemory(), "kept": kept, "before": before}[self.restarts_with]

    def _lies_shrink_nothing(self, decided: FleetPlan) -> None:
        if self.distortion not in DOUBTFUL or self.tokens_per_s == 0:
            return
        for decision in decided.scale.decisions.values():
            # Where engines are silent, routers are the only witness, and a zero of theirs is believed.
            witnessed = "engines" in self.silent and decision.reason is Reason.IDLE
            shrinks = decision.desired < decision.current and decision.reason not in TOLD and not witnessed
            assert not shrinks, f"{self.distortion} shrinks: {decision}"

    def _overrides_hold(self, decided: FleetPlan) -> None:
        """An override that has not ended decides its tenant's tier, unless something physical is in the way."""
        physical = (Reason.OVERRIDE, Reason.HOT_GROUPS_FULL, Reason.ADAPTER_SLOT_BUDGET, Reason.UNLOADABLE)
        for told in self.overrides:
            if told.expires_at_s <= self.now_s or told.tenant not in decided.tiers.ids:
                continue
            found = decided.tiers.explain(told.tenant)
            assert found.after is told.tier or found.reason in physical, f"{told} is lost: {found}"
            assert told.actor, f"{told} is anonymous"

    def _truth_of_routers(self, decided: FleetPlan) -> None:
        """Nobody is drained whom a router that is heard still sends to, whatever it claims."""
        heard = self.says != "gone" and self.routers_heard
        for effect in decided.effects if heard else ():
            if type(effect).__name__ != "Drain":
                continue
            departure = decided.ring.departures[effect.replica]
            assert self.applied >= departure.left_epoch, f"{effect} although the second router is at {self.applied}"


def active_members(world: FaultyWorld) -> set[str]:
    """Replicas that the published ring sends to."""
    members = () if world.ring is None else decode(world.ring[1]).members
    return {m.replica for m in members if m.state is MemberState.ACTIVE}


_STARTED: list[FaultyWorld] = []


def started() -> FaultyWorld:
    """Twelve adapters on four replicas, three ticks old; made once and copied."""
    if not _STARTED:
        world = FaultyWorld(policy(), catalogue(ADAPTERS))
        world.start("warm", 4)
        world.steps(3)
        _STARTED.append(world)
    return _STARTED[0].copied()
