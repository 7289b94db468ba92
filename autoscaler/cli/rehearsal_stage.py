"""The stage of a rehearsal: what a ring snapshot tells of a fleet, and what a running controller adds to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler.cli.errors import UsageError, read_bytes
from autoscaler.cli.rehearsal import Stage
from autoscaler.cli.remote import Controller
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaSignals, ReplicaState, Tier
from autoscaler.domain.observation import Catalogue, Floats, Traffic
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.catalogue import catalogue_of, parse_catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import Member, MemberState, Ring, RingSnapshot, encode

_UNKNOWN = Missing("a ring snapshot does not tell it")
_SOURCES = ("traffic", "engines")


def stage_of(snapshot: RingSnapshot, policy: FleetPolicy, file: Path, server: Controller | None) -> Stage:
    """The fleet of a snapshot under a policy, with a controller's demand and signals where there is one."""
    live = _Live(server) if server is not None else None
    catalogue = _catalogue(snapshot, policy, file, live)
    tiers, tenant_of = {}, dict(zip(catalogue.ids, catalogue.tenant_of, strict=True))
    for adapter in (*(snapshot.warm if snapshot.warm is not None else catalogue.ids), *snapshot.exceptions):
        if adapter in tenant_of:
            tiers[tenant_of[adapter]] = Tier.WARM
    tiers |= {tenant_of[adapter]: Tier.HOT for adapter in snapshot.hot if adapter in tenant_of}
    limits = live.limits() if live else _generous(len(catalogue.ids))
    replicas = tuple(_replicas(snapshot, catalogue, limits))
    return Stage(
        catalogue=catalogue,
        tiers=tiers,
        groups=_groups(replicas, {g.group: a for a, g in snapshot.hot.items()}, tenant_of),
        replicas=replicas,
        traffic=live.traffic(catalogue) if live else Traffic.unknown(len(catalogue.ids)),
        signals=live.signals() if live else {},
        limits=limits,
        freshness={
            **{s: Fresh(0.0) if live else _UNKNOWN for s in _SOURCES},
            "replicas": Fresh(0.0),
            "publisher": Fresh(0.0),
        },
        epoch=snapshot.epoch,
        body=encode(snapshot),
    )


def unknowns(stage_policy: FleetPolicy, server: Controller | None) -> list[str]:
    """What the answer does not know, a sentence each."""
    if server is not None:
        return ["what comes next: demand is taken to stay as the controller sees it now, and schedules as they are now"]
    limits = stage_policy.engine.limits
    told = [
        "demand: a ring snapshot has no traffic, so nothing is said of what follows from load (promotion, demotion, "
        "replica counts between their bounds, copies of busy adapters); add --server to take it from a controller",
        "queues, KV use and SLOs: not seen either, so no group grows or shrinks for them",
    ]
    if limits.max_loras is None or limits.max_cpu_loras is None:
        told.append(
            "engine limits: the policy says `auto`, so every adapter is taken to fit; state `engine.limits` to have it "
            "counted"
        )
    return told


class _Live:
    """What a running controller shows of the fleet, read once."""

    def __init__(self, server: Controller) -> None:
        self._adapters = {a["adapter"]: a for a in server.pages(server.path("adapters"))}
        self._groups = server.get(server.path("groups"))["items"]

    @property
    def adapters(self) -> Mapping[str, Any]:
        return self._adapters

    def limits(self) -> EngineLimits:
        warm = [r for g in self._groups if g["tier"] == "warm" for r in g["replicas"]]
        slots = [(r["max_loras"], r["max_cpu_loras"]) for r in warm]
        return EngineLimits(*min(slots)) if slots else EngineLimits()

    def traffic(self, catalogue: Catalogue) -> Traffic:
        requests, tokens = (self._column(catalogue, key) for key in ("requests_per_s", "forecast_mean_tokens_per_s"))
        unknown = np.full(len(catalogue.ids), np.nan)
        zero = np.zeros(len(catalogue.ids))
        return Traffic(60.0, requests, zero, tokens, zero, unknown, unknown, Fresh(0.0), Fresh(0.0), Fresh(0.0))

    def signals(self) -> dict[str, ReplicaSignals]:
        return {g["group"]: _mean_signals(g["replicas"]) for g in self._groups if g["replicas"]}

    def _column(self, catalogue: Catalogue, key: str) -> Floats:
        values = ((self._adapters.get(a) or {}).get(key) for a in catalogue.ids)
        return np.array([math.nan if v is None else float(v) for v in values])


