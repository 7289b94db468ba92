"""What a person must know of the metrics: duplicates, renamed and misspelt names, routers that do not answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches

import numpy as np

from autoscaler.connectors.metrics.engine_signals import ReplicaSeries, duplicated
from autoscaler.connectors.metrics.presets import EnginePreset, HistogramBeyond, HistogramQuantile, series_names
from autoscaler.domain.fleet import ReplicaSignals
from autoscaler.domain.observation import Traffic
from autoscaler.domain.signals import Fresh, Missing

# Without these nothing can be decided; engines may lack the others, and older ones do.
NEEDED = ("running", "waiting", "kv_usage_ratio")


def engine_conditions(
    preset: EnginePreset,
    series: Mapping[str, ReplicaSeries],
    signals: Mapping[str, ReplicaSignals],
    names: Collection[str],
) -> dict[str, str]:
    """Conditions of the engines' metrics, by name.

    Args:
        preset: the engine's names.
        series, signals: by replica id.
        names: every metric name that exists where the engines' metrics come from; empty where that is not known.
    """
    conditions = {}
    answered = [i for i, s in series.items() if s.by_name] if not names else list(signals)
    for signal in (f.name for f in fields(ReplicaSignals) if f.name in NEEDED and f.name in preset.sources):
        lacking = [i for i in answered if _no_series(getattr(signals[i], signal))]
        if names and answered and len(lacking) == len(answered):
            wanted = next(iter(series_names(preset.sources[signal])))
            conditions[f"MetricMissing/{signal}"] = f"no engine shows {wanted}{nearest(wanted, names)}"
    twice = next((r for r, s in series.items() if _reported_twice(preset, s)), None)
    if twice is not None:
        conditions["DuplicatedSeries"] = (
            f"series of replica {twice} come twice at the same time, as from two Prometheus servers that are not "
            "deduplicated; the newest is used. Query through a deduplicating endpoint, or add a matcher that names one"
        )
    return conditions


def router_conditions(failures: Mapping[str, str]) -> dict[str, str]:
    """Conditions of routers that could not be read: router id -> why."""
    return {f"RouterUnreachable/{router}": why for router, why in failures.items()}


def silent_router(requests: str, names: Collection[str]) -> dict[str, str]:
    """The condition of routers that count no request while engines have some: a wrong name, or traffic past them."""
    return {
        "RouterShowsNoRequests": f"no router shows {requests}{nearest(requests, names)}, although engines have "
        "requests; traffic per adapter is unknown. Check the routers' configuration, or whether traffic goes past them"
    }


def traffic_conditions(traffic: Traffic) -> dict[str, str]:
    """Conditions of traffic that was seen: active adapters whose tokens no router reports."""
    silent = int(((traffic.requests_per_s > 0) & np.isnan(traffic.completion_tokens_per_s)).sum())
    if not silent:
        return {}
    return {
        "TokensUnseen": f"routers report no completion tokens for {silent} adapters with traffic; let clients send "
        "`stream_options.include_usage`, or start vLLM with `--enable-force-include-usage`"
    }


def nearest(wanted: str, names: Collection[str]) -> str:
    """A clause that names the nearest existing metric, empty where none is near: a rename or a misspelling."""
    plain = {name.replace(":", "_"): name for name in names}
    found = get_close_matches(wanted.replace(":", "_"), plain, n=1, cutoff=0.75)
    return f"; the nearest name that exists is {plain[found[0]]}" if found else ""


def _no_series(signal: Fresh | Missing) -> bool:
    return isinstance(signal, Missing) and signal.why.startswith("no series named")


def _reported_twice(preset: EnginePreset, series: ReplicaSeries) -> bool:
    names = {
        n
        for s in preset.sources.values()
        if not isinstance(s, HistogramQuantile | HistogramBeyond)
        for n in series_names(s)
    }
    return any(duplicated(series.by_name[name]) for name in names if name in series.by_name)
