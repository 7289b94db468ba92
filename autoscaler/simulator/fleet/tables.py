"""Routing tables: what each kind of router knows of who is there, built outside the loop when membership changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from autoscaler.connectors.envoy.clusters import WHOLE, balance_percent, ring_cluster
from autoscaler.connectors.envoy.preference import point_of
from autoscaler.connectors.envoy.resources import candidates, spread_names, subset_names
from autoscaler.ring import Choice, Member, MemberState, Ring, RingSnapshot
from autoscaler.ring.hashing import h64_many, scores
from autoscaler.simulator.engine.layout import NONE
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Ints, Table
from autoscaler.simulator.fleet.engines import blank_table

ENVOY_CHOICES = 5
"""What the product's Envoy draws (`connectors.envoy.resources`)."""


class Level(StrEnum):
    """How nearly routers follow ring.md at request time: a client of our own, or stock Envoy."""

    EXACT = "exact"
    ENVOY = "envoy"


def round_robin(pool: Sequence[int], adapters: int) -> Table:
    """Every engine in its turn."""
    return _plain(b.ROUND_ROBIN, pool, adapters)


def least_requests(pool: Sequence[int], adapters: int, choices: int) -> Table:
    """The least busy of `choices` drawn engines; of all where it is 0."""
    return _plain(b.LEAST_REQUESTS, pool, adapters, choices=choices)


def scored(pool: Sequence[int], adapters: int, affinity: float, queue: float, kv: float) -> Table:
    """The endpoint picker's weights."""
    return _plain(b.SCORED, pool, adapters)._replace(weight=np.array([affinity, queue, kv]))


def hash_ring(
    pool: Sequence[int], names: Sequence[str], adapters: Sequence[str], bound_percent: int, points: int
) -> Table:
    """Bounded loads on a consistent ring of `points` per engine; `names` are the engines', in the order of `pool`."""
    owner, start = ring_points(pool, names, adapters, points)
    table = _plain(b.HASH_RING, pool, len(adapters), bound_percent=bound_percent)
    return table._replace(point=owner, start=start)


def among_owners(pool: Sequence[int], owners: Sequence[Sequence[int]], choices: int = 0) -> Table:
    """The less busy of each adapter's owners, given as engines."""
    table = _plain(b.CANDIDATES, pool, len(owners), choices=choices)
    candidate, count = _padded(owners)
    mode = np.full(len(owners), b.AMONG, np.int64)
    return table._replace(mode=mode, candidate=candidate, owners=count, listed=count)


