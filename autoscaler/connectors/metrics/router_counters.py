"""Rates of routers from our own scrapes: counters of every series, carried over restarts, over a moving window."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscaler.connectors.metrics.exposition import LABEL, Wanted, labels_of, series_parts
from autoscaler.connectors.metrics.histograms import quantiles
from autoscaler.connectors.metrics.router_presets import RouterPreset
from autoscaler.connectors.metrics.router_traffic import PairRates
from autoscaler.domain.observation import Bools, Floats, Ints

# A quote within a value is written with a backslash, so this matches no value.
LAST_EDGE = re.compile(r'(?:^|,)le="([^"]*)"$')
# Series that may pile up from names that clients made up, over restarts of a router, before all is read anew.
SPARE_ROWS = 100_000
REQUESTS, ERRORS, PROMPT, COMPLETION, TTFT_SUM, TTFT_COUNT, TTFT_BUCKET = range(7)


@dataclass(slots=True)
class _Target:
    """One router: the rows that its page had so far, and how much each has grown since it was first read."""

    row_of: dict[str, int] = field(default_factory=dict)
    described: list[tuple[int, int, int]] = field(default_factory=list)
    page: list[str] = field(default_factory=list)
    page_rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    arrays: Ints = field(default_factory=lambda: np.zeros((3, 0), np.int64))
    last: Floats = field(default_factory=lambda: np.zeros(0))
    grown: Floats = field(default_factory=lambda: np.zeros(0))
    history: deque[tuple[float, Floats]] = field(default_factory=deque)
    has_requests: bool = False
    in_flight: dict[str, float] = field(default_factory=dict)

    def columns(self) -> Ints:
        """Kind, pair and edge of each row: int64 (3, rows)."""
        if self.arrays.shape[1] != len(self.described):
            self.arrays = np.array(self.described, np.int64).reshape(-1, 3).T.copy()
        return self.arrays

    def window(self, now_s: float, max_age_s: float) -> tuple[Floats, float, float] | None:
        """(growth of each row, seconds, age) over the window; None before the second scrape or when it is too old."""
        (newest_s, newest), (oldest_s, oldest) = self.history[-1], self.history[0]
        if newest_s <= oldest_s or now_s - newest_s > max_age_s:
            return None
        growth = newest.copy()
        growth[: len(oldest)] -= oldest
        return growth, newest_s - oldest_s, max(0.0, now_s - newest_s)


class RouterCounters:
    """Counters of all routers of a fleet. Memory: 16 bytes a series and scrape of the window, and its text once."""

    def __init__(self, preset: RouterPreset, window_s: float, max_age_s: float) -> None:
        self._preset = preset
        self._window_s = window_s
        self._max_age_s = max_age_s
        self._kind_of = _kinds(preset)
        self._wanted = Wanted(self._kind_of)
        self._targets: dict[str, _Target] = {}
        self._pair_of: dict[tuple[str, str], int] = {}
        self._names: dict[str, int] = {}
        self._edges: list[float] = []
        self._gauge = Wanted([preset.in_flight]) if preset.in_flight else None
        self._one_at_a_time = threading.Lock()

    def read(self, target: str, page: str, at_s: float) -> bool:
        """Take in a router's page; False where it shows no request counter at all. May run in a thread of its own."""
        with self._one_at_a_time:
            return self._read(target, page, at_s)

    def _read(self, target: str, page: str, at_s: float) -> bool:
        state = self._targets.setdefault(target, _Target())
        found = self._wanted.samples(page)
        if len(state.row_of) > 4 * len(found) + SPARE_ROWS:
            state = self._start_anew(target)
        rows = self._rows(state, [series for series, _ in found])
        values = np.fromiter((value for _, value in found), np.float64, len(found))
        self._grow(state, rows, values)
        state.in_flight = self._open_requests(page)
        state.history.append((at_s, state.grown.copy()))
        while len(state.history) > 2 and state.history[1][0] <= at_s - self._window_s:
            state.history.popleft()
        return state.has_requests

    @property
    def shows_requests(self) -> bool:
        """Whether any router has ever shown the request counter; Envoy shows it from the first request on."""
        return any(target.has_requests for target in self._targets.values())

    def forget(self, targets: Sequence[str]) -> None:
        """Keep only these routers."""
        for gone in self._targets.keys() - set(targets):
            del self._targets[gone]

    def silent(self, targets: Iterable[str], now_s: float) -> tuple[str, ...]:
        """Routers without two fresh scrapes, ascending: a sum without them would be too low."""
        return tuple(
            sorted(
                name
                for name in targets
                if (target := self._targets.get(name)) is None
                or not target.history
                or target.window(now_s, self._max_age_s) is None
            )
        )

    def in_flight(self, now_s: float) -> dict[str, float]:
        """Requests that routers have open, by the replica's address; only of routers that were heard."""
        total: dict[str, float] = {}
        for target in self._targets.values():
            if target.history and now_s - target.history[-1][0] <= self._max_age_s:
                for address, number in target.in_flight.items():
                    total[address] = total.get(address, 0.0) + number
        return total

    def rates(self, now_s: float) -> PairRates | None:
        """Rates per pair, summed over routers; None where no router has two scrapes that are fresh."""
        windows = [(t, w) for t in self._targets.values() if t.history and (w := t.window(now_s, self._max_age_s))]
        if not windows:
            return None
        pairs = len(self._pair_of)
        sums = np.zeros((7, pairs))
        seen = np.zeros((7, pairs), np.bool_)
        for target, (growth, seconds, _) in windows:
            _add(sums, seen, target, growth / seconds)
        tokens = np.where(seen[PROMPT : COMPLETION + 1], sums[PROMPT : COMPLETION + 1], np.nan)
        return PairRates(
            adapters=[adapter for adapter, _ in self._pair_of],
            upstreams=[upstream for _, upstream in self._pair_of],
            requests_per_s=sums[REQUESTS],
            errors_per_s=sums[ERRORS],
            prompt_tokens_per_s=tokens[0],
            completion_tokens_per_s=tokens[1],
            ttft_s_per_s=sums[TTFT_SUM] * self._preset.ttft_unit_s,
            ttfts_per_s=sums[TTFT_COUNT],
            window_s=max(seconds for _, (_, seconds, _) in windows),
            age_s=min(age for _, (_, _, age) in windows),
        )

    def ttft_quantile(self, now_s: float, rows: Ints, adapters: int, quantile: float) -> Floats:
        """Quantile of time to first byte per adapter, seconds: float64 (A), NaN without traffic.

        Args:
            now_s: as for `rates`.
            rows: catalogue row of each pair of `rates`, negative for those that have none.
            adapters: how many the catalogue has (A).
            quantile: 0..1.
        """
        edges = np.array(self._edges)
        if len(edges) < 2:
            return np.full(adapters, np.nan)
        order = np.argsort(edges)
        counts = np.zeros(adapters * len(edges))
        for target in self._targets.values():
            if target.history and (window := target.window(now_s, self._max_age_s)):
                kind, pair, edge = target.columns()
                is_bucket = (kind == TTFT_BUCKET) & (edge >= 0)
                row = rows[pair[is_bucket]]
                flat = row * len(edges) + edge[is_bucket]
                counts += np.bincount(flat[row >= 0], window[0][is_bucket][row >= 0], len(counts))
        table = counts.reshape(adapters, len(edges))[:, order]
        return quantiles(edges[order], table, quantile) * self._preset.ttft_unit_s

    def _open_requests(self, page: str) -> dict[str, float]:
        total: dict[str, float] = {}
        for series, value in self._gauge.samples(page) if self._gauge else ():
            address = labels_of(series_parts(series)[1]).get(self._preset.in_flight_label, "")
            total[address] = total.get(address, 0.0) + value
        return total

    def _start_anew(self, target: str) -> _Target:
        self._targets, self._pair_of, self._names = {target: _Target()}, {}, {}
        return self._targets[target]

    def _rows(self, state: _Target, page: list[str]) -> Ints:
        """The row of each line. A page mostly has the series of the last one, in the same order."""
        if page != state.page:
            for series in page:
                if series not in state.row_of:
                    state.row_of[series] = len(state.described)
                    self._describe(state, series)
            state.page_rows = np.fromiter(map(state.row_of.__getitem__, page), np.int64, len(page))
            state.page = page
        return state.page_rows

    def _describe(self, state: _Target, series: str) -> None:
        name, text = series_parts(series)
        kind = self._kind_of[name]
        rest, edge = _without_edge(text) if kind == TTFT_BUCKET else (text, None)
        state.described.append((kind, self._named(rest), -1 if edge is None else self._edge(edge)))
        state.has_requests = state.has_requests or kind == REQUESTS

    def _named(self, text: str) -> int:
        """The pair of a label text; a histogram repeats it for each of its buckets."""
        known = self._names.get(text)
        if known is None:
            labels = labels_of(text)
            key = (labels.get(self._preset.adapter_label, ""), labels.get(self._preset.upstream_label, ""))
            known = self._names[text] = self._pair_of.setdefault(key, len(self._pair_of))
        return known

    def _edge(self, edge: float) -> int:
        if edge not in self._edges:
            self._edges.append(edge)
        return self._edges.index(edge)

    def _grow(self, state: _Target, rows: Ints, values: Floats) -> None:
        """Add what each counter grew. A row first seen counts from zero, except at a router's first page."""
        new = len(state.described) - len(state.last)
        state.last = np.concatenate([state.last, np.zeros(new)])
        state.grown = np.concatenate([state.grown, np.zeros(new)])
        before = state.last[rows]
        values = np.where(np.isnan(values), before, values)
        if state.history:
            state.grown[rows] += np.where(values >= before, values - before, values)
        state.last[rows] = values


def _kinds(preset: RouterPreset) -> dict[str, int]:
    names = (*preset.counters(), preset.ttft_buckets)
    return {name: kind for kind, name in enumerate(names) if name}


def _without_edge(text: str) -> tuple[str, float | None]:
    """A bucket's labels without `le`, and its edge. Written last it is found at once; else labels are read in order."""
    found = LAST_EDGE.search(text) or next((label for label in LABEL.finditer(text) if label[1] == "le"), None)
    if found is None:
        return text, None
    edge = found[1] if found.re is LAST_EDGE else found[2]
    try:
        return (text[: found.start()] + text[found.end() :]).strip(","), float(edge)
    except ValueError:
        return text, None


def _add(sums: Floats, seen: Bools, target: _Target, per_s: Floats) -> None:
    (kind, pair, _), pairs = target.columns(), sums.shape[1]
    for k in range(TTFT_BUCKET):
        of_kind = kind == k
        sums[k] += np.bincount(pair[of_kind], per_s[of_kind], pairs)
        seen[k, pair[of_kind]] = True
