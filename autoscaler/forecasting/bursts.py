"""Onset detection: did a tenant's demand just jump? A detector, not a forecast."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.memory import ForecastMemory


@dataclass(frozen=True, slots=True, eq=False)
class Bursts:
    """Onsets of S series: ``active`` [S] and ``score`` [S], 1.0 = threshold."""

    ids: tuple[str, ...]
    active: NDArray[np.bool_]
    score: NDArray[np.float64]


def bursts(memory: ForecastMemory, now_s: float) -> Bursts:
    """Return which series are in an onset at ``now_s``; a memory without a current tick has none."""
    current = now_s == memory.last_tick_s
    score = memory.burst_score.astype(np.float64) * current
    return Bursts(memory.ids, score >= 1.0, score)
