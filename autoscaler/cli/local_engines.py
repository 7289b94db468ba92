"""Simulated engines as a policy describes them, for the demo and for `run` on one machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.domain.fleet import Replica
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import Member, RingSnapshot, encode
from autoscaler.ring.slots import slot_name
from autoscaler.simulator.engine.profile import EngineLimits, load_profile
from autoscaler.simulator.http.adapters import AdapterFiles
from autoscaler.simulator.http.options import DEFAULT_PROFILE, EngineOptions

_RANK = 16


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


def engine_options(policy: FleetPolicy, files: AdapterFiles) -> EngineOptions:
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
