"""Groups of simulated HTTP engines, grown and shrunk by the controller's own effects.

It does what a platform does and no more: replicas start after their start-up delay, a drained one finishes what it has,
a crashed one comes back under its own name. Which replica holds which slot is only remembered here.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscaler.domain.decisions import (
    Applied,
    AssignSlot,
    Drain,
    Failed,
    Grow,
    OpenGate,
    Outcome,
    PlatformEffect,
    Renew,
    Shrink,
    Skipped,
    Undrain,
)
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaState, Tier
from autoscaler.simulator.http.options import EngineOptions
from autoscaler.simulator.http.pump import Pump
from autoscaler.simulator.http.server import SimulatedEngine

_REVISION = "local"


@dataclass(slots=True)
class _Member:
    """A replica while it lives."""

    id: str
    group: str
    engine: SimulatedEngine
    state: ReplicaState = ReplicaState.STARTING
    slot: str | None = None
    started_at_s: float = 0.0
    gate_open: bool = False
    marked: bool = False
    """Whether it is told to drain; nothing else about it changes."""


@dataclass(slots=True)
class _Spec:
    """What a group's target says."""

    tier: Tier
    tenant: str
    replicas: int
    numbers: itertools.count[int] = field(default_factory=itertools.count)


class LocalFleet:
    """`autoscaler.ports.FleetActuator` for engines of this process."""

    def __init__(
        self,
        options: EngineOptions | Callable[[str], EngineOptions],
        pump: Pump,
        *,
        host: str = "127.0.0.1",
        port_base: int | None = None,
        drain_timeout_s: float = 30.0,
        restart_after_s: float = 1.0,
        tiers: Mapping[str, Tier] | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`options` may differ by group. Ports count up from `port_base`, or are found free.

        `tiers` names the tier of a group that has no tenant (`warm` and `cold` are known by their names).
        """
        self._options = options if callable(options) else lambda _: options
        self._pump, self._host, self._port_base = pump, host, port_base
        self._drain_timeout_s, self._restart_after_s = drain_timeout_s, restart_after_s
        self._tiers = {"warm": Tier.WARM, "cold": Tier.COLD, **(tiers or {})}
        self._now_s = now_s
        self._specs: dict[str, _Spec] = {}
        self._members: dict[str, _Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def replicas(self) -> tuple[Replica, ...]:
        """Every replica that has not ended, ascending by id."""
        return tuple(self._shown(self._members[name]) for name in sorted(self._members))

    async def groups(self) -> dict[str, Group]:
        """The groups with the replicas that their specs ask for."""
        return {n: Group(n, spec.tier, spec.replicas, spec.tenant) for n, spec in sorted(self._specs.items())}

    async def apply(self, effect: PlatformEffect) -> Outcome:
        """Do one effect. Starts, drains and stops go on in the background, as a platform's do."""
        match effect:
            case Grow():
                return self._grow(effect)
            case Shrink():
                return self._shrink(effect)
            case Renew(group=group):
                return Skipped(f"{group} is made from no template")
            case AssignSlot(replica=name) | OpenGate(replica=name) | Drain(replica=name) | Undrain(replica=name):
                member = self._members.get(name)
                if member is None:
                    return Failed(f"there is no replica {name}: it ended, or never was")
                return self._mark(member, effect)

    async def detach(self) -> tuple[str, ...]:
        """Open every gate. Slots are only remembered here, so there is no mark to remove."""
        closed = [member for member in self._members.values() if not member.gate_open]
        for member in closed:
            member.gate_open = True
        return (f"opened the gates of {len(closed)} replicas",) if closed else ()

    def engine(self, replica: str) -> SimulatedEngine:
        """The engine behind a replica, for tests and for its gauges. Raises KeyError where it has ended."""
        return self._members[replica].engine

    async def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until every replica that is starting answers. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while any(member.state is ReplicaState.STARTING for member in self._members.values()):
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def crash(self, replica: str, *, restart: bool = True) -> None:
        """Kill a replica's process. With `restart` it comes back in the same slot, with nothing in memory."""
        member = self._members[replica]
        member.state = ReplicaState.FAILED
        await member.engine.crash()
        if restart:
            self._spawn(self._start(member, self._restart_after_s))

    async def close(self) -> None:
        """End everything at once."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self._members.values():
            await member.engine.crash()
        self._members.clear()
        self._specs.clear()

    def _grow(self, effect: Grow) -> Outcome:
        spec = self._specs.get(effect.group)
        if spec is None:
            tier = Tier.HOT if effect.tenant else self._tiers.get(effect.group)
            if tier is None:
                return Failed(
                    f"group {effect.group} has no tenant and no known tier: name it warm or cold, or give tiers"
                )
            spec = self._specs[effect.group] = _Spec(tier, effect.tenant, 0)
        if effect.replicas <= spec.replicas:
            return Skipped(f"group {effect.group} has {spec.replicas} replicas already")
        added = effect.replicas - spec.replicas
        spec.replicas = effect.replicas
        for _ in range(added):
            self._add(effect.group, spec)
        return Applied(f"{added} more")

    def _add(self, group: str, spec: _Spec) -> None:
        name = f"{group}-{next(spec.numbers):04d}"
        engine = SimulatedEngine(self._options(group), self._pump, self._host, self._free_port())
        member = self._members[name] = _Member(name, group, engine)
        self._spawn(self._start(member, 0.0))

    def _shrink(self, effect: Shrink) -> Outcome:
        spec = self._specs.get(effect.group)
        if spec is None:
            return Applied(f"there is no group {effect.group}")
        of_group = [m for m in self._members.values() if m.group == effect.group]
        excess = len(
            [m for m in of_group if not (m.marked or m.state is ReplicaState.DRAINING) or m.id in effect.victims]
        )
        spec.replicas = min(spec.replicas, effect.replicas)
        going = [m for m in of_group if m.id in effect.victims]
        newest = sorted((m for m in of_group if m not in going), key=lambda m: m.id, reverse=True)
        going += newest[: max(0, excess - len(going) - effect.replicas)]
        for member in going:
            self._retire(member)
        if effect.remove:
            del self._specs[effect.group]
        return Applied(f"{', '.join(m.id for m in going) or 'nobody'} goes")

    def _retire(self, member: _Member) -> None:
        member.state = ReplicaState.DRAINING
        self._spawn(self._finish(member))

    def _mark(self, member: _Member, effect: AssignSlot | OpenGate | Drain | Undrain) -> Outcome:
        match effect:
            case AssignSlot(slot=slot):
                for other in self._members.values():
                    if other.slot == slot and other is not member:
                        other.slot = None
                member.slot = slot
            case OpenGate():
                member.gate_open = True
            case Drain():
                member.marked = True
            case Undrain():
                member.marked = False
        return Applied()

    async def _start(self, member: _Member, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if member.state is not ReplicaState.DRAINING:
            member.state = ReplicaState.STARTING
        member.started_at_s = self._now_s()
        try:
            await member.engine.start()
        except OSError:
            member.state = ReplicaState.FAILED
            return
        if member.state is ReplicaState.STARTING:
            member.state = ReplicaState.READY

    async def _finish(self, member: _Member) -> None:
        await member.engine.wait_idle(self._drain_timeout_s)
        await member.engine.stop()
        self._members.pop(member.id, None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _free_port(self) -> int:
        if self._port_base is None:
            return 0
        taken = {int(m.engine.address.rpartition(":")[2]) for m in self._members.values()}
        return next(port for port in itertools.count(self._port_base) if port not in taken)

    def _shown(self, member: _Member) -> Replica:
        limits = member.engine.options.limits
        running = member.engine.running
        return Replica(
            id=member.id,
            group=member.group,
            slot=member.slot,
            address=member.engine.address if member.started_at_s and not member.engine.address.endswith(":0") else "",
            state=ReplicaState.DRAINING if member.marked else member.state,
            recallable=member.marked and member.state is not ReplicaState.DRAINING,
            started_at_s=member.started_at_s,
            revision=_REVISION,
            limits=EngineLimits(
                max_loras=limits.max_loras,
                max_cpu_loras=limits.max_cpu_loras,
                max_lora_rank=limits.max_lora_rank,
                max_num_seqs=limits.max_num_seqs,
                kv_tokens=member.engine.calls.live.model.kv_tokens if running else 0,
            ),
        )
