"""A router's choice of an engine for one request, from its table and its own requests in flight. Compiled.

Each kind is what the named software does, not a likeness of it: Envoy's least-request draws with replacement and its
bound within a subset (`source/extensions/load_balancing_policies`), a hash ring walked past full ones (as KubeAI's
bounded loads), the endpoint picker's weighted sum of scorers, and ring.md's exact rule for a client of our own.
"""

from __future__ import annotations

import numpy as np

from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import internal
from autoscaler.simulator.engine.layout import NONE, EngineState
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import FleetState, Table

_QUEUE_ROOM, _ACTIVE, _FREE_SLOT, _QUEUED = 1e-9, 1.0, 0.8, 0.6


@internal
def choose(s: EngineState, f: FleetState, table: Table, router: int, adapter: int) -> tuple[int, int]:
    """(engine, cluster) for one more request; engine NONE where nobody may serve it."""
    kind = table.rule[b.KIND]
    if len(table.pool) == 0:
        return NONE, b.BOUNDED
    if kind == b.ROUND_ROBIN:
        f.turn[router] += 1
        return table.pool[f.turn[router] % len(table.pool)], b.BOUNDED
    if kind == b.LEAST_REQUESTS:
        return _least(f, table.pool, len(table.pool), table.rule[b.CHOICES], router, b.BOUNDED), b.BOUNDED
    if kind == b.HASH_RING:
        return _walk(f, table, router, adapter), b.BOUNDED
    if kind == b.SCORED:
        return _best_score(s, f, table, adapter), b.BOUNDED
    return _by_mode(f, table, router, adapter)


