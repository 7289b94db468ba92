"""One replica's raw series become `ReplicaSignals`: aliases, parts, copies, staleness, restarts, no traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise

import numpy as np

from autoscaler.connectors.metrics.histograms import beyond, quantiles
from autoscaler.connectors.metrics.presets import (
    COPY_LABELS,
    PART_LABELS,
    CounterRate,
    EnginePreset,
    Gauge,
    GaugeRatio,
    HistogramBeyond,
    HistogramMean,
    HistogramQuantile,
    Over,
    Source,
)
from autoscaler.connectors.metrics.samples import Series
from autoscaler.domain.fleet import ReplicaSignals
from autoscaler.domain.observation import Floats
from autoscaler.domain.signals import Fresh, Missing, Signal

NO_TRAFFIC = Missing("no traffic")
ONE_SAMPLE = Missing("one sample in the window, a rate needs two")
NOT_SHOWN = Missing("this engine shows no such metric")

Parts = Sequence[Series]


@dataclass(frozen=True)
class ReplicaSeries:
    """Everything read of one live replica.

    Attributes:
        by_name: series by metric name.
        now_s: the source's clock, on which sample times lie.
        max_age_s: an older sample is missing, not fresh.
    """

    by_name: Mapping[str, Sequence[Series]]
    now_s: float
    max_age_s: float

    @cached_property
    def _since_s(self) -> dict[float, float]:
        """Time of a target's newest scrape -> of its oldest in the window: all series of one scrape share its time."""
        since: dict[float, float] = {}
        for one in (s for many in self.by_name.values() for s in many):
            since[one.last_s] = min(one.times_s[0], since.get(one.last_s, one.times_s[0]))
        return since

    @cached_property
    def newest_age_s(self) -> float:
        """Age of the newest sample; infinite where there is none."""
        return min((self.now_s - s.last_s for many in self.by_name.values() for s in many), default=float("inf"))

    def parts(self, names: Iterable[str], where: Mapping[str, str] | None = None) -> tuple[Parts, Missing]:
        """One fresh series for each part, of the first name that has any; and why there is none where there is none."""
        first = ""
        stalest = Missing("")
        for name in names:
            first = first or name
            wanted = [s for s in self.by_name.get(name, ()) if _has(s, where)]
            fresh = [s for s in _one_per_part(wanted) if self.now_s - s.last_s <= self.max_age_s]
            if fresh:
                return fresh, stalest
            if wanted and not stalest.why:
                stalest = Missing(f"stale by {self.now_s - max(s.last_s for s in wanted):.0f} s")
        if stalest.why:
            return (), stalest
        return (), Missing(f"no series named {first}" if self.by_name else "no series of this replica")

    def growth(self, series: Series) -> tuple[float, float]:
        """(increase, seconds) of a counter; from zero where it appeared after an earlier scrape of the same target."""
        since_s = self._since_s[series.last_s]
        born = series.values[0] if series.times_s[0] > since_s else 0.0
        return born + series.increase(), series.last_s - since_s

    def age_s(self, parts: Parts) -> float:
        """Age of the oldest of the samples that a number was made from, not below 0."""
        return max(0.0, self.now_s - min(s.last_s for s in parts))


def replica_signals(preset: EnginePreset, series: ReplicaSeries) -> ReplicaSignals:
    """Signals of one replica; what the preset does not know is Missing."""
    return ReplicaSignals(
        **{
            f.name: NOT_SHOWN if (source := preset.sources.get(f.name)) is None else _read(source, series)
            for f in fields(ReplicaSignals)
        }
    )


def duplicated(series: Iterable[Series]) -> bool:
    """Whether one thing is reported twice at the same time, as by two Prometheus servers that are not deduplicated."""
    groups: dict[tuple[str | None, ...], list[Series]] = {}
    for one in series:
        groups.setdefault(_key(one, (*PART_LABELS, *COPY_LABELS, "le")), []).append(one)
    return any(_overlap(many) for many in groups.values() if len(many) > 1)


def seen_limits(preset: EnginePreset, series: ReplicaSeries) -> dict[str, int]:
    """Engine limits that the replica shows, by field of `EngineLimits`; only what it shows."""
    limits = {}
    for limit, alternatives in preset.limits.items():
        for metric, label in alternatives:
            shown = [_whole(s.labels.get(label, "") if label else s.last) for s in series.by_name.get(metric, ())]
            if known := [number for number in shown if number is not None]:
                limits[limit] = max(known)
                break
    return limits


def resident_adapters(preset: EnginePreset, series: ReplicaSeries) -> frozenset[str] | None:
    """Adapters in memory as the engine itself says; None where it does not say."""
    shown = series.by_name.get(preset.resident, ())
    if not shown:
        return None
    fresh = (s for s in shown if series.now_s - s.last_s <= series.max_age_s and s.last >= 1)
    return frozenset(s.labels.get("adapter_name", "") for s in fresh) - {""}


