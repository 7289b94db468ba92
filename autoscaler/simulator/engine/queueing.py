"""The waiting queue: first come first served, but a request whose adapter has no slot is overtaken. Compiled.

Two doubly linked lists over the same rows, all waiting requests and those of one adapter, so that the scheduler's walk
past 20,000 blocked requests costs one look at the heads of the active adapters' own queues. The base model is adapter
NONE = -1, which indexes the last row of the books.
"""

from __future__ import annotations

from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import internal
from autoscaler.simulator.engine.layout import NONE, PS_PER_S, EngineView


@internal
def account_waiting(v: EngineView, now: int) -> None:
    """Bring the time integral of the queue length up to `now`; call before the length changes."""
    if now > v.number[a.SINCE]:
        v.real[a.WAITING_S] += v.number[a.WAITING] * ((now - v.number[a.SINCE]) / PS_PER_S)
        v.number[a.SINCE] = now


@internal
def enqueue(v: EngineView, row: int, first: bool) -> None:
    """Append a request at the tail, or (a preempted one) at the head."""
    request = v.request
    adapter = request[row, a.R_ADAPTER]
    if first:
        v.number[a.ORDER_FIRST] -= 1
        request[row, a.R_ORDER] = v.number[a.ORDER_FIRST]
        _link(v, row, adapter, NONE, v.adapter[adapter, a.A_HEAD])
        _link_global(v, row, NONE, v.number[a.HEAD])
    else:
        v.number[a.ORDER_LAST] += 1
        request[row, a.R_ORDER] = v.number[a.ORDER_LAST]
        _link(v, row, adapter, v.adapter[adapter, a.A_TAIL], NONE)
        _link_global(v, row, v.number[a.TAIL], NONE)
    request[row, a.R_STATE] = a.WAITS
    v.number[a.WAITING] += 1
    v.adapter[adapter, a.A_WAITING] += 1


@internal
def dequeue(v: EngineView, row: int) -> None:
    """Take a waiting request out of both lists."""
    request = v.request
    adapter = request[row, a.R_ADAPTER]
    before, after = request[row, a.R_PREV], request[row, a.R_NEXT]
    if before == NONE:
        v.adapter[adapter, a.A_HEAD] = after
    else:
        request[before, a.R_NEXT] = after
    if after == NONE:
        v.adapter[adapter, a.A_TAIL] = before
    else:
        request[after, a.R_PREV] = before
    before, after = request[row, a.R_GLOBAL_PREV], request[row, a.R_GLOBAL_NEXT]
    if before == NONE:
        v.number[a.HEAD] = after
    else:
        request[before, a.R_GLOBAL_NEXT] = after
    if after == NONE:
        v.number[a.TAIL] = before
    else:
        request[after, a.R_GLOBAL_PREV] = before
    v.number[a.WAITING] -= 1
    v.adapter[adapter, a.A_WAITING] -= 1


@internal
def _link(v: EngineView, row: int, adapter: int, before: int, after: int) -> None:
    v.request[row, a.R_PREV], v.request[row, a.R_NEXT] = before, after
    if before == NONE:
        v.adapter[adapter, a.A_HEAD] = row
    else:
        v.request[before, a.R_NEXT] = row
    if after == NONE:
        v.adapter[adapter, a.A_TAIL] = row
    else:
        v.request[after, a.R_PREV] = row


@internal
def _link_global(v: EngineView, row: int, before: int, after: int) -> None:
    v.request[row, a.R_GLOBAL_PREV], v.request[row, a.R_GLOBAL_NEXT] = before, after
    if before == NONE:
        v.number[a.HEAD] = row
    else:
        v.request[before, a.R_GLOBAL_NEXT] = row
    if after == NONE:
        v.number[a.TAIL] = row
    else:
        v.request[after, a.R_GLOBAL_PREV] = row


@internal
def slots_left(v: EngineView) -> int:
    """How many further distinct adapters the batch can take; pinned adapters keep their slots even while idle."""
    return v.number[a.SLOTS] - v.number[a.DISTINCT] - v.number[a.PINNED_IDLE]  # type: ignore[no-any-return]


@internal
def next_admissible(v: EngineView) -> int:
    """The earliest waiting request that finds an adapter slot; NONE if nobody waits or all who wait are skipped."""
    if v.number[a.HEAD] == NONE or slots_left(v) > 0:
        return v.number[a.HEAD]  # type: ignore[no-any-return]
    best = v.adapter[NONE, a.A_HEAD]
    for i in range(v.number[a.DISTINCT]):
        head = v.adapter[v.lists[a.ACTIVE, i], a.A_HEAD]
        if head != NONE and (best == NONE or v.request[head, a.R_ORDER] < v.request[best, a.R_ORDER]):
            best = head
    if v.number[a.PINNED_IDLE] > 0:
        for i in range(v.number[a.GPU_RESIDENT]):
            one = v.lists[a.GPU, i]
            head = v.adapter[one, a.A_HEAD]
            if v.adapter[one, a.A_PINNED] == 0 or v.adapter[one, a.A_ACTIVE] != NONE or head == NONE:
                continue
            if best == NONE or v.request[head, a.R_ORDER] < v.request[best, a.R_ORDER]:
                best = head
    return best  # type: ignore[no-any-return]
