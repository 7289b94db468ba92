"""ServeGen's client rates: one adapter a client, arrivals drawn window by window from each client's own law.

The rate says how many requests a window had; the pattern and its shape say how they clump. So a window gets its number
of requests (a part of one by chance), and their gaps are drawn from the law and stretched to the window.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

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

_LEVELS: Floats = np.array([0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
_QUANTILES = ("p10", "p50", "p90", "p99")
# Lengths of a client whose lengths are not known: the medians over all clients of the published sets.
_PROMPT_QUANTILES = (136.0, 512.0, 2392.0, 8000.0)
_OUTPUT_QUANTILES = (10.0, 120.0, 415.0, 1200.0)


@dataclass(frozen=True)
class ServeGenTrace:
    """Rates by client and window, with token lengths beside them.

    Attributes:
        rates: client_id, window_start_s, rate_rps, cv, pattern (Gamma or Weibull), arg1 (shape), arg2 (scale).
        lengths: client_id, window_start_s and quantiles of prompt and answer; None uses one law for all.
        seed: of all draws.

    The table of rates is held (24 bytes a row); the requests are drawn a window at a time.
    """

    rates: Path
    lengths: Path | None = None
    seed: int = 0

    @cached_property
    def adapters(self) -> tuple[str, ...]:
        """`client-ID` in ascending order of the id."""
        return tuple(f"client-{client}" for client in self._table.clients.tolist())

    def chunks(self, start_s: float = 0.0) -> Iterator[Arrivals]:
        """Every window's requests in order of time; each has its own seed, so a slice may skip what lies before."""
        for window_start_s in self._table.starts_s.tolist():
            if window_start_s + self._table.window_s > start_s:
                yield from self._window(window_start_s)

    def _window(self, start_s: float) -> Iterator[Arrivals]:
        table = self._table
        index = int(np.searchsorted(table.starts_s, start_s))
        rng = np.random.default_rng((self.seed, index))
        counts = table.rate_rps[:, index] * table.window_s
        counts = (counts + rng.random(len(counts))).astype(np.int64)
        times, owners = [], []
        for client in np.flatnonzero(counts).tolist():
            shape, is_gamma = float(table.shape[client, index]), bool(table.is_gamma[client, index])
            times.append(_places(rng, int(counts[client]), is_gamma, shape) * table.window_s + start_s)
            owners.append(np.full(len(times[-1]), client, np.int64))
        if not times:
            return
        time_s, adapter = np.concatenate(times), np.concatenate(owners)
        order = np.argsort(time_s, kind="stable")
        time_s, adapter = time_s[order], adapter[order]
        prompt, output = self._lengths.draw(rng, adapter, start_s)
        for begin in range(0, len(time_s), CHUNK):
            part = slice(begin, begin + CHUNK)
            yield Arrivals(time_s[part], adapter[part], prompt[part], output[part])

    @cached_property
    def _table(self) -> _Rates:
        return _read_rates(self.rates, version_of(self.rates))

    @cached_property
    def _lengths(self) -> _Lengths:
        version = 0 if self.lengths is None else version_of(self.lengths)
        return _read_lengths(self.lengths, version, tuple(self._table.clients.tolist()))


@dataclass(frozen=True)
class _Rates:
    """clients (C), starts_s (W), the rest (C, W); a window without a row has rate 0."""

    clients: Ints
    starts_s: Floats
    window_s: float
    rate_rps: Floats
    shape: npt.NDArray[np.float32]
    is_gamma: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Lengths:
    """starts_s (V) and log quantiles at `_LEVELS`, (C, V, 6) for prompts and for answers."""

    starts_s: Floats
    prompt: Floats
    output: Floats

    def draw(self, rng: np.random.Generator, adapter: Ints, at_s: float) -> tuple[Ints, Ints]:
        """Prompt and answer lengths of requests of these adapters: by inverse quantiles, in the log."""
        v = max(0, int(np.searchsorted(self.starts_s, at_s, side="right")) - 1)
        return _drawn(rng, self.prompt[adapter, v]), _drawn(rng, self.output[adapter, v])


def _places(rng: np.random.Generator, count: int, is_gamma: bool, shape: float) -> Floats:
    """`count` places in (0, 1), ascending, with gaps of the law; its scale falls out by the stretching."""
    shape = shape if shape > 0 else 1.0
    gaps = rng.gamma(shape, size=count + 1) if is_gamma else rng.weibull(shape, size=count + 1)
    ends = np.cumsum(gaps)
    if not 0 < ends[-1] < np.inf:
        return np.sort(rng.random(count))
    return np.asarray(ends[:-1] / ends[-1])


