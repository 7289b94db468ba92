"""Arrivals as columns, what a trace is, and how one is cut, thinned and sped up."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CHUNK = 65_536
UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)
"""What reading a file raises that is not there, not text, or cut off."""


class TraceError(ValueError):
    """A trace that cannot be read; the message names the file, the line and what was expected there."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order of time: columns of one length, at most some 65,536 a chunk.

    Attributes:
        time_s: seconds since the trace began, ascending, also from chunk to chunk.
        adapter: index of the trace's adapters.
        prompt_tokens, output_tokens: at least 1.
    """

    time_s: Floats
    adapter: Ints
    prompt_tokens: Ints
    output_tokens: Ints

    def __len__(self) -> int:
        return len(self.time_s)

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> Arrivals:
        """These rows only."""
        return Arrivals(self.time_s[rows], self.adapter[rows], self.prompt_tokens[rows], self.output_tokens[rows])


class Trace(Protocol):
    """A source of arrivals that can be read again from its beginning, each time alike."""

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names by index."""
        ...

    def chunks(self, start_s: float = 0.0) -> Iterator[Arrivals]:
        """All arrivals; those before `start_s` may be left out where that is cheaper than drawing them."""
        ...


def shaped(
    trace: Trace,
    *,
    start_s: float = 0.0,
    duration_s: float = float("inf"),
    scale: float = 1.0,
    speed: float = 1.0,
    seed: int = 0,
) -> Iterator[Arrivals]:
    """The slice [start, start + duration) of a trace, with `scale` times its requests, in a `speed`-th of its time.

    Below 1 `scale` keeps each request by chance; above, each is repeated, copies spread over the gap to the next.
    Times count from the slice's start. Output lengths and service times are not touched by `speed`.
    """
    check_positive(scale=scale, speed=speed)
    check_not_negative(start_s=start_s)
    check_not_nan(duration_s=duration_s)
    rng = np.random.default_rng(seed)
    for chunk in trace.chunks(start_s):
        if chunk.time_s[0] >= start_s + duration_s:
            return
        chunk = chunk.take((chunk.time_s >= start_s) & (chunk.time_s < start_s + duration_s))
        chunk = _scaled(chunk, scale, rng)
        if len(chunk):
            yield Arrivals((chunk.time_s - start_s) / speed, chunk.adapter, chunk.prompt_tokens, chunk.output_tokens)


def steady(
    trace: Trace, *, start_s: float, span_s: float, rate_rps: float, duration_s: float, seed: int = 0
) -> Iterator[Arrivals]:
    """Poisson arrivals at one rate, adapters and lengths drawn from a slice of a trace: its mix without its shape.

    Raises TraceError where the slice has no request.
    """
    check_positive(rate_rps=rate_rps)
    check_not_nan(duration_s=duration_s)
    mix = sampled(trace, start_s=start_s, span_s=span_s)
    rng = np.random.default_rng((seed, 5))
    now_s = 0.0
    while now_s < duration_s:
        time_s = now_s + np.cumsum(rng.exponential(1.0 / rate_rps, 4096))
        now_s = float(time_s[-1])
        rows = rng.integers(0, len(mix), len(time_s))
        drawn = Arrivals(time_s, mix.adapter[rows], mix.prompt_tokens[rows], mix.output_tokens[rows])
        yield drawn.take(time_s < duration_s)


def sampled(trace: Trace, *, start_s: float, span_s: float, most: int = 100_000) -> Arrivals:
    """Every n-th request of the slice [start, start + span), about `most` of them at the most."""
    kept: list[Arrivals] = []
    step, held = 1, 0
    for chunk in shaped(trace, start_s=start_s, duration_s=span_s):
        kept.append(chunk.take(np.arange(0, len(chunk), step)))
        held += len(kept[-1])
        if held > most:
            kept = [part.take(np.arange(0, len(part), 2)) for part in kept]
            step, held = 2 * step, sum(map(len, kept))
    if not held:
        raise TraceError(f"no request from {start_s:g} s on for {span_s:g} s: choose another slice")
    return Arrivals(
        np.concatenate([c.time_s for c in kept]), np.concatenate([c.adapter for c in kept]),
        np.concatenate([c.prompt_tokens for c in kept]), np.concatenate([c.output_tokens for c in kept]),
    )  # fmt: skip


def _scaled(chunk: Arrivals, scale: float, rng: np.random.Generator) -> Arrivals:
    if scale == 1.0 or not len(chunk):
        return chunk
    whole = int(scale)
    copies = whole + (rng.random(len(chunk)) < scale - whole).astype(np.int64)
    rows = np.repeat(np.arange(len(chunk)), copies)
    out = chunk.take(rows)
    is_copy = np.zeros(len(rows), np.bool_)
    is_copy[1:] = rows[1:] == rows[:-1]
    gap_s = np.diff(chunk.time_s, append=chunk.time_s[-1])[rows]
    time_s = out.time_s + np.where(is_copy, rng.random(len(rows)), 0.0) * gap_s
    order = np.argsort(time_s, kind="stable")
    return Arrivals(time_s[order], out.adapter[order], out.prompt_tokens[order], out.output_tokens[order])


def check_positive(**values: float) -> None:
    """Raises TraceError that names a value which is not finite and above 0: what draws by it may never end."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise TraceError(f"{name} is {value}: it must be a finite number above 0")


def check_not_negative(**values: float) -> None:
    """Raises TraceError that names a value which is not finite and at least 0."""
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise TraceError(f"{name} is {value}: it must be a finite number, at least 0")


def check_not_nan(**values: float) -> None:
    """Raises TraceError that names a value which is negative or no number; infinite is for ever."""
    for name, value in values.items():
        if not value >= 0:
            raise TraceError(f"{name} is {value}: it must be a number, at least 0")


def open_text(path: Path) -> TextIO:
    """A file as text, unpacked where its name ends in `.gz`."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def version_of(path: Path) -> int:
    """Changes when the file does; 0 where there is none, whose reader says so."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def unreadable(path: Path, error: Exception) -> TraceError:
    """What to say of a file whose reading raised one of `UNREADABLE`."""
    remedy = "name a file that is there and can be read" if isinstance(error, OSError) else "expected CSV or JSONL text"
    return TraceError(f"{path}: {getattr(error, 'strerror', None) or error}; {remedy}, plain or with `.gz`")


def zipf_weights(adapters: int, exponent: float) -> Floats:
    """Popularity of `adapters` adapters, the first the most popular: float64 (adapters), sum 1."""
    weights = np.arange(1, adapters + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


class ZipfAdapters:
    """Draws adapters for a trace that knows none, the same ones for the same seed."""

    def __init__(self, adapters: int, exponent: float, seed: int) -> None:
        self.names = tuple(f"adapter-{i:04d}" for i in range(adapters))
        self._edges = np.cumsum(zipf_weights(adapters, exponent))
        self._rng = np.random.default_rng((seed, 1))

    def draw(self, count: int) -> Ints:
        """`count` indices."""
        drawn = np.searchsorted(self._edges, self._rng.random(count), side="right")
        return np.minimum(drawn, len(self._edges) - 1).astype(np.int64)
