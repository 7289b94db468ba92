"""Where each number of a fleet's state lies, beside the engines' own state (`engine.layout`).

Times are integer picoseconds as there. `E` engine places, `A` adapters, `R` routers; an adapter's row is its index in
the trace. The memory that grows with the fleet is the engines': 104 bytes x E x A (40 places x 10,000 adapters: 42 MB).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulator.engine.layout import NONE, with_more_free

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

# Clusters of one router. Envoy counts requests in flight per cluster: one does not see what another sends.
BOUNDED, LEAST, HOT, COLD = range(4)
CLUSTERS = 4

# Columns of `open` (int64): one row per request that is anywhere in the fleet; row 0 heads the list of free rows.
O_ARRIVED, O_ADAPTER, O_ENGINE, O_ROUTER, O_CLUSTER, O_PROMPT, O_OUTPUT, O_FIRST, O_NEXT, O_STATE = range(10)
OPEN_COLUMNS = 10
FREE_ROWS, FIRST_FREE = O_ARRIVED, O_NEXT

# Places of `total` (int64): since the start, then of requests that arrived at or after MEASURED_FROM, then the same of
# those that arrived at or after TRIED_FROM, which a trial sets for its own.
ARRIVED, FINISHED, REFUSED, IN_FLIGHT, MEASURED_FROM, TARGET_PS, MOST_IN_FLIGHT, DRAWS = range(8)
M_ARRIVED, M_FIRST, M_IN_TARGET, M_REFUSED, M_FINISHED, M_TOKENS = range(8, 14)
TRIED_FROM, T_FIRST, T_IN_TARGET = range(14, 17)
TOTALS = 17

# Columns of `pair` (int64): what routers count for an adapter on an engine since the last scrape, when an answer ends.
P_REQUESTS, P_PROMPT, P_OUTPUT, P_TTFT_US = range(4)
PAIR_COLUMNS = 4

# Columns of `load` (int64): an engine's queue of asked-for adapter loads.
L_HEAD, L_COUNT, L_UNDER_WAY, L_PARALLEL = range(4)
LOAD_COLUMNS = 4

# States of `place` (uint8).
EMPTY, SERVING = range(2)

# Edges of the routers' own histogram of time to first byte, ms (Envoy's defaults), and the last bucket without an edge.
ROUTER_EDGES_MS = (
    0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000
)  # fmt: skip
# The fleet's own histogram: bins of 1 % from 1 ms to 2.7 hours.
FINE_FROM_PS, FINE_RATIO, FINE_BINS = 1_000_000_000.0, 1.01, 1_632


class FleetState(NamedTuple):
    """Everything that a window changes besides the engines; all of it can be copied and put back."""

    open: Ints  # (requests + 1, OPEN_COLUMNS)
    in_flight: Ints  # (R, CLUSTERS, E)
    due: Ints  # (E): the picosecond from which an engine has something to do, NONE when idle
    place: Bytes  # (E)
    turn: Ints  # (R): round robin's next place in the table's pool
    total: Ints  # (TOTALS)
    fine: Ints  # (2, FINE_BINS): time to first token of measured requests, of adapters outside and in `watched`
    watched: Bytes  # (A)
    pair: Ints  # (E, A, PAIR_COLUMNS)
    slow: Ints  # (A, edges + 1): the routers' histogram since the last scrape
    seen: Ints  # (A, edges + 1): first tokens since the start, at the moment that they came
    first: Ints  # (E, edges + 1): the engines' own, since their start
    first_us: Ints  # (E): its sum
    load: Ints  # (E, LOAD_COLUMNS)
    asked: Ints  # (E, queue): adapters asked for, a ring
    known: Bytes  # (E, A): registered with the engine's API
    edge: Ints  # (edges): ROUTER_EDGES_MS in picoseconds
    local: Ints  # (A): the row that an engine's books have for an adapter; 0 for all where engines hold one each


# Kinds of routing.
ROUND_ROBIN, LEAST_REQUESTS, HASH_RING, SCORED, CANDIDATES = range(5)

# Modes of an adapter in a table of kind CANDIDATES.
AMONG, ENVOY_BOUND, EXACT_BOUND, POOL, ENVOY_SHARED = range(5)

# Places of `rule` (int64).
KIND, CHOICES, BOUND_PERCENT, FLOOR, POOL_MODE = range(5)
RULES = 5


class Table(NamedTuple):
    """What routers know: a snapshot, so that it may be as old as they are."""

    rule: Ints  # (RULES)
    pool: Ints  # (N): engines that may get requests
    mode: Ints  # (A)
    cluster: Ints  # (A)
    candidate: Ints  # (A, W): engines in order of preference, NONE beyond `listed`
    owners: Ints  # (A): how many of them are owners
    listed: Ints  # (A)
    point: Ints  # (P): engines in the order of a hash ring's points
    start: Ints  # (A): where an adapter's walk over `point` (or, in POOL, over `pool`) begins
    weight: Floats  # (3): affinity, queue, KV use of the scorer


def empty_fleet(
    places: int, adapters: int, routers: int, requests: int, *, load_queue: int = 4096, one_each: bool = False
) -> FleetState:
    """A fleet without an engine. `one_each`: every engine serves one adapter, whichever it is."""
    edges = np.array([round(ms * 1e9) for ms in ROUTER_EDGES_MS], np.int64)
    state = FleetState(
        open=np.zeros((1, OPEN_COLUMNS), np.int64),
        in_flight=np.zeros((routers, CLUSTERS, places), np.int64),
        due=np.full(places, NONE, np.int64),
        place=np.zeros(places, np.uint8),
        turn=np.zeros(routers, np.int64),
        total=np.zeros(TOTALS, np.int64),
        fine=np.zeros((2, FINE_BINS), np.int64),
        watched=np.zeros(adapters, np.uint8),
        pair=np.zeros((1, 1, PAIR_COLUMNS) if one_each else (places, adapters, PAIR_COLUMNS), np.int64),
        slow=np.zeros((adapters, len(edges) + 1), np.int64),
        seen=np.zeros((adapters, len(edges) + 1), np.int64),
        first=np.zeros((places, len(edges) + 1), np.int64),
        first_us=np.zeros(places, np.int64),
        load=np.zeros((places, LOAD_COLUMNS), np.int64),
        asked=np.zeros((places, load_queue), np.int64),
        known=np.zeros((1, 1) if one_each else (places, adapters), np.uint8),
        edge=edges,
        local=np.zeros(adapters, np.int64) if one_each else np.arange(adapters, dtype=np.int64),
    )
    return with_more_open(state, requests)


def with_more_open(state: FleetState, rows: int) -> FleetState:
    """The same state with room for `rows` more requests; the other arrays are shared."""
    return state._replace(open=with_more_free(state.open, rows, O_NEXT, FIRST_FREE, FREE_ROWS))