@internal
def _by_mode(f: FleetState, table: Table, router: int, adapter: int) -> tuple[int, int]:
    mode, cluster, count = table.mode[adapter], table.cluster[adapter], table.listed[adapter]
    if mode == b.POOL or count == 0:
        return _of_pool(f, table, router, adapter), cluster
    mine = table.candidate[adapter]
    if mode == b.AMONG:
        return _least(f, mine, count, table.rule[b.CHOICES], router, cluster), cluster
    if mode == b.ENVOY_BOUND:
        return _within_bound(f, table, mine, count, 0, router, cluster), cluster
    if mode == b.ENVOY_SHARED:
        owners = table.owners[adapter]
        first = draw(f, owners) * (count // owners)
        return _within_bound(f, table, mine, count, first, router, cluster), cluster
    return _exact(f, table, mine, table.owners[adapter], count, router), cluster


@internal
def _of_pool(f: FleetState, table: Table, router: int, adapter: int) -> int:
    """A name without a subset of its own: the default subset, in the way of the cluster that its route names."""
    pool = table.pool
    if table.rule[b.POOL_MODE] == b.AMONG:
        return _least(f, pool, len(pool), table.rule[b.CHOICES], router, table.cluster[adapter])
    return _within_bound(f, table, pool, len(pool), table.start[adapter], router, table.cluster[adapter])


@internal
def draw(f: FleetState, below: int) -> int:
    """A whole number from 0 to `below` - 1; splitmix64, so that a copy of the state draws the same again."""
    f.total[b.DRAWS] += 1
    z = np.uint64(f.total[b.DRAWS]) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return int(np.int64(z % np.uint64(below)))


@internal
def _least(f: FleetState, among, count: int, choices: int, router: int, cluster: int) -> int:  # type: ignore[no-untyped-def]
    """The least busy of `choices` draws with replacement, as Envoy; of all where `choices` is 0 (ties: by turns)."""
    busy = f.in_flight[router, cluster]
    if choices == 0:
        offset = draw(f, count)
        best = among[offset]
        for i in range(1, count):
            one = among[(offset + i) % count]
            if busy[one] < busy[best]:
                best = one
        return int(best)
    best = among[draw(f, count)]
    for _ in range(choices - 1):
        one = among[draw(f, count)]
        if busy[one] < busy[best]:
            best = one
    return int(best)


@internal
def _within_bound(  # type: ignore[no-untyped-def]
    f: FleetState, table: Table, among, count: int, first: int, router: int, cluster: int
) -> int:
    """Envoy's bounded loads: the preferred one, else the others in a fixed order, else the least overloaded.

    A host may have balance factor x (in flight on the cluster + 1) / (hosts of the subset), rounded up, both times.
    """
    busy = f.in_flight[router, cluster]
    overall = 0
    for e in range(busy.shape[0]):
        overall += busy[e]
    slots = ((overall + 1) * table.rule[b.BOUND_PERCENT] + 99) // 100
    limit = max(1, (slots + count - 1) // count)
    best = among[first % count]
    for i in range(count):
        one = among[(first + i) % count]
        if busy[one] <= limit:
            return int(one)
        if busy[one] < busy[best]:
            best = one
    return int(best)


@internal
def _exact(f: FleetState, table: Table, among, owners: int, count: int, router: int) -> int:  # type: ignore[no-untyped-def]
    """ring.md: the first owner, the others by load, the overflow in rank, and if all are over the least busy owner."""
    busy = f.in_flight[router, b.BOUNDED]
    total = 0
    for e in table.pool:
        total += busy[e]
    share = (table.rule[b.BOUND_PERCENT] * (total + 1) + 100 * len(table.pool) - 1) // (100 * len(table.pool))
    limit = max(table.rule[b.FLOOR], share)
    if busy[among[0]] + 1 <= limit:
        return int(among[0])
    least = among[0]
    for i in range(1, owners):
        if busy[among[i]] < busy[least]:
            least = among[i]
    if busy[least] + 1 <= limit:
        return int(least)
    for i in range(owners, count):
        if busy[among[i]] + 1 <= limit:
            return int(among[i])
    return int(least)


@internal
def _walk(f: FleetState, table: Table, router: int, adapter: int) -> int:
    """Bounded loads on a hash ring: the first engine from the adapter's point on with at most bound x mean in flight.

    As KubeAI: an engine passes while its requests are at most (all + 1) / engines x the load factor.
    """
    busy = f.in_flight[router, b.BOUNDED]
    total = 0
    for e in table.pool:
        total += busy[e]
    limit = (total + 1) / len(table.pool) * (table.rule[b.BOUND_PERCENT] / 100.0)
    points = table.point
    first = points[table.start[adapter]]
    if total == 0:
        return int(first)
    for i in range(len(points)):
        one = points[(table.start[adapter] + i) % len(points)]
        if busy[one] <= limit:
            return int(one)
    return int(first)


@internal
def _best_score(s: EngineState, f: FleetState, table: Table, adapter: int) -> int:
    """The endpoint picker: affinity, queue and free KV cache, weighted; the best, ties by draw.

    Affinity: 1 where the adapter runs, .8 where an adapter slot is free, .6 where it waits. The queue's score is
    relative to the shortest and the longest. Engines' state is taken as it is: fresher than any scrape.
    """
    low, high = s.number[table.pool[0], a.WAITING], s.number[table.pool[0], a.WAITING]
    for e in table.pool:
        low, high = min(low, s.number[e, a.WAITING]), max(high, s.number[e, a.WAITING])
    offset = draw(f, len(table.pool))
    best, score = NONE, -1.0
    row = f.local[adapter]
    for i in range(len(table.pool)):
        e = table.pool[(offset + i) % len(table.pool)]
        number = s.number[e]
        affinity = 0.0
        if s.adapter[e, row, a.A_RUNNING] > 0:
            affinity = _ACTIVE
        elif number[a.DISTINCT] < number[a.SLOTS] and number[a.WAITING] == 0:
            affinity = _FREE_SLOT
        elif s.adapter[e, row, a.A_WAITING] > 0:
            affinity = _QUEUED
        queue = 1.0 if high == low else (high - number[a.WAITING]) / (high - low)
        kv = number[a.FREE_BLOCKS] / number[a.BLOCKS]
        value = table.weight[0] * affinity + table.weight[1] * queue + table.weight[2] * kv
        if value > score + _QUEUE_ROOM:
            best, score = e, value
    return int(best)
