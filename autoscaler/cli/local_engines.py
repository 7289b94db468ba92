"""Simulated engines as a policy describes them and the stock Envoy before them, for the demo and for `run` on one
machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from autoscaler.cli.errors import UsageError
from autoscaler.connectors.engines.client import EngineSettings
from autoscaler.connectors.engines.dialects import VLLM
from autoscaler.connectors.envoy import EnvoyFilePublisher, EnvoyProcess, EnvoySettings, Mode
from autoscaler.domain.decisions import Grow
from autoscaler.domain.fleet import Replica
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import Member, RingSnapshot, encode
from autoscaler.ring.slots import slot_name
from autoscaler.simulator.engine.profile import EngineLimits, load_profile
from autoscaler.simulator.http.adapters import AdapterFiles
from autoscaler.simulator.http.options import DEFAULT_PROFILE, EngineOptions
from autoscaler.simulator.http.pump import Pump
from autoscaler.simulator.local.fleet import LocalFleet

_RANK = 16
_COMPILING_S = 300.0  # the engine model compiles once a process: 3 s on an idle machine


@dataclass(frozen=True, slots=True)
class CatalogueFiles:
    """`AdapterFiles` on which whatever the catalogue names exists, as on a volume that holds every adapter.

    Where the catalogue is what was seen, any name exists: there is no other list to look it up in.
    """

    catalogue: Callable[[], Catalogue]
    any_name: bool = False

    def rank(self, path: str) -> int | None:
        """The rank that the catalogue gives for a source, 16 where it gives none; None for another path."""
        known = self.catalogue()
        if path in known.sources:
            return int(known.ranks[known.sources.index(path)]) or _RANK
        return _RANK if self.any_name else None

    def resolve(self, name: str) -> str | None:
        """The source of a name."""
        known = self.catalogue()
        if name in known.row:
            return known.sources[known.row[name]]
        return f"/adapters/{name}" if self.any_name else None


async def start_engines(
    policy: FleetPolicy, files: AdapterFiles, pump: Pump, port_base: int | None, replicas: int, stack: AsyncExitStack
) -> LocalFleet:
    """A warm group of simulated engines that answer, until the stack ends. Raises UsageError where they do not."""
    usual = _engine_options(policy, files)
    options = replace(usual, start_up_s=0.0)  # the first ones stand for a fleet that serves already
    fleet = LocalFleet(lambda _: options, pump, port_base=port_base)
    stack.push_async_callback(fleet.close)
    await fleet.apply(Grow("warm", replicas))
    options = usual
    try:
        await fleet.wait_ready(_COMPILING_S)
    except TimeoutError as error:
        raise UsageError(
            f"fleet {policy.name}: its simulated engines did not start within {_COMPILING_S:g} s; is this machine busy?"
        ) from error
    return fleet


async def start_envoy(
    settings: EnvoySettings,
    known: Callable[[], tuple[str, ...]],
    mode: Mode,
    stack: AsyncExitStack,
    *,
    process: bool = True,
) -> EnvoyFilePublisher:
    """Envoy's files and, unless somebody else runs it, its process until the stack ends.

    Raises OSError, PermanentError or TemporaryError where the folder, the program or a port cannot be used.
    """
    publisher = EnvoyFilePublisher(settings, known=known, mode=mode)
    publisher.prepare()
    if process:
        running = EnvoyProcess(settings)
        stack.push_async_callback(running.stop)
        await running.start()
    return publisher


def vllm_settings(policy: FleetPolicy) -> EngineSettings:
    """How simulated engines are asked for adapters: they speak vLLM's API."""
    loading = policy.engine.loading
    return EngineSettings(
        VLLM, loading.parallel_per_replica, loading.timeout_s, backoff_s=loading.backoff_s,
        resolver=policy.engine.resolver,
    )  # fmt: skip


def _engine_options(policy: FleetPolicy, files: AdapterFiles) -> EngineOptions:
    """A simulated engine with the policy's limits."""
    limits = policy.engine.limits
    slots = limits.max_loras or 8
    return EngineOptions(
        profile=load_profile(DEFAULT_PROFILE),
        limits=EngineLimits(
            max_loras=slots,
            max_cpu_loras=limits.max_cpu_loras or slots,
            max_lora_rank=limits.max_lora_rank or _RANK,
            max_num_seqs=limits.max_num_seqs or 64,
        ),
        base_model=policy.base_model,
        files=files,
        resolver=policy.engine.resolver,
        stream_interval_tokens=32,
        start_up_s=policy.scaling.startup_s,
    )


def first_ring(policy: FleetPolicy, catalogue: Catalogue, replicas: tuple[Replica, ...], epoch: int = 1) -> bytes:
    """Membership only, by plain hashing: what is there before the controller takes over."""
    members = tuple(Member(r.id, r.address, slot=slot_name(number)) for number, r in enumerate(replicas))
    snapshot = RingSnapshot(
        policy.name, epoch, "2000-01-01T00:00:00Z", 2, members, warm=catalogue.ids, base_models=(policy.base_model,)
    )
    return encode(snapshot)
