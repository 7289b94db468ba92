"""Other ways to place adapters on slots, each with two owners, as peers of our placement.

Each takes adapters, loads and slots, and the owners it gave last time; it returns the owners of each adapter.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from uhashring import HashRing

from autoscaler.ring.hashing import h64
from autoscaler.ring.ranking import rank

Loads = npt.NDArray[np.float64]
Owners = dict[str, tuple[str, ...]]

REPLICATION = 2
BOUND = 1.25
_VIRTUAL_NODES = 100


def plain_rendezvous(adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Owners) -> Owners:
    """The two slots of highest score, whatever their load."""
    ranking = rank(adapters, slots, REPLICATION)
    names = ranking.slots
    return {a: tuple(names[i] for i in row) for a, row in zip(adapters, ranking.top.tolist(), strict=True)}


def uhashring_plain(adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Owners) -> Owners:
    """The consistent hashing ring of the `uhashring` library, with its defaults."""
    ring = HashRing(nodes=list(slots))
    return {a: tuple(node["nodename"] for node in ring.range(a, size=REPLICATION)) for a in adapters}


def bounded_ring(adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Owners) -> Owners:
    """Consistent hashing with bounded loads (Mirrokni et al., 2016): clockwise to the next below 1.25 of the mean."""
    points = sorted((h64(f"{slot}#{i}"), slot) for slot in slots for i in range(_VIRTUAL_NODES))
    keys, ring = [key for key, _ in points], [slot for _, slot in points]
    limit = BOUND * float(loads.sum()) / len(slots)
    carried = dict.fromkeys(slots, 0.0)
    found: Owners = {}
    for adapter, load in zip(adapters, loads.tolist(), strict=True):
        share, start = load / REPLICATION, bisect(keys, h64(adapter))
        own: list[str] = []
        for step in range(len(ring)):
            slot = ring[(start + step) % len(ring)]
            if slot not in own and carried[slot] + share <= limit:
                own.append(slot)
                if len(own) == REPLICATION:
                    break
        own += sorted((s for s in slots if s not in own), key=carried.__getitem__)[: REPLICATION - len(own)]
        for slot in own:
            carried[slot] += share
        found[adapter] = tuple(own)
    return found


def keep_whatever_was(adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Owners) -> Owners:
    """Owners stay while their slots do; new adapters, and owners that are missing, go to the least loaded slots."""
    alive, carried = set(slots), dict.fromkeys(slots, 0.0)
    found: Owners = {}
    for adapter, load in zip(adapters, loads.tolist(), strict=True):
        found[adapter] = tuple(slot for slot in before.get(adapter, ()) if slot in alive)
        for slot in found[adapter]:
            carried[slot] += load / REPLICATION
    for adapter, load in sorted(zip(adapters, loads.tolist(), strict=True), key=lambda item: -item[1]):
        while len(found[adapter]) < min(REPLICATION, len(slots)):
            slot = min((s for s in slots if s not in found[adapter]), key=carried.__getitem__)
            found[adapter] += (slot,)
            carried[slot] += load / REPLICATION
    return found


def moved_pairs(before: Owners, after: Owners) -> int:
    """(adapter, slot) pairs that appear."""
    return sum(len(set(own) - set(before.get(adapter, ()))) for adapter, own in after.items())


def max_over_mean(owners: Owners, loads: Mapping[str, float], slots: Sequence[str]) -> float:
    """Load of the fullest slot over the mean, each adapter's load shared evenly by its owners."""
    carried = dict.fromkeys(slots, 0.0)
    for adapter, own in owners.items():
        for slot in own:
            carried[slot] += loads[adapter] / len(own)
    mean = sum(carried.values()) / len(slots)
    return max(carried.values()) / mean if mean else 0.0
