"""Where each number of an engine's state lies: plain numpy arrays, so that compiled code can hold many engines.

Axis 0 of every array but `request` is the engine. Times are integer picoseconds: sums over equal steps are then exact,
so jumping over k steps gives bit for bit what k single steps give (int64 picoseconds last 106 days). Rows of `request`
are shared by all engines of one state; row 0 heads the list of free rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PS_PER_S = 1_000_000_000_000
BLOCK_TOKENS = 16
NONE = -1
LOAD_QUEUE = 256

# Columns of `number` (int64): limits, queues and cursors, then counters that only grow.
CLOCK, STEP_END, MAX_SEQS, BUDGET, SLOTS, HOST_SLOTS, BLOCKS, FREE_BLOCKS = range(8)
RUNNING, WAITING, DISTINCT, HEAD, TAIL, STAMP = range(8, 14)
ORDER_FIRST, ORDER_LAST, PENDING_LOADS, LOADS_IN_STEP, PINNED_IDLE, GPU_RESIDENT, HOST_RESIDENT, JUMPING = range(14, 22)
EVENTS, SINCE = range(22, 24)
SUBMITTED, FINISHED_COUNT, ABORTED_COUNT, PREEMPTIONS, GPU_LOADS, DISK_LOADS, GPU_EVICTIONS, HOST_EVICTIONS = range(
    24, 32
)
PROMPT_TOKENS, GENERATED_TOKENS, STEPS, BUSY, LOAD_TIME, SET_CHANGES = range(32, 38)
NUMBERS = 38

# Columns of `real` (float64): costs in picoseconds (`model.configure` writes them), then time integrals of gauges in s.
C_FIXED, C_SEQUENCE, C_CONTEXT, C_PREFILL, C_PREFILL_TOKEN, C_PREFILL_SQUARE, C_ADMIT, C_WAITING = range(8)
C_EAGER, C_GRAPH_TOKENS, C_FACTOR, C_FACTOR_ADAPTER = range(8, 12)
C_LORA, C_LORA_ADAPTER, C_LORA_SEQUENCE, C_LORA_PREFILL_TOKEN = range(12, 16)
RUNNING_S, WAITING_S, KV_S, DISTINCT_S = range(16, 20)
REALS = 20

# Columns of `batch` (int64): one row per running request, in the order of admission.
B_ROW, B_ADAPTER, B_COMPUTED, B_TARGET, B_LEFT, B_TAKES, B_FIRST = range(7)
BATCH_COLUMNS = 7

# Columns of `adapter` (int64): queue heads, places in the lists below (or NONE), what a load takes (A_FIRST_LOAD: what
# comes on top the next time, once), and the place in the order in which a step walks its adapters.
A_RUNNING, A_WAITING, A_HEAD, A_TAIL, A_ACTIVE, A_GPU, A_HOST, A_STAMP, A_PINNED = range(9)
A_GPU_LOAD, A_DISK_LOAD, A_FIRST_LOAD, A_ORDER = range(9, 13)
ADAPTER_COLUMNS = 13
MOST_ADAPTERS = 1 << 20

# Rows of `lists` (int64): adapters in the batch, on the GPU, on the host, and asked for by `request_load`.
ACTIVE, GPU, HOST, LOADING = range(4)

# Columns of `event` (int64) and the kinds of events.
E_TIME, E_REQUEST, E_KIND, E_VALUE = range(4)
FIRST_TOKEN, FINISHED, PREEMPTED, LOADED = range(1, 5)

# Columns of `request` (int64), its states, and in row 0 the number of free rows and the first of them.
R_ID, R_ADAPTER, R_PROMPT, R_OUTPUT, R_GENERATED, R_STATE = range(6)
R_ORDER, R_NEXT, R_PREV, R_GLOBAL_NEXT, R_GLOBAL_PREV = range(6, 11)
REQUEST_COLUMNS = 11
WAITS, RUNS = 1, 2
FREE_ROWS, FIRST_FREE = R_ID, R_NEXT


class EngineState(NamedTuple):
    """E engines that may see adapters 0..A-1 (column A keeps the base model's books)."""

    number: NDArray[np.int64]  # (E, NUMBERS)
    real: NDArray[np.float64]  # (E, REALS)
    batch: NDArray[np.int64]  # (E, max_num_seqs, BATCH_COLUMNS)
    adapter: NDArray[np.int64]  # (E, A + 1, ADAPTER_COLUMNS)
    lists: NDArray[np.int64]  # (E, 4, longest list)
    event: NDArray[np.int64]  # (E, capacity, 4)
    request: NDArray[np.int64]  # (R + 1, REQUEST_COLUMNS)


class EngineView(NamedTuple):
    """One engine of a state: the same arrays without the first axis."""

    number: NDArray[np.int64]
    real: NDArray[np.float64]
    batch: NDArray[np.int64]
    adapter: NDArray[np.int64]
    lists: NDArray[np.int64]
    event: NDArray[np.int64]
    request: NDArray[np.int64]


def event_capacity(max_num_seqs: int) -> int:
    """Events that one engine must have room for: two full steps at the least."""
    return 6 * max_num_seqs + 2 * LOAD_QUEUE


def empty_state(
    engines: int, adapters: int, max_num_seqs: int, slots: int, host_slots: int, requests: int
) -> EngineState:
    """An idle state at clock 0, no adapter resident; sizes are the largest of all its engines."""
    longest = max(slots, host_slots, LOAD_QUEUE)
    state = EngineState(
        number=np.zeros((engines, NUMBERS), np.int64),
        real=np.zeros((engines, REALS), np.float64),
        batch=np.zeros((engines, max_num_seqs, BATCH_COLUMNS), np.int64),
        adapter=np.zeros((engines, adapters + 1, ADAPTER_COLUMNS), np.int64),
        lists=np.zeros((engines, 4, longest), np.int64),
        event=np.zeros((engines, event_capacity(max_num_seqs), 4), np.int64),
        request=np.zeros((1, REQUEST_COLUMNS), np.int64),
    )
    state.adapter[:, :, [A_HEAD, A_TAIL, A_ACTIVE, A_GPU, A_HOST]] = NONE
    # The engine walks the adapters of a batch in the order of a hash table: arbitrary, but the same in every step.
    state.adapter[:, :-1, A_ORDER] = np.random.default_rng(0).permutation(adapters)
    state.number[:, [HEAD, TAIL, STEP_END]] = NONE
    state.number[:, JUMPING] = 1
    return with_more_rows(state, requests)


def with_more_rows(state: EngineState, rows: int) -> EngineState:
    """The same state with `rows` more request rows; the other arrays are shared."""
    return state._replace(request=with_more_free(state.request, rows, R_NEXT, FIRST_FREE, FREE_ROWS))


def with_more_free(
    table: NDArray[np.int64], rows: int, following: int, first_free: int, free_rows: int
) -> NDArray[np.int64]:
    """A table with `rows` more rows, all of them free.

    Free rows are a list through the column `following`; row 0 holds its head in the column `first_free` and its length
    in `free_rows`.
    """
    old = len(table)
    longer = np.concatenate([table, np.zeros((rows, table.shape[1]), np.int64)])
    longer[old:, following] = np.arange(old + 1, old + rows + 1)
    longer[-1, following] = table[0, first_free]
    longer[0, first_free] = old
    longer[0, free_rows] += rows
    return longer
