"""The fleet behind the dashboard's benchmark: a real controller process with its API over a world in memory.

    python -m benchmarks.dashboard_fleet --tenants 5000 --replicas 64 --port 8080 --state DIR

Prints one JSON line with a reader's token and serves until it is ended. A third of the replicas thrashes, one tenant in
fifty is late, loads wander from tick to tick: every page has rows, and they change.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from autoscaler.api.auth import Role
from autoscaler.cli.service import Listen, Service, SystemClock, printed_tokens
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.controller.loop import Wanted
from autoscaler.controller.observe import World
from autoscaler.domain.decisions import Applied, AssignSlot, LoadAdapter, Outcome, UnloadAdapter
from autoscaler.domain.fleet import EngineLimits, Group, LoadLedger, Replica, ReplicaSignals, ReplicaState, Router, Tier
from autoscaler.domain.observation import Catalogue, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Signal
from autoscaler.policy.groups import Engine, Groups, HotGroups, StatedLimits, WarmGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Mode
from autoscaler.ports import Metrics

FLEET = "bench"
TICK_S = 2.0
_SLOTS = 96  # fewer than the adapters of a replica, so that some tenants are cold
_WANDER = 0.2


class Platform:
    """Every port of one fleet in memory; effects are done at once."""

    def __init__(self, tenants: int, replicas: int) -> None:
        self._rng = np.random.default_rng(0)
        weights = 1.0 / np.arange(1, tenants + 1)
        self._rates = weights / weights.sum() * 4 * replicas
        names = {f"tenant-{i:06d}": (f"tenant-{i:06d}", f"/adapters/{i}", "", 16) for i in range(tenants)}
        self.catalogue = Catalogue.of(names)
        self._held: dict[str, set[str]] = {}
        self._replicas: dict[str, Replica] = {}
        limits = EngineLimits(_SLOTS, 4 * _SLOTS, max_lora_rank=16, max_num_seqs=256)
        for i in range(replicas):
            name, address = f"warm-{i:04d}", f"10.0.{i // 250}.{i % 250}:8000"
            self._replicas[name] = Replica(name, "warm", None, address, ReplicaState.READY, limits=limits)
            self._held[name] = set()
        self._hub: RingHub | None = None

    def follow(self, hub: RingHub) -> None:
        """Be a router that applies what is published."""
        self._hub = hub

    async def replicas(self) -> tuple[Replica, ...]:
        """`FleetActuator`."""
        return tuple(self._replicas.values())

    async def groups(self) -> dict[str, Group]:
        """`FleetActuator`."""
        return {"warm": Group("warm", Tier.WARM, len(self._replicas))}

    async def apply(self, effect: object) -> Outcome:
        """`FleetActuator`: slots are given; the count stands."""
        if isinstance(effect, AssignSlot):
            self._replicas[effect.replica] = replace(self._replicas[effect.replica], slot=effect.slot)
        return Applied()

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        """`MetricsSource`."""
        count = len(self._rates)
        rate = self._rates * np.exp(_WANDER * self._rng.standard_normal(count))
        ttft_s = 0.2 * np.exp(0.3 * self._rng.standard_normal(count))
        late = np.where(np.arange(count) % 50 == 7, 3.0, ttft_s)
        base = Fresh(0.0)
        traffic = Traffic(60.0, rate, rate * 250, rate * 250, rate * 0, ttft_s, late, base, base, base)
        adapter = np.repeat(np.arange(count), 2)
        owner = (adapter * 7 + np.tile([0, 1], count)) % len(replicas)
        pairs = PairTraffic(adapter, owner, rate[adapter] / 2, ttft_s[adapter], rate[adapter] * 125)
        fresh: dict[str, Signal] = {"engines": Fresh(now_s), "traffic": Fresh(now_s)}
        return Metrics({r.id: self._signals(i) for i, r in enumerate(replicas)}, traffic, pairs, fresh, {})

    def _signals(self, index: int) -> ReplicaSignals:
        waiting = 12.0 * float(self._rng.uniform(0.5, 1.5)) if index % 3 == 0 else 0.0
        noise = float(self._rng.uniform(0.9, 1.1))
        return ReplicaSignals(
            running=Fresh(8.0 * noise), waiting=Fresh(waiting), deferred=Fresh(waiting * 0.8),
            kv_usage_ratio=Fresh(0.3), ttft_mean_s=Fresh(0.1 * noise), ttft_p99_s=Fresh(0.3 * noise),
            queue_time_mean_s=Fresh(0.0), itl_mean_s=Fresh(0.02 * noise), prompt_tokens_per_s=Fresh(1000.0 * noise),
            generation_tokens_per_s=Fresh(1000.0 * noise), requests_per_s=Fresh(4.0), adapter_loads_per_s=Fresh(0.1),
        )  # fmt: skip

    async def registered(self, replica: Replica) -> frozenset[str] | None:
        """`EngineClient`."""
        return frozenset(self._held[replica.id])

    async def load(self, replica: Replica, effect: LoadAdapter) -> Outcome:
        """`EngineClient`."""
        self._held[replica.id].add(effect.adapter)
        return Applied()

    async def unload(self, replica: Replica, effect: UnloadAdapter) -> Outcome:
        """`EngineClient`."""
        self._held[replica.id].discard(effect.adapter)
        return Applied()

    def keep(self, replicas: frozenset[str]) -> None:
        """`EngineClient`: none goes."""

    def reconsider(self, catalogue: Catalogue) -> None:
        """`EngineClient`: none fails."""

    def ledger(self) -> LoadLedger:
        """`EngineClient`."""
        return LoadLedger()

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """`RingPublisher`."""
        return await self._ring.publish(epoch, body)

    async def last(self) -> tuple[int, bytes] | None:
        """`RingPublisher`."""
        return await self._ring.last()

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """`RingPublisher`: one router that follows."""
        last = await self._ring.last()
        return (Router("envoy", last[0] if last else 0, 0.0),)

    @property
    def _ring(self) -> RingHub:
        if self._hub is None:
            raise RuntimeError("follow a hub first")
        return self._hub


def policy(replicas: int) -> FleetPolicy:
    """A policy that acts, at a quick tick, on a fleet of a fixed size."""
    limits = StatedLimits(max_loras=_SLOTS, max_cpu_loras=4 * _SLOTS)
    made = FleetPolicy(
        name=FLEET, base_model="base", mode=Mode.ENFORCE, tick_interval_s=TICK_S,
        engine=Engine(limits=limits, resolver=True),
        groups=Groups(warm=WarmGroup(min_replicas=replicas, max_replicas=replicas), hot=HotGroups()),
    )  # fmt: skip
    return replace(made, budget=replace(made.budget, max_replicas_total=2 * replicas))


async def serve(tenants: int, replicas: int, port: int, state: Path) -> None:
    """Tick and answer until cancelled."""
    tokens, table = printed_tokens()
    service = Service(state, Listen("127.0.0.1", port), table, SystemClock())
    told, platform = policy(replicas), Platform(tenants, replicas)
    hub = RingHub(told.ring.router_ttl_s)
    platform.follow(hub)
    world = World(platform, platform, platform, platform, service.stores.overrides)
    service.add_fleet(FLEET, world, hub, lambda: Wanted(told, platform.catalogue))
    print(json.dumps({"reader": tokens[Role.READER], "started_at_s": time.time()}), flush=True)
    await service.serve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=5000)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    told = parser.parse_args()
    asyncio.run(serve(told.tenants, told.replicas, told.port, told.state))


if __name__ == "__main__":
    main()
