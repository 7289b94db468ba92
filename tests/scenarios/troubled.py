"""A fleet that goes wrong: engines that refuse, forget or restart, sources that fall silent, publications that fail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.connectors.engines.ledger import LoadBook, NoMemory
from autoscaler.domain.decisions import Effect, Grow, LoadAdapter, PublishRing, UnloadAdapter
from autoscaler.domain.fleet import Replica, ReplicaSignals, ReplicaState
from autoscaler.domain.observation import Observation, Traffic
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.planner import FleetPlan, checkpoint, plan
from tests.planner.invariants import check
from tests.planner.world import World

CARRIES_TOKENS_PER_S = 1000.0


@dataclass
class TroubledWorld(World):
    """`World` with an engine's own book of loads, and a switch for each way to go wrong.

    Attributes:
        refusals: (replica or `*`, adapter) -> (the engine's words, whether it may pass).
        silent: source -> why it is not heard: `traffic`, `engines`, `replicas`, `publisher`.
        most_loaded: registered adapters above which an engine refuses a load for good, None where it evicts instead.
        no_machines: whether new replicas stay PENDING.
        publish_fails, routers_heard: of the ring's way out.
    """

    book: LoadBook = field(default_factory=lambda: LoadBook("fleet", NoMemory(), 10.0))
    refusals: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    most_loaded: int | None = None
    no_machines: bool = False
    publish_fails: bool = False
    routers_heard: bool = True
    ready_at_s: dict[str, float] = field(default_factory=dict)
    attempts: list[tuple[float, str, str]] = field(default_factory=list)
    seen: Observation | None = None
    last_platform: tuple[dict[str, Replica], dict[str, object]] | None = None

    def observe(self) -> Observation:
        """What can be seen now. A platform that is silent shows what it last showed, as the controller has it."""
        for name, at_s in list(self.ready_at_s.items()):
            if name not in self.replicas:
                del self.ready_at_s[name]
            elif self.now_s >= at_s and not self.no_machines:
                del self.ready_at_s[name]
                self._change(name, state=ReplicaState.READY)
        self._work()
        truth = self.replicas, self.groups
        if "replicas" not in self.silent or self.last_platform is None:
            self.last_platform = dict(self.replicas), dict(self.groups)
        listed, self.groups = self.last_platform  # type: ignore[assignment]
        shown = {name: replica.signals for name, replica in truth[0].items()}
        self.replicas = {n: replace(r, signals=shown.get(n, ReplicaSignals())) for n, r in listed.items()}
        try:
            seen = super().observe()
        finally:
            self.replicas, self.groups = truth
        self.book.keep(frozenset(r.id for r in seen.replicas))
        wanted = zip(self.catalogue.sources, self.catalogue.revisions, strict=True)
        self.book.reconsider(dict(zip(self.catalogue.ids, wanted, strict=True)))
        asked = tuple(self._listed(r) for r in seen.replicas)
        seen = replace(
            seen,
            replicas=asked,
            ledger=self.book.ledger(),
            routers=seen.routers if self.routers_heard else (),
            freshness={**seen.freshness, **{name: Missing(why) for name, why in self.silent.items()}},
        )
        if "traffic" in self.silent:
            seen = replace(seen, traffic=Traffic.unknown(len(self.catalogue.ids)))
        self.seen = seen
        return seen

    def step(self, seconds: float = 15.0) -> FleetPlan:
        """One tick whose plan is made twice and held to every invariant before it is followed."""
        self.now_s += seconds
        seen, before = self.observe(), self.ring[0] if self.ring else 0
        decided, memory = plan(seen, self.memory, self.policy, self.overrides, self.approvals)
        again, same = plan(seen, self.memory, self.policy, self.overrides, self.approvals)
        assert (decided.effects, decided.inputs_digest) == (again.effects, again.inputs_digest)
        assert checkpoint(memory) == checkpoint(same)
        check(self, decided, before, seen)
        self.memory = memory
        if self.routers_follow and self.ring is not None:
            self.router_epoch = self.ring[0]
        for effect in decided.effects:
            self.apply(effect)
        return decided

    def steps(self, count: int, seconds: float = 15.0) -> FleetPlan:
        """Several; the last one's plan."""
        for _ in range(count - 1):
            self.step(seconds)
        return self.step(seconds)

    def apply(self, effect: Effect) -> None:
        """Do an effect as an engine or a publisher in trouble does it."""
        if isinstance(effect, LoadAdapter):
            self._load(self.replicas[effect.replica], effect)
        elif isinstance(effect, UnloadAdapter):
            replica = self.replicas[effect.replica]
            assert self.book.revision(replica, effect.adapter) is not None, "unloads what it did not load"
            self.book.unloaded(replica, effect.adapter)
            self._change(replica.id, registered=(replica.registered or frozenset()) - {effect.adapter})
        elif not (isinstance(effect, PublishRing) and self.publish_fails):
            before = set(self.replicas)
            super().apply(effect)
            if isinstance(effect, Grow):
                for name in set(self.replicas) - before:
                    self.starts(name, ReplicaState.PENDING if self.no_machines else ReplicaState.STARTING)

    def starts(self, name: str, state: ReplicaState = ReplicaState.STARTING) -> None:
        """A new process under this name: nothing in memory, ready at the next tick but one."""
        self._change(name, state=state, registered=frozenset(), started_at_s=self.now_s)
        self.ready_at_s[name] = self.now_s + 15.0 * self.startup_ticks

    def forget(self, replica: str, *adapters: str) -> None:
        """Adapters are gone from the engine's list by themselves; all of them where none is named."""
        known = self.replicas[replica].registered or frozenset()
        self._change(replica, registered=known - set(adapters) if adapters else frozenset())

    def holders(self, adapter: str) -> set[str]:
        """Replicas whose engine lists the adapter."""
        return {r.id for r in self.replicas.values() if adapter in (r.registered or ())}

    def _load(self, replica: Replica, effect: LoadAdapter) -> None:
        refusal = self.book.refusal(replica, effect.adapter, effect.source, effect.revision)
        assert refusal is None or refusal.retry_at_s <= self.now_s, "does not wait for its time"
        self.attempts.append((self.now_s, replica.id, effect.adapter))
        known = replica.registered or frozenset()
        words = self.refusals.get((replica.id, effect.adapter)) or self.refusals.get(("*", effect.adapter))
        if words is None and self.most_loaded is not None and len(known | {effect.adapter}) > self.most_loaded:
            words = f"all {self.most_loaded} places for adapters are taken", False
        self.book.begin(replica, effect.adapter, effect.revision)
        if words is not None:
            self.book.failed(
                replica, effect.adapter, effect.source, effect.revision, words[0], self.now_s, again=words[1]
            )
            return
        self.book.loaded(replica, effect.adapter, effect.revision, self.now_s)
        self._change(replica.id, registered=known | {effect.adapter})

    def _listed(self, replica: Replica) -> Replica:
        """The replica with the list its engine gives now; a dead engine under a stale name gives none."""
        truth = self.replicas.get(replica.id)
        if truth is None or truth.state not in (ReplicaState.READY, ReplicaState.DRAINING):
            return replace(replica, registered=None)
        self.book.listed(truth, truth.registered or frozenset(), frozenset(), self.now_s)
        return replace(replica, registered=truth.registered)

    def _work(self) -> None:
        """Load spread evenly over READY replicas; queues form above what they carry."""
        ready = [r.id for r in self.replicas.values() if r.state is ReplicaState.READY]
        for name, replica in self.replicas.items():
            use = self.tokens_per_s / len(ready) / CARRIES_TOKENS_PER_S if name in ready else 0.0
            self._change(name, signals=ReplicaSignals() if "engines" in self.silent else _signals(use))
            if replica.state is ReplicaState.DRAINING:
                self._change(name, in_flight=Fresh(0.0))


def _signals(use: float) -> ReplicaSignals:
    """An engine's signals at a share of what it carries; its averages are NaN, so missing, without traffic."""
    idle, late = use == 0, Fresh(0.1 + max(0.0, use - 1.0))
    none = Missing("no traffic")
    return ReplicaSignals(
        running=Fresh(float(np.ceil(20.0 * min(use, 1.0)))), waiting=Fresh(20.0 * max(0.0, use - 1.0)),
        deferred=Fresh(0.0), kv_usage_ratio=Fresh(min(1.0, 0.6 * use)), ttft_mean_s=none if idle else late,
        ttft_p99_s=none if idle else late, prompt_tokens_per_s=Fresh(500.0 * use),
        generation_tokens_per_s=Fresh(500.0 * use), requests_per_s=Fresh(2.0 * use),
    )  # fmt: skip