def by_snapshot(snapshot: RingSnapshot, place_of: Mapping[str, int], adapters: Sequence[str], level: Level) -> Table:
    """What routers do with a ring snapshot; `place_of`: replica -> engine, of those that exist."""
    names = subset_names(snapshot, adapters)
    known = [name for name in adapters if name in names]
    owned = dict(zip(known, Ring(snapshot).owners_many(known), strict=True))
    found = candidates(snapshot, known, owned)
    owners = {name: len(own.members) for name, own in owned.items()}
    cold = _places(snapshot.cold or (), place_of)
    pool = cold or _places(snapshot.members, place_of)
    bound = balance_percent(snapshot, found) if level is Level.ENVOY else snapshot.request_bound_percent
    table = _plain(b.CANDIDATES, pool, len(adapters), choices=ENVOY_CHOICES, bound_percent=bound)
    spread, least = spread_names(snapshot), snapshot.choice is Choice.LEAST
    whole = ring_cluster(snapshot) == WHOLE
    active = [member for member in snapshot.members if member.state is MemberState.ACTIVE]
    index = {member.slot: at for at, member in enumerate(active)}
    others = _others(active, index, found, level) if whole else {}
    rows, cut = [], []
    mode, cluster = np.full(len(adapters), b.POOL, np.int64), np.full(len(adapters), b.BOUNDED, np.int64)
    for i, name in enumerate(adapters):
        members: Sequence[Member] = found.get(name, ())
        own = owners.get(name, 0)
        kind, where = (b.AMONG, b.LEAST) if least else (b.ENVOY_BOUND, b.BOUNDED)
        if name in snapshot.hot and members:
            hot = {m.replica for m in snapshot.hot[name].members}
            group = [m for m in members if m.replica in hot and m.state is MemberState.ACTIVE]
            members, kind, where = (group or members), b.AMONG, b.HOT
        elif not least and level is Level.EXACT:
            kind, members = b.EXACT_BOUND, (*members, *(active[at] for at in others.get(name, ())))
        elif whole and members:
            mine = [index[m.slot] for m in (members if name in spread else members[:1])]
            members, kind, own = [active[at] for at in _dealt(mine, others[name])], b.ENVOY_SHARED, len(mine)
        elif name in spread:
            members, kind, where = members[: len(snapshot.exceptions[name])], b.AMONG, b.LEAST
        elif whole and cold:
            where = b.COLD
        places = _places(members, place_of)
        rows.append(places)
        cut.append(min(own, len(places)))
        cluster[i] = where
        if places:
            mode[i] = kind
    candidate, count = _padded(rows)
    rule = table.rule.copy()
    rule[b.FLOOR] = snapshot.request_floor
    rule[b.POOL_MODE] = b.AMONG if least else b.ENVOY_BOUND
    start = ring_points(range(len(pool)), [f"{p}" for p in pool], adapters, max(1, 64 // max(1, len(pool))))
    first = start[0][start[1]] if len(pool) else start[1]
    return table._replace(
        rule=rule, mode=mode, cluster=cluster, candidate=candidate, owners=np.array(cut, np.int64), listed=count,
        start=first,
    )  # fmt: skip


def _others(
    active: Sequence[Member], index: Mapping[str, int], found: Mapping[str, Sequence[Member]], level: Level
) -> dict[str, list[int]]:
    """Who takes what is over the bound where any active member may, in order, as indices of `active`.

    By ring.md those that own it not, in rank. In Envoy all but the first owner, in an order shuffled by the hash of the
    route's text: not Envoy's own shuffle, but one that as many adapters share, and that knows no owners either.
    """
    names = [name for name, members in found.items() if members]
    texts = names if level is Level.EXACT else [point_of(name, found[name][0].slot) for name in names]
    ranked = scores(h64_many(texts), h64_many(member.slot for member in active))
    order = np.argsort(~ranked, axis=1, kind="stable").tolist()
    taken = 1 if level is Level.ENVOY else None
    own = ({index.get(member.slot) for member in found[name][:taken]} for name in names)
    return {name: [at for at in row if at not in mine] for name, row, mine in zip(names, order, own, strict=True)}


def _dealt(owners: Sequence[int], others: Sequence[int]) -> list[int]:
    """Everybody in one order, an owner at each (all // owners)th place: what one cannot take goes on from there."""
    rest = iter([at for at in others if at not in owners])
    stride = (1 + len(others)) // len(owners)
    led = {turn * stride: owner for turn, owner in enumerate(owners)}
    return [led[i] if i in led else next(rest) for i in range(1 + len(others))]


def ring_points(pool: Sequence[int], names: Sequence[str], adapters: Sequence[str], points: int) -> tuple[Ints, Ints]:
    """A consistent ring of XXH64: engines in the order of their points (P), and where each adapter begins (A)."""
    if not len(pool):
        return np.zeros(1, np.int64), np.zeros(len(adapters), np.int64)
    hashes = h64_many(f"{name}_{i}" for name in names for i in range(points))
    owner = np.repeat(np.asarray(pool, np.int64), points)
    order = np.argsort(hashes, kind="stable")
    start = np.searchsorted(hashes[order], h64_many(adapters)) % len(order)
    return owner[order], start.astype(np.int64)


def _plain(kind: int, pool: Sequence[int], adapters: int, *, choices: int = 0, bound_percent: int = 0) -> Table:
    table = blank_table(adapters)
    rule = np.zeros(b.RULES, np.int64)
    rule[b.KIND], rule[b.CHOICES], rule[b.BOUND_PERCENT] = kind, choices, bound_percent
    return table._replace(rule=rule, pool=np.asarray(pool, np.int64))


def _places(members: Sequence[Member], place_of: Mapping[str, int]) -> list[int]:
    return [place_of[m.replica] for m in members if m.state is MemberState.ACTIVE and m.replica in place_of]


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    count = np.fromiter(map(len, rows), np.int64, len(rows))
    table = np.full((len(rows), max(1, int(count.max(initial=0)))), NONE, np.int64)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table, count
