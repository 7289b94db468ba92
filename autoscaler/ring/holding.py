"""What each slot must hold so that every replica a snapshot may send a request to knows the adapter."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from autoscaler.ring.placement import Placement
from autoscaler.ring.ranking import Indices, top_ranked


def held_by_slot(
    placement: Placement, standby_count: int = 0, vacant: Collection[str] = ()
) -> dict[str, frozenset[str]]:
    """Slot -> the adapters that it owns or stands by for.

    Standbys are the next `standby_count` slots in rank that are neither owners nor `vacant`, as the snapshot's readers
    find them. Cheapest where `place` was told of as many standbys.
    """
    ranking = placement.ranking
    active = np.array([slot not in vacant for slot in ranking.slots], np.bool_)
    width = min(placement.replication + standby_count, len(ranking.slots))
    by_hash = np.ones(len(ranking.adapters), np.bool_)
    by_hash[list(placement.exceptions)] = False
    in_order = (
        by_hash & active[ranking.top[:, :width]].all(axis=1) if ranking.depth >= width else np.zeros_like(by_hash)
    )
    rows, slots = [np.repeat(np.flatnonzero(in_order), width)], [ranking.top[in_order, :width].ravel()]
    others = np.flatnonzero(~in_order)
    if len(others):
        pairs = _one_by_one(placement, others, standby_count, active)
        rows.append(pairs[0])
        slots.append(pairs[1])
    row, slot = np.concatenate(rows), np.concatenate(slots)
    order = np.argsort(slot, kind="stable")
    edges = np.searchsorted(slot[order], np.arange(len(ranking.slots) + 1))
    names = np.asarray(ranking.adapters, object)[row[order]]
    return {name: frozenset(names[edges[i] : edges[i + 1]].tolist()) for i, name in enumerate(ranking.slots)}


def _one_by_one(
    placement: Placement, rows: Indices, standby_count: int, active: npt.NDArray[np.bool_]
) -> tuple[Indices, Indices]:
    """(rows, slots) of exceptions, and of adapters that have a vacant slot among their first."""
    ranking, open_slots = placement.ranking, np.flatnonzero(active)
    owners = [placement.row_owners(row) for row in rows.tolist()]
    depth = max(map(len, owners)) + standby_count
    top, _ = top_ranked(ranking.hashes[rows], ranking.slot_hashes[open_slots], depth)
    at, held = [], []
    for row, own, candidates in zip(rows.tolist(), owners, open_slots[top].tolist(), strict=True):
        # An adapter without a place (infeasible) has no standbys either.
        standbys = [slot for slot in candidates if slot not in own][:standby_count] if own else []
        held += [*own, *standbys]
        at += [row] * (len(own) + len(standbys))
    return np.array(at, np.intp), np.array(held, np.intp)
