"""Replicas that are real vLLM processes: what a platform does with them, for the controller to act on."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from autoscaler.domain.decisions import (
    Applied,
    AssignSlot,
    Drain,
    Failed,
    Grow,
    OpenGate,
    Outcome,
    PlatformEffect,
    Shrink,
    Skipped,
    Undrain,
)
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaState, Tier
from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port
from tests.vllm.install import MODELS, PYTHON

BASE = "base"
LIMITS = EngineLimits(max_loras=2, max_cpu_loras=4, max_lora_rank=16, max_num_seqs=8)
START_S = 600.0
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
}


@dataclass(slots=True)
class Served:
    """One replica and its process."""

    id: str
    group: str
    port: int
    server: Server
    started_at_s: float
    slot: str | None = None
    marked: bool = False

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"{LOOPBACK}:{self.port}"


class VllmFleet:
    """`autoscaler.ports.FleetActuator`: at most `most` vLLM processes. One that is killed is not started again."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._numbers = itertools.count()
        self._specs: dict[str, tuple[Tier, str, int]] = {}
        self.members: dict[str, Served] = {}

    async def replicas(self) -> tuple[Replica, ...]:
        """Those that have not ended, ascending by id."""
        return tuple(self._shown(self.members[name]) for name in sorted(self.members))

    async def groups(self) -> dict[str, Group]:
        """The groups with the replicas that were asked for."""
        return {name: Group(name, tier, count, tenant) for name, (tier, tenant, count) in sorted(self._specs.items())}

    async def apply(self, effect: PlatformEffect) -> Outcome:
        """Do one effect."""
        match effect:
            case Grow(group=group, replicas=count, tenant=tenant):
                return self._grow(group, count, tenant)
            case Shrink(group=group, replicas=count, victims=victims, remove=remove):
                for name in victims:
                    if name in self.members:
                        self.members.pop(name).server.stop()
                tier, tenant, _ = self._specs[group]
                self._specs[group] = tier, tenant, count
                if remove:
                    del self._specs[group]
                return Applied()
            case AssignSlot(replica=name, slot=slot):
                for other in self.members.values():
                    other.slot = None if other.slot == slot else other.slot
                self.members[name].slot = slot
            case Drain(replica=name) | Undrain(replica=name):
                self.members[name].marked = isinstance(effect, Drain)
            case OpenGate():
                pass
            case _:
                return Skipped("nothing that this platform has")
        return Applied()

    def start(self, group: str) -> Served:
        """One more process, which loads its model meanwhile."""
        name, port = f"{group}-{next(self._numbers):04d}", free_port()
        argv = [
            *("vllm", "serve", str(MODELS / "base"), "--host", LOOPBACK, "--port", str(port)),
            *("--served-model-name", BASE, "--dtype", "float32", "--enforce-eager", "--enable-lora"),
            *("--max-loras", str(LIMITS.max_loras), "--max-cpu-loras", str(LIMITS.max_cpu_loras)),
            *("--max-lora-rank", str(LIMITS.max_lora_rank), "--max-num-seqs", str(LIMITS.max_num_seqs)),
            *("--max-model-len", "1024"),
        ]
        argv[0] = str(PYTHON.parent / "vllm")
        url = f"http://{LOOPBACK}:{port}/health"
        server = Server(name, argv, self._folder, lambda: answers_200(url), environment=ENVIRONMENT)
        server.launch()
        self.members[name] = Served(name, group, port, server, time.time())
        return self.members[name]

    def kill(self, name: str) -> None:
        """End its whole process group as a crash would."""
        self.members.pop(name).server.close()

    async def wait_ready(self) -> None:
        """Until all answer. Raises TimeoutError, with the end of a log."""
        try:
            async with asyncio.timeout(START_S):
                while not all(self._ready(member) for member in self.members.values()):  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(1.0)
        except TimeoutError:
            tails = "\n".join(member.server.log_tail() for member in self.members.values())
            raise TimeoutError(f"vLLM did not start within {START_S:g} s:\n{tails}") from None

    def close(self) -> None:
        """End everything."""
        for member in self.members.values():
            member.server.close()
        self.members.clear()

    def _grow(self, group: str, count: int, tenant: str) -> Outcome:
        tier = Tier.HOT if tenant else Tier.WARM
        here = sum(member.group == group for member in self.members.values())
        if len(self.members) + count - here > self._most:
            return Failed(f"this machine carries {self._most} processes")
        self._specs[group] = tier, tenant, count
        for _ in range(count - here):
            self.start(group)
        return Applied()

    def _ready(self, member: Served) -> bool:
        return answers_200(f"http://{member.address}/health")

    def _shown(self, member: Served) -> Replica:
        ready = ReplicaState.READY if self._ready(member) else ReplicaState.STARTING
        return Replica(
            id=member.id,
            group=member.group,
            slot=member.slot,
            address=member.address,
            state=ReplicaState.DRAINING if member.marked else ready,
            recallable=member.marked,
            started_at_s=member.started_at_s,
            revision="vllm",
            limits=LIMITS,
        )
