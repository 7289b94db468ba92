"""The product before two real vLLM servers: `make test-vllm` (opt-in; `tests.vllm.install` first).

One story in order, since a start takes half a minute to minutes: residency by real loads, thrash diagnosed from real
metrics, an override that moves real traffic, a replica that is replaced in its slot. Figures are printed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp

from autoscaler.cli.demo_bench import Bench, Ports, _metrics
from autoscaler.cli.local_engines import first_ring, start_envoy, vllm_settings
from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.cli.service import SystemClock
from autoscaler.connectors.engines.client import HttpEngines
from autoscaler.connectors.envoy import EnvoySettings, Mode
from autoscaler.domain.decisions import Grow
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import value_or
from autoscaler.policy.groups import Adapters, StatedLimits
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import Ring
from autoscaler.simulator.http.pump import Pump
from tests.e2e.test_one_machine import FLEET, Machine, free_row, serving, until
from tests.vllm.fleet import LIMITS, VllmFleet
from tests.vllm.install import ADAPTERS, MODELS

NAMES = tuple(f"adapter-{number}" for number in range(ADAPTERS))
PATIENCE_S = 600.0


def told() -> FleetPolicy:
    """Two replicas, no more; every adapter on both, which is more than a replica's adapter slots hold."""
    policy = read_policy(shipped_policy("local"))
    limits = StatedLimits(
        max_loras=LIMITS.max_loras, max_cpu_loras=LIMITS.max_cpu_loras, max_lora_rank=16, max_num_seqs=8
    )
    return replace(
        policy,
        tick_interval_s=2.0,
        adapters=Adapters(path_template=f"{MODELS}/{{id}}"),
        engine=replace(policy.engine, limits=limits, resolver=False),
        slo=replace(policy.slo, tenants={}),
        groups=replace(policy.groups, warm=replace(policy.groups.warm, min_replicas=2, max_replicas=4)),
        budget=replace(policy.budget, max_replicas_total=3),
        ring=replace(policy.ring, residency_deadline_s=120.0, slot_grace_s=PATIENCE_S),
        diagnosis=replace(policy.diagnosis, window_s=30.0, min_requests=10),
    )


async def begun(stack: AsyncExitStack, folder: Path, policy: FleetPolicy, catalogue: Catalogue) -> tuple[Bench, Ports]:
    """Engines, Envoy and Prometheus; no controller yet."""
    fleet = VllmFleet(folder / "engines", most=3)
    stack.callback(fleet.close)
    await fleet.apply(Grow("warm", 2))
    began_s = time.monotonic()
    await fleet.wait_ready()
    print(f"two vLLM servers answer after {time.monotonic() - began_s:.0f} s")
    ports = Ports(free_row())
    settings = EnvoySettings(folder / "envoy", ports.router, ports.router_admin)
    envoy = await start_envoy(settings, lambda: catalogue.ids, Mode.RING, stack)
    await envoy.publish(1, first_ring(policy, catalogue, await fleet.replicas()))
    session = await stack.enter_async_context(aiohttp.ClientSession())
    engines = HttpEngines(policy.name, vllm_settings(policy), session, SystemClock())
    shown: Any = fleet
    metrics, origin = await _metrics(stack, policy, ports, folder, settings, session, shown)
    print(f"metrics by {origin.partition(' at ')[0]}")
    return Bench(shown, Pump(), envoy, settings, engines, metrics, origin), ports


