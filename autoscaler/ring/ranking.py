"""The best-ranked slots of every adapter, kept from tick to tick and updated by what joined or left.

From scratch, 100,000 adapters x 512 slots are 51 million scores (half a second). A slot that joins is one new score an
adapter; one that leaves concerns only the adapters that had it among their best; the same for adapters. So a tick
costs what changed, and memory holds `depth` slots an adapter (6 MB at depth 4), never the whole matrix (400 MB).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from autoscaler.ring.hashing import Hashes, h64_many, mix, scores

Indices = npt.NDArray[np.intp]
Kind = TypeVar("Kind", bound=np.generic)

# Rows scored at once: 256 x 512 slots x 8 bytes are 1 MiB, which stays in the processor's cache.
_BLOCK_SCORES = 256 * 512


@dataclass(frozen=True, eq=False)
class Ranking:
    """The first `depth` slots of each adapter's ranking.

    Attributes:
        adapters: n distinct ids, in the caller's order.
        row_of: the row of each.
        hashes: (n,) uint64, `h` of each.
        slots: m distinct slot ids, ascending by bytes; every slot index below points into it.
        slot_hashes: (m,) uint64.
        top: (n, depth) slot indices, best first; each column contiguous, as whole columns are what is computed with.
        top_scores: (n, depth) uint64, their scores, laid out alike.
    """

    adapters: tuple[str, ...]
    row_of: Mapping[str, int]
    hashes: Hashes
    slots: tuple[str, ...]
    slot_hashes: Hashes
    top: Indices
    top_scores: Hashes

    @property
    def depth(self) -> int:
        """How many slots of each adapter are known; never more than there are slots."""
        return int(self.top.shape[1])

    def full(self, rows: Sequence[int] | Indices) -> Indices:
        """The whole ranking of some rows: (len(rows), m) slot indices, best first. About 10 us a row at 512 slots."""
        return _best_first(scores(self.hashes[rows], self.slot_hashes))


def rank(adapters: Sequence[str], slots: Iterable[str], depth: int) -> Ranking:
    """Rank from scratch. Raises ValueError where an adapter or a slot is named twice."""
    return _ranking(tuple(adapters), _rows(adapters), h64_many(adapters), _sorted_slots(slots), depth)


def rows_before(previous: Ranking, adapters: Sequence[str]) -> Indices:
    """The row that each of `adapters` had in `previous`, -1 for a new one: (n,)."""
    n = len(adapters)
    if adapters is previous.adapters or tuple(adapters) == previous.adapters:
        return np.arange(n)
    return np.fromiter(map(previous.row_of.get, adapters, repeat(-1)), np.intp, n)


def rerank(
    previous: Ranking, adapters: Sequence[str], slots: Iterable[str], depth: int, rows: Indices | None = None
) -> Ranking:
    """What `rank` returns (perhaps deeper), at the cost of what differs from `previous`; itself where nothing does.

    `rows` are those of `rows_before`, where the caller has them.
    """
    by_id = _sorted_slots(slots)
    kept = set(by_id).intersection(previous.slots)
    deep_enough = previous.depth >= min(depth, len(by_id))
    few_changes = len(by_id) + len(previous.slots) - 2 * len(kept) <= max(len(by_id) // 16, 1)
    by_slots = deep_enough and few_changes
    ranking = _with_adapters(previous, adapters, rows_before(previous, adapters) if rows is None else rows, by_slots)
    if by_id == ranking.slots and deep_enough:
        return ranking
    if not by_slots:
        return _ranking(ranking.adapters, ranking.row_of, ranking.hashes, by_id, depth)
    for slot in ranking.slots:
        if slot not in kept:
            ranking = _without_slot(ranking, slot)
    for slot in by_id:
        if slot not in kept:
            ranking = _with_slot(ranking, slot)
    return ranking


def top_ranked(hashes: Hashes, slot_hashes: Hashes, depth: int) -> tuple[Indices, Hashes]:
    """The best `depth` of m slots for each of n adapters, best first: (n, depth) slot indices and scores.

    `slot_hashes` are in the order of slot ids, so that the lower index wins an equal score.
    """
    n, m = len(hashes), len(slot_hashes)
    depth = min(depth, m)
    top, top_scores = np.empty((depth, n), np.intp).T, np.empty((depth, n), np.uint64).T
    block = max(_BLOCK_SCORES // max(m, 1), 1)
    for start in range(0, n, block):
        rows = slice(start, min(start + block, n))
        matrix = scores(hashes[rows], slot_hashes)
        if 4 * depth > m:
            top[rows] = _best_first(matrix)[:, :depth]
            top_scores[rows] = np.take_along_axis(matrix, top[rows], axis=1)
            continue
        # A few passes for the maximum are six times as fast as a partial sort.
        each = np.arange(matrix.shape[0])
        for place in range(depth):
            best = matrix.argmax(axis=1)
            top[rows, place], top_scores[rows, place] = best, matrix[each, best]
            matrix[each, best] = 0
    return top, top_scores


def _best_first(matrix: Hashes) -> Indices:
    """The order of each row of scores, highest first, lower index on ties: (r, m)."""
    ascending = ~matrix
    order = np.argsort(ascending, axis=1)  # twice as fast as the stable sort, which only ties need
    in_order = np.take_along_axis(ascending, order, axis=1)
    tied = np.flatnonzero((in_order[:, 1:] == in_order[:, :-1]).any(axis=1))
    order[tied] = np.argsort(ascending[tied], axis=1, kind="stable")
    return order


def _rows(adapters: Sequence[str]) -> dict[str, int]:
    row_of = dict(zip(adapters, range(len(adapters)), strict=True))
    if len(row_of) < len(adapters):
        twice = next(name for row, name in enumerate(adapters) if row_of[name] != row)
        raise ValueError(f"adapter {twice!r} is named twice; name each adapter once")
    return row_of


def _sorted_slots(slots: Iterable[str]) -> tuple[str, ...]:
    by_id = tuple(sorted(slots, key=str.encode))
    twice = [slot for slot, following in pairwise(by_id) if slot == following]
    if twice:
        raise ValueError(f"slot {twice[0]!r} is named twice; name each slot once")
    return by_id


def _ranking(
    adapters: tuple[str, ...], row_of: Mapping[str, int], hashes: Hashes, slots: tuple[str, ...], depth: int
) -> Ranking:
    slot_hashes = h64_many(slots)
    top, top_scores = top_ranked(hashes, slot_hashes, depth)
    return Ranking(adapters, row_of, hashes, slots, slot_hashes, top, top_scores)


def _with_adapters(previous: Ranking, adapters: Sequence[str], rows: Indices, ranked: bool) -> Ranking:
    """The rows of `adapters` over the slots of before: known ones copied, new ones hashed and, if asked for, ranked."""
    if len(rows) == len(previous.adapters) and np.array_equal(rows, np.arange(len(rows))):
        return previous
    ids, row_of = tuple(adapters), _rows(adapters)
    new = np.flatnonzero(rows < 0)
    hashes = _taken(previous.hashes, rows)
    hashes[new] = h64_many(ids[row] for row in new.tolist())
    top, top_scores = _taken(previous.top, rows), _taken(previous.top_scores, rows)
    if ranked:
        top[new], top_scores[new] = top_ranked(hashes[new], previous.slot_hashes, previous.depth)
    return Ranking(ids, row_of, hashes, previous.slots, previous.slot_hashes, top, top_scores)


def _taken(array: npt.NDArray[Kind], rows: Indices) -> npt.NDArray[Kind]:
    """Some rows of an array, columns contiguous; rows that are -1 hold anything."""
    if not len(array):
        return np.zeros((*array.shape[:0:-1], len(rows)), array.dtype).T
    return array[rows] if array.ndim == 1 else np.stack([column[rows] for column in array.T]).T


def _without_slot(ranking: Ranking, slot: str) -> Ranking:
    """One slot less: the adapters that had it among their best (depth / m of them) are ranked anew."""
    gone = ranking.slots.index(slot)
    slots = ranking.slots[:gone] + ranking.slots[gone + 1 :]
    slot_hashes = np.delete(ranking.slot_hashes, gone)
    depth = min(ranking.depth, len(slots))
    lost = np.flatnonzero((ranking.top == gone).any(axis=1))
    top = (ranking.top - (ranking.top > gone))[:, :depth]
    top_scores = ranking.top_scores[:, :depth].copy(order="K")
    top[lost], top_scores[lost] = top_ranked(ranking.hashes[lost], slot_hashes, depth)
    return replace(ranking, slots=slots, slot_hashes=slot_hashes, top=top, top_scores=top_scores)


def _with_slot(ranking: Ranking, slot: str) -> Ranking:
    """One slot more: it enters the best of those adapters for which it beats the last of them."""
    slots = tuple(sorted((*ranking.slots, slot), key=str.encode))
    index = slots.index(slot)
    slot_hash = h64_many([slot])
    slot_hashes = np.insert(ranking.slot_hashes, index, slot_hash)
    top, top_scores = ranking.top + (ranking.top >= index), ranking.top_scores.copy(order="K")
    score = mix(ranking.hashes ^ slot_hash)
    won = np.flatnonzero(score >= top_scores[:, -1])
    candidates = np.column_stack([top[won], np.full(len(won), index, np.intp)])
    candidate_scores = np.column_stack([top_scores[won], score[won]])
    order = np.lexsort((candidates, ~candidate_scores), axis=1)[:, : ranking.depth]
    top[won] = np.take_along_axis(candidates, order, axis=1)
    top_scores[won] = np.take_along_axis(candidate_scores, order, axis=1)
    return replace(ranking, slots=slots, slot_hashes=slot_hashes, top=top, top_scores=top_scores)