def _read(source: Source, series: ReplicaSeries) -> Signal:
    match source:
        case Gauge():
            return _gauge(source, series)
        case GaugeRatio():
            return _gauge_ratio(source, series)
        case CounterRate(names):
            return _rate(names, series)
        case HistogramMean(names):
            return _mean(names, series)
        case HistogramQuantile(names, quantile):
            return _histogram(names, series, lambda edges, grown: quantiles(edges, grown, quantile))
        case HistogramBeyond(names, limit):
            return _histogram(names, series, lambda edges, grown: beyond(edges, grown, limit))


def _gauge(source: Gauge, series: ReplicaSeries) -> Signal:
    parts, why = series.parts(source.names, source.where)
    if not parts:
        return why
    total = sum(s.last for s in parts)
    return _fresh(total / len(parts) if source.over is Over.MEAN else total, series.age_s(parts))


def _gauge_ratio(source: GaugeRatio, series: ReplicaSeries) -> Signal:
    part, why_no_part = series.parts((source.part,))
    whole, why_no_whole = series.parts((source.whole,))
    if not part or not whole:
        return why_no_whole if part else why_no_part
    total = sum(s.last for s in whole)
    if total <= 0:
        return Missing(f"{source.whole} is {total:g}, nothing to divide by")
    return _fresh(sum(s.last for s in part) / total, series.age_s((*part, *whole)))


def _rate(names: Iterable[str], series: ReplicaSeries) -> Signal:
    parts, why = series.parts(names)
    if not parts:
        return why
    grown = [series.growth(s) for s in parts]
    if any(seconds <= 0 for _, seconds in grown):
        return ONE_SAMPLE
    return _fresh(sum(increase / seconds for increase, seconds in grown), series.age_s(parts))


def _mean(names: Sequence[str], series: ReplicaSeries) -> Signal:
    counts, why = series.parts(name + "_count" for name in names)
    sums, why_no_sum = series.parts(name + "_sum" for name in names)
    if not counts or not sums:
        return why_no_sum if counts else why
    observed = _observed(counts, series)
    if isinstance(observed, Missing):
        return observed
    return _fresh(sum(series.growth(s)[0] for s in sums) / observed, series.age_s(counts))


def _histogram(names: Sequence[str], series: ReplicaSeries, told: Callable[[Floats, Floats], Floats]) -> Signal:
    """What a function of edges and cumulative counts tells of the window's histogram."""
    counts, why = series.parts(name + "_count" for name in names)
    if not counts:
        return why
    observed = _observed(counts, series)
    if isinstance(observed, Missing):
        return observed
    buckets: dict[float, list[Series]] = {}
    for name in names:
        for one in series.by_name.get(name + "_bucket", ()):
            buckets.setdefault(float(one.labels.get("le", "nan")), []).append(one)
    edges = sorted(edge for edge in buckets if edge == edge)
    if len(edges) < 2 or edges[-1] != float("inf"):
        return Missing(f"no buckets of {names[0]}")
    grown = [sum(series.growth(s)[0] for s in _one_per_part(buckets[edge])) for edge in edges]
    return _fresh(float(told(np.array(edges), np.array([grown]))[0]), series.age_s(counts))


def _observed(counts: Parts, series: ReplicaSeries) -> float | Missing:
    """Observations of the window, or why there is no average: a count of zero that can be trusted is no traffic."""
    grown = [series.growth(s) for s in counts]
    if any(seconds <= 0 for _, seconds in grown):
        return ONE_SAMPLE
    observed = sum(increase for increase, _ in grown)
    return NO_TRAFFIC if observed == 0 else observed


def _one_per_part(series: Iterable[Series]) -> list[Series]:
    """The newest series of each part; of the ranks of one engine the lowest."""
    best: dict[tuple[str | None, ...], Series] = {}
    for one in series:
        key = _key(one, PART_LABELS)
        other = best.get(key)
        if other is None or _preference(one) > _preference(other):
            best[key] = one
    return list(best.values())


def _preference(series: Series) -> tuple[float, tuple[int, ...], float]:
    ranks = tuple(-int(r) if (r := series.labels.get(label, "0")).isdecimal() else 0 for label in COPY_LABELS)
    return series.last_s, ranks, series.last


def _overlap(series: Sequence[Series]) -> bool:
    by_time = sorted(series, key=lambda s: s.times_s[0])
    return any(later.times_s[0] <= earlier.last_s for earlier, later in pairwise(by_time))


def _has(series: Series, where: Mapping[str, str] | None) -> bool:
    return not where or all(series.labels.get(label) == value for label, value in where.items())


def _key(series: Series, labels: tuple[str, ...]) -> tuple[str | None, ...]:
    return tuple(map(series.labels.get, labels))


def _whole(shown: str | float) -> int | None:
    try:
        return int(float(shown))
    except (ValueError, OverflowError):
        return None


def _fresh(value: float, age_s: float) -> Signal:
    return Fresh(value, age_s) if float("-inf") < value < float("inf") else Missing(f"the series says {value}")
