"""Memory -> forecasts: mean and upper bands per horizon and tenant, and the terms behind one of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.calibration import LAST, MODEL, ROWS
from autoscaler.forecasting.features import View, view_at_close, view_inside
from autoscaler.forecasting.issuing import Modelled, Shared, issue, shared
from autoscaler.forecasting.memory import ForecastMemory
from autoscaler.forecasting.settings import ForecastSettings

Doubles = NDArray[np.float64]


class ForecastMethod(IntEnum):
    """How a series' bands were made."""

    UNSEEN = 0
    """Nothing is known of the tenant: zero, and ``known`` is false."""
    LIVE = 1
    """No bucket is closed yet: the ticks so far, and the widest cell of the table."""
    TABLE = 2
    """Base level times the pooled ratios of tenants in the same state."""
    MODEL = 3
    """The boosted model, which lately beat the table for this rate group."""


@dataclass(frozen=True, slots=True, eq=False)
class RateForecast:
    """Forecasts of S series at H horizons; always finite, never negative, ``p50 <= p90 <= p95``.

    Attributes:
        ids: series ids.
        horizons_s: the H horizons; a horizon ``h`` is the mean rate over the next ``h`` seconds.
        mean: [H, S] expected rate, requests/s: what placement adds up.
        p50: [H, S] median. Medians do not add up; never size capacity by their sum.
        p90: [H, S] upper band of one tenant.
        p95: [H, S] upper band of one tenant.
        method: [S] `ForecastMethod`.
        known: [S] false where the numbers are a stand-in because the tenant was never seen.
        stale_s: [S] seconds since the tenant's rate was last known, in whole buckets; 0 when it is current.
        pooled: [H, 2] multipliers of a sum's margins at .9 and .95; `totals` uses them.
    """

    ids: tuple[str, ...]
    horizons_s: tuple[float, ...]
    mean: Doubles
    p50: Doubles
    p90: Doubles
    p95: Doubles
    method: NDArray[np.int8]
    known: NDArray[np.bool_]
    stale_s: Doubles
    pooled: Doubles


def forecast(
    memory: ForecastMemory, horizons_s: Sequence[float], now_s: float, settings: ForecastSettings
) -> RateForecast:
    """Return forecasts for every series of ``memory`` at ``horizons_s`` (seconds, each above 0), made at ``now_s``.

    Between the learnt horizons values are interpolated, outside them the nearest one holds.
    """
    at = shared(_view(memory, settings))
    modelled = _still_said(memory, at.view)
    learnt = [issue(at, memory.calibration, h, modelled).rows[-4:] for h in range(len(settings.horizons_s))]
    values = _interpolated(np.asarray(learnt), horizons_s, settings).astype(np.float64)
    seen, aged = ~np.isnan(memory.live), at.view.age > 0
    nearest = _nearest(horizons_s[0], settings)
    by_model = memory.calibration.serving[nearest][at.group, 1] == MODEL
    by_model &= ~np.isnan(modelled.ratios[nearest][0])
    method = np.where(by_model, ForecastMethod.MODEL, ForecastMethod.TABLE)
    method = np.where(aged, method, np.where(seen, ForecastMethod.LIVE, ForecastMethod.UNSEEN))
    pooled = _interpolated(memory.calibration.pooled, horizons_s, settings)
    overdue_s = max(0.0, now_s - memory.last_tick_s) if np.isfinite(memory.last_tick_s) else 0.0
    missing_s = np.where(at.view.unknown > 0, at.view.unknown * settings.bucket_s, 0.0)
    return RateForecast(
        ids=memory.ids,
        horizons_s=tuple(float(h) for h in horizons_s),
        mean=values[:, 0], p50=values[:, 1], p90=values[:, 2], p95=values[:, 3],
        method=method.astype(np.int8),
        known=seen,
        stale_s=missing_s + overdue_s,
        pooled=pooled,
    )  # fmt: skip


def _view(memory: ForecastMemory, settings: ForecastSettings) -> View:
    """Return the levels now: those at the last bucket's end moved by what is known of the open one."""
    at_close = view_at_close(memory.series, settings)
    share = memory.open_known_s / np.float32(settings.bucket_s)
    mean = (memory.open_sum / np.maximum(memory.open_known_s, np.float32(1e-9))).astype(np.float32)
    first = (at_close.age == 0) & (share == 0) & ~np.isnan(memory.live)
    mean = np.where(first, memory.live, mean).astype(np.float32)
    share = np.where(first, np.float32(1), share).clip(0, 1).astype(np.float32)
    return view_inside(at_close, mean, share, settings)


