"""The real loop over a world in memory: every port is one object, and each can be told to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoscaler.connectors.routers.epochs import judged
from autoscaler.controller.loop import FleetController, Wanted
from autoscaler.controller.observe import World
from autoscaler.controller.stores import Stores
from autoscaler.domain.decisions import (
    Applied,
    DecisionRecord,
    Effect,
    Failed,
    LoadAdapter,
    Outcome,
    PublishRing,
    Skipped,
    UnloadAdapter,
)
from autoscaler.domain.fleet import LoadLedger, Override, PauseMode, Replica, ReplicaSignals, Router
from autoscaler.domain.observation import Catalogue, PairTraffic
from autoscaler.ports import Lease, Metrics, TemporaryError
from autoscaler.telemetry import FleetView
from tests.scenarios.troubled import TroubledWorld


@dataclass
class VirtualClock:
    """Stands still until something takes time; ends whoever sleeps for the `naps`-th time."""

    at_s: float = 1_000_000.0
    naps: int = 1_000

    def now_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.naps -= 1
        if self.naps < 0:
            raise asyncio.CancelledError
        self.at_s += seconds


@dataclass
class TimedLease:
    """Held until a moment."""

    until_s: float = float("inf")

    def held(self, now_s: float) -> bool:
        return now_s < self.until_s


@dataclass
class MemoryStores:
    """Overrides, pauses, checkpoints and decisions; every call raises `failure` where there is one."""

    failure: Exception | None = None
    live: tuple[Override, ...] = ()
    text: str | None = None
    records: list[DecisionRecord] = field(default_factory=list)

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def overrides(self, fleet: str) -> tuple[Override, ...]:
        self._check()
        return self.live

    def pauses(self, fleet: str) -> dict[str, tuple[PauseMode, str, float]]:
        self._check()
        return {}

    def load(self, fleet: str) -> str | None:
        self._check()
        return self.text

    def save(self, fleet: str, text: str) -> None:
        self._check()
        self.text = text

    def append(self, records: Sequence[DecisionRecord]) -> None:
        self._check()
        self.records.extend(records)


@dataclass
class Ports:
    """All ports over one world. `takes_s`: effect type -> virtual seconds; `breaks`: -> what it raises."""

    world: TroubledWorld
    clock: VirtualClock
    takes_s: dict[type, float] = field(default_factory=dict)
    breaks: dict[type, Exception] = field(default_factory=dict)
    stuck: dict[str, asyncio.Event] = field(default_factory=dict)
    done: list[Effect] = field(default_factory=list)
    sent: list[LoadAdapter] = field(default_factory=list)

    async def replicas(self) -> tuple[Replica, ...]:
        if "replicas" in self.world.silent:
            raise TemporaryError(self.world.silent["replicas"])
        blank = {"signals": ReplicaSignals(), "registered": None}
        return tuple(replace(r, **blank) for _, r in sorted(self.world.replicas.items()))  # type: ignore[arg-type]

    async def groups(self) -> dict[str, Any]:
        return dict(self.world.groups)

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        self.world.now_s = now_s
        seen = self.world.observe()
        freshness = {name: seen.freshness[name] for name in ("engines", "traffic")}
        return Metrics({r.id: r.signals for r in seen.replicas}, seen.traffic, PairTraffic.none(), freshness, {})

    async def registered(self, replica: Replica) -> frozenset[str] | None:
        return self.world.replicas[replica.id].registered if replica.id in self.world.replicas else None

    def keep(self, replicas: frozenset[str]) -> None:
        self.world.book.keep(replicas)

    def reconsider(self, catalogue: Catalogue) -> None:
        """The world's own look does it."""

    def ledger(self) -> LoadLedger:
        return self.world.book.ledger()

    async def load(self, replica: Replica, effect: LoadAdapter) -> Outcome:
        self.sent.append(effect)
        if effect.adapter in self.stuck:
            await self.stuck[effect.adapter].wait()
        return self._act(effect)

    async def unload(self, replica: Replica, effect: UnloadAdapter) -> Outcome:
        return self._act(effect)

    async def apply(self, effect: Any) -> Outcome:
        return self._act(effect)

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        refused = judged(self.world.ring, epoch, body)
        return refused or self._act(PublishRing(epoch, body))

    async def last(self) -> tuple[int, bytes] | None:
        if "publisher" in self.world.silent:
            raise TemporaryError(self.world.silent["publisher"])
        return self.world.ring

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        if self.world.ring is not None and self.world.routers_follow:
            self.world.router_epoch = self.world.ring[0]
        return (Router("envoy", self.world.router_epoch, 0.0),)

    def _act(self, effect: Effect) -> Outcome:
        self.clock.at_s += self.takes_s.get(type(effect), 0.0)
        if type(effect) in self.breaks:
            raise self.breaks[type(effect)]
        self.world.apply(effect)
        self.done.append(effect)
        refused = getattr(effect, "adapter", None), getattr(effect, "replica", "")
        words = self.world.refusals.get((refused[1], refused[0] or "")) or self.world.refusals.get(
            ("*", refused[0] or "")
        )
        return Failed(words[0]) if words and isinstance(effect, LoadAdapter) else Applied()


@dataclass
class Stage:
    """A controller on its world."""

    controller: FleetController
    ports: Ports
    stores: MemoryStores
    clock: VirtualClock
    wanted: list[Any]

    @property
    def world(self) -> TroubledWorld:
        return self.ports.world

    async def tick(self, seconds: float = 15.0) -> FleetView:
        """One tick, `seconds` after the last."""
        self.clock.at_s += seconds
        return await self.controller.tick()

    async def ticks(self, count: int, seconds: float = 15.0) -> FleetView:
        for _ in range(count - 1):
            await self.tick(seconds)
        return await self.tick(seconds)


def stage(
    world: TroubledWorld,
    *,
    clock: VirtualClock | None = None,
    lease: Lease | None = None,
    stores: MemoryStores | None = None,
    wanted: Callable[[], Wanted] | None = None,
    **parts: Any,
) -> Stage:
    """A controller whose policy and catalogue are the world's at each tick."""
    clock, stores = clock or VirtualClock(), stores or MemoryStores()
    ports = Ports(world, clock)
    seen = World(ports, ports, ports, ports, stores)  # type: ignore[arg-type]
    reading = wanted or (lambda: Wanted(world.policy, world.catalogue))
    controller = FleetController(
        seen,
        Stores(stores, stores),
        lease or TimedLease(),
        clock,
        reading,
        lambda plan: world.approvals,
        **parts,  # type: ignore[arg-type]
    )
    return Stage(controller, ports, stores, clock, [])


def reasons(view: FleetView) -> set[str]:
    """Why effects were skipped."""
    return {o.why for _, o in view.report.outcomes if isinstance(o, Skipped)}
