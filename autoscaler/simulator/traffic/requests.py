"""Traces with one line a request: Azure's CSV, BurstGPT's CSV, Mooncake's JSONL. Read line by line, gzip or plain.

None of them says whose a request is: adapters are drawn by a seeded Zipf law.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from autoscaler.simulator.traffic.arrivals import (
    CHUNK,
    UNREADABLE,
    Arrivals,
    Floats,
    Ints,
    Trace,
    TraceError,
    ZipfAdapters,
    open_text,
    unreadable,
)
from autoscaler.simulator.traffic.recorded import RecordedTrace
from autoscaler.simulator.traffic.servegen import ServeGenTrace

Columns = tuple[Floats, Ints, Ints]


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """A file of requests.

    Attributes:
        path: the file; `.gz` is read as gzip.
        kind: `azure`, `burstgpt` or `mooncake`.
        adapter_count, zipf_exponent, seed: the law by which adapters are drawn.
    """

    path: Path
    kind: str
    adapter_count: int = 100
    zipf_exponent: float = 1.0
    seed: int = 0

    @property
    def adapters(self) -> tuple[str, ...]:
        """`adapter-0000`, the most popular, and so on."""
        return ZipfAdapters(self.adapter_count, self.zipf_exponent, self.seed).names

    def chunks(self, start_s: float = 0.0) -> Iterator[Arrivals]:
        """All requests with tokens both ways, those before `start_s` included: the file is read from its beginning.

        Raises TraceError with the line where it cannot be read."""
        draw = ZipfAdapters(self.adapter_count, self.zipf_exponent, self.seed).draw
        origin_s: float | None = None
        last_s = 0.0
        for time_s, prompt, output in self._columns():
            origin_s = float(time_s[0]) if origin_s is None else origin_s
            # Recorders write requests when they end or out of order by milliseconds; time must not go back.
            time_s = np.maximum.accumulate(np.maximum(time_s - origin_s, last_s))
            last_s = float(time_s[-1])
            adapter = draw(len(time_s))
            served = (prompt > 0) & (output > 0)
            yield Arrivals(time_s, adapter, prompt, output).take(served)

    def _columns(self) -> Iterator[Columns]:
        try:
            with open_text(self.path) as file:
                for number, lines in _blocks(file, header=self.kind != "mooncake"):
                    try:
                        columns = _KINDS[self.kind](lines)
                        if not np.isfinite(columns[0]).all():
                            raise ValueError("a time is no finite number")
                    except (ValueError, KeyError, IndexError, TypeError, OverflowError, csv.Error) as error:
                        raise TraceError(f"{self.path}: lines {number} to {number + len(lines)}: {error}") from None
                    yield columns
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None


def open_trace(
    path: Path, *, lengths: Path | None = None, adapters: int = 100, zipf_exponent: float = 1.0, seed: int = 0
) -> Trace:
    """A trace by its file, its kind told by the first line. `lengths` goes with ServeGen's rates.

    Rates without ServeGen's laws of arrival are a recording.

    Raises TraceError for a file that is of no known kind or not there.
    """
    try:
        with open_text(path) as file:
            first = file.readline().strip()
    except UNREADABLE as error:
        raise unreadable(path, error) from None
    if first.startswith("client_id,window_start_s,rate_rps"):
        laws = {"pattern", "arg1"} <= set(first.split(","))
        return ServeGenTrace(path, lengths or _beside(path), seed) if laws else RecordedTrace(path, seed)
    kind = next((kind for start, kind in _STARTS if first.startswith(start)), None)
    if kind is None:
        known = "Azure or BurstGPT CSV, Mooncake JSONL, ServeGen rates, recorded rates"
        raise TraceError(f"{path}: the first line {first[:60]!r} is of none of the known kinds: {known}")
    return RequestTrace(path, kind, adapters, zipf_exponent, seed)


def _beside(rates: Path) -> Path | None:
    path = rates.with_name(rates.name.replace(".rates.", ".token_lengths."))
    return path if path != rates and path.exists() else None


def _blocks(file: TextIO, *, header: bool) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of at most CHUNK lines; blank ones are left out."""
    number = 1
    if header:
        file.readline()
        number += 1
    while taken := list(islice(file, CHUNK)):
        lines = [line for line in taken if line.strip()]
        if lines:
            yield number, lines
        number += len(taken)


def _azure(lines: Sequence[str]) -> Columns:
    rows = list(csv.reader(lines))
    return _instants_s(row[0] for row in rows), _integers(r[1] for r in rows), _integers(r[2] for r in rows)


def _burstgpt(lines: Sequence[str]) -> Columns:
    """Timestamp, Model, Request tokens, Response tokens, ... (or with a Session ID after the timestamp)."""
    rows = list(csv.reader(lines))
    at = len(rows[0]) - 4
    time_s = np.array([row[0] for row in rows], np.float64)
    return time_s, _integers(row[at] for row in rows), _integers(row[at + 1] for row in rows)


def _mooncake(lines: Sequence[str]) -> Columns:
    rows = [json.loads(line) for line in lines]
    time_s = np.array([row["timestamp"] for row in rows], np.float64) / 1000.0
    return time_s, _integers(row["input_length"] for row in rows), _integers(row["output_length"] for row in rows)


def _instants_s(texts: Iterable[str]) -> Floats:
    stamps = np.array([text.partition("+")[0] for text in texts], "datetime64[ns]")
    return np.asarray((stamps - np.datetime64("2000-01-01", "ns")) / np.timedelta64(1, "s"), np.float64)


def _integers(values: Iterable[str | int]) -> Ints:
    return np.array([int(value) for value in values], np.int64)


_KINDS: dict[str, Callable[[Sequence[str]], Columns]] = {"azure": _azure, "burstgpt": _burstgpt, "mooncake": _mooncake}
_STARTS = (("TIMESTAMP,ContextTokens", "azure"), ("Timestamp,", "burstgpt"), ("{", "mooncake"))
