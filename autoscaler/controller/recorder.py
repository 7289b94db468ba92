"""Bucket means of the largest tenants, days back and bounded in memory: what a model is trained on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.forecasting import ForecastMemory, ForecastSettings

MOST_SERIES = 4096
"""Tenants whose rates are kept: with seven days of ten-minute buckets 17 MB, and the model speaks for no more."""

Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Rates [T, S] in requests/s, oldest first; NaN = unknown. `end_s` is the last bucket's end."""

    ids: tuple[str, ...]
    rates: Floats32
    end_s: float


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    bucket: int
    ids: tuple[str, ...]
    rates: Floats32
    known: bool


class Recorder:
    """Follows a memory from tick to tick and keeps what its buckets were. Under other settings it starts anew."""

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._most_series = most_series
        self._rows: deque[_Row] = deque()
        self._bucket_s = 0.0
        self._next: int | None = None
        self._chosen_of: tuple[str, ...] = ()
        self._chosen: tuple[tuple[str, ...], npt.NDArray[np.int64]] = ((), np.zeros(0, np.int64))
        self._chosen_at = 0

    def follow(self, memory: ForecastMemory, settings: ForecastSettings, history_s: float) -> None:
        """Take in the buckets that closed since the last look; what is older than `history_s` is dropped."""
        if not np.isfinite(memory.bucket_start_s):
            return
        open_bucket = round(memory.bucket_start_s / settings.bucket_s)
        if settings.bucket_s != self._bucket_s or self._next is None or open_bucket < self._next:
            self._rows.clear()
            self._bucket_s, self._next = settings.bucket_s, open_bucket - len(memory.series.day)
        day = memory.series.day
        for bucket in range(max(self._next, open_bucket - len(day)), open_bucket):
            self._put(bucket, memory, day[len(day) - (open_bucket - bucket)], settings)
        self._next = open_bucket
        while self._rows and self._rows[0].bucket < open_bucket - history_s / settings.bucket_s:
            self._rows.popleft()

    @property
    def known_buckets(self) -> int:
        """Buckets that are kept and in which anything is known."""
        return sum(row.known for row in self._rows)

    def history(self) -> History:
        """What is kept of the tenants that the newest bucket has; a bucket that was not kept is unknown."""
        rows = tuple(self._rows)
        if not rows:
            return History((), np.zeros((0, 0), np.float32), 0.0)
        first, newest = rows[0].bucket, rows[-1]
        rates = np.full((newest.bucket - first + 1, len(newest.ids)), np.nan, np.float32)
        row_of = {name: i for i, name in enumerate(newest.ids)}
        source: npt.NDArray[np.int64] | None = None
        of: tuple[str, ...] | None = None
        for kept in rows:
            if kept.ids is newest.ids:
                rates[kept.bucket - first] = kept.rates
                continue
            if kept.ids is not of:
                source, of = np.fromiter((row_of.get(n, -1) for n in kept.ids), np.int64, len(kept.ids)), kept.ids
            assert source is not None
            rates[kept.bucket - first, source[source >= 0]] = kept.rates[source >= 0]
        return History(newest.ids, rates, (newest.bucket + 1) * self._bucket_s)

    def _put(self, bucket: int, memory: ForecastMemory, row: Floats32, settings: ForecastSettings) -> None:
        ids, columns = self._choose(bucket, memory, settings)
        kept = row if ids is memory.ids else row[columns]
        self._rows.append(_Row(bucket, ids, kept, not bool(np.isnan(kept).all())))

    def _choose(
        self, bucket: int, memory: ForecastMemory, settings: ForecastSettings
    ) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
        """The tenants to keep: all, or the largest by their mean rate of a day, chosen anew once a day."""
        if len(memory.ids) <= self._most_series:
            return memory.ids, np.zeros(0, np.int64)
        if memory.ids is not self._chosen_of or bucket >= self._chosen_at + settings.day_buckets:
            largest = np.argpartition(-memory.series.bank[-1], self._most_series)[: self._most_series]
            columns = np.sort(largest).astype(np.int64)
            self._chosen = tuple(memory.ids[i] for i in columns.tolist()), columns
            self._chosen_of, self._chosen_at = memory.ids, bucket
        return self._chosen
