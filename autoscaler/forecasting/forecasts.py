"""Memory -> forecasts: mean and upper bands per horizon and tenant, and the terms behind one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.memory import ForecastMemory
from autoscaler.forecasting.settings import ForecastSettings


class ForecastMethod(IntEnum):
    """How a series' forecast was made."""

    UNSEEN = 0
    """Nothing is known of the tenant: zero, and ``known`` is false."""
    LIVE = 1
    """No bucket is closed yet: the last tick's rate."""
    BLEND = 2
    """The bank of EWMAs."""


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
        stale_s: [S] seconds since the tenant's rate was last known; 0 when it is current.
    """

    ids: tuple[str, ...]
    horizons_s: tuple[float, ...]
    mean: NDArray[np.float64]
    p50: NDArray[np.float64]
    p90: NDArray[np.float64]
    p95: NDArray[np.float64]
    method: NDArray[np.int8]
    known: NDArray[np.bool_]
    stale_s: NDArray[np.float64]


def forecast(
    memory: ForecastMemory, horizons_s: Sequence[float], now_s: float, settings: ForecastSettings
) -> RateForecast:
    """Return forecasts for every series of ``memory`` at ``horizons_s``."""
    weight = np.maximum(memory.ewma_weight, np.float32(1e-9))
    bank = np.where(memory.ewma_weight > 0, memory.ewma / weight, 0.0)
    seen, aged = ~np.isnan(memory.live), memory.age_buckets > 0
    live = np.where(seen, memory.live, 0.0)
    level = np.where(aged, (bank[0] + bank[1]) / 2, live)
    spread = np.maximum(np.abs(live - level), level * 0.3)
    mean = np.broadcast_to(level, (len(horizons_s), level.size)).astype(np.float64)
    method = np.where(aged, ForecastMethod.BLEND, np.where(seen, ForecastMethod.LIVE, ForecastMethod.UNSEEN))
    return RateForecast(
        ids=memory.ids,
        horizons_s=tuple(float(h) for h in horizons_s),
        mean=mean,
        p50=mean,
        p90=mean + spread,
        p95=mean + 1.5 * spread,
        method=method.astype(np.int8),
        known=seen,
        stale_s=np.where(aged, memory.unknown_buckets * settings.bucket_s, 0.0).astype(np.float64),
    )
