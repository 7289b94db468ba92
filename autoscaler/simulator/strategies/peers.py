"""The peers: a router's way of choosing and a scaler's rule, each as its original has it, over one pool of replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.fleet import ReplicaState, Tier
from autoscaler.ring.hashing import h64_many
from autoscaler.ring.ranking import top_ranked
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Ints, Table
from autoscaler.simulator.fleet.platform import Member, Platform
from autoscaler.simulator.fleet.scraping import ScrapedMetrics, ScrapeSettings
from autoscaler.simulator.strategies.scalers import Bounds, Remembered, Scaler, Seen

POOL = "pool"
Router = Callable[[Sequence[Member], Sequence[str]], Table]


def round_robin() -> Router:
    """A Service, or a proxy without knowledge."""
    return lambda members, adapters: tables.round_robin([m.place for m in members], len(adapters))


def least_requests(choices: int) -> Router:
    """Envoy's least request."""
    return lambda members, adapters: tables.least_requests([m.place for m in members], len(adapters), choices)


def bounded_hash(bound_percent: int, points: int = 256) -> Router:
    """KubeAI's prefix hashing keyed by the adapter: 256 points an engine, walked past those over the bound."""
    return lambda members, adapters: tables.hash_ring(
        [m.place for m in members], [m.name for m in members], adapters, bound_percent, points
    )


def rendezvous(owners: int, name_of: Callable[[int, Member], str] = lambda i, member: member.name) -> Router:
    """The less busy of an adapter's first owners by rendezvous hashing, whatever its load.

    `name_of`: what is hashed for the i-th member by name.
    """

    def build(members: Sequence[Member], adapters: Sequence[str]) -> Table:
        by_name = sorted(members, key=lambda m: m.name)
        places = [m.place for m in by_name]
        if not places:
            return tables.among_owners([], [[] for _ in adapters])
        top, _ = top_ranked(h64_many(adapters), h64_many(name_of(i, m) for i, m in enumerate(by_name)), owners)
        return tables.among_owners(places, [[places[i] for i in row] for row in top.tolist()])

    return build


def affinity(weight: float, queue: float = 2.0, kv: float = 2.0) -> Router:
    """The endpoint picker's scorers: LoRA affinity, queue, KV cache use."""
    return lambda members, adapters: tables.scored([m.place for m in members], len(adapters), weight, queue, kv)


def owned(table: Table, place: int) -> Ints:
    """Adapters (A) that a table's routers bring to an engine first, by their row; empty where they do not care."""
    kind = table.rule[b.KIND]
    if kind == b.HASH_RING:
        return np.flatnonzero(table.point[table.start] == place)
    if kind == b.CANDIDATES:
        first = np.arange(table.candidate.shape[1])[None, :] < table.owners[:, None]
        return np.flatnonzero(((table.candidate == place) & first).any(axis=1))
    return np.zeros(0, np.int64)


def warm_as_routed(platform: Platform, table: Table, popularity: Ints) -> None:
    """Fill every engine's memory as the routers would have: what they bring there, then what is popular."""
    rank = np.argsort(popularity)
    for member in platform.serving():
        mine = owned(table, member.place)
        mine = mine[np.argsort(rank[mine])]
        rest = popularity[~np.isin(popularity, mine)]
        platform.engines.warm(member.place, np.concatenate([mine, rest]))


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer with its settings."""

    router: Router
    scaler: Scaler


class PeerFleet:
    """A pool under one peer."""

    def __init__(
        self,
        platform: Platform,
        peer: Peer,
        adapters: Sequence[str],
        popularity: Ints,
        bounds: Bounds,
        scraping: ScrapeSettings,
    ) -> None:
        self._platform, self._peer, self._adapters, self._bounds = platform, peer, adapters, bounds
        self._metrics = ScrapedMetrics(platform, scraping, np.arange(len(adapters)))
        self._memory = Remembered()
        self.resizes = 0
        platform.changed = self._follow
        table = self._table()
        platform.engines.route(table)
        warm_as_routed(platform, table, popularity)
        interval_s = peer.scaler.interval_s
        if bounds.least < bounds.most:
            platform.calendar.every(interval_s, platform.now_s + interval_s, self._scale)

    def _table(self) -> Table:
        return self._peer.router(self._platform.serving(POOL), self._adapters)

    def _follow(self) -> None:
        self._platform.route(self._table())

    def _scale(self) -> None:
        seen = self._seen()
        wanted, self._memory = self._peer.scaler.decide(seen, self._memory, self._bounds)
        self.resizes += int(wanted != seen.current)
        if wanted > seen.current:
            self._platform.resize(POOL, wanted, Tier.WARM)
        elif wanted < seen.current:
            self._platform.shrink(POOL, wanted)

    def _seen(self) -> Seen:
        platform, now_s = self._platform, self._platform.now_s
        ready = platform.serving(POOL)
        heard = [s for m in ready if (s := self._metrics.engine(m.name, now_s)) is not None]
        total = platform.engines.fleet.total
        samples, _ = self._metrics.window(now_s)
        counts = np.sum([s.counts.sum(axis=0) for s in samples], axis=0) if samples else np.zeros(b.PAIR_COLUMNS)
        tokens = float(counts[b.P_PROMPT] + counts[b.P_OUTPUT]) / max(1.0, float(counts[b.P_REQUESTS]))
        alive = [m for m in platform.members.values() if m.state is not ReplicaState.DRAINING]
        return Seen(
            now_s=now_s,
            current=platform.specs[POOL].replicas,
            ready=min(len(ready), len(alive)),
            waiting=tuple(s.waiting for s in heard),
            kv_usage=tuple(s.kv_usage_ratio for s in heard),
            active=float(total[b.IN_FLIGHT]),
            arrived=int(total[b.ARRIVED]),
            tokens_per_request=tokens,
            heard=bool(heard or samples),
        )
