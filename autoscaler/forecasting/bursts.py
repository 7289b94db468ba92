"""Onset detection: did a tenant's demand just jump past what the forecast knew? A detector, not a forecast."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.memory import ForecastMemory

RATIO = 1.5
"""An onset is at least this many times the upper band (.95) of the shortest horizon."""
SIGMAS = 5.0
DISPERSION = 2.25
"""Arrivals of one tenant vary more than Poisson's: their variance is at least this many times the mean."""
DISPERSION_PRIOR = 50.0
"""Requests after which a tenant's own scatter counts as much as that."""


@dataclass(frozen=True, slots=True, eq=False)
class Bursts:
    """Onsets of S series.

    Attributes:
        ids: series ids.
        active: [S] the last two known ticks together are past the threshold.
        score: [S] their mean rate over the threshold, 1.0 = just past; 0 where nothing can be said.
    """

    ids: tuple[str, ...]
    active: NDArray[np.bool_]
    score: NDArray[np.float64]


def bursts(memory: ForecastMemory, now_s: float) -> Bursts:
    """Return which series are in an onset at ``now_s``.

    A tick counts with its own noise: over ``w`` seconds the threshold is at least the band plus five standard
    deviations of the requests it lets expect, so that a quiet tenant's three requests in a row are no onset, nor is a
    clump where requests always come in clumps (the tenant's own scatter from tick to tick, a day's memory). Nothing is
    said of a tenant without a closed bucket, of an unknown tick, or when ``now_s`` is not the last tick's time.
    """
    size = len(memory.ids)
    if now_s != memory.last_tick_s or not memory.tick_s > 0:
        return Bursts(memory.ids, np.zeros(size, np.bool_), np.zeros(size))
    newest, before = memory.ticks.astype(np.float64)
    both = ~np.isnan(before)
    rate = np.where(both, (newest + before) / 2, newest)
    window_s = memory.tick_s * np.where(both, 2.0, 1.0)
    expected = memory.expected.astype(np.float64)
    squares, count = memory.scatter.astype(np.float64)
    own = (DISPERSION * DISPERSION_PRIOR + squares) / (DISPERSION_PRIOR + count)
    noise = SIGMAS * np.sqrt(np.maximum(DISPERSION, own) * np.maximum(expected, 1.0 / window_s) / window_s)
    threshold = np.maximum(RATIO * expected, expected + noise)
    score = np.where(np.isnan(rate) | np.isnan(expected), 0.0, rate / threshold)
    return Bursts(memory.ids, score > 1.0, score)
