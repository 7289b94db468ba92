"""Which adapters left a replica's memory while others came in: what two looks can show of evictions.

Between two looks an adapter may leave and come back, and that is not seen: counts are a lower bound. Where several left
and several came, who pushed out whom cannot be told, so each shares in it alike; what left while nobody came was not
pushed out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autoscaler.domain.diagnosis import Basis, Place, PushedOut
from autoscaler.domain.fleet import Replica, ReplicaState

FADES_S = 900.0  # what was seen a quarter of an hour ago counts a third
KNOWN_S = 60.0  # seconds of looking before a rate is told
MOST_NAMED = 8  # more that came in at once are told as several
MOST_NAMED_BY = 5
MOST_KEPT = 4000
_FORGOTTEN = 0.02
SEVERAL = ""

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ResidentsMemory:
    """What was resident at the last look, and the evictions seen so far, fading.

    Attributes:
        held: replica -> (start of its process, adapters in its memory).
        pushes: (replica, adapter, who came in) -> evictions.
        looked_s: seconds of looking, fading alike, so that pushes over it is a rate.
    """

    held: Mapping[str, tuple[float, frozenset[str]]] = field(default_factory=dict)
    pushes: Mapping[_Key, float] = field(default_factory=dict)
    looked_s: float = 0.0


def seen(replicas: Iterable[Replica], memory: ResidentsMemory, passed_s: float) -> ResidentsMemory:
    """The memory after one more look. `passed_s`: since the last one; 0 at the first, and nothing is added."""
    held = {
        r.id: (r.started_at_s, r.resident)
        for r in replicas
        if r.resident is not None and r.state in (ReplicaState.READY, ReplicaState.DRAINING)
    }
    if passed_s <= 0:
        return ResidentsMemory(held, memory.pushes, memory.looked_s)
    stays = math.exp(-passed_s / FADES_S)
    pushes = {key: value * stays for key, value in memory.pushes.items() if key[0] in held}
    registered = {r.id: r.registered for r in replicas}
    for replica, (started_at_s, now) in held.items():
        before = memory.held.get(replica)
        if before is None or before[0] != started_at_s:
            continue
        for key, value in _between(replica, before[1], now, registered[replica]):
            pushes[key] = pushes.get(key, 0.0) + value
    kept = {key: value for key, value in pushes.items() if value >= _FORGOTTEN}
    if len(kept) > MOST_KEPT:
        kept = dict(sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:MOST_KEPT])
    return ResidentsMemory(held, kept, memory.looked_s * stays + FADES_S * (1.0 - stays))


def _between(
    replica: str, before: frozenset[str], now: frozenset[str], registered: frozenset[str] | None
) -> Iterable[tuple[_Key, float]]:
    """Evictions between two looks. Each that came in pushed out one at most; what was unregistered was unloaded."""
    came = sorted(now - before)
    left = sorted(before - now if registered is None else (before - now) & registered)
    if not came or not left:
        return
    each = min(1.0, len(came) / len(left))
    by = came if len(came) <= MOST_NAMED else [SEVERAL]
    for adapter in left:
        for one in by:
            yield (replica, adapter, one), each / len(by)


def pushed_out(memory: ResidentsMemory, most: int) -> list[PushedOut]:
    """Evictions from memory of the `most` adapters pushed out most often; none before a minute of looking."""
    if memory.looked_s < KNOWN_S:
        return []
    total: dict[str, float] = {}
    for (_, adapter, _), value in memory.pushes.items():
        total[adapter] = total.get(adapter, 0.0) + value
    often = sorted(total, key=lambda adapter: (-total[adapter], adapter))[:most]
    where: dict[str, dict[str, float]] = {adapter: {} for adapter in often}
    by: dict[str, dict[str, float]] = {adapter: {} for adapter in often}
    for (replica, adapter, one), value in memory.pushes.items():
        if adapter in where:
            where[adapter][replica] = where[adapter].get(replica, 0.0) + value
            by[adapter][one] = by[adapter].get(one, 0.0) + value
    hours = memory.looked_s / 3600.0
    return [
        PushedOut(
            adapter, Place.MEMORY, Basis.SEEN, total[adapter] / hours,
            replicas=tuple(sorted(where[adapter], key=lambda r: (-where[adapter][r], r))), by=_largest(by[adapter]),
        )
        for adapter in often
    ]  # fmt: skip


def _largest(amounts: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    total = sum(amounts.values())
    ordered = sorted(amounts, key=lambda name: (-amounts[name], name))[:MOST_NAMED_BY]
    return tuple((name, amounts[name] / total) for name in ordered) if total > 0 else ()
