"""What a new placement would move, and which of it can wait when the churn budget is short.

A move is one (adapter, slot) pair that appears. It costs half for the load of the adapter, the same for each, and half
for the traffic that meets a cold cache, in proportion to its share: so that all pairs of a fleet cost as much as their
number, and a budget can be thought of in pairs.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from autoscaler.ring.placement import Limits, Placement, settle
from autoscaler.ring.previous import Previous, read_previous
from autoscaler.ring.ranking import Indices
from autoscaler.ring.replication import Floats


class Urgency(IntEnum):
    """What waiting would cost, worst first. The first is never deferred."""

    UNSERVED = 0  # no slot that is left holds the adapter
    OWNER_LOST = 1  # one of its slots left the ring: the others carry its share
    COPY_ADDED = 2  # its load grew beyond its copies
    CROWDED = 3  # a slot that it leaves is above the bound or full
    HOMEWARD = 4  # nothing is wrong where it is: the hash calls it to a new slot, or back


@dataclass(frozen=True, eq=False, slots=True)
class Moves:
    """The pairs that appear, columnar.

    Attributes:
        rows, slots: (q,) adapter row and slot index in the new placement.
        costs: (q,) in pairs of average load.
        urgency: (q,) `Urgency` of the adapter.
    """

    rows: Indices
    slots: Indices
    costs: Floats
    urgency: Indices

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False, slots=True)
class Budgeted:
    """A placement within the budget: what of it moves now, its cost, and the adapters that wait for the next tick."""

    placement: Placement
    moves: Moves
    cost: float
    deferred: tuple[str, ...]


def moves_between(previous: Placement, placement: Placement, limits: Limits) -> Moves:
    """The pairs of `placement` that `previous` did not have.

    A step of R by itself is not counted: where R differs, an adapter that is and was where the hash says moves only by
    slots that joined or left. The planner takes such a step as a whole, from a budget of its own.
    """
    return _moves(_previous(previous, placement), placement, limits)


def within_budget(previous: Placement, placement: Placement, limits: Limits, budget: float) -> Budgeted:
    """The part of `placement` that a budget (in pairs of average load) allows; what is left stays where it was.

    The most urgent moves come first, then the largest share; an adapter moves whole. The last one may overdraw the
    budget, or an adapter that costs more than the bucket holds would wait for ever: charge `cost`, below zero if need
    be. Adapters that no slot holds move at any price. No slot passes its residents because others wait: what would
    come to a full slot waits too.
    """
    before = _previous(previous, placement)
    found = _moves(before, placement, limits)
    if not len(found):
        return Budgeted(placement, found, 0.0, ())
    rows, first = np.unique(found.rows, return_index=True)
    cost = np.bincount(np.searchsorted(rows, found.rows), found.costs)
    urgency = found.urgency[first]
    order = np.lexsort((placement.ranking.hashes[rows], -placement.shares[rows], urgency))
    spent_before = np.concatenate([[0.0], np.cumsum(cost[order])[:-1]])
    goes = np.zeros(len(rows), np.bool_)
    goes[order] = (spent_before < budget) | (urgency[order] == Urgency.UNSERVED)
    wait = set(rows[~goes].tolist())
    held = dict(zip(rows.tolist(), before.owners(rows), strict=True))
    pinned = set(rows[urgency == Urgency.UNSERVED].tolist())
    wait = _with_room(placement, limits, held, wait, pinned)
    if not wait:
        return Budgeted(placement, found, float(cost.sum()), ())
    now = np.array([row not in wait for row in found.rows.tolist()], np.bool_)
    kept = Moves(found.rows[now], found.slots[now], found.costs[now], found.urgency[now])
    names = tuple(placement.ranking.adapters[row] for row in sorted(wait))
    return Budgeted(_staying(placement, held, wait), kept, float(kept.costs.sum()), names)


def _moves(before: Previous, placement: Placement, limits: Limits) -> Moves:
    changed = _changed_rows(before, placement)
    had = before.owners(changed)
    rows, slots, urgency = [], [], []
    for row, held in zip(changed.tolist(), had, strict=True):
        new = [slot for slot in placement.row_owners(row) if slot not in held]
        if new:
            rows += [row] * len(new)
            slots += new
            urgency += [_urgency(placement, limits, before, row, held)] * len(new)
    at = np.array(rows, np.intp)
    return Moves(at, np.array(slots, np.intp), _costs(placement, at), np.array(urgency, np.intp))


def _previous(previous: Placement, placement: Placement) -> Previous:
    return replace(read_previous(placement.ranking, previous), replication=placement.replication)


def _changed_rows(before: Previous, placement: Placement) -> Indices:
    """Rows that may have a new pair: exceptions now or then, new adapters, and hashes that a new slot has won."""
    exceptions = np.fromiter(placement.exceptions, np.intp, len(placement.exceptions))
    changed = np.zeros(len(placement.ranking.adapters), np.bool_)
    changed[exceptions] = True
    changed[before.exception_rows()] = True
    changed[before.rows < 0] = True
    if before.ranking is not placement.ranking and len(before.ranking.adapters):
        then = before.renumbered[before.ranking.top[before.rows, : placement.replication]]
        now = placement.ranking.top[:, : placement.replication]
        width = min(then.shape[1], now.shape[1])
        changed |= (then[:, :width] != now[:, :width]).any(axis=1)
    return np.flatnonzero(changed)


def _urgency(placement: Placement, limits: Limits, before: Previous, row: int, held: list[int]) -> Urgency:
    if not held:
        return Urgency.UNSERVED
    then = int(before.copies[before.rows[row]])
    if len(held) < then:
        return Urgency.OWNER_LOST
    owners = placement.row_owners(row)
    if len(owners) > len(held):
        return Urgency.COPY_ADDED
    share, most = float(placement.shares[row]), limits.bound * placement.mean
    left = [slot for slot in held if slot not in owners]
    crowded = any(
        placement.slot_loads[slot] + share > most or placement.slot_residents[slot] >= limits.residents_per_slot
        for slot in left
    )
    return Urgency.CROWDED if crowded else Urgency.HOMEWARD


def _costs(placement: Placement, rows: Indices) -> Floats:
    pairs, total = float(placement.copies.sum()), float((placement.shares * placement.copies).sum())
    if total <= 0:
        return np.ones(len(rows))
    costs: Floats = 0.5 + 0.5 * placement.shares[rows] * pairs / total
    return costs


def _with_room(
    placement: Placement, limits: Limits, held: dict[int, list[int]], wait: set[int], pinned: set[int]
) -> set[int]:
    """`wait`, and whatever would come to a slot that is full because others wait, until no slot is too full."""
    residents = placement.slot_residents.copy()

    def put_off(row: int) -> None:
        np.subtract.at(residents, list(placement.row_owners(row)), 1)
        np.add.at(residents, held[row], 1)

    wait = set(wait)
    for row in wait:
        put_off(row)
    while True:
        full = set(np.flatnonzero(residents > limits.residents_per_slot).tolist())
        more = sorted(
            row
            for row in held
            if row not in wait
            and row not in pinned
            and not full.isdisjoint(set(placement.row_owners(row)) - set(held[row]))
        )
        if not full or not more:
            return wait
        put_off(more[0])
        wait.add(more[0])


def _staying(placement: Placement, held: dict[int, list[int]], wait: set[int]) -> Placement:
    """`placement`, but the adapters that wait keep what they have of their old slots."""
    exceptions = dict(placement.exceptions)
    for row in sorted(wait):
        exceptions[row] = tuple(held[row])
        if held[row] == placement.ranking.top[row, : placement.replication].tolist():
            del exceptions[row]
    loads = placement.shares * placement.copies
    return settle(placement.ranking, placement.replication, exceptions, loads, placement.mean, placement.infeasible)
