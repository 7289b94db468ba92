"""State of a series -> base level, cell, rate group, and the inputs of the boosted model; all scale-free."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.series import (
    ACTIVE_LONG,
    ROUGH_LONG,
    Floats,
    SeriesState,
    bank_keeps,
    corrected,
    trait_keeps,
)
from autoscaler.forecasting.settings import RECENT, ForecastSettings

Cells = NDArray[np.int64]

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the last value in the base; the rest is the fast EWMA."""
USUAL_SHARE = np.float32(0.1)  # the base of a silent tenant: a tenth of its usual level, so that a return has a ratio
GROUP_EDGES = (0.01, 0.05, 0.2, 0.7, 3.0)
"""Rate groups, as shares of the mean tenant's rate: relative, so that a fleet twice as busy is grouped alike."""
GROUPS = len(GROUP_EDGES) + 1
_ROUGH_EDGES = (0.06, 0.15, 0.4)
_TREND_EDGES = (0.7, 1.4)
_OFF_EDGES = (2.5, 12.5)
_ON_CELLS = (len(_ROUGH_EDGES) + 1) * (len(_TREND_EDGES) + 1)
_FRESH_CELLS = len(_ROUGH_EDGES) + 1
_OFF_CELLS = (len(_OFF_EDGES) + 1) * 2
CELLS = 1 + _ON_CELLS + _FRESH_CELLS + _OFF_CELLS
"""Young; active by roughness and trend; just become active by roughness; silent by how long and how seldom active."""
FIRST_OFF_CELL = 1 + _ON_CELLS + _FRESH_CELLS


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Levels of S series at one moment: a bucket's end, or a tick inside the open bucket.

    Attributes:
        last: [S] rate of the last bucket's length up to now, requests/s.
        fast: [S] fast EWMA up to now.
        bank: [K, S] the corrected bank at the last bucket's end.
        traits: [4, S] corrected.
        usual: [S] usual rate while active.
        on_age: [S] buckets active in a row.
        off_age: [S] buckets silent in a row.
        age: [S] known buckets.
        unknown: [S] buckets since the last known one.
    """

    last: Floats
    fast: Floats
    bank: Floats
    traits: Floats
    usual: Floats
    on_age: Floats
    off_age: Floats
    age: Floats
    unknown: Floats


def view_at_close(state: SeriesState, settings: ForecastSettings) -> View:
    """Return the levels at the end of the last closed bucket."""
    bank = corrected(state.bank, bank_keeps(settings), state.age)
    traits = corrected(state.traits, trait_keeps(settings), state.age)
    return View(state.last, bank[0], bank, traits, state.usual(), state.on_age, state.off_age, state.age, state.unknown)


def view_inside(at_close: View, open_mean: Floats, open_share: Floats, settings: ForecastSettings) -> View:
    """Return the levels at a tick: the open bucket's mean ``open_mean`` counts for its share ``open_share`` (0 to 1).

    A tenant that wakes up in the open bucket counts as active at once; one that falls silent only when the bucket ends.
    """
    first = at_close.age == 0
    share = np.where(first & (open_share > 0), np.float32(1), open_share)
    keep = np.where(first, 1 - share, bank_keeps(settings)[0] ** share)
    woke = (open_share > 0) & (open_mean > 0) & (at_close.off_age > 0)
    return View(
        last=((1 - share) * at_close.last + share * open_mean).astype(np.float32),
        fast=(keep * at_close.fast + (1 - keep) * open_mean).astype(np.float32),
        bank=at_close.bank,
        traits=at_close.traits,
        usual=at_close.usual,
        on_age=np.where(woke, np.float32(1), at_close.on_age),
        off_age=np.where(woke, np.float32(0), at_close.off_age),
        age=at_close.age,
        unknown=np.where(open_share > 0, np.float32(0), at_close.unknown),
    )


def base_level(view: View, alpha: Floats | float) -> Floats:
    """Return [S] the level that ratios are taken to, requests/s; 0 only for a tenant that was never active.

    While a tenant's signal is missing the level does not fall below its four-hour mean: doubt is conservative.
    """
    level = np.maximum(alpha * view.last + (1 - alpha) * view.fast, USUAL_SHARE * view.usual)
    held = np.maximum(level, view.bank[max(len(view.bank) - 2, 0)])
    out: Floats = np.where(view.unknown > 0, held, level).astype(np.float32)
    return out


def cell_of(view: View) -> Cells:
    """Return [S] the pooled cell each series shares its ratio distribution with, below `CELLS`."""
    rough = np.searchsorted(np.asarray(_ROUGH_EDGES, np.float32), view.traits[ROUGH_LONG])
    trend = view.last / np.maximum(view.bank[len(view.bank) // 2], np.float32(1e-12))
    trend_class = np.searchsorted(np.asarray(_TREND_EDGES, np.float32), trend)
    off = np.searchsorted(np.asarray(_OFF_EDGES, np.float32), view.off_age)
    cell = np.where(view.on_age >= 3, 1 + rough * (len(_TREND_EDGES) + 1) + trend_class, 1 + _ON_CELLS + rough)
    cell = np.where(view.off_age > 0, FIRST_OFF_CELL + off * 2 + (view.traits[ACTIVE_LONG] > 0.1), cell)
    out: Cells = np.where(view.age < 3, 0, cell)
    return out


def group_of(view: View) -> Cells:
    """Return [S] the rate group of each series, below `GROUPS`."""
    rate = view.bank[-1]
    mean = np.float64(rate.sum(dtype=np.float64)) / max(rate.size, 1)
    out: Cells = np.searchsorted(np.asarray(GROUP_EDGES), rate / max(mean, 1e-30))
    return out


def model_inputs(state: SeriesState, view: View, base: Floats, horizon_buckets: int, day: int) -> Floats:
    """Return [S, F] the inputs of the boosted model at a bucket's end; NaN = unknown, which the trees understand.

    ``day`` is the season in buckets. Rates enter as the logarithm of their ratio to ``base``: the model never sees
    how large a tenant is.
    """
    scale = np.maximum(base, np.float32(1e-12))
    rates = [state.lag(k) for k in range(RECENT)]
    rates += [*view.bank[1:], view.usual]
    rates += [state.span(day - horizon_buckets, horizon_buckets), state.lag(day - 1)]
    ratios = np.log(np.clip(np.stack(rates) / scale, 0.01, 20))
    ages = np.log1p(np.stack([view.off_age, view.on_age]))
    out: Floats = np.concatenate([ratios, ages, view.traits]).T.astype(np.float32)
    return out
