"""The last placement, read in the rows and slots of today's ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.ring.placement import Placement
from autoscaler.ring.ranking import Indices, Ranking, rows_before
from autoscaler.ring.replication import Counts


@dataclass(frozen=True, eq=False, slots=True)
class Previous:
    """Who held what last time.

    Attributes:
        ranking, replication, exceptions, copies: of the last placement, in its own rows and slots.
        rows: (n,) its row of each of today's adapters, -1 for a new one.
        renumbered: today's index of each of its slots, -1 for one that is gone.
        aligned: the adapters are the same, in the same rows.
    """

    ranking: Ranking
    replication: int
    exceptions: Mapping[int, tuple[int, ...]]
    copies: Counts
    rows: Indices
    renumbered: Indices
    aligned: bool

    def copies_now(self) -> Counts:
        """(n,) how many owners each of today's adapters had, 0 for a new one."""
        if self.aligned:
            return self.copies
        return np.where(self.rows >= 0, self.copies[self.rows], 0) if len(self.copies) else np.zeros_like(self.rows)

    def exception_rows(self) -> Indices:
        """Today's rows of the adapters that were exceptions, ascending."""
        if self.aligned:
            return np.array(sorted(self.exceptions), np.intp)
        today = np.full(len(self.ranking.adapters), -1, np.intp)
        known = np.flatnonzero(self.rows >= 0)
        today[self.rows[known]] = known
        found = today[np.fromiter(self.exceptions, np.intp, len(self.exceptions))]
        return np.sort(found[found >= 0])

    def owners(self, rows: Sequence[int] | Indices) -> list[list[int]]:
        """Who held the adapters of today's `rows`, in today's slot indices and rank order; slots now gone left out."""
        if not len(self.ranking.adapters):
            return [[] for _ in rows]
        then = self.rows[rows]
        by_hash = self.renumbered[self.ranking.top[then, : self.replication]].tolist()
        renumbered = self.renumbered.tolist()
        found: list[list[int]] = []
        for row, hashed in zip(then.tolist(), by_hash, strict=True):
            listed = self.exceptions.get(row)
            if row < 0:
                found.append([])
            elif listed is None:
                found.append([slot for slot in hashed if slot >= 0])
            else:
                found.append([renumbered[slot] for slot in listed if renumbered[slot] >= 0])
        return found


def read_previous(ranking: Ranking, placement: Placement, rows: Indices | None = None) -> Previous:
    """`placement` in the rows and slots of `ranking`; `rows` are those of `rows_before`, where they are known."""
    then = placement.ranking
    index_of = {slot: index for index, slot in enumerate(ranking.slots)}
    return Previous(
        then,
        placement.replication,
        placement.exceptions,
        placement.copies,
        rows_before(then, ranking.adapters) if rows is None else rows,
        np.fromiter((index_of.get(slot, -1) for slot in then.slots), np.intp, len(then.slots)),
        then.adapters is ranking.adapters,
    )
