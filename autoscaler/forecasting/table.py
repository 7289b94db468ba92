"""The pooled ratio table: for each horizon and cell, how the next rates compared with the base level lately.

Tenants in the same state (a cell: active or silent, for how long, how rough, rising or falling) share one decayed
histogram of ratio = next rate / base level. Any quantile can be read from it, nothing is fitted, and 100,000 tenants
cost one weighted count per bucket.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.features import CELLS, FIRST_OFF_CELL, Cells
from autoscaler.forecasting.series import Floats

Doubles = NDArray[np.float64]

_TOP = 50.0
_STRETCH = 3.0
_STEPS = 60
EDGES: Doubles = np.concatenate(
    [[0.0], np.exp(np.sinh(np.linspace(-1, 1, _STEPS + 1) * _STRETCH) * (np.log(_TOP) / np.sinh(_STRETCH)))]
)
"""Bin edges of the ratio: fine around 1 (2 % wide), coarse far away; the first bin holds silence."""
BINS = len(EDGES)
"""Silence (below 1/50), 60 bins, and above 50 times."""
_LOW, _HIGH = EDGES, np.append(EDGES[1:], _TOP * 1.5)
PRIOR_WEIGHT = 10.0
WEIGHT_POWER = 0.4
"""A tenant counts with its rate to this power: half-way between every tenant alike and every request alike."""


def bin_of(ratio: Floats | Doubles) -> Cells:
    """Return the bin of each ratio."""
    return (np.searchsorted(EDGES[1:], ratio, side="right")).astype(np.int64)


@lru_cache(maxsize=8)
def prior(horizons: int) -> Doubles:
    """Return [H, C, B] what is believed before anything is seen: lognormal around 1, mostly silence for the silent."""
    centre = np.sqrt(EDGES[1:-1] * EDGES[2:])
    width = np.log(EDGES[2:] / EDGES[1:-1])
    out = np.zeros((horizons, CELLS, BINS))
    for h in range(horizons):
        sigma = 0.35 + 0.1 * h
        density = width * np.exp(-0.5 * (np.log(centre) / sigma) ** 2)
        out[h, :, 1:-1] = density / density.sum()
        out[h, FIRST_OFF_CELL:] *= 0.1
        out[h, FIRST_OFF_CELL:, 0] = 0.9
    out *= PRIOR_WEIGHT
    out.setflags(write=False)
    return out


def learn(
    counts: Doubles, cell: Cells, ratio: Floats | Doubles, weight: Floats, keep: float, first: Doubles
) -> Doubles:
    """Return [C, B] counts one bucket later: old ones decay by ``keep`` towards ``first``, new ones are added."""
    index = cell * BINS + bin_of(ratio)
    new = np.bincount(index, weight, CELLS * BINS).reshape(CELLS, BINS)
    out: Doubles = first + (counts - first) * keep + new
    return out


def quantiles(counts: Doubles, levels: Doubles) -> Doubles:
    """Return [C, Q] quantiles of the ratio per cell at ``levels`` (Q,), linear within bins; silence is 0."""
    share = np.cumsum(counts, axis=1)
    share /= share[:, -1:]
    at = (share[:, None, :] < levels[:, None]).sum(axis=2).clip(0, BINS - 1)
    padded = np.concatenate([np.zeros((len(share), 1)), share], axis=1)
    below, up_to = np.take_along_axis(padded, at, axis=1), np.take_along_axis(share, at, axis=1)
    part = ((levels - below) / np.maximum(up_to - below, 1e-12)).clip(0, 1)
    out: Doubles = np.where(at == 0, 0.0, _LOW[at] + part * (_HIGH[at] - _LOW[at]))
    return out
