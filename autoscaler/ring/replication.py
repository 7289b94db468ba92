"""How many owners an adapter has: the fleet's replication factor R, and the copies k that load adds to it.

Copies follow load so that no copy is worth more than half a slot's mean load: without that a bound of 1.25 cannot be
met on skewed traffic (Zipf 1, 512 slots, 100,000 adapters, two owners: the fullest slot has 21 times the mean).
"""

import math
from heapq import heapify, heappop, heappush
from typing import Literal

import numpy as np
import numpy.typing as npt

from autoscaler.ring.hashing import Hashes
from autoscaler.ring.snapshot import Choice

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]

GROW_SHARE = 0.5
"""A copy is added as soon as a share passes this part of the mean load of a slot."""

SHRINK_SHARE = 0.35
"""A copy is taken away only when the shares that remain stay below this part; loads that wander by a fifth flap not."""

SLOT_MARGIN = 0.9
"""The part of an engine's adapter slots that residents may take; the rest is for what the cold tier brings."""

MOST_MISSES = 0.005
"""Requests that may find their adapter in no adapter slot; where fewer do, affinity gains nothing. A load takes some
10 ms, of one request in 200."""

_STEP_UP_MARGIN = 0.95  # R (or `least`) widens only where its residents would leave another 5 % free, or it flaps
_MOST_STEPS = 50
_NEAR = 1e-3  # of the logarithm of the misses


def wanted_copies(loads: Floats, mean: float, slots: int, replication: int, before: Counts | None = None) -> Counts:
    """Copies k of each adapter: grown at once, shrunk with hysteresis, at least R and at most all slots.

    `loads` (n,) and `mean` (a slot's) share a unit; `before` (n,) is the last k, 0 for an adapter that had none. Where
    nothing has load (mean 0), nothing is known about shares, and k stays.
    """
    least = min(replication, slots)
    if mean <= 0:
        return np.full(len(loads), least) if before is None else np.clip(before, least, slots)
    copies = np.full(len(loads), least)
    # Only these can have more than the least: one adapter in a thousand, at Zipf 1.
    large = np.flatnonzero(loads > SHRINK_SHARE * mean * least)
    grown = np.clip(np.ceil(loads[large] / (GROW_SHARE * mean)), least, slots).astype(np.intp)
    copies[large] = grown
    if before is not None:
        shrunk = np.clip(np.ceil(loads[large] / (SHRINK_SHARE * mean)), least, slots).astype(np.intp)
        copies[large] = np.where(before[large] > 0, np.minimum(np.maximum(before[large], grown), shrunk), grown)
    return copies


def spared_copies(
    copies: Counts, loads: Floats, hashes: Hashes, mean: float, *, replication: int, pairs: int, before: Counts
) -> Counts:
    """`copies`, less those that load added where all together pass `pairs`, the residents that all slots can hold.

    A copy is spared where the shares that remain are smallest, one that does not exist yet first, and only while a
    share stays within the mean: beyond that one adapter overloads its slot, and a place for the least one costs less.
    """
    excess = int(copies.sum()) - pairs
    rows = np.flatnonzero(copies > replication)
    if excess <= 0 or not len(rows):
        return copies
    spared = copies.copy()

    def entry(row: int) -> tuple[bool, float, int, int]:
        return bool(spared[row] <= before[row]), float(loads[row] / (spared[row] - 1)), int(hashes[row]), row

    heap = [entry(row) for row in rows.tolist()]
    heapify(heap)
    while heap and excess > 0:
        _, share, _, row = heappop(heap)
        if share <= mean:
            spared[row] -= 1
            excess -= 1
            if spared[row] > replication:
                heappush(heap, entry(row))
    return spared


