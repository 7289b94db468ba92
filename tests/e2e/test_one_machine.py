"""The whole product on one machine: engines over HTTP, Envoy, the controller and its API, under traffic."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from autoscaler.api.auth import Role
from autoscaler.cli.demo_bench import Bench, Ports, bench
from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.cli.service import Listen, Service, SystemClock, printed_tokens
from autoscaler.connectors.envoy import Mode as Route
from autoscaler.connectors.routers.fanout import Publishers
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.controller.loop import FleetController, Wanted
from autoscaler.controller.observe import World
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Fresh
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Mode
from autoscaler.simulator.traffic.arrivals import shaped
from autoscaler.simulator.traffic.generated import GeneratedTrace, GeneratorSettings
from autoscaler.simulator.traffic.load import LoadGenerator, LoadResults

ADAPTERS = tuple(f"tenant-{i:02d}" for i in range(12))
FLEET = "/v1/fleets/local"


@dataclass
class Machine:
    """What a test acts on. `policy` is read anew at each tick."""

    world: Bench
    service: Service
    controller: FleetController
    client: httpx.AsyncClient
    reader: httpx.AsyncClient
    wanted: list[FleetPolicy]

    async def ticks(self, count: int) -> None:
        """Wait for so many further ticks."""
        for _ in range(count):
            await until(_changed(self.controller), 30.0)

    async def served_by(self, adapter: str, requests: int = 6) -> set[str]:
        """Replicas that answered requests for an adapter, by Envoy's own counters."""
        before = await self._upstreams(adapter)
        async with httpx.AsyncClient(timeout=30.0) as client:
            for _ in range(requests):
                body = {"model": adapter, "prompt": "x x", "max_tokens": 1}
                answer = await client.post(f"{self.world.envoy_settings.url}/v1/completions", json=body)
                assert answer.status_code == 200, answer.text
        await asyncio.sleep(0.2)
        after = await self._upstreams(adapter)
        by_address = {r.address: r.id for r in await self.world.fleet.replicas()}
        return {by_address[a] for a, count in after.items() if count > before.get(a, 0)}

    async def _upstreams(self, adapter: str) -> dict[str, int]:
        async with httpx.AsyncClient() as client:
            page = (await client.get(f"{self.world.envoy_settings.admin_url}/stats/prometheus")).text
        found: dict[str, int] = {}
        for line in page.splitlines():
            if line.startswith("envoy_llm_requests{") and f'adapter="{adapter}"' in line:
                upstream = line.split('upstream="')[1].split('"')[0]
                found[upstream] = found.get(upstream, 0) + int(float(line.rsplit(" ", 1)[1]))
        return found


def _changed(controller: FleetController) -> Callable[[], Awaitable[bool]]:
    """Whether the controller has ticked since this was called."""
    before = controller.latest
    return lambda: _is(controller.latest is not before)


async def _is(value: bool) -> bool:
    return value


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 60.0) -> None:
    """Wait until `condition` holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110 - the condition asks a server
            await asyncio.sleep(0.1)


def small_policy(mode: Mode) -> FleetPolicy:
    """The demo's policy for four replicas and no promise."""
    policy = read_policy(shipped_policy("local"))
    return replace(
        policy,
        mode=mode,
        tick_interval_s=1.0,
        slo=replace(policy.slo, tenants={}),
        groups=replace(policy.groups, warm=replace(policy.groups.warm, min_replicas=4, max_replicas=4)),
        budget=replace(policy.budget, max_replicas_total=5),
        scaling=replace(policy.scaling, startup_s=0.5),
    )


@contextlib.asynccontextmanager
async def machine(
    folder: Path, mode: Mode = Mode.ENFORCE, state: Path | None = None, told: FleetPolicy | None = None
) -> AsyncIterator[Machine]:
    """Four engines, twelve adapters."""
    policy = told or small_policy(mode)
    catalogue = Catalogue.of({a: (a, f"/adapters/{a}", "", 16) for a in ADAPTERS})
    ports = Ports(free_row())
    wanted = [policy]
    async with bench(policy, catalogue, 4, ports, folder) as world:
        await world.route(Route.RING)
        async with serving(world, catalogue, wanted, ports, state or folder / "state") as running:
            yield running


