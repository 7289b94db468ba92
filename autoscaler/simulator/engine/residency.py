"""Which adapters are in an engine's memory: two LRUs (GPU slots within host slots), loads, pins, evictions. Compiled.

As vLLM's LRU worker manager: a step touches every adapter of its batch; a missing one is read from disk to the host
(evicting the host's least recently used), then copied to a GPU slot (evicting the GPU's). Leaving the host means leaving the
GPU. Pinned adapters are never evicted. Least recently used is the smallest stamp; a scan of at most `max_cpu_loras`
entries happens only on an eviction, which costs 3-130 simulated milliseconds anyway.
"""

from __future__ import annotations

from autoscaler.simulator.engine.compiled import compiled
from autoscaler.simulator.engine.layout import (
    A_ACTIVE,
    A_GPU,
    A_HOST,
    A_ON_DISK,
    A_PINNED,
    A_STAMP,
    C_DISK_LOAD,
    C_GPU_LOAD,
    C_STORE_LOAD,
    DISK_LOADS,
    GPU_EVICTIONS,
    GPU_LOADS,
    GPU_RESIDENT,
    HOST_EVICTIONS,
    HOST_RESIDENT,
    HOST_SLOTS,
    LOAD_TIME,
    NONE,
    PINNED_IDLE,
    SLOTS,
    STAMP,
    EngineState,
)


@compiled
def touch(s: EngineState, e: int, adapter: int) -> None:
    """Make `adapter` the most recently used."""
    s.number[e, STAMP] += 1
    s.adapter[e, adapter, A_STAMP] = s.number[e, STAMP]


@compiled
def make_resident(s: EngineState, e: int, adapter: int) -> int:
    """Bring `adapter` to a GPU slot; the picoseconds this takes (0 if it is there), or NONE if pins and the batch hold every slot."""
    touch(s, e, adapter)
    entry = s.adapter[e, adapter]
    if entry[A_GPU] != NONE:
        return 0
    taken = 0
    if entry[A_HOST] == NONE:
        if s.number[e, HOST_RESIDENT] == s.number[e, HOST_SLOTS] and not _evict_host(s, e):
            return NONE
        taken += int(round(s.cost[e, C_DISK_LOAD] * s.rank_factor[e, adapter, 0]))
        if entry[A_ON_DISK] == 0:
            taken += int(round(s.cost[e, C_STORE_LOAD]))
            entry[A_ON_DISK] = 1
        entry[A_HOST] = s.number[e, HOST_RESIDENT]
        s.host[e, entry[A_HOST]] = adapter
        s.number[e, HOST_RESIDENT] += 1
        s.number[e, DISK_LOADS] += 1
    if s.number[e, GPU_RESIDENT] == s.number[e, SLOTS] and not _evict_gpu(s, e):
        return NONE
    taken += int(round(s.cost[e, C_GPU_LOAD] * s.rank_factor[e, adapter, 1]))
    entry[A_GPU] = s.number[e, GPU_RESIDENT]
    s.gpu[e, entry[A_GPU]] = adapter
    s.number[e, GPU_RESIDENT] += 1
    s.number[e, GPU_LOADS] += 1
    s.number[e, LOAD_TIME] += taken
    if entry[A_PINNED] == 1 and entry[A_ACTIVE] == NONE:
        s.number[e, PINNED_IDLE] += 1
    return taken


@compiled
def forget(s: EngineState, e: int, adapter: int) -> bool:
    """Drop an idle, unpinned adapter from GPU and host; False if it is in the batch or pinned."""
    entry = s.adapter[e, adapter]
    if entry[A_ACTIVE] != NONE or entry[A_PINNED] == 1:
        return False
    _leave_gpu(s, e, adapter)
    _leave_host(s, e, adapter)
    return True


@compiled
def set_pin(s: EngineState, e: int, adapter: int, pinned: bool) -> None:
    """Exempt an adapter from eviction, or make it evictable again."""
    entry = s.adapter[e, adapter]
    if entry[A_GPU] != NONE and entry[A_ACTIVE] == NONE:
        s.number[e, PINNED_IDLE] += int(pinned) - entry[A_PINNED]
    entry[A_PINNED] = int(pinned)


@compiled
def _evict_host(s: EngineState, e: int) -> bool:
    victim = _oldest(s, e, s.host[e], s.number[e, HOST_RESIDENT])
    if victim == NONE:
        return False
    if s.adapter[e, victim, A_GPU] != NONE:
        s.number[e, GPU_EVICTIONS] += 1
    _leave_gpu(s, e, victim)
    _leave_host(s, e, victim)
    s.number[e, HOST_EVICTIONS] += 1
    return True


@compiled
def _evict_gpu(s: EngineState, e: int) -> bool:
    victim = _oldest(s, e, s.gpu[e], s.number[e, GPU_RESIDENT])
    if victim == NONE:
        return False
    _leave_gpu(s, e, victim)
    s.number[e, GPU_EVICTIONS] += 1
    return True


@compiled
def _oldest(s: EngineState, e: int, resident, count: int) -> int:  # type: ignore[no-untyped-def]
    """The least recently used of the first `count` entries that is neither pinned nor in the batch; NONE if there is none."""
    victim = NONE
    for i in range(count):
        entry = s.adapter[e, resident[i]]
        if entry[A_PINNED] == 0 and entry[A_ACTIVE] == NONE:
            if victim == NONE or entry[A_STAMP] < s.adapter[e, victim, A_STAMP]:
                victim = int(resident[i])
    return victim


@compiled
def _leave_gpu(s: EngineState, e: int, adapter: int) -> None:
    at = s.adapter[e, adapter, A_GPU]
    if at != NONE:
        s.number[e, GPU_RESIDENT] -= 1
        last = s.gpu[e, s.number[e, GPU_RESIDENT]]
        s.gpu[e, at] = last
        s.adapter[e, last, A_GPU] = at
        s.adapter[e, adapter, A_GPU] = NONE


@compiled
def _leave_host(s: EngineState, e: int, adapter: int) -> None:
    at = s.adapter[e, adapter, A_HOST]
    if at != NONE:
        s.number[e, HOST_RESIDENT] -= 1
        last = s.host[e, s.number[e, HOST_RESIDENT]]
        s.host[e, at] = last
        s.adapter[e, last, A_HOST] = at
        s.adapter[e, adapter, A_HOST] = NONE
