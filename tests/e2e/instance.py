"""One controller process over engines that outlive it: `python -m tests.e2e.instance FOLDER PORT ADDRESS...`.

Several of them share a folder: the lease, the state, the ring as a file, and who holds which slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import aiohttp

from autoscaler.cli.local_engines import vllm_settings
from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.cli.service import Listen, Service, SystemClock, table_of
from autoscaler.connectors.engines.client import HttpEngines
from autoscaler.connectors.metrics.direct import DirectScrape, ScrapeSettings
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.connectors.routers.fanout import Publishers
from autoscaler.connectors.routers.file import FilePublisher
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.controller.loop import Wanted
from autoscaler.controller.observe import World
from autoscaler.domain.decisions import Applied, AssignSlot, Outcome, PlatformEffect, Skipped
from autoscaler.domain.fleet import Group, Replica, ReplicaState, Tier
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy

ADAPTERS = tuple(f"tenant-{i:02d}" for i in range(6))
TOKENS = {"operator": "op", "reader": "rob", "router": "ro"}
LEASE_S = 2.0


class Given:
    """`autoscaler.ports.FleetActuator` for engines that are there: nothing is started or stopped."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        self._slots, self._addresses = folder / "slots", addresses
        self._slots.mkdir(exist_ok=True)

    async def replicas(self) -> tuple[Replica, ...]:
        """All of them, ready, each with the slot that any instance gave it."""
        return tuple(
            Replica(name, "warm", self._slot(name), address, ReplicaState.READY)
            for name, address in ((f"warm-{i:04d}", address) for i, address in enumerate(self._addresses))
        )

    async def groups(self) -> dict[str, Group]:
        """The one group."""
        return {"warm": Group("warm", Tier.WARM, len(self._addresses))}

    async def apply(self, effect: PlatformEffect) -> Outcome:
        """Remember a slot."""
        if isinstance(effect, AssignSlot):
            (self._slots / effect.replica).write_text(effect.slot)
            return Applied()
        return Skipped("these engines are as many as they are")

    def _slot(self, name: str) -> str | None:
        with contextlib.suppress(OSError):
            return (self._slots / name).read_text() or None
        return None


def policy(replicas: int) -> FleetPolicy:
    """As the demo's, at a tick of half a second."""
    told = read_policy(shipped_policy("local"))
    return replace(
        told,
        tick_interval_s=0.5,
        slo=replace(told.slo, tenants={}),
        groups=replace(told.groups, warm=replace(told.groups.warm, min_replicas=replicas, max_replicas=replicas)),
        engine=replace(told.engine, loading=replace(told.engine.loading, timeout_s=3600.0)),
    )


async def main(folder: Path, port: int, addresses: list[str]) -> None:
    """Until SIGTERM."""
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    told = policy(len(addresses))
    catalogue = Catalogue.of({a: (a, f"/adapters/{a}", "", 16) for a in ADAPTERS})
    clock, hub = SystemClock(), RingHub(told.ring.router_ttl_s)
    service = Service(folder, Listen("127.0.0.1", port), table_of(TOKENS), clock, LEASE_S)
    async with aiohttp.ClientSession() as session:
        world = World(
            DirectScrape(ScrapeSettings(VLLM, ENVOY, {}, frozenset({told.base_model})), session, clock),
            Given(folder, addresses),
            HttpEngines(told.name, vllm_settings(told), session, clock, service.stores.loads),
            Publishers(FilePublisher(folder / "ring.json"), (hub,)),
            service.stores.overrides,
        )
        controller = service.add_fleet(told.name, world, hub, lambda: Wanted(told, catalogue))
        serving, ending = asyncio.create_task(service.serve()), asyncio.create_task(ends.wait())
        said = None
        while not ending.done() and not serving.done():
            view = controller.latest
            if view is not None and view.plan.now_s != said:
                said = view.plan.now_s
                did = [f"{type(e).__name__}: {type(o).__name__}" for e, o in view.report.outcomes]
                print(json.dumps({"epoch": view.plan.ring.epoch, "leader": view.leader, "did": did}), flush=True)
            await asyncio.sleep(0.05)
        for task in (serving, ending):
            task.cancel()
        await asyncio.gather(serving, ending, return_exceptions=True)
        await service.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