async def models(address: str) -> frozenset[str]:
    """What an engine's own list says."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/v1/models") as answer:
        return frozenset(item["id"] for item in (await answer.json())["data"]) - {"base"}


async def asking(url: str, clients: int, tokens: int, heard: Counter[int], stop: asyncio.Event) -> None:
    """So many clients that each ask for one adapter after the other."""

    async def client(number: int, session: aiohttp.ClientSession) -> None:
        while not stop.is_set():
            number += 1
            body = {"model": NAMES[number % ADAPTERS], "prompt": "x" * 40, "max_tokens": tokens, "stream": True}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                await answer.read()
                heard[answer.status] += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(number, session) for number in range(clients)))


async def test_two_real_servers(tmp_path: Path) -> None:
    policy = told()
    catalogue = Catalogue.of({name: (name, f"{MODELS}/{name}", "", 8) for name in NAMES})
    async with AsyncExitStack() as stack:
        world, ports = await begun(stack, tmp_path, policy, catalogue)
        began_s = time.monotonic()
        m = await stack.enter_async_context(serving(world, catalogue, [policy], ports, tmp_path / "state"))
        await _residency_by_real_loads(m, began_s)
        await _thrash_from_real_metrics(m)
        await _an_override_moves_real_traffic(m)
        await _a_successor_inherits_its_slot(m)


async def _residency_by_real_loads(m: Machine, began_s: float) -> None:
    """The ring names an owner only once the engine itself lists the adapter."""

    async def ring_is_whole() -> bool:
        latest = m.controller.latest
        snapshot = None if latest is None else latest.plan.ring.snapshot
        return snapshot is not None and snapshot.epoch > 1 and set(snapshot.warm or ()) == set(NAMES)

    await until(ring_is_whole, PATIENCE_S)
    print(f"a ring of loaded adapters after {time.monotonic() - began_s:.0f} s")
    for name in NAMES:

        async def owners_serve(name: str = name) -> bool:
            ring, served = _ring(m), await m.served_by(name, 2)
            owners = {member.replica for member in ring.owners(name).members}
            lists = {r.id: await models(r.address) for r in await m.world.fleet.replicas()}
            assert all(name in lists[owner] for owner in owners), (name, owners, lists)
            return bool(served) and served <= owners

        await until(owners_serve, 60.0)


def _ring(m: Machine) -> Ring:
    """The ring in force."""
    latest = m.controller.latest
    assert latest is not None
    assert latest.plan.ring.snapshot is not None
    return Ring(latest.plan.ring.snapshot)


async def _thrash_from_real_metrics(m: Machine) -> None:
    """More adapters in use than slots: the wait is for slots, the KV cache is idle, and replicas would not help."""
    stop, heard = asyncio.Event(), Counter[int]()
    # Fewer than there are seats in the batches: whoever waits, waits for a slot.
    load = asyncio.create_task(asking(m.world.envoy_settings.url, 12, 96, heard, stop))
    seen: Counter[str] = Counter()
    try:

        async def is_thrash() -> bool:
            latest = m.controller.latest
            if latest is not None:
                seen[latest.plan.diagnosis.cause("warm")] += 1
            return latest is not None and latest.plan.diagnosis.cause("warm") is Cause.THRASH

        await until(is_thrash, 180.0)
        latest = m.controller.latest
        assert latest is not None
        finding, decision = latest.plan.diagnosis.groups["warm"], latest.plan.scale.decisions["warm"]
        gauges = {
            r.id: (
                value_or(r.signals.waiting, -1),
                value_or(r.signals.deferred, -1),
                value_or(r.signals.kv_usage_ratio, -1),
            )
            for r in latest.observation.replicas
        }
        print(f"thrash: {finding.message}; waiting, deferred, KV: {gauges}; {decision.trail[0].message}")
        assert decision.desired <= 2, "replicas are not the cure"
    finally:
        print(f"looks at the cause until then: {dict(seen)}; answers: {dict(heard)}")
        stop.set()
        await asyncio.wait_for(load, PATIENCE_S)
    assert set(heard) == {200}


async def _an_override_moves_real_traffic(m: Machine) -> None:
    """A third server starts for one tenant, gets its adapter, and then its requests."""
    began_s = time.monotonic()
    body = {"tier": "hot", "reason": "launch day", "ttl_s": 3000}
    answer = await m.client.put(f"{FLEET}/tenants/{NAMES[3]}/override", json=body)
    assert answer.status_code == 200, answer.text

    async def moved() -> bool:
        served = await m.served_by(NAMES[3], 2)
        return bool(served) and all(name.startswith("hot-") for name in served)

    await until(moved, PATIENCE_S)
    print(f"an override moved its tenant's traffic after {time.monotonic() - began_s:.0f} s")


async def _a_successor_inherits_its_slot(m: Machine) -> None:
    """A killed replica's successor takes its slot once it has its adapters; no request is lost on the way."""
    fleet: Any = m.world.fleet
    victim = next(member for member in fleet.members.values() if member.group == "warm")
    slot, began_s = victim.slot, time.monotonic()
    stop, heard = asyncio.Event(), Counter[int]()
    load = asyncio.create_task(asking(m.world.envoy_settings.url, 2, 4, heard, stop))
    fleet.kill(victim.id)
    successor = fleet.start("warm")

    async def inherited() -> bool:
        latest = m.controller.latest
        snapshot = None if latest is None else latest.plan.ring.snapshot
        members = () if snapshot is None else snapshot.members
        return any((x.slot, x.replica, x.state.value) == (slot, successor.id, "active") for x in members)

    await until(inherited, PATIENCE_S)
    print(
        f"a successor serves in slot {slot} after {time.monotonic() - began_s:.0f} s; answers meanwhile: {dict(heard)}"
    )
    ring = _ring(m)
    mine = {n for n in NAMES if successor.id in {x.replica for x in ring.owners(n).members}}
    assert mine <= await models(successor.address)
    stop.set()
    await asyncio.wait_for(load, PATIENCE_S)
    assert sum(heard.values()) - heard[200] <= 2, "at most the streams that the dead one had begun"
