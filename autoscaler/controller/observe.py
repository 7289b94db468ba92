"""One tick's look at the world, through ports, as one `Observation`. Absence becomes a value; nothing raises."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.fleet import Group, PauseMode, Replica, ReplicaSignals, ReplicaState, Router
from autoscaler.domain.observation import Catalogue, Observation
from autoscaler.domain.signals import UNSEEN, Fresh, Missing, Signal
from autoscaler.policy.model import FleetPolicy
from autoscaler.ports import (
    EngineClient,
    FleetActuator,
    HistorySource,
    Metrics,
    MetricsSource,
    OverrideStore,
    PermanentError,
    RingPublisher,
    TemporaryError,
)

_REACHABLE = frozenset({ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STARTING})


@dataclass(frozen=True, slots=True)
class World:
    """What one fleet is seen and changed through; `history` where what routers saw is recorded somewhere."""

    metrics: MetricsSource
    actuator: FleetActuator
    engines: EngineClient
    publisher: RingPublisher
    overrides: OverrideStore
    history: HistorySource | None = None


@dataclass(frozen=True, slots=True)
class _Platform:
    replicas: tuple[Replica, ...]
    groups: Mapping[str, Group]
    freshness: Signal


async def observe(
    world: World,
    policy: FleetPolicy,
    catalogue: Catalogue,
    now_s: float,
    previous: Observation | None,
    conditions: Mapping[str, str],
    pauses: Mapping[str, tuple[PauseMode, str, float]],
) -> Observation:
    """Look once. Where the platform does not answer, the replicas and groups of `previous` stand, and are called stale.

    Raises nothing: what cannot be seen is Missing in `freshness`, so that decisions hold rather than guess. `pauses`:
    group -> (mode, reason, until when).
    """
    platform, routers, published = await asyncio.gather(
        _platform(world.actuator, previous, now_s), _routers(world.publisher, now_s), _published(world.publisher)
    )
    world.engines.keep(frozenset(r.id for r in platform.replicas))
    world.engines.reconsider(catalogue)
    registered, metrics = await asyncio.gather(
        _registered(world.engines, platform.replicas), world.metrics.read(now_s, catalogue, platform.replicas)
    )
    replicas = tuple(_seen(r, policy, platform.groups, metrics, registered.get(r.id)) for r in platform.replicas)
    epoch, body, publisher_seen = published
    return Observation(
        now_s=now_s,
        catalogue=catalogue,
        traffic=metrics.traffic,
        pairs=metrics.pairs,
        replicas=replicas,
        groups=_paused(platform.groups, pauses, now_s),
        routers=tuple(r for r in routers if r.age_s <= policy.ring.router_ttl_s),
        freshness={**metrics.freshness, "replicas": platform.freshness, "publisher": publisher_seen},
        ledger=world.engines.ledger(),
        conditions={**metrics.conditions, **conditions},
        ring_epoch=epoch,
        ring_body=body,
    )


def _seen(
    replica: Replica,
    policy: FleetPolicy,
    groups: Mapping[str, Group],
    metrics: Metrics,
    registered: frozenset[str] | None,
) -> Replica:
    """A replica with what its engine and the routers show now; the policy's limits go before shown ones."""
    limits = dataclasses.replace(replica.limits, **metrics.limits.get(replica.id, {}))
    group = groups.get(replica.group)
    return dataclasses.replace(
        replica,
        limits=limits if group is None else policy.limits(group.tier, limits),
        signals=metrics.replicas.get(replica.id, ReplicaSignals()),
        registered=registered,
        resident=metrics.resident.get(replica.id),
        in_flight=metrics.in_flight.get(replica.id, UNSEEN),
    )


async def _platform(actuator: FleetActuator, previous: Observation | None, now_s: float) -> _Platform:
    try:
        replicas, groups = await asyncio.gather(actuator.replicas(), actuator.groups())
    except (TemporaryError, PermanentError) as error:
        if previous is None:
            return _Platform((), {}, Missing(f"the platform does not answer: {error}"))
        why = f"the platform does not answer: {error}; last seen {now_s - previous.now_s:.0f} s before"
        return _Platform(previous.replicas, previous.groups, Missing(why))
    return _Platform(replicas, groups, Fresh(float(len(replicas))))


async def _routers(publisher: RingPublisher, now_s: float) -> tuple[Router, ...]:
    try:
        return await publisher.routers(now_s)
    except (TemporaryError, PermanentError):
        return ()


async def _published(publisher: RingPublisher) -> tuple[int, bytes | None, Signal]:
    try:
        last = await publisher.last()
    except (TemporaryError, PermanentError) as error:
        return 0, None, Missing(f"the published ring cannot be read: {error}")
    return (0, None, Fresh(0.0)) if last is None else (last[0], last[1], Fresh(float(last[0])))


async def _registered(engines: EngineClient, replicas: Sequence[Replica]) -> dict[str, frozenset[str] | None]:
    reachable = [r for r in replicas if r.state in _REACHABLE and r.address]
    lists = await asyncio.gather(*(engines.registered(r) for r in reachable))
    return dict(zip((r.id for r in reachable), lists, strict=True))


def _paused(
    groups: Mapping[str, Group], pauses: Mapping[str, tuple[PauseMode, str, float]], now_s: float
) -> dict[str, Group]:
    live = {g: (mode, why) for g, (mode, why, expires_at_s) in pauses.items() if expires_at_s > now_s}
    return {
        name: dataclasses.replace(group, pause=live[name][0], pause_reason=live[name][1]) if name in live else group
        for name, group in groups.items()
    }
