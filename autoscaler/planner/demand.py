"""What each tenant and adapter will ask for, in tokens/s: forecast rates times each tenant's own length profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.observation import Bools, Catalogue, Floats, Observation, Traffic
from autoscaler.domain.signals import Fresh
from autoscaler.forecasting import (
    Bursts,
    Explanation,
    ForecastMemory,
    ForecastSettings,
    RateForecast,
    bursts,
    empty_memory,
    explain_series,
    forecast,
    observe,
)
from autoscaler.planner.learned import GroupOutlook, Learned, LearnedModel, learnt_shape, settings_of
from autoscaler.planner.standing import HorizonStanding, standing_of
from autoscaler.policy.model import FleetPolicy

_SHARE_WEIGHT = 0.1  # of a new tick in an adapter's share of its tenant: half of a change is followed in 7 ticks
_LENGTH_SAMPLES = 256.0  # requests after which an older length counts 1/e
_UNSEEN_TOKENS_PER_REQUEST = 500.0  # a chat turn, until the fleet's own mean is known


@dataclass(frozen=True, slots=True, eq=False)
class DemandMemory:
    """What demand remembers.

    Attributes:
        forecast: of tenants, requests/s.
        settings: what `forecast` was learnt under; None = whatever the policy said.
        learned: what was learnt beside the tick, put here by the shell; it travels on unchanged.
        tokens: tokens a request of each tenant of `forecast.ids`, NaN = never seen (T).
        weight: requests behind `tokens`, at most `_LENGTH_SAMPLES` (T).
        adapters: ids behind `adapter_rps` (A), and their smoothed rates.
    """

    forecast: ForecastMemory
    settings: ForecastSettings | None = None
    learned: Learned = field(default_factory=Learned)
    tenants: tuple[str, ...] = ()
    tokens: Floats = field(default_factory=lambda: np.zeros(0))
    weight: Floats = field(default_factory=lambda: np.zeros(0))
    adapters: tuple[str, ...] = ()
    adapter_rps: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Columns over T tenants (`Catalogue.tenants`) and A adapters.

    Attributes:
        forecast: rates at `horizons_s`: tiering's, growth's look-ahead, scale-in's, demotion's.
        bursts: onsets.
        tokens_per_request: each tenant's profile, the fleet's mean where it was never seen (T).
        rate_tokens_per_s: seen over the last window; NaN = unknown (T).
        mean_tokens_per_s, upper_tokens_per_s: forecast over `forecast.horizon` (T).
        slo_missed: the tenant's p99 over the last window is above its target (T).
        adapter_tokens_per_s: forecast mean of each adapter, its share of its tenant's (A).
        standing: which forecaster serves each horizon, and how the others compare.
        model: that ran, in service or in shadow; None = none.
        outlooks: of groups, hours ahead.
        explain: builds the terms behind one tenant's forecast at a horizon (s). Raises KeyError for a stranger.
    """

    forecast: RateForecast
    bursts: Bursts
    tokens_per_request: Floats
    rate_tokens_per_s: Floats
    mean_tokens_per_s: Floats
    upper_tokens_per_s: Floats
    slo_missed: Bools
    adapter_tokens_per_s: Floats
    standing: tuple[HorizonStanding, ...]
    model: LearnedModel | None
    outlooks: Mapping[str, GroupOutlook]
    explain: Callable[[str, float], Explanation] = field(repr=False)


def foresee(observation: Observation, memory: DemandMemory | None, policy: FleetPolicy) -> tuple[Demand, DemandMemory]:
    """Take one tick's traffic in and look ahead."""
    catalogue, traffic, now_s = observation.catalogue, observation.traffic, observation.now_s
    settings = settings_of(policy)
    memory = _learnt_under(settings, memory)
    if not isinstance(observation.freshness.get("traffic", Fresh(0.0)), Fresh):
        traffic = Traffic.unknown(len(catalogue.ids))
    rates = by_tenant(catalogue, traffic.requests_per_s)
    seen_tokens = by_tenant(catalogue, traffic.prompt_tokens_per_s + traffic.completion_tokens_per_s)
    model = memory.learned.model_for(settings, policy.forecast.learned)
    remembered = observe(memory.forecast, now_s, catalogue.tenants, rates, settings, model)
    tokens, weight = _lengths(memory, catalogue, rates, seen_tokens, traffic.window_s)
    adapter_rps = _adapter_rates(memory, catalogue, traffic.requests_per_s)
    ahead = (
        policy.forecast.horizon_s,
        policy.scaling.startup_s + policy.tick_interval_s,
        policy.scaling.scale_in_horizon_s,
        policy.scaling.scale_in.horizon_s or max(policy.forecast.horizons_s, default=policy.forecast.horizon_s),
    )
    foreseen = forecast(remembered, ahead, now_s, settings)
    per_request = _filled(tokens, weight)
    demand = Demand(
        forecast=foreseen,
        bursts=bursts(remembered, now_s),
        tokens_per_request=per_request,
        rate_tokens_per_s=np.where(np.isnan(seen_tokens), rates * per_request, seen_tokens),
        mean_tokens_per_s=foreseen.mean[0] * per_request,
        upper_tokens_per_s=foreseen.p90[0] * per_request,
        slo_missed=_slo_missed(catalogue, traffic, policy),
        adapter_tokens_per_s=_shares(catalogue, adapter_rps) * (foreseen.mean[0] * per_request)[catalogue.tenant_index],
        standing=standing_of(remembered, settings),
        model=memory.learned.model if model is not None else None,
        outlooks=memory.learned.outlooks if policy.forecast.learned else {},
        explain=lambda tenant, horizon_s: explain_series(remembered, tenant, horizon_s, now_s, settings),
    )
    return demand, replace(
        memory, forecast=remembered, settings=settings, tenants=catalogue.tenants, tokens=tokens, weight=weight,
        adapters=catalogue.ids, adapter_rps=adapter_rps,
    )  # fmt: skip