def _still_said(memory: ForecastMemory, view: View) -> Modelled:
    """Return the model's words without those about tenants that woke up since: they were about silence."""
    woke = (view.off_age == 0) & (memory.series.off_age > 0)
    return replace(memory.modelled, ratios=np.where(woke, np.float32(np.nan), memory.modelled.ratios))


def _interpolated(learnt: Any, horizons_s: Sequence[float], settings: ForecastSettings) -> Any:
    """Return [len(horizons_s), ...] values between the learnt horizons [H, ...]."""
    position = np.interp(np.asarray(horizons_s, np.float64), settings.horizons_s, np.arange(len(learnt)))
    low = position.astype(np.int64)
    high = np.minimum(low + 1, len(learnt) - 1)
    part = (position - low).reshape(-1, *[1] * (learnt.ndim - 1)).astype(learnt.dtype)
    return learnt[low] * (1 - part) + learnt[high] * part if part.any() else learnt[low]


def _nearest(horizon_s: float, settings: ForecastSettings) -> int:
    """Return the index of the learnt horizon nearest to ``horizon_s``."""
    return int(np.abs(np.asarray(settings.horizons_s) - horizon_s).argmin())


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one series has its forecast: every number that made it.

    Attributes:
        id: the series.
        horizon_s: the learnt horizon the terms are of.
        method: how its bands were made.
        sentence: the same in one sentence.
        terms: name -> number, rates in requests/s.
    """

    id: str
    horizon_s: float
    method: ForecastMethod
    sentence: str
    terms: dict[str, float]


def explain_series(
    memory: ForecastMemory, series_id: str, horizon_s: float, now_s: float, settings: ForecastSettings
) -> Explanation:
    """Return the terms of one series' forecast at the learnt horizon nearest to ``horizon_s``.

    Raises:
        KeyError: there is no such series.
    """
    if series_id not in memory.ids:
        raise KeyError(f"no forecast for {series_id!r}: it is not among the {len(memory.ids)} tenants of the last tick")
    i, h = memory.ids.index(series_id), _nearest(horizon_s, settings)
    at = shared(_view(memory, settings))
    modelled = _still_said(memory, at.view)
    rows = issue(at, memory.calibration, h, modelled).rows[:, i]
    made = forecast(memory, [settings.horizons_s[h]], now_s, settings)
    method = ForecastMethod(int(made.method[i]))
    terms = {name: float(value) for name, value in zip(ROWS, rows, strict=True) if np.isfinite(value)}
    terms |= _learnt_terms(memory, at, h, i) | {
        "known_buckets": float(at.view.age[i]),
        "stale_s": float(made.stale_s[i]),
    }
    return Explanation(
        series_id, settings.horizons_s[h], method, _sentence(method, terms, settings.horizons_s[h]), terms
    )


def _learnt_terms(memory: ForecastMemory, at: Shared, h: int, i: int) -> dict[str, float]:
    group = int(at.group[i])
    c = memory.calibration
    losses = c.loss[h, group, 1]
    terms = {
        "last_value_share": float(c.alpha()[h, group]),
        "table_band_score": float(c.z[h, group, 0, 0]),
        "model_band_score": float(c.z[h, group, 1, 0]),
        "table_loss90": float(losses[1]),
        "model_loss90": float(losses[2]),
        "usual_rate": float(at.view.usual[i]),
        "silent_buckets": float(at.view.off_age[i]),
        "median_by_last_value": float(c.serving[h, group, 0] == LAST),
    }
    inside, seen = c.covered[h, group]
    return terms | ({"group_coverage90": float(inside / seen)} if seen > 0 else {})


def _sentence(method: ForecastMethod, terms: dict[str, float], horizon_s: float) -> str:
    if method is ForecastMethod.UNSEEN:
        return "Never seen: no rate is known yet, so nothing is forecast and nothing may be concluded from it."
    return (
        f"{terms['mean']:.3g} requests/s on average over the next {horizon_s:.0f} s "
        f"(half the time below {terms['p50']:.3g}, nine times in ten below {terms['p90']:.3g}), "
        f"by {method.name.lower()} from a level of {terms['base']:.3g} "
        f"(last {terms['last']:.3g}, fast mean {terms['fast']:.3g}, usual when active {terms['usual_rate']:.3g})."
    )
