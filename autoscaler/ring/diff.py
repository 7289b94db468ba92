"""What differs between two snapshots: which adapters change slots, pair by pair.

A slot that stands vacant keeps its adapters, so a restart is no move; neither is another order of the same owners, nor
a hot group that comes or goes, since a hot adapter keeps its owners on the ring.
"""

from dataclasses import dataclass
from itertools import zip_longest

from autoscaler.ring.owners import Ring
from autoscaler.ring.snapshot import MemberState, RingSnapshot


@dataclass(frozen=True, slots=True)
class Move:
    """An adapter leaves a slot, comes to one, or both. None stands for no slot on that side."""

    adapter: str
    source: str | None
    target: str | None


def ring_diff(before: RingSnapshot, after: RingSnapshot) -> tuple[Move, ...]:
    """The moves from one snapshot to another, by adapter (in byte order), then by rank.

    The slots that an adapter loses and those it gains are matched in rank order; what is left over has no counterpart.
    Adapters are those that either snapshot names as warm, exception or hot.
    """
    rings = Ring(before), Ring(after)
    names = sorted(_may_differ(before, after), key=str.encode)
    moves = []
    for adapter, had, has in zip(names, rings[0].assigned_many(names), rings[1].assigned_many(names), strict=True):
        if had == has:
            continue
        lost = [slot for slot in had if slot not in has]
        gained = [slot for slot in has if slot not in had]
        moves += [Move(adapter, source, target) for source, target in zip_longest(lost, gained)]
    return tuple(moves)


def _may_differ(before: RingSnapshot, after: RingSnapshot) -> set[str]:
    """All names, or only exceptions and newcomers where the hash places alike in both."""
    if _places_by(before) == _places_by(after) and before.warm is not None and after.warm is not None:
        return {*before.exceptions, *after.exceptions} | (set(before.warm) ^ set(after.warm))
    return _named(before) | _named(after)


def _places_by(snapshot: RingSnapshot) -> tuple[int, frozenset[str]]:
    ranked = (member.slot for member in snapshot.members if member.state is not MemberState.DRAINING)
    return snapshot.replication_factor, frozenset(ranked)


def _named(snapshot: RingSnapshot) -> set[str]:
    return {*(snapshot.warm or ()), *snapshot.exceptions, *snapshot.hot}
