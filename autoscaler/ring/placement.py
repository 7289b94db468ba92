"""Which slots hold which adapter, as a value: the hash order and the exceptions from it (`place` makes it).

An adapter that is not where the hash says is an exception, and only exceptions need to be told to routers or kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from autoscaler.ring.ranking import Ranking, rank
from autoscaler.ring.replication import Counts, Floats

HOME_BOUND = 1.1
"""An adapter goes (back) to its hash owners only while they stay under this many mean loads: room to wander below c."""

SPARE_DEPTH = 1
"""Ranked slots kept beyond R, so that a step of R needs no ranking from scratch; more would cost every departure."""


class PlacementError(ValueError):
    """The inputs contradict each other; the sentence names the adapter, slot or number, and what it must be."""


class InfeasibleReason(StrEnum):
    """Why an adapter has no place."""

    NO_SLOTS = "NoSlots"  # the ring is empty
    RESIDENTS_FULL = "ResidentsFull"  # fewer slots than owners can hold one more resident


@dataclass(frozen=True, slots=True)
class Infeasible:
    """An adapter that holds no slot: the planner demotes it. `wanted` owners, `found` slots with room for it."""

    adapter: str
    reason: InfeasibleReason
    wanted: int
    found: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a slot may carry.

    Attributes:
        residents_per_slot: L, most adapters on a slot: 0.9 of what the engine keeps in host memory.
        bound: c, most load on a slot in mean loads; > HOME_BOUND. One share more where no slot is below it.
        quiet_load: mean loads below this count as this, so that a nearly idle fleet does not copy its one busy
            adapter to every slot; 0 takes the mean as it is. In the unit of the loads.
    """

    residents_per_slot: int
    bound: float = 1.25
    quiet_load: float = 0.0

    def __post_init__(self) -> None:
        if self.residents_per_slot < 1:
            raise PlacementError(f"residents_per_slot is {self.residents_per_slot}; it must be at least 1")
        if not HOME_BOUND < self.bound < float("inf"):
            raise PlacementError(f"bound is {self.bound}; it must be above {HOME_BOUND}")
        if not 0 <= self.quiet_load < float("inf"):
            raise PlacementError(f"quiet_load is {self.quiet_load}; it must be a finite load of at least 0")


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """Who holds what.

    Attributes:
        ranking: adapters (rows), slots (indices, ascending by id) and the hash order.
        replication: R as asked for; more than the slots there are means all of them.
        exceptions: row -> slot indices in rank order, where they are not the first R of the ranking; () = infeasible.
        copies: (n,) owners of each adapter.
        shares: (n,) load of one copy, in the unit of the loads.
        slot_loads: (m,) sum of shares; slot_residents: (m,) adapters.
        mean: mean load of a slot, in the unit of the loads.
        infeasible: the adapters without a place, and why.
    """

    ranking: Ranking
    replication: int
    exceptions: Mapping[int, tuple[int, ...]]
    copies: Counts
    shares: Floats
    slot_loads: Floats
    slot_residents: Counts
    mean: float
    infeasible: tuple[Infeasible, ...] = ()

    def owners(self, adapter: str) -> tuple[str, ...]:
        """The slots that hold an adapter, best rank first; empty where it has no place. KeyError if unknown."""
        slots = self.ranking.slots
        return tuple(slots[index] for index in self.row_owners(self.ranking.row_of[adapter]))

    def row_owners(self, row: int) -> tuple[int, ...]:
        """The slot indices that hold the adapter of a row, best rank first."""
        found = self.exceptions.get(row)
        return tuple(self.ranking.top[row, : self.replication].tolist()) if found is None else found

    def holders(self, slot: str) -> tuple[str, ...]:
        """The adapters that a slot holds, in row order: what a new replica must load. KeyError if unknown."""
        index = {name: i for i, name in enumerate(self.ranking.slots)}[slot]
        held = (self.ranking.top[:, : self.replication] == index).any(axis=1)
        for row, owners in self.exceptions.items():
            held[row] = index in owners
        return tuple(self.ranking.adapters[row] for row in np.flatnonzero(held).tolist())

    def published_exceptions(self) -> dict[str, tuple[str, ...]]:
        """What a snapshot lists: the exceptions, or every placed adapter where they would pass a third of all."""
        n = len(self.ranking.adapters)
        rows = range(n) if 3 * len(self.exceptions) > n else sorted(self.exceptions)
        names, slots = self.ranking.adapters, self.ranking.slots
        listed = {names[row]: tuple(slots[index] for index in self.row_owners(row)) for row in rows}
        return {adapter: owners for adapter, owners in listed.items() if owners}

    def state(self) -> dict[str, Any]:
        """What the next tick needs, as JSON: R, slots and exceptions (copies beyond R are exceptions too)."""
        names, slots = self.ranking.adapters, self.ranking.slots
        return {
            "replication": self.replication,
            "slots": list(slots),
            "exceptions": {names[row]: [slots[i] for i in owners] for row, owners in sorted(self.exceptions.items())},
        }


def restore(state: Mapping[str, Any], adapters: Sequence[str]) -> Placement:
    """The placement that `state()` kept, for those of its adapters that are still there; loads are not kept (zero)."""
    ranking = rank(adapters, state["slots"], depth=state["replication"] + SPARE_DEPTH)
    index_of = {slot: index for index, slot in enumerate(ranking.slots)}
    exceptions = {
        ranking.row_of[adapter]: tuple(index_of[slot] for slot in owners)
        for adapter, owners in state["exceptions"].items()
        if adapter in ranking.row_of
    }
    return settle(ranking, state["replication"], exceptions, np.zeros(len(ranking.adapters)), mean=0.0)


def settle(
    ranking: Ranking,
    replication: int,
    exceptions: Mapping[int, tuple[int, ...]],
    loads: Floats,
    mean: float,
    infeasible: tuple[Infeasible, ...] = (),
) -> Placement:
    """The placement that these exceptions make, with its loads and residents by slot counted up."""
    n, m = len(ranking.adapters), len(ranking.slots)
    copies = np.full(n, min(replication, m), np.intp)
    rows = np.fromiter(exceptions, np.intp, len(exceptions))
    copies[rows] = [len(owners) for owners in exceptions.values()]
    shares = loads / np.maximum(copies, 1)
    by_hash = np.ones(n, np.bool_)
    by_hash[rows] = False
    hashed = np.where(by_hash, shares, 0.0)
    slot_loads, slot_residents = np.zeros(m), np.zeros(m, np.intp)
    for owner in ranking.top[:, :replication].T:
        slot_loads += np.bincount(owner, hashed, m)
        slot_residents += np.bincount(owner, by_hash, m).astype(np.intp)
    pairs = np.fromiter((slot for owners in exceptions.values() for slot in owners), np.intp)
    slot_loads += np.bincount(pairs, np.repeat(shares[rows], copies[rows]), m)
    slot_residents += np.bincount(pairs, minlength=m)
    return Placement(ranking, replication, exceptions, copies, shares, slot_loads, slot_residents, mean, infeasible)