def _drawn(rng: np.random.Generator, log_quantiles: Floats) -> Ints:
    """One length for each row of log quantiles (n, 6)."""
    at = rng.random(len(log_quantiles))
    right = np.searchsorted(_LEVELS, at, side="right").clip(1, len(_LEVELS) - 1)
    rows = np.arange(len(at))
    share = (at - _LEVELS[right - 1]) / (_LEVELS[right] - _LEVELS[right - 1])
    low, high = log_quantiles[rows, right - 1], log_quantiles[rows, right]
    drawn: Ints = np.maximum(1, np.round(np.exp(low + share * (high - low)))).astype(np.int64)
    return drawn


@lru_cache(maxsize=4)  # a race plays one file hundreds of times; reading 326,000 rows takes 2 s
def _read_rates(path: Path, version: int) -> _Rates:
    clients, starts, rates, shapes, gammas = [], [], [], [], []
    for number, row in _rows(path):
        try:
            clients.append(int(row["client_id"]))
            starts.append(float(row["window_start_s"]))
            rates.append(float(row["rate_rps"]))
            shapes.append(float(row["arg1"] or 0.0))
            if not (np.isfinite(starts[-1]) and 0 <= rates[-1] < np.inf):
                raise ValueError(f"a rate of {rates[-1]} in the window at {starts[-1]} cannot be")
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{path}: line {number}: {error}") from None
        gammas.append(row["pattern"] == "Gamma")
    if not clients:
        raise TraceError(f"{path}: no line with a rate")
    known, c = np.unique(np.array(clients), return_inverse=True)
    starts_s, w = np.unique(np.array(starts), return_inverse=True)
    window_s = float(np.diff(starts_s).min()) if len(starts_s) > 1 else 600.0
    table = np.zeros((len(known), len(starts_s)))
    shape, is_gamma = np.ones(table.shape, np.float32), np.ones(table.shape, np.bool_)
    table[c, w], shape[c, w], is_gamma[c, w] = rates, shapes, gammas
    return _Rates(known, starts_s, window_s, table, shape, is_gamma)


@lru_cache(maxsize=4)
def _read_lengths(path: Path | None, version: int, clients: tuple[int, ...]) -> _Lengths:
    default = {"in": _levels(_PROMPT_QUANTILES), "out": _levels(_OUTPUT_QUANTILES)}
    if path is None:
        one = {k: np.tile(v, (len(clients), 1, 1)) for k, v in default.items()}
        return _Lengths(np.zeros(1), one["in"], one["out"])
    rows = [_length_row(path, *numbered) for numbered in _rows(path)]
    starts_s = np.unique(np.array([start_s for _, start_s, _ in rows] or [0.0]))
    index = {client: i for i, client in enumerate(clients)}
    tables = {k: np.full((len(clients), len(starts_s), len(_LEVELS)), np.nan) for k in default}
    for client, start_s, quantiles in rows:
        c = index.get(client)
        if c is not None:
            v = int(np.searchsorted(starts_s, start_s))
            for side, table in tables.items():
                table[c, v] = _levels(quantiles[side])
    for side, table in tables.items():
        _fill(table, default[side])
    return _Lengths(starts_s, tables["in"], tables["out"])


def _length_row(path: Path, number: int, row: dict[str, str]) -> tuple[int, float, dict[str, tuple[float, ...]]]:
    try:
        quantiles = {side: tuple(float(row[f"{side}_{q}"] or "nan") for q in _QUANTILES) for side in ("in", "out")}
        return int(row["client_id"]), float(row["window_start_s"]), quantiles
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path}: line {number}: {error}") from None


def _fill(table: Floats, default: Floats) -> None:
    """A window without lengths has those of the client's window before it, then after it, then the default."""
    for order in (range(table.shape[1]), reversed(range(table.shape[1]))):
        last = np.full((table.shape[0], table.shape[2]), np.nan)
        for v in order:
            empty = np.isnan(table[:, v, 0])
            table[empty, v] = last[empty]
            last = table[:, v]
    table[np.isnan(table[:, :, 0])] = default


def _levels(quantiles: tuple[float, ...]) -> Floats:
    """Log lengths at `_LEVELS`: the ends are half of p10 and 1.2 times p99."""
    p10, *_, p99 = quantiles
    ends = np.maximum(1.0, np.array([p10 / 2, *quantiles, p99 * 1.2]))
    return np.asarray(np.log(np.maximum.accumulate(ends)) if not np.isnan(ends).any() else np.full(len(ends), np.nan))


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with open_text(path) as file:
            yield from enumerate(csv.DictReader(file), 2)
    except UNREADABLE as error:
        raise unreadable(path, error) from None
