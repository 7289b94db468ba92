"""What the forecasting room costs at many tenants: a tick, a bucket's end with the boosted model, a forecast."""

import time
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting import (
    ForecastSettings,
    GlobalModel,
    NotEnoughHistoryError,
    bursts,
    empty_memory,
    forecast,
    observe,
    train,
)

TICK_S = 15.0
WARM_BUCKETS = 150
"""Buckets of history before anything is timed: a whole day is kept, and the model needs one."""
TIMED_BUCKETS = 3


def cost(history_rps: NDArray[np.float64], tenants: int, settings: ForecastSettings) -> dict[str, float]:
    """Return seconds of one core per call at so many tenants.

    ``history_rps`` [T, S] is repeated side by side, each copy of a client with its own factor.

    ``tick_s`` is the median of a tick inside a bucket, ``bucket_end_s`` of one that closes a bucket, each with the
    forecast at all horizons and the onsets, as a controller's tick has them; ``forecast_s`` is the forecast's part.
    """
    rng = np.random.default_rng(1)
    copies = -(-tenants // history_rps.shape[1])
    rows = np.nan_to_num(history_rps[:WARM_BUCKETS])
    factor = rng.lognormal(0.0, 1.0, (copies * history_rps.shape[1],))[:tenants]
    ids = tuple(f"tenant-{i}" for i in range(tenants))

    def rates(bucket: int) -> NDArray[np.float64]:
        wide: NDArray[np.float64] = np.tile(rows[bucket % len(rows)], copies)[:tenants] * factor
        return wide

    model, bucket_s = _model(history_rps, settings), settings.bucket_s
    memory = observe(empty_memory(settings), 0.0, ids, np.full(tenants, np.nan), settings)
    for bucket in range(WARM_BUCKETS):
        memory = observe(memory, (bucket + 1) * bucket_s, ids, rates(bucket), settings)
    ticks: list[float] = []
    ends: list[float] = []
    forecasts: list[float] = []
    for bucket in range(WARM_BUCKETS, WARM_BUCKETS + TIMED_BUCKETS):
        for now_s in (bucket * bucket_s + TICK_S, bucket * bucket_s + 2 * TICK_S, (bucket + 1) * bucket_s):
            row = rates(bucket)
            started_s = time.process_time()
            memory = observe(memory, now_s, ids, row, settings, model)
            observed_s = time.process_time()
            forecast(memory, settings.horizons_s, now_s, settings)
            forecasts.append(time.process_time() - observed_s)
            bursts(memory, now_s)
            (ends if now_s % bucket_s == 0 else ticks).append(time.process_time() - started_s)
    return {
        "tenants": float(tenants),
        "tick_s": median(ticks),
        "bucket_end_s": median(ends),
        "forecast_s": median(forecasts),
    }


def _model(history_rps: NDArray[np.float64], settings: ForecastSettings) -> GlobalModel | None:
    """Return a model of the file's last days; None where they are too few."""
    try:
        return train(history_rps[-2 * settings.day_buckets :], settings)
    except NotEnoughHistoryError:
        return None
