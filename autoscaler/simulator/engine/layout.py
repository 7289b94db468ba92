"""Where each number of an engine's state lies: plain numpy arrays, so that compiled code can hold many engines.

Axis 0 of every array but `request` is the engine. Times are integer picoseconds: sums over many equal steps are then exact,
which is why jumping over k steps gives bit for bit what k single steps give (int64 picoseconds last 106 days). Rows of
`request` are handed out from a free list shared by all engines of one state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PS_PER_S = 1_000_000_000_000
BLOCK_TOKENS = 16
NONE = -1

# Columns of `number` (int64): configuration, queue sizes, then counters that only grow.
CLOCK, STEP_END, MAX_SEQS, BUDGET, SLOTS, HOST_SLOTS, BLOCKS, FREE_BLOCKS = range(8)
RUNNING, WAITING, DISTINCT, HEAD, TAIL, STAMP = range(8, 14)
ORDER_FIRST, ORDER_LAST, PENDING_LOADS, LOADS_IN_STEP, PINNED_IDLE, GPU_RESIDENT, HOST_RESIDENT, JUMPING = range(14, 22)
EVENTS, SINCE = range(22, 24)
SUBMITTED, FINISHED_COUNT, ABORTED_COUNT, PREEMPTIONS, GPU_LOADS, DISK_LOADS, GPU_EVICTIONS, HOST_EVICTIONS = range(
    24, 32
)
PROMPT_TOKENS, GENERATED_TOKENS, STEPS, BUSY, LOAD_TIME = range(32, 37)
NUMBERS = 37

# Columns of `integral` (float64): the time integral, in seconds, of a gauge.
RUNNING_S, WAITING_S, KV_S, DISTINCT_S = range(4)
INTEGRALS = 4

# Columns of `cost` (float64, picoseconds), see EngineProfile.step_costs.
(
    C_FIXED,
    C_SEQUENCE,
    C_CONTEXT,
    C_PREFILL,
    C_PREFILL_TOKEN,
    C_PREFILL_SQUARE,
    C_ADMIT,
    C_SCAN,
    C_LORA_FACTOR,
    C_LORA_FACTOR_ADAPTER,
    C_LORA_FIXED,
    C_LORA_ADAPTER,
    C_LORA_SEQUENCE,
    C_LORA_PREFILL_TOKEN,
    C_GPU_LOAD,
    C_DISK_LOAD,
    C_STORE_LOAD,
) = range(17)
COSTS = 17

# Columns of `request` (int64).
R_ID, R_ADAPTER, R_PROMPT, R_OUTPUT, R_GENERATED, R_ORDER, R_NEXT, R_PREV, R_GLOBAL_NEXT, R_GLOBAL_PREV, R_STATE = (
    range(11)
)
REQUEST_COLUMNS = 11
WAITS, RUNS = 1, 2

# Columns of `batch` (int64), one row per running request in the order of admission.
B_ROW, B_COMPUTED, B_TARGET, B_LEFT, B_TAKES, B_ADAPTER = range(6)
BATCH_COLUMNS = 6

# Columns of `event` (int64) and the kinds of events.
E_TIME, E_REQUEST, E_KIND, E_VALUE = range(4)
EVENT_COLUMNS = 4
FIRST_TOKEN, FINISHED, PREEMPTED, LOADED = range(1, 5)

LOAD_QUEUE = 256


class EngineState(NamedTuple):
    """The whole state of E engines that may see adapters 0..A-1 (column A stands for the base model)."""

    number: NDArray[np.int64]  # (E, NUMBERS)
    integral: NDArray[np.float64]  # (E, INTEGRALS)
    cost: NDArray[np.float64]  # (E, COSTS)
    rank_factor: NDArray[np.float64]  # (E, A, 2): factor on the disk and GPU load of each adapter
    batch: NDArray[np.int64]  # (E, max_num_seqs, BATCH_COLUMNS)
    adapter: NDArray[np.int64]  # (E, A + 1, ADAPTER_COLUMNS)
    active: NDArray[np.int32]  # (E, slots + 1): adapters with running requests, DISTINCT of them
    gpu: NDArray[np.int32]  # (E, slots): resident on the GPU, GPU_RESIDENT of them
    host: NDArray[np.int32]  # (E, host slots): resident on the host
    loading: NDArray[np.int32]  # (E, LOAD_QUEUE): asked for by load(), not yet done
    event: NDArray[np.int64]  # (E, capacity, EVENT_COLUMNS)
    request: NDArray[np.int64]  # (R, REQUEST_COLUMNS)
    free: NDArray[np.int64]  # (R + 1,): the number of free rows, then their indices


# Columns of `adapter` (int64).
A_RUNNING, A_WAITING, A_HEAD, A_TAIL, A_GPU, A_HOST, A_STAMP, A_PINNED, A_ON_DISK, A_ACTIVE = range(10)
ADAPTER_COLUMNS = 10


def empty_state(
    engines: int, adapters: int, max_num_seqs: int, slots: int, host_slots: int, requests: int, events: int
) -> EngineState:
    """An idle state at clock 0 with every adapter on disk and none resident; `Engine` and the fleet fill in the limits."""
    state = EngineState(
        number=np.zeros((engines, NUMBERS), np.int64),
        integral=np.zeros((engines, INTEGRALS), np.float64),
        cost=np.zeros((engines, COSTS), np.float64),
        rank_factor=np.ones((engines, adapters, 2), np.float64),
        batch=np.zeros((engines, max_num_seqs, BATCH_COLUMNS), np.int64),
        adapter=np.zeros((engines, adapters + 1, ADAPTER_COLUMNS), np.int64),
        active=np.zeros((engines, slots + 1), np.int32),
        gpu=np.zeros((engines, slots), np.int32),
        host=np.zeros((engines, host_slots), np.int32),
        loading=np.zeros((engines, LOAD_QUEUE), np.int32),
        event=np.zeros((engines, events, EVENT_COLUMNS), np.int64),
        request=np.zeros((requests, REQUEST_COLUMNS), np.int64),
        free=np.concatenate([np.array([requests]), np.arange(requests)[::-1]]).astype(np.int64),
    )
    for column in (A_HEAD, A_TAIL, A_GPU, A_HOST, A_ACTIVE):
        state.adapter[:, :, column] = NONE
    state.adapter[:, :, A_ON_DISK] = 1
    for column in (HEAD, TAIL, STEP_END):
        state.number[:, column] = NONE
    state.number[:, JUMPING] = 1
    return state
