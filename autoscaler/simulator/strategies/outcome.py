"""What a run gave: figures, a timeline, the latency of the busiest tenants, the decisions that mattered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np

from autoscaler.connectors.metrics.histograms import quantiles
from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.layout import NONE, PS_PER_S
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Ints
from autoscaler.simulator.fleet.platform import Platform
from autoscaler.simulator.strategies.failures import Struck

_TENANTS = 30  # rows of the heat map
_EDGES_S = np.array([*(ms / 1000 for ms in b.ROUTER_EDGES_MS), np.inf])


@dataclass(slots=True)
class Timeline:
    """Samples at equal intervals: columns of one length. Latency is of the interval's requests, NaN without any."""

    at_s: list[float] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    arrived_rps: list[float] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    ttft_p99_s: list[float] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)
    tiers: list[dict[str, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Heat:
    """p99 of time to first token of the busiest tenants: rows of `p99_s` are `tenants`, columns the times."""

    tenants: tuple[str, ...]
    at_s: tuple[float, ...]
    p99_s: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One strategy in one scenario. Shares are of the requests that arrived after the warm-up.

    Attributes:
        slo_attainment: first tokens in time over arrivals; refused ones are misses, and so are those that still wait
            and are late already.
        adapter_loads_per_1000: host to GPU, preloads included.
        moves: (adapter, replica) pairs that appeared on the ring; of strategies that place.
        failures: those of the scenario that struck it.
    """

    strategy: str
    gpu_hours: float
    ttft_p50_s: float
    ttft_p99_s: float
    slo_attainment: float
    adapter_loads_per_1000: float
    moves: int
    tier_changes: int
    requests: int
    errors: int
    resizes: int
    tokens_per_s: float
    replicas_mean: float
    settings: dict[str, Any]
    timeline: Timeline | None = None
    heat: Heat | None = None
    decisions: tuple[dict[str, Any], ...] = ()
    failures: tuple[Struck, ...] = ()
    extra: dict[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Without timeline, heat, decisions and failures."""
        return {k: v for k, v in asdict(self).items() if k not in ("timeline", "heat", "decisions", "failures")}


@dataclass(slots=True)
class Sampled:
    """What a recorder has sampled so far."""

    timeline: Timeline
    fine: Ints
    seen: dict[str, int]
    heat: list[Ints]
    loads_before: int
    marks: list[Ints]


class Recorder:
    """Samples a platform at equal intervals, and sums up at the end."""

    def __init__(
        self, platform: Platform, names: tuple[str, ...], popularity: Ints, *, warmup_s: float, interval_s: float
    ) -> None:
        self._platform, self._names, self._top = platform, names, popularity[:_TENANTS]
        self._interval_s, self._warmup_s = interval_s, warmup_s
        self.timeline = Timeline()
        self._fine = np.zeros(b.FINE_BINS, np.int64)
        self._seen = {"arrived": 0, "loads": 0, "moves": 0}
        self._heat: list[Ints] = []
        self.failures: list[Struck] = []
        self.moves: Callable[[], int] = lambda: 0
        self.tiers: Callable[[], dict[str, int]] = dict
        self._loads_before = 0
        self._marks: list[Ints] = []
        platform.count_from(warmup_s)
        platform.engines.measure_from(warmup_s)
        platform.calendar.at(warmup_s, self._begin)
        platform.calendar.every(interval_s, interval_s, self._sample)

    def watch(self, adapters: tuple[int, ...], marks_s: tuple[float, ...]) -> None:
        """Tell the p99 of all but these adapters for each span between two of the marks."""
        self._platform.engines.fleet.watched[list(adapters)] = 1
        for mark_s in marks_s:
            self._platform.calendar.at(mark_s, lambda: self._marks.append(self._platform.engines.fleet.fine[0].copy()))

    def save(self) -> Sampled:
        """A copy of what samples change, to `restore`."""
        columns = {column.name: list(getattr(self.timeline, column.name)) for column in fields(Timeline)}
        return Sampled(
            Timeline(**columns), self._fine, self._seen, list(self._heat), self._loads_before, list(self._marks)
        )

    def restore(self, saved: Sampled) -> None:
        """Go back to a copy, which is given up."""
        self.timeline, self._fine, self._seen = saved.timeline, saved.fine, saved.seen
        self._heat, self._loads_before, self._marks = saved.heat, saved.loads_before, saved.marks

    def _begin(self) -> None:
        self._loads_before = self._platform.engines.adapter_loads()

    def _sample(self) -> None:
        engines, line = self._platform.engines, self.timeline
        total, arrays = engines.fleet.total, engines.engines
        fine = engines.fleet.fine.sum(axis=0) - self._fine
        self._fine = self._fine + fine
        now = {"arrived": int(total[b.ARRIVED]), "loads": engines.adapter_loads(), "moves": self.moves()}
        grown = {k: now[k] - self._seen[k] for k in now}
        self._seen = now
        line.at_s.append(engines.now_s)
        line.ready.append(len(self._platform.serving()))
        line.replicas.append(len(self._platform.members))
        line.arrived_rps.append(grown["arrived"] / self._interval_s)
        line.in_flight.append(int(total[b.IN_FLIGHT]))
        line.waiting.append(int(arrays.number[engines.fleet.place == b.SERVING, a.WAITING].sum()))
        line.ttft_p99_s.append(fine_quantile(fine, 0.99))
        line.loads.append(grown["loads"])
        line.moves.append(grown["moves"])
        line.tiers.append(self.tiers())
        self._heat.append(engines.fleet.seen[self._top].copy())

    def outcome(self, strategy: str, settings: dict[str, Any], **more: Any) -> Outcome:
        """Sum up, at the end of the run."""
        engines = self._platform.engines
        t, now = engines.fleet.total, round(engines.now_s * PS_PER_S)
        ages = _open_ages(engines.fleet.open, now, int(t[b.MEASURED_FROM]))
        young = int((ages <= t[b.TARGET_PS]).sum())
        fine = engines.fleet.fine.sum(axis=0)
        late = ages[ages > t[b.TARGET_PS]]
        bins = np.ceil(np.log(late / b.FINE_FROM_PS) / np.log(b.FINE_RATIO)).clip(0, b.FINE_BINS - 1)
        fine += np.bincount(bins.astype(np.int64), minlength=b.FINE_BINS)
        fine[-1] += int(t[b.M_REFUSED])
        arrived, seconds = int(t[b.M_ARRIVED]), max(engines.now_s - self._warmup_s, 1e-9)
        hours = self._platform.replica_hours()
        return Outcome(
            strategy=strategy,
            gpu_hours=hours,
            ttft_p50_s=fine_quantile(fine, 0.5),
            ttft_p99_s=fine_quantile(fine, 0.99),
            slo_attainment=int(t[b.M_IN_TARGET]) / max(1, arrived - young),
            adapter_loads_per_1000=1000.0 * (engines.adapter_loads() - self._loads_before) / max(1, arrived),
            requests=arrived,
            errors=int(t[b.M_REFUSED]),
            tokens_per_s=int(t[b.M_TOKENS]) / seconds,
            replicas_mean=hours * 3600.0 / seconds,
            settings=settings,
            extra={
                f"others_ttft_p99_{i}_s": fine_quantile(after - before, 0.99)
                for i, (before, after) in enumerate(pairwise(self._marks))
            },
            timeline=self.timeline,
            heat=self._heat_map(),
            failures=tuple(self.failures),
            **more,
        )

    def _heat_map(self) -> Heat:
        """Five to twenty columns of p99 per tenant, from the histograms at the samples."""
        if not self._heat:
            return Heat((), (), ())
        step = max(1, len(self._heat) // 48)
        marks = list(range(step - 1, len(self._heat), step))
        before, columns = np.zeros_like(self._heat[0]), []
        for mark in marks:
            grown = self._heat[mark] - before
            before = self._heat[mark]
            columns.append(quantiles(_EDGES_S, np.cumsum(grown, axis=1).astype(np.float64), 0.99))
        table = np.array(columns).T
        rows = tuple(tuple(None if np.isnan(v) else round(float(v), 4) for v in row) for row in table)
        times = tuple(self.timeline.at_s[m] for m in marks)
        return Heat(tuple(self._names[int(i)] for i in self._top), times, rows)


def fine_quantile(fine: Ints, quantile: float) -> float:
    """Quantile of the fleet's fine histogram, s: the upper edge of its bin, so at most 1 % high. NaN without any."""
    total = int(fine.sum())
    if total == 0:
        return float("nan")
    at = int(np.searchsorted(np.cumsum(fine), quantile * total))
    return float(b.FINE_FROM_PS * b.FINE_RATIO**at / PS_PER_S)


def _open_ages(table: Ints, now: int, measured_from: int) -> Ints:
    """Ages of measured requests that have had no first token."""
    waits = (table[1:, b.O_STATE] == 1) & (table[1:, b.O_FIRST] == NONE)
    arrived = table[1:, b.O_ARRIVED][waits]
    return np.asarray(now - arrived[arrived >= measured_from])
