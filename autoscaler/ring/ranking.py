"""The best-ranked slots of every adapter, kept from tick to tick and updated by what joined or left.

From scratch, 100,000 adapters x 512 slots are 51 million scores (half a second). A slot that joins is one new score an
adapter; one that leaves concerns only the adapters that had it among their best; the same for adapters. So a tick
costs what changed, and memory holds `depth` slots an adapter (6 MB at depth 4), never the whole matrix (400 MB).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
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
        hashes: (n,) uint64, `h` of each.
        slots: m distinct slot ids, ascending by bytes; every slot index below points into it.
        slot_hashes: (m,) uint64.
        top: (n, depth) slot indices, best first.
        top_scores: (n, depth) uint64, their scores.
    """

    adapters: tuple[str, ...]
    hashes: Hashes
    slots: tuple[str, ...]
    slot_hashes: Hashes
    top: Indices
    top_scores: Hashes

    @property
    def depth(self) -> int:
        """How many slots of each adapter are known; never more than there are slots."""
        return int(self.top.shape[1])

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Adapter id -> row."""
        return {adapter: row for row, adapter in enumerate(self.adapters)}

    def full(self, rows: Sequence[int] | Indices) -> Indices:
        """The whole ranking of some rows: (len(rows), m) slot indices, best first. About 20 us a row at 512 slots."""
        return np.argsort(~scores(self.hashes[rows], self.slot_hashes), axis=1, kind="stable")


def rank(adapters: Sequence[str], slots: Iterable[str], depth: int) -> Ranking:
    """Rank from scratch. Raises ValueError where an adapter or a slot is named twice."""
    return _ranking(_distinct(adapters, "adapter"), h64_many(adapters), _sorted_slots(slots), depth)


def rerank(previous: Ranking, adapters: Sequence[str], slots: Iterable[str], depth: int) -> Ranking:
    """What `rank` returns (perhaps deeper), at the cost of what differs from `previous`; itself where nothing does."""
    by_id = _sorted_slots(slots)
    same_adapters = adapters is previous.adapters or tuple(adapters) == previous.adapters
    if same_adapters and by_id == previous.slots and previous.depth >= min(depth, len(by_id)):
        return previous
    changed = len(set(by_id) ^ set(previous.slots))
    if previous.depth < min(depth, len(by_id)) or changed > len(by_id) // 8:
        hashes = previous.hashes if same_adapters else _with_adapters(previous, adapters, score=False).hashes
        return _ranking(previous.adapters if same_adapters else tuple(adapters), hashes, by_id, depth)
    ranking = previous if same_adapters else _with_adapters(previous, adapters, score=True)
    if set(ranking.slots) - set(by_id):
        ranking = _without_slots(ranking, tuple(slot for slot in ranking.slots if slot in set(by_id)))
    for slot in sorted(set(by_id) - set(ranking.slots)):
        ranking = _with_slot(ranking, slot)
    return ranking


def top_ranked(hashes: Hashes, slot_hashes: Hashes, depth: int) -> tuple[Indices, Hashes]:
    """The best `depth` of m slots for each of n adapters, best first: (n, depth) slot indices and scores.

    `slot_hashes` are in the order of slot ids, so that the lower index wins an equal score.
    """
    n, m = len(hashes), len(slot_hashes)
    depth = min(depth, m)
    top, top_scores = np.empty((n, depth), np.intp), np.empty((n, depth), np.uint64)
    block = max(_BLOCK_SCORES // max(m, 1), 1)
    for start in range(0, n, block):
        rows = slice(start, min(start + block, n))
        matrix = scores(hashes[rows], slot_hashes)
        if 4 * depth > m:
            top[rows] = np.argsort(~matrix, axis=1, kind="stable")[:, :depth]
            top_scores[rows] = np.take_along_axis(matrix, top[rows], axis=1)
            continue
        # A few passes for the maximum are six times as fast as a partial sort.
        each = np.arange(matrix.shape[0])
        for place in range(depth):
            best = matrix.argmax(axis=1)
            top[rows, place], top_scores[rows, place] = best, matrix[each, best]
            matrix[each, best] = 0
    return top, top_scores


def _distinct(ids: Sequence[str], what: str) -> tuple[str, ...]:
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(name for name in ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{what} {twice!r} is named twice; name each {what} once")
    return tuple(ids)


def _sorted_slots(slots: Iterable[str]) -> tuple[str, ...]:
    return _distinct(sorted(slots, key=str.encode), "slot")


def _ranking(adapters: tuple[str, ...], hashes: Hashes, slots: tuple[str, ...], depth: int) -> Ranking:
    slot_hashes = h64_many(slots)
    top, top_scores = top_ranked(hashes, slot_hashes, depth)
    return Ranking(adapters, hashes, slots, slot_hashes, top, top_scores)


def _with_adapters(previous: Ranking, adapters: Sequence[str], *, score: bool) -> Ranking:
    """The rows of `adapters`: known ones copied, new ones hashed and, if `score`, ranked over the slots of before."""
    ids = _distinct(adapters, "adapter")
    row_of = previous.row_of
    source = np.fromiter((row_of.get(adapter, -1) for adapter in ids), np.intp, len(ids))
    new = np.flatnonzero(source < 0)
    hashes = _taken(previous.hashes, source)
    hashes[new] = h64_many(ids[row] for row in new.tolist())
    top, top_scores = _taken(previous.top, source), _taken(previous.top_scores, source)
    if score:
        top[new], top_scores[new] = top_ranked(hashes[new], previous.slot_hashes, previous.depth)
    return Ranking(ids, hashes, previous.slots, previous.slot_hashes, top, top_scores)


def _taken(array: npt.NDArray[Kind], source: Indices) -> npt.NDArray[Kind]:
    return array[source] if len(array) else np.zeros((len(source), *array.shape[1:]), array.dtype)


def _without_slots(ranking: Ranking, slots: tuple[str, ...]) -> Ranking:
    """Only `slots`: rows that had another among their best are ranked anew (depth / m of them a slot)."""
    index_of = {slot: index for index, slot in enumerate(slots)}
    renumber = np.array([index_of.get(slot, -1) for slot in ranking.slots], np.intp)
    slot_hashes = ranking.slot_hashes[renumber >= 0]
    depth = min(ranking.depth, len(slots))
    top, top_scores = renumber[ranking.top][:, :depth], ranking.top_scores[:, :depth].copy()
    lost = np.flatnonzero((renumber[ranking.top] < 0).any(axis=1))
    top[lost], top_scores[lost] = top_ranked(ranking.hashes[lost], slot_hashes, depth)
    return Ranking(ranking.adapters, ranking.hashes, slots, slot_hashes, top, top_scores)


def _with_slot(ranking: Ranking, slot: str) -> Ranking:
    """One slot more: it enters the best of those adapters for which it beats the last of them."""
    slots = tuple(sorted((*ranking.slots, slot), key=str.encode))
    index = slots.index(slot)
    slot_hash = h64_many([slot])
    slot_hashes = np.insert(ranking.slot_hashes, index, slot_hash)
    top, top_scores = ranking.top + (ranking.top >= index), ranking.top_scores.copy()
    score = mix(ranking.hashes ^ slot_hash)
    won = np.flatnonzero(score >= top_scores[:, -1])
    candidates = np.column_stack([top[won], np.full(len(won), index, np.intp)])
    candidate_scores = np.column_stack([top_scores[won], score[won]])
    order = np.lexsort((candidates, ~candidate_scores), axis=1)[:, : ranking.depth]
    top[won] = np.take_along_axis(candidates, order, axis=1)
    top_scores[won] = np.take_along_axis(candidate_scores, order, axis=1)
    return Ranking(ranking.adapters, ranking.hashes, slots, slot_hashes, top, top_scores)
