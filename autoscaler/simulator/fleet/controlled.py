"""The product's own controller at the wheel of a simulated fleet: `FleetController`, `plan()`, ring and executor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.connectors.engines.residency import WithModelledResidency
from autoscaler.controller.loop import FleetController, Wanted
from autoscaler.controller.observe import World
from autoscaler.controller.stores import Stores
from autoscaler.domain.decisions import DecisionRecord
from autoscaler.domain.fleet import EngineLimits, Replica
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Actuation, Mode
from autoscaler.ring import decode
from autoscaler.simulator.fleet.platform import Platform
from autoscaler.simulator.fleet.ports import (
    AlwaysHeld,
    Decisions,
    NoCheckpoints,
    NoOverrides,
    SimulatedEngines,
    SimulatedPlatform,
    SimulatedRouters,
    VirtualClock,
)
from autoscaler.simulator.fleet.scraping import ScrapedMetrics, ScrapeSettings
from autoscaler.simulator.fleet.tables import Level, by_snapshot
from autoscaler.telemetry import FleetView


@dataclass(slots=True)
class Counted:
    """What the controller did: pairs moved, tier changes, changes of replica counts, ticks."""

    moves: int = 0
    tier_changes: int = 0
    resizes: int = 0
    ticks: int = 0


class ControlledFleet:
    """Runs a platform under the controller; call `tick` at the policy's interval."""

    def __init__(
        self,
        platform: Platform,
        policy: FleetPolicy,
        adapters: Sequence[str],
        scraping: ScrapeSettings,
        level: Level,
        loop: asyncio.AbstractEventLoop,
        *,
        rank: int = 0,
    ) -> None:
        """`adapters`: names by trace row. The policy acts, whatever its mode says."""
        self._platform, self._loop = platform, loop
        self.policy = replace(policy, mode=Mode.ENFORCE, actuation=Actuation.SCALE)
        self.catalogue = Catalogue.of({name: (name, f"/adapters/{name}", "", rank) for name in adapters})
        row = {name: i for i, name in enumerate(adapters)}
        rows = np.fromiter((row[name] for name in self.catalogue.ids), np.int64, len(adapters))
        self.metrics = ScrapedMetrics(platform, scraping, rows)
        self.counted = Counted()
        self.decisions = Decisions()
        engines = SimulatedEngines(platform, adapters, self.policy.engine.loading.backoff_s)

        def follow(body: bytes) -> None:
            places = {m.name: m.place for m in platform.members.values() if m.place >= 0}
            platform.engines.route(by_snapshot(decode(body), places, adapters, level))

        self.routers = SimulatedRouters(platform, platform.engines.shape.routers, follow)
        source = WithModelledResidency(self.metrics, engines.ledger, lambda r, _: _limits(r))
        world = World(source, SimulatedPlatform(platform), engines, self.routers, NoOverrides())
        wanted = Wanted(self.policy, self.catalogue)
        self._controller = FleetController(
            world, Stores(self.decisions, NoCheckpoints()), AlwaysHeld(), VirtualClock(platform), lambda: wanted,
            lambda _: frozenset(), (self._count,),
        )  # fmt: skip

    @property
    def latest(self) -> FleetView | None:
        """The last tick's view."""
        return self._controller.latest

    def tick(self) -> None:
        """Decide once, at the platform's present."""
        self._loop.run_until_complete(self._controller.tick())

    def close(self) -> None:
        """End what the controller has under way."""
        self._loop.run_until_complete(self._controller.close())

    def _count(self, view: FleetView, records: tuple[DecisionRecord, ...]) -> None:
        self.counted.ticks += 1
        self.counted.moves += view.plan.ring.placed.moves
        self.counted.tier_changes += len(view.plan.tiers.changed)
        self.counted.resizes += sum(d.desired != d.current for d in view.plan.scale.decisions.values())


def _limits(replica: Replica) -> EngineLimits:
    return replica.limits