def held_shares(requests_per_s: Floats, previous: Choice | None = None) -> Floats:
    """The part of an adapter slot that each adapter takes up where it is served, (n,) as the rates, each 0 to 1.

    Che's approximation of an LRU: one asked for at rate r is held with probability 1 - exp(-r T). T is the time within
    which all but `MOST_MISSES` of the requests come again, twice as many where the choice is `least` already, or it
    flaps. The sum is the working set: so many adapter slots are enough, in whatever unit rates are. One that nobody
    asks for takes none; where nobody asks for anything, nothing is known, and each takes one.
    """
    most = float(requests_per_s.max(initial=0.0))
    if most <= 0:
        return np.ones(len(requests_per_s))
    rates = requests_per_s / most
    rates /= rates.sum()
    wanted = math.log(MOST_MISSES * (2.0 if previous is Choice.LEAST else 1.0))
    time = 0.0
    for _ in range(_MOST_STEPS):  # the logarithm of the misses is convex: Newton's method comes from below
        missed = rates * np.exp(-rates * time)
        misses = float(missed.sum())
        if (left := math.log(misses) - wanted) <= _NEAR:
            break
        time += left * misses / float((rates * missed).sum())
    return np.asarray(-np.expm1(-rates * time))


def resolve_replication(
    setting: int | Literal["auto"],
    loads: Floats,
    slots: int,
    *,
    max_loras: int,
    residents_per_slot: int,
    held: Floats | float = 1.0,
    previous: int | None = None,
) -> int:
    """The replication factor R of this tick.

    `auto` is the largest R of at least 2 whose residents (all copies over all slots) take 0.9 of the engines' adapter
    slots, each counted by its part in `held`, and pass `residents_per_slot` nowhere, counted whole; 1 where even 2 pass
    that. It differs from `previous` by at most one, and rises only with 5 % to spare. A number is taken as it is, one
    step a tick. Raises ValueError for a number below 1.
    """
    if setting != "auto" and setting < 1:
        raise ValueError(f"replication is {setting}; it must be at least 1, or auto")
    if slots == 0 or len(loads) == 0:
        return previous or (2 if setting == "auto" else setting)
    target = setting if setting != "auto" else _auto(loads, held, slots, max_loras, residents_per_slot, previous)
    if previous is None:
        return target
    return previous + (target > previous) - (target < previous)


def decide_choice(
    held: Floats, max_loras: int, *, replication: int, slots: int, previous: Choice | None = None
) -> Choice:
    """`least` where affinity gains nothing, else `preferred`.

    That is where all adapters fit the adapter slots of every engine; and where the working set (`held_shares`) does and
    host memory holds so many copies that half of the slots (a third, where it is `least` already) own an adapter: among
    two owners of eight, least requests balance worse than a preferred owner with the bound over all.
    """
    stays = previous is Choice.LEAST
    limit = SLOT_MARGIN * max_loras * (1.0 if stays else _STEP_UP_MARGIN)
    spread = (3 if stays else 2) * replication >= slots
    return Choice.LEAST if len(held) <= limit or (spread and float(held.sum()) <= limit) else Choice.PREFERRED


def _auto(
    loads: Floats, held: Floats | float, slots: int, max_loras: int, residents_per_slot: int, previous: int | None
) -> int:
    # Only the copies without which one adapter overloads its slot: the others are spared where room is short.
    mean = float(loads.sum()) / slots
    by_load = np.clip(np.ceil(loads / mean), 1, slots) if mean > 0 else np.ones(len(loads))

    def fits(replication: int, part: Floats | float, limit: float) -> bool:
        margin = _STEP_UP_MARGIN if previous is not None and replication > previous else 1.0
        residents = float((np.maximum(by_load, min(replication, slots)) * part).sum()) / slots
        return residents <= limit * margin

    if slots < 2 or not fits(2, 1.0, residents_per_slot):
        return 1
    found, most = 2, math.floor(SLOT_MARGIN * max_loras)
    while found < slots and fits(found + 1, held, most) and fits(found + 1, 1.0, residents_per_slot):
        found += 1
    return found