def _learnt_under(settings: ForecastSettings, memory: DemandMemory | None) -> DemandMemory:
    """The memory, with forecasts that start anew where they were learnt in other buckets, horizons or half-lives."""
    if memory is None:
        return DemandMemory(empty_memory(settings))
    if memory.settings is None or learnt_shape(memory.settings) == learnt_shape(settings):
        return memory
    return replace(memory, forecast=empty_memory(settings))


def by_tenant(catalogue: Catalogue, column: Floats) -> Floats:
    """Sum of an adapter column per tenant (T); NaN where any of the tenant's adapters is unknown."""
    total: Floats = np.bincount(catalogue.tenant_index, column, len(catalogue.tenants)).astype(np.float64)
    return total


def _lengths(
    memory: DemandMemory, catalogue: Catalogue, rates: Floats, tokens_per_s: Floats, window_s: float
) -> tuple[Floats, Floats]:
    """Tokens a request, an average over the tenant's last few hundred requests, so that a change is re-estimated."""
    old = _moved(memory.tenants, catalogue.tenants, memory.tokens, np.nan)
    weight = _moved(memory.tenants, catalogue.tenants, memory.weight, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        now = tokens_per_s / rates
    seen = np.isfinite(now) & (now > 0)
    requests = np.where(seen, rates * window_s, 0.0)
    total = np.minimum(weight, np.maximum(_LENGTH_SAMPLES - requests, 0.0)) + requests
    share = np.divide(requests, total, out=np.zeros_like(total), where=total > 0)
    mixed = np.where(np.isnan(old), now, old + (np.where(seen, now, 0.0) - np.nan_to_num(old)) * share)
    return np.where(seen, mixed, old), np.where(seen, total, weight)


def _filled(tokens: Floats, weight: Floats) -> Floats:
    """Lengths with the fleet's mean where a tenant was never seen."""
    known = ~np.isnan(tokens)
    total = float(weight[known].sum())
    mean = float((tokens[known] * weight[known]).sum() / total) if total > 0 else _UNSEEN_TOKENS_PER_REQUEST
    return np.where(known, tokens, mean)


def _adapter_rates(memory: DemandMemory, catalogue: Catalogue, rates: Floats) -> Floats:
    old = _moved(memory.adapters, catalogue.ids, memory.adapter_rps, np.nan)
    fresh = np.where(np.isnan(rates), old, rates)
    return np.where(np.isnan(old), fresh, old + _SHARE_WEIGHT * (fresh - old))


def _shares(catalogue: Catalogue, adapter_rps: Floats) -> Floats:
    """Each adapter's share of its tenant's demand (A), sums to 1 per tenant; equal shares where nothing was seen."""
    rates = np.nan_to_num(adapter_rps)
    of_tenant = np.bincount(catalogue.tenant_index, rates, len(catalogue.tenants))[catalogue.tenant_index]
    count = np.bincount(catalogue.tenant_index, minlength=len(catalogue.tenants))[catalogue.tenant_index]
    return np.divide(rates, of_tenant, out=1.0 / np.maximum(count, 1), where=of_tenant > 0)


def _slo_missed(catalogue: Catalogue, traffic: Traffic, policy: FleetPolicy) -> Bools:
    own = [(row, s.ttft_s) for t, s in policy.slo.tenants.items() if (row := catalogue.tenant_row.get(t)) is not None]
    target = np.full(len(catalogue.tenants), policy.slo.ttft_s)
    for row, ttft_s in own:
        if ttft_s is not None:
            target[row] = ttft_s
    with np.errstate(invalid="ignore"):
        late = traffic.ttft_p99_s > target[catalogue.tenant_index]
    return np.bincount(catalogue.tenant_index, late, len(catalogue.tenants)) > 0


def _moved(before: tuple[str, ...], after: tuple[str, ...], column: Floats, blank: float) -> Floats:
    """A column of `before` over the ids of `after`; nothing is done where they are the same object."""
    if before is after or before == after:
        return column
    row = {name: i for i, name in enumerate(before)}
    source = np.fromiter((row.get(name, -1) for name in after), np.int64, len(after))
    return np.where(source >= 0, column[source], blank) if column.size else np.full(len(after), blank)
