"""The waiting queue of an engine: first come first served, but a request whose adapter has no slot is overtaken. Compiled.

Two doubly linked lists over the same rows, all waiting requests and those of one adapter, so that the scheduler's walk past
20,000 blocked requests costs one look at the heads of the active adapters' own queues.
"""

from __future__ import annotations

from autoscaler.simulator.engine.compiled import compiled
from autoscaler.simulator.engine.layout import (
    A_ACTIVE,
    A_HEAD,
    A_RUNNING,
    A_TAIL,
    A_WAITING,
    DISTINCT,
    HEAD,
    NONE,
    ORDER_FIRST,
    ORDER_LAST,
    PINNED_IDLE,
    PS_PER_S,
    R_ADAPTER,
    R_GLOBAL_NEXT,
    R_GLOBAL_PREV,
    R_NEXT,
    R_ORDER,
    R_PREV,
    R_STATE,
    SINCE,
    SLOTS,
    TAIL,
    WAITING,
    WAITING_S,
    WAITS,
    A_GPU,
    A_PINNED,
    EngineState,
)


@compiled
def column_of(s: EngineState, adapter: int) -> int:
    """The column of `EngineState.adapter` that keeps the books of `adapter`: the last one for the base model (NONE)."""
    return s.adapter.shape[1] - 1 if adapter == NONE else adapter


@compiled
def account_waiting(s: EngineState, e: int, now: int) -> None:
    """Bring the time integral of the queue length up to `now`; call before the length changes."""
    number = s.number[e]
    if now > number[SINCE]:
        s.integral[e, WAITING_S] += number[WAITING] * ((now - number[SINCE]) / PS_PER_S)
        number[SINCE] = now


@compiled
def enqueue(s: EngineState, e: int, row: int, first: bool) -> None:
    """Append a request at the tail, or (a preempted one) at the head."""
    number, request = s.number[e], s.request[row]
    own = s.adapter[e, column_of(s, request[R_ADAPTER])]
    if first:
        number[ORDER_FIRST] -= 1
        request[R_ORDER] = number[ORDER_FIRST]
        request[R_PREV] = request[R_GLOBAL_PREV] = NONE
        request[R_NEXT], request[R_GLOBAL_NEXT] = own[A_HEAD], number[HEAD]
    else:
        number[ORDER_LAST] += 1
        request[R_ORDER] = number[ORDER_LAST]
        request[R_NEXT] = request[R_GLOBAL_NEXT] = NONE
        request[R_PREV], request[R_GLOBAL_PREV] = own[A_TAIL], number[TAIL]
    _join(s, e, row)
    request[R_STATE] = WAITS
    number[WAITING] += 1
    own[A_WAITING] += 1


@compiled
def _join(s: EngineState, e: int, row: int) -> None:
    """Make the neighbours of `row` point at it."""
    number, request = s.number[e], s.request[row]
    own = s.adapter[e, column_of(s, request[R_ADAPTER])]
    if request[R_PREV] == NONE:
        own[A_HEAD] = row
    else:
        s.request[request[R_PREV], R_NEXT] = row
    if request[R_NEXT] == NONE:
        own[A_TAIL] = row
    else:
        s.request[request[R_NEXT], R_PREV] = row
    if request[R_GLOBAL_PREV] == NONE:
        number[HEAD] = row
    else:
        s.request[request[R_GLOBAL_PREV], R_GLOBAL_NEXT] = row
    if request[R_GLOBAL_NEXT] == NONE:
        number[TAIL] = row
    else:
        s.request[request[R_GLOBAL_NEXT], R_GLOBAL_PREV] = row


@compiled
def dequeue(s: EngineState, e: int, row: int) -> None:
    """Take a waiting request out of both lists."""
    number, request = s.number[e], s.request[row]
    own = s.adapter[e, column_of(s, request[R_ADAPTER])]
    before, after = request[R_PREV], request[R_NEXT]
    if before == NONE:
        own[A_HEAD] = after
    else:
        s.request[before, R_NEXT] = after
    if after == NONE:
        own[A_TAIL] = before
    else:
        s.request[after, R_PREV] = before
    before, after = request[R_GLOBAL_PREV], request[R_GLOBAL_NEXT]
    if before == NONE:
        number[HEAD] = after
    else:
        s.request[before, R_GLOBAL_NEXT] = after
    if after == NONE:
        number[TAIL] = before
    else:
        s.request[after, R_GLOBAL_PREV] = before
    number[WAITING] -= 1
    own[A_WAITING] -= 1


@compiled
def slots_left(s: EngineState, e: int) -> int:
    """How many further distinct adapters the batch can take; pinned adapters keep their slots even while idle."""
    return s.number[e, SLOTS] - s.number[e, DISTINCT] - s.number[e, PINNED_IDLE]


@compiled
def next_admissible(s: EngineState, e: int) -> int:
    """The earliest waiting request that finds an adapter slot; NONE if nobody waits or everybody who waits is skipped."""
    number = s.number[e]
    head = number[HEAD]
    if head == NONE or slots_left(s, e) > 0:
        return head
    best = s.adapter[e, s.adapter.shape[1] - 1, A_HEAD]
    for i in range(number[DISTINCT]):
        best = _earlier(s, best, s.adapter[e, s.active[e, i], A_HEAD])
    if number[PINNED_IDLE] > 0:
        for i in range(s.adapter.shape[1] - 1):
            own = s.adapter[e, i]
            if own[A_PINNED] == 1 and own[A_GPU] != NONE and own[A_ACTIVE] == NONE:
                best = _earlier(s, best, own[A_HEAD])
    return best


@compiled
def _earlier(s: EngineState, a: int, b: int) -> int:
    if a == NONE:
        return b
    if b == NONE or s.request[a, R_ORDER] < s.request[b, R_ORDER]:
        return a
    return b


@compiled
def join_batch(s: EngineState, e: int, adapter: int) -> None:
    """Book one more running request of `adapter`; its first one takes an adapter slot of the batch."""
    own = s.adapter[e, column_of(s, adapter)]
    own[A_RUNNING] += 1
    if adapter != NONE and own[A_RUNNING] == 1:
        if own[A_PINNED] == 1 and own[A_GPU] != NONE:
            s.number[e, PINNED_IDLE] -= 1
        own[A_ACTIVE] = s.number[e, DISTINCT]
        s.active[e, own[A_ACTIVE]] = adapter
        s.number[e, DISTINCT] += 1


@compiled
def leave_batch(s: EngineState, e: int, adapter: int) -> None:
    """Book one running request less; the last one of an adapter gives its slot back."""
    own = s.adapter[e, column_of(s, adapter)]
    own[A_RUNNING] -= 1
    if adapter != NONE and own[A_RUNNING] == 0:
        s.number[e, DISTINCT] -= 1
        last = s.active[e, s.number[e, DISTINCT]]
        s.active[e, own[A_ACTIVE]] = last
        s.adapter[e, last, A_ACTIVE] = own[A_ACTIVE]
        own[A_ACTIVE] = NONE
        if own[A_PINNED] == 1 and own[A_GPU] != NONE:
            s.number[e, PINNED_IDLE] += 1
