"""One tick of rates into memory: clock, gaps, buckets, EWMA bank."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.forecasting.memory import ForecastMemory, realign
from autoscaler.forecasting.settings import ForecastSettings


def observe(
    memory: ForecastMemory, now_s: float, ids: Sequence[str], rates_rps: ArrayLike, settings: ForecastSettings
) -> ForecastMemory:
    """Return the memory after one tick.

    Args:
        memory: state before.
        now_s: time of the tick.
        ids: the tenants of this tick; state of others is dropped, new ones start unseen.
        rates_rps: [S] mean rate since the last tick, requests/s; NaN (or negative, or infinite) = unknown.
        settings: room settings.

    A tick at the time of the last one changes nothing. A clock that went back re-anchors the open bucket.
    """
    rates = np.asarray(rates_rps, np.float64)
    if rates.shape != (len(ids),):
        raise ValueError(f"rates_rps has shape {rates.shape}, expected ({len(ids)},): one rate per id")
    memory = realign(memory, ids)
    if now_s == memory.last_tick_s:
        return memory
    rates = np.where(np.isfinite(rates) & (rates >= 0), rates, np.nan)
    if not now_s > memory.last_tick_s:
        start = np.floor(now_s / settings.bucket_s) * settings.bucket_s
        zero = np.zeros(len(ids), np.float32)
        memory = replace(memory, bucket_start_s=float(start), open_sum=zero, open_known_s=zero)
        covered_s = 0.0
    else:
        covered_s = min(now_s - memory.last_tick_s, settings.max_tick_s)
    memory = _into_buckets(memory, now_s, rates, covered_s, settings)
    known = ~np.isnan(rates)
    live = np.where(known, rates, memory.live).astype(np.float32)
    return replace(memory, last_tick_s=float(now_s), live=live)


def _into_buckets(
    memory: ForecastMemory, now_s: float, rates: NDArray[np.float64], covered_s: float, settings: ForecastSettings
) -> ForecastMemory:
    """Spread one rate over the buckets it covers, closing those that end by ``now_s``."""
    start_s, bucket_s = memory.bucket_start_s, settings.bucket_s
    known = ~np.isnan(rates)
    rate = np.where(known, rates, 0.0).astype(np.float32)
    if now_s - start_s > settings.day_s:  # a pause of more than a day: nothing older than the EWMAs is worth keeping
        missed = np.float32((now_s - start_s) // bucket_s - 1)
        memory = replace(memory, unknown_buckets=memory.unknown_buckets + missed)
        start_s = float((now_s // bucket_s) * bucket_s)
    while True:
        end_s = start_s + bucket_s
        part_s = max(0.0, min(now_s, end_s) - max(now_s - covered_s, start_s))
        memory = replace(
            memory,
            open_sum=memory.open_sum + rate * np.float32(part_s),
            open_known_s=memory.open_known_s + known * np.float32(part_s),
            bucket_start_s=start_s,
        )
        if now_s < end_s:
            return memory
        memory = _close(memory, settings)
        start_s = end_s


def _close(memory: ForecastMemory, settings: ForecastSettings) -> ForecastMemory:
    """Close the open bucket: a bucket known for less than half its length is unknown, not zero."""
    known = memory.open_known_s >= settings.bucket_s / 2
    value = memory.open_sum / np.maximum(memory.open_known_s, np.float32(1e-9))
    keep = np.float32(0.5) ** (settings.bucket_s / np.array(settings.half_lives_s, np.float32))[:, None]
    zero = np.zeros_like(value)
    return replace(
        memory,
        open_sum=zero,
        open_known_s=zero,
        last=np.where(known, value, memory.last),
        age_buckets=memory.age_buckets + known,
        unknown_buckets=np.where(known, 0, memory.unknown_buckets + 1).astype(np.float32),
        ewma=np.where(known, keep * memory.ewma + (1 - keep) * value, memory.ewma).astype(np.float32),
        ewma_weight=np.where(known, keep * memory.ewma_weight + (1 - keep), memory.ewma_weight).astype(np.float32),
    )
