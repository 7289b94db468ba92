"""Builders: replay rates into a memory, with explicit times."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from autoscaler.forecasting import ForecastMemory, ForecastSettings, GlobalModel, empty_memory, observe

SETTINGS = ForecastSettings()
START_S = 1_000_000 * 600.0
NAN = float("nan")

COARSE = replace(SETTINGS, max_tick_s=SETTINGS.bucket_s)
"""One tick per bucket, for long histories."""


def started(ids: Sequence[str], settings: ForecastSettings = SETTINGS, at_s: float = START_S) -> ForecastMemory:
    """A memory whose clock has begun at a bucket's start."""
    return observe(empty_memory(settings), at_s, ids, [NAN] * len(ids), settings)


def ticked(
    memory: ForecastMemory,
    rows: Iterable[Sequence[float]],
    settings: ForecastSettings = SETTINGS,
    tick_s: float = 15.0,
    model: GlobalModel | None = None,
) -> ForecastMemory:
    """One tick per row, ``tick_s`` apart."""
    for row in rows:
        memory = observe(memory, memory.last_tick_s + tick_s, memory.ids, row, settings, model)
    return memory


def bucketed(
    memory: ForecastMemory, rows: Iterable[Sequence[float]], model: GlobalModel | None = None
) -> ForecastMemory:
    """One tick per bucket."""
    return ticked(memory, rows, COARSE, COARSE.bucket_s, model)


def flapping(buckets: int, series: int, seed: int = 7) -> np.ndarray:
    """Rates [T, S] of tenants that come and go, an hour or two on and off, rough while on, levels over 3 decades."""
    rng = np.random.default_rng(seed)
    level = 10.0 ** rng.uniform(-1, 2, series)
    on = rng.random(series) < 0.6
    rows = []
    drift = np.zeros(series)
    for _ in range(buckets):
        on = np.where(on, rng.random(series) > 0.1, rng.random(series) < 0.1)
        drift = 0.95 * drift + rng.normal(0, 0.15, series)
        rows.append(np.where(on, level * np.exp(drift + rng.normal(0, 0.1, series)), 0.0))
    return np.array(rows)
