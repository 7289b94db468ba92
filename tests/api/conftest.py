"""The API over real stores and a real plan of a small fleet, called in process."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from autoscaler.api import ApiParts, create_app
from autoscaler.api.auth import Principal, Role, TokenTable
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.domain.decisions import ApplyReport
from autoscaler.policy.words import Mode
from autoscaler.telemetry import FleetMetrics, FleetView, records_of
from tests.planner.world import World, catalogue, policy

TOKENS = {
    "ann": Principal("ann", Role.OPERATOR),
    "rob": Principal("rob", Role.READER),
    "olga": Principal("olga", Role.OPERATOR, frozenset({"other"})),
}


@dataclass
class Api:
    """A fleet, its stores and its hub behind an application."""

    world: World
    stores: SqliteStores
    now_s: float = 2_000_000.0
    metrics: FleetMetrics = field(default_factory=FleetMetrics)
    hub: RingHub = field(default_factory=lambda: RingHub(60.0))
    views: dict[str, FleetView] = field(default_factory=dict)
    let_go: list[str] = field(default_factory=list)
    not_ready: str = ""

    def tick(self, ticks: int = 1) -> FleetView:
        for _ in range(ticks):
            self.world.overrides = self.stores.overrides.overrides("fleet")
            self.world.approvals = self.stores.proposals.approvals("fleet")
            before = self.views.get("fleet")
            decided = self.world.tick()
            seen = self.world.observe()
            view = FleetView(
                "fleet", self.world.policy, seen, decided, ApplyReport(), self.world.overrides, {"decide": 0.1}, True
            )
            records = records_of(view, before)
            self.stores.decisions.append(records)
            self.stores.proposals.propose("fleet", decided.proposals)
            self.metrics.update(view, records)
            self.views["fleet"] = view
        return self.views["fleet"]

    async def publish(self) -> None:
        assert self.world.ring is not None
        await self.hub.publish(*self.world.ring)

    async def _let_go(self, fleet: str) -> tuple[str, ...]:
        self.let_go.append(fleet)
        return ("opened the gates of 2 replicas",)

    @cached_property
    def app(self) -> FastAPI:
        entries = [(hashlib.sha256(token.encode()).hexdigest(), who) for token, who in TOKENS.items()]
        return create_app(
            ApiParts(
                views=lambda: self.views,
                hubs={"fleet": self.hub, "other": RingHub(60.0)},
                overrides=self.stores.overrides,
                decisions=self.stores.decisions,
                audit=self.stores.audit,
                proposals=self.stores.proposals,
                detachments=self.stores.detachments,
                let_go=self._let_go,
                authenticator=TokenTable(entries),
                metrics=self.metrics.registry,
                now_s=lambda: self.now_s,
                ready=lambda: self.not_ready,
            )
        )


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """Twelve tenants on three warm replicas, some ticks old."""
    yield from _api(tmp_path, 12)


@pytest.fixture
def proposing(tmp_path: Path) -> Iterator[Api]:
    """The same, in propose mode."""
    yield from _api(tmp_path, 12, mode=Mode.PROPOSE)


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Api]:
    """A thousand tenants."""
    yield from _api(tmp_path, 1000)


def _api(folder: Path, tenants: int, **changes: object) -> Iterator[Api]:
    world = World(policy(**changes), catalogue(tenants))
    world.start("warm", 3)
    stores: SqliteStores | None = None
    held: list[Api] = []
    stores = SqliteStores(folder / "state.db", lambda: held[0].now_s if held else 2_000_000.0)
    held.append(Api(world, stores))
    held[0].tick(3)
    yield held[0]
    stores.close()


@pytest.fixture
async def ann(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    """An operator's client of `api`."""
    async with client(api, "ann") as found:
        yield found


def client(api: Api, token: str | None, **headers: str) -> httpx.AsyncClient:
    """A client with a token, or without one."""
    auth = {} if token is None else {"Authorization": f"Bearer {token}"}
    # An error of the app is answered, as a server does, and not raised into the test.
    transport = httpx.ASGITransport(api.app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://api", headers=auth | headers)
