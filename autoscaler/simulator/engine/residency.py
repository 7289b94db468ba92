"""Which adapters are in an engine's memory: two LRUs (GPU slots within host slots), loads, pins, evictions. Compiled.

As vLLM's LRU worker manager: each step walks the adapters of its batch in a fixed order and makes each the most
recently used; a missing one is first read from disk to the host (evicting the host's least recently used), then copied
to a GPU slot (evicting the GPU's; leaving the host means leaving the GPU). The victim may be a member of the same batch
whose turn has not come yet: it is loaded again a moment later, at another one's cost. That cascade is real: with 64
slots and 384 adapters a measured server loads 6 adapters a request. Pinned adapters are never evicted.
"""

from __future__ import annotations

import numpy as np

from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import compiled, internal
from autoscaler.simulator.engine.layout import NONE, EngineState, EngineView


@internal
def begin_round(v: EngineView) -> None:
    """What is touched from now on is more recent than all before; within a round, recency follows A_ORDER."""
    v.number[a.STAMP] += a.MOST_ADAPTERS


@internal
def touch_batch(v: EngineView) -> int:
    """Picoseconds this step stands still to have all adapters of its batch on the GPU."""
    number, active = v.number, v.lists[a.ACTIVE]
    begin_round(v)
    missing = False
    for i in range(number[a.DISTINCT]):
        missing = missing or v.adapter[active[i], a.A_GPU] == NONE
    if not missing:
        for i in range(number[a.DISTINCT]):
            v.adapter[active[i], a.A_STAMP] = number[a.STAMP] + v.adapter[active[i], a.A_ORDER]
        return 0
    order = np.empty(number[a.DISTINCT], np.int64)
    for i in range(number[a.DISTINCT]):
        order[i] = v.adapter[active[i], a.A_ORDER] * a.MOST_ADAPTERS + active[i]
    stall = 0
    for coded in np.sort(order):
        stall += make_resident(v, coded % a.MOST_ADAPTERS)
    return stall


@internal
def make_resident(v: EngineView, adapter: int) -> int:
    """Bring `adapter` to a GPU slot: the picoseconds this takes, 0 if it is there or pins leave no place for it."""
    v.adapter[adapter, a.A_STAMP] = v.number[a.STAMP] + v.adapter[adapter, a.A_ORDER]
    if v.adapter[adapter, a.A_GPU] != NONE:
        return 0
    taken = 0
    if v.adapter[adapter, a.A_HOST] == NONE:
        if v.number[a.HOST_RESIDENT] == v.number[a.HOST_SLOTS] and not _evict(v, a.HOST, a.HOST_RESIDENT):
            return 0
        taken += v.adapter[adapter, a.A_DISK_LOAD] + v.adapter[adapter, a.A_FIRST_LOAD]
        v.adapter[adapter, a.A_FIRST_LOAD] = 0
        _enter(v, adapter, a.HOST, a.HOST_RESIDENT, a.A_HOST)
        v.number[a.DISK_LOADS] += 1
    if v.number[a.GPU_RESIDENT] == v.number[a.SLOTS] and not _evict(v, a.GPU, a.GPU_RESIDENT):
        return int(taken)
    taken += v.adapter[adapter, a.A_GPU_LOAD]
    _enter(v, adapter, a.GPU, a.GPU_RESIDENT, a.A_GPU)
    v.number[a.GPU_LOADS] += 1
    v.number[a.LOAD_TIME] += taken
    if v.adapter[adapter, a.A_PINNED] == 1 and v.adapter[adapter, a.A_ACTIVE] == NONE:
        v.number[a.PINNED_IDLE] += 1
    return int(taken)


@compiled
def forget(s: EngineState, e: int, adapter: int) -> bool:
    """Drop an idle, unpinned adapter from GPU and host; False if it is in the batch or pinned."""
    v = view(s, e)
    if v.adapter[adapter, a.A_ACTIVE] != NONE or v.adapter[adapter, a.A_PINNED] == 1:
        return False
    _leave(v, adapter, a.GPU, a.GPU_RESIDENT, a.A_GPU)
    _leave(v, adapter, a.HOST, a.HOST_RESIDENT, a.A_HOST)
    return True


@compiled
def set_pin(s: EngineState, e: int, adapter: int, pinned: bool) -> None:
    """Exempt an adapter from eviction, or make it evictable again."""
    v = view(s, e)
    if v.adapter[adapter, a.A_GPU] != NONE and v.adapter[adapter, a.A_ACTIVE] == NONE:
        v.number[a.PINNED_IDLE] += int(pinned) - v.adapter[adapter, a.A_PINNED]
    v.adapter[adapter, a.A_PINNED] = int(pinned)


@internal
def view(s: EngineState, e: int) -> EngineView:
    """Engine `e` of a state."""
    return EngineView(s.number[e], s.real[e], s.batch[e], s.adapter[e], s.lists[e], s.event[e], s.request)


@internal
def _evict(v: EngineView, which: int, count: int) -> bool:
    """Evict the least recently used of the GPU's or the host's adapters; False if all are pinned."""
    victim = NONE
    for i in range(v.number[count]):
        one = v.lists[which, i]
        if v.adapter[one, a.A_PINNED] == 1:
            continue
        if victim == NONE or v.adapter[one, a.A_STAMP] < v.adapter[victim, a.A_STAMP]:
            victim = one
    if victim == NONE:
        return False
    if v.adapter[victim, a.A_GPU] != NONE:
        v.number[a.GPU_EVICTIONS] += 1
        _leave(v, victim, a.GPU, a.GPU_RESIDENT, a.A_GPU)
    if which == a.HOST:
        v.number[a.HOST_EVICTIONS] += 1
        _leave(v, victim, a.HOST, a.HOST_RESIDENT, a.A_HOST)
    return True


@internal
def _enter(v: EngineView, adapter: int, which: int, count: int, place: int) -> None:
    v.adapter[adapter, place] = v.number[count]
    v.lists[which, v.number[count]] = adapter
    v.number[count] += 1


@internal
def _leave(v: EngineView, adapter: int, which: int, count: int, place: int) -> None:
    at = v.adapter[adapter, place]
    if at != NONE:
        v.number[count] -= 1
        last = v.lists[which, v.number[count]]
        v.lists[which, at] = last
        v.adapter[last, place] = at
        v.adapter[adapter, place] = NONE


@internal
def join_batch(v: EngineView, adapter: int) -> None:
    """Book one more running request of `adapter` (NONE: the base model); its first one takes an adapter slot."""
    v.adapter[adapter, a.A_RUNNING] += 1
    if adapter != NONE and v.adapter[adapter, a.A_RUNNING] == 1:
        if v.adapter[adapter, a.A_PINNED] == 1 and v.adapter[adapter, a.A_GPU] != NONE:
            v.number[a.PINNED_IDLE] -= 1
        v.number[a.SET_CHANGES] += 1
        _enter(v, adapter, a.ACTIVE, a.DISTINCT, a.A_ACTIVE)


@internal
def leave_batch(v: EngineView, adapter: int) -> None:
    """Book one running request less; the last one of an adapter gives its slot back."""
    v.adapter[adapter, a.A_RUNNING] -= 1
    if adapter != NONE and v.adapter[adapter, a.A_RUNNING] == 0:
        v.number[a.SET_CHANGES] += 1
        _leave(v, adapter, a.ACTIVE, a.DISTINCT, a.A_ACTIVE)
        if v.adapter[adapter, a.A_PINNED] == 1 and v.adapter[adapter, a.A_GPU] != NONE:
            v.number[a.PINNED_IDLE] += 1