@contextlib.asynccontextmanager
async def serving(
    world: Bench, catalogue: Catalogue, wanted: list[FleetPolicy], ports: Ports, state: Path
) -> AsyncIterator[Machine]:
    """A controller process over a world that outlives it. It ends as a killed one does: nothing is said to anybody."""
    tokens, table = printed_tokens()
    service = Service(state, Listen("127.0.0.1", ports.api), table, SystemClock(), lease_s=3.0)
    hub = RingHub(wanted[0].ring.router_ttl_s)
    publisher = Publishers(world.envoy, (hub,))
    parts = World(world.metrics, world.fleet, world.engines, publisher, service.stores.overrides)
    controller = service.add_fleet("local", parts, hub, lambda: Wanted(wanted[0], catalogue))
    task = asyncio.create_task(service.serve())
    url = f"http://127.0.0.1:{ports.api}"
    async with (
        httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {tokens[Role.OPERATOR]}"}, timeout=30
        ) as operator,
        httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {tokens[Role.READER]}"}, timeout=30
        ) as reader,
    ):
        try:
            await until(lambda: _is(controller.latest is not None or task.done()), 60.0)
            if task.done():
                task.result()
            yield Machine(world, service, controller, operator, reader, wanted)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def free_row() -> int:
    """A base for `Ports` whose neighbours are free as well, below the ports that systems give to clients."""
    for base in range(20_000 + os.getpid() % 5_000, 30_000, 50):
        with contextlib.suppress(Exception):
            Ports(base).check_free(16)
            return base
    raise AssertionError("no free row of ports was found")


@contextlib.asynccontextmanager
async def traffic(
    world: Bench, rate_rps: float = 12.0, base_ratio: float = 0.0
) -> AsyncIterator[Callable[[], LoadResults]]:
    """Requests for all adapters meanwhile; what it yields takes the results so far."""
    settings = GeneratorSettings(adapters=len(ADAPTERS), rate_rps=rate_rps, prompt_tokens=50, output_tokens=20)
    client = LoadGenerator(world.envoy_settings.url, ADAPTERS, base_model="base", base_ratio=base_ratio)
    sending = asyncio.create_task(client.run(shaped(GeneratedTrace(settings, 1), duration_s=600.0), drain_s=10.0))
    try:
        yield client.take
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def ring_ready(m: Machine) -> None:
    await until(lambda: _is(m.controller.latest is not None and m.controller.latest.plan.ring.epoch > 1))


