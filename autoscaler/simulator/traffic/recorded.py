"""Rates as they were recorded: a line an adapter and window, with mean lengths of its requests where they are known.

`client_id,window_start_s,rate_rps[,prompt_tokens,output_tokens]`, in order of time: what `simulate` keeps of a
Prometheus, and what `backtest --rates` reads. Within a window requests come by chance at one rate. A window of which
nothing is known is played as the one before it, since a gap in what was recorded is no silence.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np

from autoscaler.simulator.traffic.arrivals import (
    CHUNK,
    UNREADABLE,
    Arrivals,
    Floats,
    Ints,
    TraceError,
    open_text,
    unreadable,
    version_of,
)

# Together the 500 tokens that `backtest` counts for a request of unknown length.
_PROMPT_TOKENS, _OUTPUT_TOKENS = 400.0, 100.0
# Sigma of the logarithm of one adapter's lengths: clients of published providers have a p90 of 3.4 to 4.7 times p50.
_SPREAD = 1.0
_MOST_REQUESTS = 20_000_000  # of one window, which is drawn at once: 1 GB
_MOST_TOKENS = 1e7
_LONE_WINDOW_S = 60.0
_Row = tuple[str, float, float, float, float]


@dataclass(frozen=True)
class RecordedTrace:
    """A file of rates, read line by line; only a window's requests are held. `seed`: of all draws."""

    path: Path
    seed: int = 0

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the file, ascending."""
        return self._outline.names

    @cached_property
    def _outline(self) -> _Outline:
        return _read_outline(self.path, version_of(self.path))

    def chunks(self, start_s: float = 0.0) -> Iterator[Arrivals]:
        """Every window's requests in order of time; each has its own seed. Seconds count from the first window.

        Raises TraceError with the line where it cannot be read.
        """
        outline = self._outline
        index = {name: i for i, name in enumerate(outline.names)}
        last: list[_Row] = []
        next_place = 0
        for window_start_s, rows in groupby(_rows(self.path), key=lambda row: row[1]):
            place, known = round((window_start_s - outline.origin_s) / outline.window_s), list(rows)
            for at in range(next_place, place + 1):
                if (at + 1) * outline.window_s > start_s:
                    yield from self._drawn(index, known if at == place else last, at)
            last, next_place = known, place + 1

    def _drawn(self, index: Mapping[str, int], rows: list[_Row], place: int) -> Iterator[Arrivals]:
        window_s = self._outline.window_s
        rng = np.random.default_rng((self.seed, place))
        owner = np.array([index[row[0]] for row in rows], np.int64)
        expected = np.array([row[2] for row in rows]) * window_s
        if not expected.sum() < _MOST_REQUESTS:
            raise TraceError(
                f"{self.path}: {expected.sum():.3g} requests in the window at {rows[0][1]:g} s are too many"
            )
        counts = (expected + rng.random(len(rows))).astype(np.int64)
        row = np.repeat(np.arange(len(rows)), counts)
        time_s = (place + rng.random(len(row))) * window_s
        order = np.argsort(time_s, kind="stable")
        time_s, row = time_s[order], row[order]
        prompt, output = (_lengths(rng, np.array([r[column] for r in rows]), row) for column in (3, 4))
        for begin in range(0, len(row), CHUNK):
            part = slice(begin, begin + CHUNK)
            yield Arrivals(time_s[part], owner[row[part]], prompt[part], output[part])


@dataclass(frozen=True, slots=True)
class _Outline:
    names: tuple[str, ...]
    origin_s: float
    window_s: float


@lru_cache(maxsize=4)  # a comparison opens one file for each of its runs
def _read_outline(path: Path, version: int) -> _Outline:
    names: set[str] = set()
    starts_s: set[float] = set()
    last_s = -math.inf
    for name, start_s, *_ in _rows(path):
        if start_s < last_s:
            raise TraceError(f"{path}: the window at {start_s:g} s comes after {last_s:g} s: sort it by window_start_s")
        last_s = start_s
        names.add(name)
        starts_s.add(start_s)
    if not names:
        raise TraceError(f"{path}: no line with a rate")
    ascending = np.array(sorted(starts_s))
    window_s = float(np.diff(ascending).min()) if len(ascending) > 1 else _LONE_WINDOW_S
    return _Outline(tuple(sorted(names)), float(ascending[0]), window_s)


def _rows(path: Path) -> Iterator[_Row]:
    """(name, window's start, requests/s, mean tokens of prompts and of answers); lines without a rate are left out."""
    try:
        with open_text(path) as file:
            lines = csv.reader(file)
            head = next(lines)
            name, start, rate = (head.index(column) for column in ("client_id", "window_start_s", "rate_rps"))
            prompt, output = (head.index(c) if c in head else None for c in ("prompt_tokens", "output_tokens"))
            for line in filter(None, lines):
                try:
                    rate_rps, start_s = float(line[rate] or "nan"), float(line[start])
                    prompts = float((prompt and line[prompt]) or _PROMPT_TOKENS)
                    outputs = float((output and line[output]) or _OUTPUT_TOKENS)
                    _check(line[name], start_s, rate_rps, prompts, outputs)
                except IndexError:
                    raise TraceError(
                        f"{path}: line {lines.line_num}: it has {len(line)} columns of {len(head)}"
                    ) from None
                except ValueError as error:
                    raise TraceError(f"{path}: line {lines.line_num}: {error}") from None
                if not math.isnan(rate_rps):
                    yield line[name], start_s, rate_rps, prompts, outputs
    except UNREADABLE as error:
        raise unreadable(path, error) from None


def _check(name: str, start_s: float, rate_rps: float, prompts: float, outputs: float) -> None:
    if not name or not math.isfinite(start_s):
        raise ValueError("a line needs a client_id and a window_start_s")
    if rate_rps < 0 or rate_rps == math.inf or not (0 < prompts < _MOST_TOKENS and 0 < outputs < _MOST_TOKENS):
        raise ValueError("a rate must be 0 or more, and lengths above 0")


def _lengths(rng: np.random.Generator, means: Floats, row: Ints) -> Ints:
    """Lengths of requests of these rows, around the rows' means: log-normal."""
    drawn = means[row] * np.exp(_SPREAD * rng.standard_normal(len(row)) - _SPREAD**2 / 2)
    lengths: Ints = np.maximum(1, np.round(drawn)).astype(np.int64)
    return lengths
