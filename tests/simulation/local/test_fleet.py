"""The local platform does each effect once, drains before it stops, and brings crashed replicas back."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from autoscaler.domain.decisions import Applied, AssignSlot, Drain, Failed, Grow, OpenGate, Shrink, Skipped, Undrain
from autoscaler.domain.fleet import ReplicaState, Tier
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.http import EngineOptions, Pump
from autoscaler.simulator.local import LocalFleet

OPTIONS = EngineOptions(limits=EngineLimits(max_loras=4, max_cpu_loras=16))


@asynccontextmanager
async def local(start_up_s: float = 0.0, **more: float) -> AsyncIterator[LocalFleet]:
    fleet = LocalFleet(replace(OPTIONS, start_up_s=start_up_s), Pump(), restart_after_s=0.05, **more)  # type: ignore[arg-type]
    try:
        yield fleet
    finally:
        await fleet.close()


async def states(fleet: LocalFleet) -> dict[str, ReplicaState]:
    return {replica.id: replica.state for replica in await fleet.replicas()}


async def until(fleet: LocalFleet, wanted: dict[str, ReplicaState]) -> None:
    for _ in range(500):
        if await states(fleet) == wanted:
            return
        await asyncio.sleep(0.02)
    assert await states(fleet) == wanted


async def test_a_group_grows_once_and_its_replicas_are_ready_after_their_start_up() -> None:
    async with local(start_up_s=0.2) as fleet:
        assert isinstance(await fleet.apply(Grow("warm", 2)), Applied)
        assert isinstance(await fleet.apply(Grow("warm", 2)), Skipped)
        assert set((await states(fleet)).values()) == {ReplicaState.STARTING}
        assert [replica.address for replica in await fleet.replicas()] == ["", ""]
        await fleet.wait_ready()
        ready = await fleet.replicas()
        groups = await fleet.groups()
    assert [(r.id, r.group, r.state) for r in ready] == [
        ("warm-0000", "warm", ReplicaState.READY),
        ("warm-0001", "warm", ReplicaState.READY),
    ]
    assert len({r.address for r in ready}) == 2
    assert ready[0].limits.max_loras == 4
    assert ready[0].limits.kv_tokens > 100_000
    assert (groups["warm"].tier, groups["warm"].current_replicas) == (Tier.WARM, 2)


async def test_a_hot_group_is_made_for_its_tenant_and_removed_again() -> None:
    async with local() as fleet:
        assert isinstance(await fleet.apply(Grow("hot-acme", 1, tenant="acme")), Applied)
        assert (await fleet.groups())["hot-acme"].tier is Tier.HOT
        assert (await fleet.groups())["hot-acme"].tenant == "acme"
        await fleet.wait_ready()
        await fleet.apply(Shrink("hot-acme", 0, ("hot-acme-0000",), remove=True))
        await until(fleet, {})
        assert await fleet.groups() == {}
        assert isinstance(await fleet.apply(Grow("strange", 1)), Failed)


async def test_a_shrink_takes_the_victim_after_it_has_finished_what_it_has() -> None:
    async with local() as fleet:
        await fleet.apply(Grow("warm", 3))
        await fleet.wait_ready()
        async with aiohttp.ClientSession() as session:

            async def ask() -> int:
                body = {"prompt": "a", "max_tokens": 60}
                async with session.post(f"{fleet.engine('warm-0001').url}/v1/completions", json=body) as answer:
                    return answer.status

            asked = asyncio.create_task(ask())
            while not fleet.engine("warm-0001").in_flight:  # noqa: ASYNC110 - the engine tells no event
                await asyncio.sleep(0.01)
            await fleet.apply(Drain("warm-0001"))
            outcome = await fleet.apply(Shrink("warm", 2, ("warm-0001",)))
            assert outcome == Applied("warm-0001 goes")
            assert (await states(fleet))["warm-0001"] is ReplicaState.DRAINING
            assert (await fleet.groups())["warm"].current_replicas == 2
            assert await asked == 200
        await until(fleet, {"warm-0000": ReplicaState.READY, "warm-0002": ReplicaState.READY})
        assert await fleet.apply(Shrink("warm", 2, ("warm-0001",))) == Applied("nobody goes")


async def test_a_drain_is_taken_back_until_the_replica_ends() -> None:
    async with local() as fleet:
        await fleet.apply(Grow("warm", 2))
        await fleet.wait_ready()
        await fleet.apply(Drain("warm-0001"))
        drained = {r.id: (r.state, r.recallable) for r in await fleet.replicas()}
        assert drained["warm-0001"] == (ReplicaState.DRAINING, True)
        assert await fleet.apply(Undrain("warm-0001")) == Applied()
        assert set((await states(fleet)).values()) == {ReplicaState.READY}
        await fleet.apply(Drain("warm-0001"))
        await fleet.apply(Shrink("warm", 1, ("warm-0001",)))
        assert not any(r.recallable for r in await fleet.replicas())


async def test_a_drain_ends_at_its_timeout() -> None:
    async with local(drain_timeout_s=0.2) as fleet:
        await fleet.apply(Grow("warm", 1))
        await fleet.wait_ready()
        async with aiohttp.ClientSession() as session:
            body = {"prompt": "a", "max_tokens": 5000}
            asked = asyncio.create_task(session.post(f"{fleet.engine('warm-0000').url}/v1/completions", json=body))
            while not fleet.engine("warm-0000").in_flight:  # noqa: ASYNC110 - the engine tells no event
                await asyncio.sleep(0.01)
            await fleet.apply(Shrink("warm", 0, ("warm-0000",)))
            await until(fleet, {})
            with pytest.raises(aiohttp.ClientError):
                await asked


async def test_slots_are_remembered_and_taken_over() -> None:
    async with local() as fleet:
        await fleet.apply(Grow("warm", 2))
        await fleet.apply(AssignSlot("warm-0000", "s0000"))
        await fleet.apply(AssignSlot("warm-0001", "s0000"))
        assert {r.id: r.slot for r in await fleet.replicas()} == {"warm-0000": None, "warm-0001": "s0000"}
        assert await fleet.apply(OpenGate("warm-0001", resident=True)) == Applied()
        assert isinstance(await fleet.apply(AssignSlot("warm-9999", "s0001")), Failed)


async def test_a_crashed_replica_comes_back_in_its_slot_with_nothing_in_memory() -> None:
    async with local() as fleet:
        await fleet.apply(Grow("warm", 1))
        await fleet.wait_ready()
        await fleet.apply(AssignSlot("warm-0000", "s0000"))
        before = (await fleet.replicas())[0]
        await fleet.crash("warm-0000")
        assert (await states(fleet))["warm-0000"] is ReplicaState.FAILED
        await until(fleet, {"warm-0000": ReplicaState.READY})
        after = (await fleet.replicas())[0]
        await fleet.crash("warm-0000", restart=False)
        await asyncio.sleep(0.2)
        assert (await states(fleet))["warm-0000"] is ReplicaState.FAILED
    assert (after.slot, after.address) == ("s0000", before.address)
    assert after.started_at_s > before.started_at_s


async def taken_port_before_a_free_one() -> tuple[asyncio.Server, int]:
    """A listening server and its port; the next one is free, and below those that systems give to clients."""
    for port in range(20_000 + os.getpid() % 5_000, 30_000, 2):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port + 1))
            return await asyncio.start_server(lambda *_: None, "127.0.0.1", port), port
    raise AssertionError("no two free ports in a row below 30000")


async def test_ports_count_up_from_a_base_and_a_taken_one_fails() -> None:
    taken, base = await taken_port_before_a_free_one()
    fleet = LocalFleet(OPTIONS, Pump(), port_base=base)
    try:
        await fleet.apply(Grow("warm", 2))
        await fleet.wait_ready()
        assert await states(fleet) == {"warm-0000": ReplicaState.FAILED, "warm-0001": ReplicaState.READY}
        assert (await fleet.replicas())[1].address == f"127.0.0.1:{base + 1}"
    finally:
        await fleet.close()
        taken.close()
