"""Faults on real parts: frozen and ending leaders, damaged state, a Prometheus that lies or is silent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import ClientSession, web

from autoscaler.cli.demo_bench import Ports, bench
from autoscaler.connectors.envoy import Mode as Route
from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.connectors.metrics.prometheus import PrometheusSource, SourceSettings
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.domain.decisions import Reason
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.words import Mode
from autoscaler.simulator.http import AdapterTable, EngineOptions, Pump, SimulatedEngine
from tests.e2e.instance import ADAPTERS, TOKENS
from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port, need
from tests.e2e.test_one_machine import ADAPTERS as TENANTS
from tests.e2e.test_one_machine import free_row, ring_ready, serving, small_policy, until

FLEET = "/v1/fleets/local"
OPTIONS = EngineOptions(files=AdapterTable({f"/adapters/{name}": 16 for name in ADAPTERS}))


class Instance(Server):
    """One controller process; what it says of each tick is in its log."""

    def __init__(self, name: str, folder: Path, engines: list[SimulatedEngine]) -> None:
        self.port = free_port()
        argv = [sys.executable, "-m", "tests.e2e.instance", str(folder), str(self.port), *(e.address for e in engines)]
        root = Path(__file__).resolve().parents[2]
        url = f"http://{LOOPBACK}:{self.port}/readyz"
        super().__init__(
            name, argv, folder, lambda: answers_200(url), environment={"PYTHONPATH": str(root)}, timeout_s=240
        )

    async def begin(self) -> None:
        """Start, while the engines of this process go on."""
        self.launch()
        await until(lambda: asyncio.to_thread(self.ready_or_ended), 240.0)
        assert self.exit_code is None, self.log_tail()

    def ready_or_ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.exit_code is not None or bool(self.ready())

    def ticks(self) -> list[dict[str, Any]]:
        """What it said of its ticks."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def send(self, number: signal.Signals) -> None:
        """A signal to its process, and to nobody else."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    async def override(self, tenant: str, tier: str) -> int:
        """Set one; the status."""
        body = {"tier": tier, "reason": "a test", "ttl_s": 3600}
        async with httpx.AsyncClient(timeout=30, headers={"Authorization": f"Bearer {TOKENS['operator']}"}) as client:
            url = f"http://{LOOPBACK}:{self.port}{FLEET}/tenants/{tenant}/override"
            return (await client.put(url, json=body)).status_code


@asynccontextmanager
async def engines(count: int) -> AsyncIterator[list[SimulatedEngine]]:
    """Simulated engines over HTTP."""
    pump = Pump()
    made = [SimulatedEngine(OPTIONS, pump) for _ in range(count)]
    for engine in made:
        await engine.start()
    try:
        yield made
    finally:
        for engine in made:
            await engine.crash()


async def holds(condition: Callable[[], bool]) -> None:
    """Wait until something is so, as long as a busy machine may take."""

    async def asked() -> bool:
        return condition()

    await until(asked, 120.0)


def ring(folder: Path) -> dict[str, Any]:
    """The published ring, empty where there is none."""
    try:
        found: dict[str, Any] = json.loads((folder / "ring.json").read_text())
    except FileNotFoundError:
        return {"epoch": 0, "warm": []}
    return found


async def test_a_leader_that_was_frozen_beyond_its_lease_writes_nothing_when_it_wakes(tmp_path: Path) -> None:
    async with engines(2) as behind:
        first, second = Instance("first", tmp_path, behind), Instance("second", tmp_path, behind)
        try:
            await first.begin()
            await holds(lambda: set(ring(tmp_path)["warm"]) == set(ADAPTERS))
            await second.begin()
            assert not any(tick["leader"] for tick in second.ticks())
            first.send(signal.SIGSTOP)
            await holds(lambda: any(tick["leader"] for tick in second.ticks()))
            assert await second.override("tenant-01", "cold") == 200
            await holds(lambda: "tenant-01" not in ring(tmp_path)["warm"])
            before, said = ring(tmp_path), len(first.ticks())
            first.send(signal.SIGCONT)
            await holds(lambda: len(first.ticks()) >= said + 4)
            woken = first.ticks()[said + 1 :]
            assert not any(tick["leader"] for tick in woken), woken
            # What it had decided before it froze is not done: at most it is told that it may not.
            assert not [did for tick in woken for did in tick["did"] if did.endswith(": Applied")], woken
            assert ring(tmp_path) == before, "the ring is the new leader's"
        finally:
            for instance in (first, second):
                if instance.exit_code is None:
                    instance.send(signal.SIGCONT)
                instance.close()


async def test_sigterm_while_a_load_hangs_ends_the_process_and_its_successor_goes_on(tmp_path: Path) -> None:
    async with engines(2) as behind:
        first, second = Instance("first", tmp_path, behind), Instance("second", tmp_path, behind)
        try:
            for engine in behind:
                engine.faults.hang_loads = True
            await first.begin()
            await holds(lambda: len(first.ticks()) >= 6)
            assert ring(tmp_path)["epoch"] == 0, "no ring names who serves nothing"
            first.send(signal.SIGTERM)
            await holds(lambda: first.exit_code is not None)
            assert first.exit_code == 0, first.log_tail()
            assert "Traceback" not in first.log_tail(200)
            for engine in behind:
                engine.faults.hang_loads = False
            await second.begin()
            await holds(lambda: set(ring(tmp_path)["warm"]) == set(ADAPTERS))
        finally:
            first.close()
            second.close()


def damaged(folder: Path, content: bytes) -> None:
    """Put something else where the state was."""
    for file in folder.glob("state.db*"):
        file.unlink()
    (folder / "state.db").write_bytes(content)


@pytest.mark.parametrize("damage", [b"", b"no database " * 900], ids=["empty", "garbage"])
async def test_a_damaged_state_file_is_set_aside_and_the_ring_goes_on(tmp_path: Path, damage: bytes) -> None:
    async with engines(2) as behind:
        first, second = Instance("first", tmp_path, behind), Instance("second", tmp_path, behind)
        try:
            await first.begin()
            await holds(lambda: set(ring(tmp_path)["warm"]) == set(ADAPTERS))
            first.send(signal.SIGTERM)
            await holds(lambda: first.exit_code is not None)
            before = ring(tmp_path)
            damaged(tmp_path, damage)
            await second.begin()
            await holds(lambda: sum(tick["leader"] for tick in second.ticks()) >= 4)
            after = ring(tmp_path)
            assert after["epoch"] >= before["epoch"]
            assert after["members"] == before["members"], "nobody is taken off the ring"
            assert await second.override("tenant-02", "cold") == 200, "and the new file is written"
        finally:
            first.close()
            second.close()


class Between:
    """A Prometheus that misbehaves as it is told, before a real one."""

    def __init__(self, url: str, session: ClientSession) -> None:
        self._url, self._session, self.mode = url, session, "well"
        self.asked = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """What Prometheus says, or what a broken one would."""
        self.asked += 1
        if self.mode == "down":
            return web.Response(status=503)
        if self.mode == "hangs":
            await asyncio.sleep(3600)
        sent = await request.read()
        headers = {k: v for k, v in request.headers.items() if k.lower() in ("content-type", "accept")}
        async with self._session.request(
            request.method, f"{self._url}{request.path_qs}", data=sent, headers=headers
        ) as answer:
            body = await answer.json(content_type=None)
        data = body.get("data")
        rows = data["result"] if isinstance(data, dict) and data.get("resultType") in ("vector", "matrix") else ()
        if self.mode == "nan":
            for sample in (sample for row in rows for sample in (*row.get("values", ()), row.get("value", [0, 0]))):
                sample[1] = "NaN"
        if self.mode == "empty" and rows:
            body["data"]["result"] = []
        return web.json_response(body, status=answer.status)


@asynccontextmanager
async def between(url: str) -> AsyncIterator[tuple[Between, str]]:
    """It, and its address."""
    async with ClientSession() as session:
        proxy, port, app = Between(url, session), free_port(), web.Application()
        app.router.add_route("*", "/{path:.*}", proxy.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, port).start()
        try:
            yield proxy, f"http://{LOOPBACK}:{port}"
        finally:
            await runner.cleanup()


async def test_a_fleet_without_traffic_shrinks_only_once_prometheus_tells_the_truth(tmp_path: Path) -> None:
    need("prometheus")
    policy = small_policy(Mode.ENFORCE)
    policy = replace(
        policy,
        groups=replace(policy.groups, warm=replace(policy.groups.warm, min_replicas=2, max_replicas=4)),
        scaling=replace(policy.scaling, scale_in=replace(policy.scaling.scale_in, stabilisation_s=2.0, horizon_s=2.0)),
    )
    catalogue = Catalogue.of({a: (a, f"/adapters/{a}", "", 16) for a in TENANTS})
    ports = Ports(free_row())
    async with (
        bench(policy, catalogue, 4, ports, tmp_path) as world,
        between(f"http://{LOOPBACK}:{ports.prometheus}") as (proxy, url),
    ):
        await world.route(Route.RING)
        connection = PrometheusConnection(PrometheusSettings(url, timeout_s=0.5, retries=0))
        world.metrics = PrometheusSource(
            SourceSettings(VLLM, ENVOY, policy.signals, frozenset({policy.base_model})), connection
        )
        proxy.mode = "nan"
        async with serving(world, catalogue, [policy], ports, tmp_path / "state") as m:
            await ring_ready(m)
            for mode in ("nan", "down", "hangs", "empty"):
                proxy.mode, asked = mode, proxy.asked
                await m.ticks(6)
                assert proxy.asked > asked
                decision = m.controller.latest.plan.scale.decisions["warm"] if m.controller.latest else None
                assert decision is not None
                assert decision.desired == decision.current == 4, (mode, decision.trail)
                assert Reason.SIGNALS_MISSING in {step.reason for step in decision.trail}, (mode, decision.trail)
            proxy.mode = "well"

            async def shrank() -> bool:
                latest = m.controller.latest
                return latest is not None and latest.plan.scale.decisions["warm"].desired < 4

            await until(shrank, 120.0)