async def test_an_override_moves_a_tenant_in_envoys_own_answers_and_its_expiry_moves_it_back(tmp_path: Path) -> None:
    async with machine(tmp_path) as m, traffic(m.world) as results:
        await ring_ready(m)
        m.wanted[0] = replace(
            m.wanted[0], groups=replace(m.wanted[0].groups, warm=replace(m.wanted[0].groups.warm, max_replicas=4))
        )
        body = {"tier": "hot", "reason": "launch day", "ttl_s": 25}
        answer = await m.client.put(f"{FLEET}/tenants/tenant-03/override", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["displaces_tier"] == "warm"
        assert answer.json()["actor"] == "local-operator"
        await m.ticks(2)
        tenant = (await m.reader.get(f"{FLEET}/tenants/tenant-03")).json()
        assert (tenant["tier"], tenant["reason"]) == ("hot", "Override")

        async def is_served_by_its_group() -> bool:
            return await m.served_by("tenant-03", 3) == {"hot-tenant-03-0000"}

        await until(is_served_by_its_group, 40.0)

        async def is_back() -> bool:
            served = await m.served_by("tenant-03", 3)
            return bool(served) and all(name.startswith("warm-") for name in served)

        await until(is_back, 60.0)
        tenant = (await m.reader.get(f"{FLEET}/tenants/tenant-03")).json()
        assert tenant["tier"] == "warm"
        decisions = (await m.reader.get(f"{FLEET}/decisions", params={"subject": "tenant/tenant-03"})).json()["items"]
        assert [(d["before"], d["after"]) for d in decisions][-2:] == [("warm", "hot"), ("hot", "warm")]
        assert results().errors == 0


async def test_a_cold_override_is_in_force_within_two_ticks(tmp_path: Path) -> None:
    async with machine(tmp_path) as m, traffic(m.world):
        await ring_ready(m)
        body = {"tier": "cold", "reason": "contract ended", "ttl_s": 300}
        assert (await m.client.put(f"{FLEET}/tenants/tenant-05/override", json=body)).status_code == 200
        await m.ticks(3)
        owners = (await m.reader.get(f"{FLEET}/ring/owners", params={"adapter": "tenant-05"})).json()
        assert owners["via"] == "cold"
        # The cold tenant goes to any warm replica by least requests, no longer to its owners only.
        assert len(await m.served_by("tenant-05", 24)) > 2


async def test_advice_changes_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    async with machine(tmp_path, Mode.ADVISE) as m, traffic(m.world):
        before = await m.world.envoy.last()
        await m.ticks(6)
        assert await m.world.envoy.last() == before
        assert {r.slot for r in await m.world.fleet.replicas()} == {None}
        view = m.controller.latest
        assert view is not None
        assert view.plan.effects
        assert {o.why for _, o in view.report.outcomes} == {"the policy's mode is advise"}
        assert (await m.reader.get(FLEET)).json()["mode"] == "advise"


async def test_a_proposal_waits_for_its_approval_by_rest(tmp_path: Path) -> None:
    async with machine(tmp_path, Mode.PROPOSE) as m, traffic(m.world):
        await ring_ready(m)
        policy = m.wanted[0]
        warm = replace(policy.groups.warm, min_replicas=5, max_replicas=5)
        m.wanted[0] = replace(policy, groups=replace(policy.groups, warm=warm))
        await m.ticks(4)
        assert len(await m.world.fleet.replicas()) == 4
        waiting = (await m.reader.get(f"{FLEET}/proposals")).json()["items"]
        growth = next(p for p in waiting if p["subject"] == "group/warm" and p["state"] == "waiting")
        assert (growth["before"], growth["after"]) == ("4", "5")
        refused = await m.reader.post(f"{FLEET}/proposals/{growth['id']}/approve")
        assert refused.status_code == 403
        assert (await m.client.post(f"{FLEET}/proposals/{growth['id']}/approve")).status_code == 200
        await until(lambda: _has_replicas(m, 5))


async def _has_replicas(m: Machine, count: int) -> bool:
    return len(await m.world.fleet.replicas()) == count


async def test_a_paused_group_does_not_grow_and_goes_on_afterwards(tmp_path: Path) -> None:
    async with machine(tmp_path) as m, traffic(m.world):
        await ring_ready(m)
        pause = {"mode": "all", "reason": "load test", "ttl_s": 300}
        assert (await m.client.put(f"{FLEET}/groups/warm/pause", json=pause)).status_code == 200
        policy = m.wanted[0]
        warm = replace(policy.groups.warm, min_replicas=5, max_replicas=5)
        m.wanted[0] = replace(policy, groups=replace(policy.groups, warm=warm))
        await m.ticks(4)
        group = next(g for g in (await m.reader.get(f"{FLEET}/groups")).json()["items"] if g["group"] == "warm")
        assert group["pause"] == "all"
        assert await _has_replicas(m, 4)
        goes_on = {"mode": "none", "reason": "load test over"}
        assert (await m.client.put(f"{FLEET}/groups/warm/pause", json=goes_on)).status_code == 200
        await until(lambda: _has_replicas(m, 5))


@pytest.mark.slow
async def test_a_controller_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    policy, catalogue = small_policy(Mode.ENFORCE), Catalogue.of({a: (a, f"/adapters/{a}", "", 16) for a in ADAPTERS})
    # The number of owners follows who is in use, which a first minute is still finding out.
    policy = replace(policy, ring=replace(policy.ring, replication=2))
    ports, state, wanted = Ports(free_row()), tmp_path / "state", [policy]
    async with bench(policy, catalogue, 4, ports, tmp_path) as world:
        await world.route(Route.RING)
        async with traffic(world) as results:
            async with serving(world, catalogue, wanted, ports, state) as first:
                await ring_ready(first)
                body = {"tier": "cold", "reason": "contract ended", "ttl_s": 3000}
                assert (await first.client.put(f"{FLEET}/tenants/tenant-02/override", json=body)).status_code == 200
                await first.ticks(3)
                epoch = (await first.world.envoy.last() or (0, b""))[0]
                owners = (await first.reader.get(f"{FLEET}/ring/owners", params={"adapter": "tenant-10"})).json()
            async with serving(world, catalogue, wanted, ports, state) as second:
                await until(lambda: _is(second.service.lease.held(SystemClock().now_s())), 20.0)
                await second.ticks(3)
                assert (await world.envoy.last() or (0, b""))[0] >= epoch
                tenant = (await second.reader.get(f"{FLEET}/tenants/tenant-02")).json()
                assert (tenant["tier"], tenant["override"]["reason"]) == ("cold", "contract ended")
                again = (await second.reader.get(f"{FLEET}/ring/owners", params={"adapter": "tenant-10"})).json()
                assert again["owners"] == owners["owners"]
            assert results().errors == 0


async def test_the_base_model_goes_to_the_least_loaded_warm_replicas(tmp_path: Path) -> None:
    async with machine(tmp_path) as m, traffic(m.world, 20.0, base_ratio=0.3) as results:
        await ring_ready(m)
        await until(lambda: _is(_base_rps(m) > 1.0), 60.0)
        served: set[str] = set()
        for _ in range(6):  # a busier replica may be passed over for a while
            served |= await m.served_by("base", 24)
        assert len(served) == 4
        assert results().errors == 0


def _base_rps(m: Machine) -> float:
    """The base model's own traffic, as it was last observed; a new series shows after two scrapes."""
    view = m.controller.latest
    assert view is not None
    base = view.observation.traffic.base_requests_per_s
    return base.value if isinstance(base, Fresh) else 0.0


async def test_clients_reach_inference_paths_and_nothing_else(tmp_path: Path) -> None:
    async with machine(tmp_path) as m, httpx.AsyncClient() as client:
        body: dict[str, Any] = {"lora_name": "mine", "lora_path": "/etc"}
        answer = await client.post(f"{m.world.envoy_settings.url}/v1/load_lora_adapter", json=body)
        assert answer.status_code == 403
