"""Arrivals of a trace, a chunk at a time, that can be read again from a mark: what a rewindable run needs, no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from autoscaler.simulator.engine.layout import PS_PER_S
from autoscaler.simulator.fleet.core.layout import Ints
from autoscaler.simulator.traffic import Arrivals

Chunk = tuple[Ints, Ints, Ints, Ints]


class ArrivalStream:
    """Columns in picoseconds. Holds the chunk that is being read, and while a mark stands those since the mark."""

    def __init__(self, chunks: Iterable[Arrivals]) -> None:
        self._source: Iterator[Arrivals] = iter(chunks)
        self._held: deque[Chunk] = deque()
        self._chunk, self._row = 0, 0
        self._mark: tuple[int, int] | None = None

    def ahead(self, until: int) -> Iterator[tuple[Chunk, int]]:
        """(chunk, first row not read) of chunks that begin before `until`; tell `read` how far each was taken."""
        while (chunk := self._current()) is not None and int(chunk[0][self._row]) < until:
            yield chunk, self._row

    def read(self, row: int) -> None:
        """Rows of the current chunk before `row` are taken."""
        self._row = row
        if row == len(self._held[self._chunk][0]):
            self._row = 0
            if self._mark is None:
                self._held.popleft()
            else:
                self._chunk += 1

    def mark(self) -> None:
        """From here on what is read is held, so that `rewind` can come back here."""
        for _ in range(self._chunk):
            self._held.popleft()
        self._chunk = 0
        self._mark = (0, self._row)

    def rewind(self) -> None:
        """Back to the mark, which still stands. Raises ValueError without one."""
        if self._mark is None:
            raise ValueError("there is no mark to rewind to: call mark() first")
        self._chunk, self._row = self._mark

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands, for `go`, as long as the mark stands."""
        return self._chunk, self._row

    def go(self, place: tuple[int, int]) -> None:
        """To a place that was reached since the mark."""
        self._chunk, self._row = place

    def _current(self) -> Chunk | None:
        while self._chunk == len(self._held):
            found = next(self._source, None)
            if found is None:
                return None
            if len(found):
                at = np.round(found.time_s * PS_PER_S).astype(np.int64)
                self._held.append((at, found.adapter, found.prompt_tokens, found.output_tokens))
        return self._held[self._chunk]
