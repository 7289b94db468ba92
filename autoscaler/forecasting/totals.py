"""Sums over groups of tenants, with pooled upper bands: what capacity is sized by."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.forecasting.forecasts import RateForecast


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Forecast sums of G groups at H horizons: ``mean``, ``p90`` and ``p95`` are [H, G], in the unit of the weights."""

    horizons_s: tuple[float, ...]
    mean: NDArray[np.float64]
    p90: NDArray[np.float64]
    p95: NDArray[np.float64]


def totals(forecast: RateForecast, group_of: ArrayLike, groups: int, weights: ArrayLike | None = None) -> Totals:
    """Return sums per group with bands of the sum, which are narrower than the sum of the bands.

    The margin is the root of the summed squares of the tenants' margins times a multiplier that follows how often the
    fleet's total passed its band: tenants that rise together show in it.

    Args:
        forecast: forecasts of S series.
        group_of: [S] group index of each series, below ``groups``; negative = in no group.
        groups: number of groups G.
        weights: [S] unit per request, e.g. tokens per request; default 1.
    """
    group = np.asarray(group_of, np.int64)
    used = group >= 0
    weight = np.ones(group.size) if weights is None else np.asarray(weights, np.float64)

    def summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([np.bincount(group[used], row[used], groups) for row in values])

    mean = summed(forecast.mean * weight)
    spread = np.sqrt(summed(((forecast.p90 - forecast.mean).clip(0) * weight) ** 2))
    ceiling90, ceiling95 = summed(forecast.p90 * weight), summed(forecast.p95 * weight)
    p90 = np.minimum(mean + forecast.pooled[:, :1] * spread, np.maximum(ceiling90, mean))
    p95 = np.minimum(mean + forecast.pooled[:, 1:] * spread, np.maximum(ceiling95, mean))
    return Totals(forecast.horizons_s, mean, p90, np.maximum(p90, p95))
