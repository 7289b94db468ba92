"""One tick of rates into memory: clock, gaps, buckets, and at a bucket's end judging and issuing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.forecasting.calibration import Issued, judge
from autoscaler.forecasting.features import view_at_close
from autoscaler.forecasting.issuing import Modelled, issue, shared
from autoscaler.forecasting.memory import ForecastMemory, realign
from autoscaler.forecasting.model import GlobalModel, predict, spoken_for
from autoscaler.forecasting.series import Floats, SeriesState, advance, skip
from autoscaler.forecasting.settings import ForecastSettings

SHORT_TICK_SHARE = 0.1  # longer ticks differ by what the rate does, which is no scatter
MIN_KNOWN_SHARE = 0.5  # a bucket known for less of its length is unknown, not zero


def observe(
    memory: ForecastMemory,
    now_s: float,
    ids: Sequence[str],
    rates_rps: ArrayLike,
    settings: ForecastSettings,
    model: GlobalModel | None = None,
) -> ForecastMemory:
    """Return the memory after one tick.

    Args:
        memory: state before.
        now_s: time of the tick.
        ids: the tenants of this tick; state of others is dropped, new ones start unseen.
        rates_rps: [S] mean rate since the last tick, requests/s; NaN (or negative, or infinite) = unknown.
        settings: room settings.
        model: the boosted model to run beside the cheap ladder from the next bucket's end on; None = none.

    A tick at the time of the last one changes nothing. A clock that went back starts the open bucket anew and judges
    nothing across the jump; one that leapt forward leaves unknown buckets behind, never zeros.

    Raises:
        ValueError: the shapes differ, an id repeats, or ``now_s`` is not finite.
    """
    rates = np.asarray(rates_rps, np.float64)
    if rates.shape != (len(ids),):
        raise ValueError(f"rates_rps has shape {rates.shape}, expected ({len(ids)},): one rate per id")
    if not np.isfinite(now_s):
        raise ValueError(f"now_s is {now_s}; give the tick's time in seconds")
    memory = realign(memory, ids)
    if now_s == memory.last_tick_s:
        return memory
    known = np.isfinite(rates) & (rates >= 0) & (rates < np.finfo(np.float32).max)
    rates32 = np.where(known, rates, np.nan).astype(np.float32)
    tick_s = now_s - memory.last_tick_s
    covered_s = min(tick_s, settings.max_tick_s) if tick_s > 0 else 0.0
    if not tick_s > 0:
        memory = _anchored(memory, now_s, settings)
    memory = _into_buckets(memory, now_s, rates32, covered_s, settings, model)
    return replace(
        memory,
        scatter=_scattered(memory, rates32, covered_s, settings),
        last_tick_s=float(now_s),
        tick_s=float(covered_s),
        live=np.where(known, rates32, memory.live),
        ticks=np.stack([rates32, memory.ticks[0]]),
    )


def _anchored(memory: ForecastMemory, now_s: float, settings: ForecastSettings) -> ForecastMemory:
    """Start the open bucket at the clock's time: the first tick, or one that went back."""
    zero = np.zeros(len(memory.ids), np.float32)
    return replace(
        memory,
        bucket_start_s=float(now_s // settings.bucket_s * settings.bucket_s),
        open_sum=zero,
        open_known_s=zero,
        pending=((),) * len(settings.horizons_s),
        ticks=np.full_like(memory.ticks, np.nan),
    )


def _scattered(memory: ForecastMemory, rates: Floats, covered_s: float, settings: ForecastSettings) -> Floats:
    """Add what this tick's count of requests differs by from the last one's; unknown ticks add nothing."""
    if not 0 < max(covered_s, memory.tick_s) <= SHORT_TICK_SHARE * settings.bucket_s:
        return memory.scatter
    now, before = rates * np.float32(covered_s), memory.ticks[0] * np.float32(memory.tick_s)
    with np.errstate(over="ignore"):
        new = np.nan_to_num(np.stack([(now - before) ** 2 / 2, (now + before) / 2]), posinf=0.0)
    scatter: Floats = (memory.scatter + new).clip(0, np.float32(1e30))
    return scatter


def _into_buckets(
    memory: ForecastMemory,
    now_s: float,
    rates: Floats,
    covered_s: float,
    settings: ForecastSettings,
    model: GlobalModel | None,
) -> ForecastMemory:
    """Spread one rate over the buckets it covers, closing those that end by ``now_s``."""
    known = (~np.isnan(rates)).astype(np.float32)
    rate = np.nan_to_num(rates)
    from_s = now_s - covered_s
    while True:
        start_s, end_s = memory.bucket_start_s, memory.bucket_start_s + settings.bucket_s
        part_s = np.float32(max(0.0, min(now_s, end_s) - max(from_s, start_s)))
        memory = replace(
            memory, open_sum=memory.open_sum + rate * part_s, open_known_s=memory.open_known_s + known * part_s
        )
        if now_s < end_s:
            return memory
        memory = _close(memory, settings, model)
        missed = int(max(0.0, min(from_s, now_s) - end_s) // settings.bucket_s)
        if missed:
            memory = replace(
                memory,
                bucket_start_s=end_s + missed * settings.bucket_s,
                series=skip(memory.series, missed, settings),
                pending=((),) * len(settings.horizons_s),
            )


def _close(memory: ForecastMemory, settings: ForecastSettings, model: GlobalModel | None) -> ForecastMemory:
    """Close the open bucket: advance the series, judge what came true, issue anew."""
    enough = memory.open_known_s >= settings.bucket_s * MIN_KNOWN_SHARE * (1 - 1e-6)
    mean = memory.open_sum / np.maximum(memory.open_known_s, np.float32(1e-9))
    series = advance(memory.series, np.where(enough, mean, np.float32(np.nan)), settings)
    calibration, pending = memory.calibration, list(memory.pending)
    turn = int(memory.bucket_start_s // settings.bucket_s)
    for h, buckets in enumerate(settings.horizon_buckets):
        if len(pending[h]) == buckets:
            calibration = judge(calibration, h, Issued(pending[h][0]), series.span(0, buckets), settings, turn)
            pending[h] = pending[h][1:]
    view = view_at_close(series, settings)
    at = shared(view)
    modelled = _modelled(memory, series, settings, model)
    expected = memory.expected
    for h in range(len(pending)):
        rows = issue(at, calibration, h, modelled).rows
        if h == 0:
            expected = np.where(view.age > 0, rows[-1], np.float32(np.nan))
        rows[2, (view.unknown > 0) | (view.age == 0)] = np.nan
        pending[h] = (*pending[h], rows)
    zero = np.zeros_like(memory.open_sum)
    return replace(
        memory,
        bucket_start_s=memory.bucket_start_s + settings.bucket_s,
        open_sum=zero,
        open_known_s=zero,
        scatter=memory.scatter * np.float32(0.5 ** (1 / settings.day_buckets)),
        expected=expected,
        series=series,
        calibration=calibration,
        pending=tuple(pending),
        modelled=modelled,
    )


def _modelled(
    memory: ForecastMemory, series: SeriesState, settings: ForecastSettings, model: GlobalModel | None
) -> Modelled:
    """Let the model speak for the largest tenants; silence of a day is left to the table."""
    count, horizons = len(memory.ids), len(settings.horizons_s)
    ratios = np.full((horizons, 2, count), np.nan, np.float32)
    if model is None:
        return Modelled("", (0.0,) * horizons, ratios)
    view = view_at_close(series, settings)
    rows = spoken_for(view, settings)
    for h in range(horizons):
        ratios[h][:, rows] = predict(model, series, view, h, rows, settings)
    return Modelled(model.version, model.alphas, ratios)