def _mean_signals(replicas: list[Any]) -> ReplicaSignals:
    """The mean of what the API shows of a group's replicas."""
    shown = {f.name for f in fields(ReplicaSignals)} & set(replicas[0])
    return ReplicaSignals(**{name: _mean([r[name] for r in replicas]) for name in shown})


def _mean(values: list[Any]) -> Signal:
    known = [v["value"] for v in values if v["value"] is not None]
    return Fresh(sum(known) / len(known)) if known else Missing(values[0]["missing"])


def _catalogue(snapshot: RingSnapshot, policy: FleetPolicy, file: Path, live: _Live | None) -> Catalogue:
    """Adapters of the policy's own catalogue, else of the controller, and any other that the snapshot names."""
    entries = _stated(policy, file)
    if live is not None:
        seen = live.adapters.values()
        entries = {
            a["adapter"]: (a["tenant"], a["source"], a["revision"] or "", a["rank"] or 0) for a in seen
        } | entries
    for adapter in (*(snapshot.warm or ()), *snapshot.exceptions, *snapshot.hot):
        entries.setdefault(adapter, (adapter, "", "", 0))
    return Catalogue.of(entries)


def _stated(policy: FleetPolicy, file: Path) -> dict[str, tuple[str, str, str, int]]:
    if policy.adapters.list is not None:
        found = catalogue_of(policy.adapters.list, policy)
    elif policy.adapters.file is not None:
        path = file.parent / policy.adapters.file
        parsed = parse_catalogue(read_bytes(path, "the policy's catalogue file"), str(path), policy)
        if not isinstance(parsed, Catalogue):
            raise UsageError("; ".join(map(str, parsed[:3])))
        found = parsed
    else:
        return {}
    rows = zip(found.tenant_of, found.sources, found.revisions, found.ranks.tolist(), strict=True)
    return dict(zip(found.ids, rows, strict=True))


def _generous(adapters: int) -> EngineLimits:
    """Limits that never bite: what the engines hold is not known."""
    return EngineLimits(max_loras=2 * adapters + 2, max_cpu_loras=4 * adapters + 4, max_lora_rank=512)


def _replicas(snapshot: RingSnapshot, catalogue: Catalogue, limits: EngineLimits) -> Iterable[Replica]:
    holds: dict[str, set[str]] = {}
    for adapter, slots in zip(catalogue.ids, Ring(snapshot).assigned_many(catalogue.ids), strict=True):
        for slot in slots:
            holds.setdefault(slot, set()).add(adapter)
    for member in snapshot.members:
        yield _replica(member, "warm", frozenset(holds.get(member.slot, ())), limits)
    hot = {(m.replica, g.group): m for g in snapshot.hot.values() for m in g.members}
    for (_, group), member in sorted(hot.items()):
        own = frozenset(a for a, g in snapshot.hot.items() if g.group == group)
        yield _replica(member, group, own, limits)
    for member in snapshot.cold or ():
        yield _replica(member, "cold", frozenset(), limits)


def _replica(member: Member, group: str, held: frozenset[str], limits: EngineLimits) -> Replica:
    """A member as a replica; one whose slot stands vacant is taken to be on its way back."""
    state = ReplicaState.DRAINING if member.state is MemberState.DRAINING else ReplicaState.READY
    name = member.replica or member.slot
    address = member.address or f"{name}:8000"
    return Replica(name, group, member.slot or None, address, state, limits=limits, registered=held)


def _groups(
    replicas: tuple[Replica, ...], adapter_of: Mapping[str, str], tenant_of: Mapping[str, str]
) -> dict[str, Group]:
    counts: dict[str, int] = {"warm": 0}
    for replica in replicas:
        counts[replica.group] = counts.get(replica.group, 0) + 1
    tier = {"warm": Tier.WARM, "cold": Tier.COLD}
    return {
        name: Group(name, tier.get(name, Tier.HOT), count, tenant_of.get(adapter_of.get(name, ""), ""))
        for name, count in counts.items()
    }
