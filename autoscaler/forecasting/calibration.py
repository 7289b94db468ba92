"""What is learnt from forecasts that have come true: ratio tables, who serves, and how far the bands must reach.

Every horizon and rate group keeps decayed losses of three forecasters in shadow of each other: the last value, the
pooled table and the boosted model. The best one serves. The level that the upper bands are read at follows the misses
(online conformal tracking, Gibbs and Candes 2021): a band that was passed too often is read from further out.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting import table
from autoscaler.forecasting.features import ALPHAS, CELLS, GROUPS, Cells
from autoscaler.forecasting.series import Floats
from autoscaler.forecasting.settings import ForecastSettings

Doubles = NDArray[np.float64]

LAST, TABLE, MODEL = range(3)
FORECASTERS = 3
LEVELS = (0.9, 0.95)
BASE_Z = (1.2816, 1.6449)
"""Normal scores of the levels: where the bands start before anything is learnt."""
BOUND_Z = 3.0
ROWS = (
    "cell", "group", "base", "last", "fast", "table50", "table90", "table_low", "table_high",
    "model50", "model90", "model_low", "model_high", "mean", "p50", "p90", "p95",
)  # fmt: skip
"""Rows of an issued forecast; cell and group travel as floats, so that it is one block of memory."""
STEP_ALL = 0.08
"""Normal scores that all bands move by after a bucket in which every tenant was above its own."""
STEP_GROUP = 0.03
"""The same for one rate group; less, since a few tenants miss together by chance."""
STEP_POOLED = 0.08
"""The same for the logarithm of a sum's margin."""
STEP_PRIOR = 6.0
JUDGED = 20_000
"""Series judged per horizon and bucket: enough for every table, and 50 ms of a core."""
MODEL_MARGIN = 0.1  # normal scores per horizon: on validation days the raw .9 covered .89, .88 and .87 of windows
CHANGE_MARGIN = 0.005  # a challenger serves when it is this share better


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Learnt of all series together; H horizons, G rate groups, C cells, B bins, A alphas, E forecasters.

    Attributes:
        counts: [H, C, B] ratio table.
        volume: [H, C, 2] decayed sums of base and of actual rate per cell: their quotient is the mean ratio.
        alpha_loss: [H, G, A] decayed absolute errors of the bases.
        loss: [H, G, 2, E] decayed pinball losses at .5 and, of the calibrated bands, at .9.
        serving: [H, G, 2] which forecaster serves the median and the bands.
        z: [H, G, 2, 2] normal scores that the table's and the model's bands (.9, .95) are read at: each forecaster is
            calibrated on its own, in shadow too, so that a change of champion does not inherit the other's faults.
        covered: [H, G, 2] decayed counts of windows (actual or band above zero) inside the 90 % band, and of all such.
        total: [H, 3] decayed absolute error of the served mean, of the served median, and the actual rate.
        pooled: [H, 2] multipliers of the margin of sums (.9, .95).
    """

    counts: Doubles
    volume: Doubles
    alpha_loss: Doubles
    loss: Doubles
    serving: NDArray[np.int64]
    z: Doubles
    covered: Doubles
    total: Doubles
    pooled: Doubles

    def alpha(self) -> Doubles:
        """Return [H, G] the share of the last value in the base that erred least."""
        best: Doubles = np.asarray(ALPHAS)[self.alpha_loss.argmin(axis=2)]
        return best

    def coverage(self) -> Doubles:
        """Return [H] the tracked coverage of the 90 % bands over windows with an actual or a band above zero."""
        inside = self.covered.sum(axis=1)
        with np.errstate(invalid="ignore"):
            share: Doubles = inside[:, 0] / inside[:, 1]
        return share

    def error_ratio(self) -> Doubles:
        """Return [H] the tracked absolute error of the served median over the actual rate; NaN before any."""
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: Doubles = self.total[:, 1] / self.total[:, 2]
        return ratio


def empty_calibration(settings: ForecastSettings) -> Calibration:
    """Return the calibration of a room that has seen nothing come true."""
    h: int = len(settings.horizons_s)
    alpha_loss = np.zeros((h, GROUPS, len(ALPHAS)))
    alpha_loss[0] += 1e-9 * np.arange(len(ALPHAS))[::-1]  # before any evidence: the last value at the first horizon
    alpha_loss[1:] += 1e-9 * np.abs(np.asarray(ALPHAS) - 0.5)
    return Calibration(
        counts=table.prior(h),
        volume=np.zeros((h, CELLS, 2)),
        alpha_loss=alpha_loss,
        loss=np.zeros((h, GROUPS, 2, FORECASTERS)),
        serving=np.full((h, GROUPS, 2), TABLE),
        z=_first_scores(h),
        covered=np.zeros((h, GROUPS, 2)),
        total=np.zeros((h, 3)),
        pooled=np.full((h, 2), 1.5),
    )


def _first_scores(horizons: int) -> Doubles:
    """Return [H, G, 2, 2] starting scores; a boosted model is too sure of itself, the more the longer the horizon."""
    z = np.broadcast_to(np.asarray(BASE_Z), (horizons, GROUPS, 2, 2)).copy()
    z[:, :, 1] += (MODEL_MARGIN * np.arange(1, horizons + 1))[:, None, None]
    return z


@dataclass(frozen=True, slots=True, eq=False)
class Issued:
    """What was said at a bucket's end about one horizon, until it can be judged: ``rows`` [P, S], named by `ROWS`."""

    rows: Floats

    def row(self, name: str) -> Floats:
        """Return one row [S]."""
        out: Floats = self.rows[ROWS.index(name)]
        return out


def judge(
    calibration: Calibration, h: int, issued: Issued, actual: Floats, settings: ForecastSettings, turn: int
) -> Calibration:
    """Return the calibration after ``issued`` for horizon ``h`` came true as ``actual`` [S]; NaN = unknown.

    Totals are judged over everybody; ratios, losses and bands over every k-th series, so that at most `JUDGED` are
    looked at in a bucket. ``turn``, the bucket's number, rotates them.
    """
    ok = ~np.isnan(actual) & ~np.isnan(issued.row("base"))
    if not ok.any():
        return calibration
    keep = 0.5 ** (1.0 / settings.day_buckets)
    out = _learn_totals(calibration, h, issued, actual, ok, keep)
    every = -(-len(ok) // JUDGED)
    if every > 1:
        ok &= np.arange(turn, turn + len(ok)) % every == 0
    if not ok.any():
        return out
    issued, y = Issued(issued.rows[:, ok]), actual[ok]
    cell, group = issued.row("cell").astype(np.int64), issued.row("group").astype(np.int64)
    out = _learn_ratios(out, h, issued, y, cell, keep)
    out = _learn_losses(out, h, issued, y, group, keep)
    return _learn_bands(out, h, issued, y, group, keep)


def _set(values: Doubles, h: int, new: Doubles) -> Doubles:
    out = values.copy()
    out[h] = new
    return out


def _learn_ratios(c: Calibration, h: int, issued: Issued, y: Floats, cell: Cells, keep: float) -> Calibration:
    base = issued.row("base")
    use = base > 0
    if not use.any():
        return c
    base, y, cell = base[use], y[use], cell[use]
    weight = (base / base.mean(dtype=np.float64)) ** table.WEIGHT_POWER
    first = table.prior(len(c.counts))[h]
    counts = table.learn(c.counts[h], cell, y.astype(np.float64) / base, weight, keep, first)
    sums = np.stack([np.bincount(cell, v, CELLS) for v in (base, y)], axis=1)
    return replace(c, counts=_set(c.counts, h, counts), volume=_set(c.volume, h, c.volume[h] * keep + sums))


def _pinball(y: Floats, forecast: Floats, level: float) -> Doubles:
    error = y.astype(np.float64) - forecast
    return np.maximum(level * error, (level - 1) * error)


def _grouped(group: Cells, values: list[Doubles]) -> Doubles:
    return np.stack([np.bincount(group, v, GROUPS) for v in values], axis=-1)


def _learn_losses(c: Calibration, h: int, issued: Issued, y: Floats, group: Cells, keep: float) -> Calibration:
    last, fast = issued.row("last"), issued.row("fast")
    alpha = _grouped(group, [np.abs(y - (a * last + (1 - a) * fast)).astype(np.float64) for a in ALPHAS])
    losses = []
    for level, rows in ((0.5, ("last", "table50", "model50")), (0.9, ("table_low", "table_low", "model_low"))):
        cheap = issued.row(rows[TABLE])
        forecasts = [np.where(np.isnan(issued.row(r)), cheap, issued.row(r)) for r in rows]
        losses.append(_grouped(group, [_pinball(y, f, level) for f in forecasts]))
    loss = c.loss[h] * keep + np.stack(losses, axis=1)
    serving = c.serving[h]
    held = np.take_along_axis(loss, serving[..., None], axis=2)[..., 0]
    serving = np.where(loss.min(axis=2) < held * (1 - CHANGE_MARGIN), loss.argmin(axis=2), serving)
    return replace(
        c,
        alpha_loss=_set(c.alpha_loss, h, c.alpha_loss[h] * keep + alpha),
        loss=_set(c.loss, h, loss),
        serving=np.where(np.arange(len(c.serving))[:, None, None] == h, serving, c.serving),
    )


def _learn_bands(c: Calibration, h: int, issued: Issued, y: Floats, group: Cells, keep: float) -> Calibration:
    judged, missed_by_served = _misses(y, issued.row("p90"), group)
    covered = c.covered[h] * keep + np.stack([judged - missed_by_served, judged], axis=1)
    usual = covered[:, 1] * (1 - keep) + STEP_PRIOR
    z = c.z[h].copy()
    for f, (low, high) in enumerate((("table_low", "table_high"), ("model_low", "model_high"))):
        for i, name in enumerate((low, high)):
            band = issued.row(name)
            said = ~np.isnan(band)
            seen, missed = _misses(y[said], band[said], group[said])
            excess = missed - (1 - LEVELS[i]) * seen
            z[:, f, i] += STEP_ALL * excess.sum() / np.maximum(usual, seen).sum()
            z[:, f, i] += STEP_GROUP * excess / np.maximum(usual, seen)
    z = np.maximum.accumulate(z.clip(0.0, BOUND_Z), axis=2)
    return replace(c, z=_set(c.z, h, z), covered=_set(c.covered, h, covered))


def _misses(y: Floats, band: Floats, group: Cells) -> tuple[Doubles, Doubles]:
    """Return [G] windows in which the actual or the band is above zero, and of these the ones above the band."""
    counts = ((y > 0) | (band > 0)).astype(np.float64)
    missed = (y > band).astype(np.float64)
    judged: Doubles = np.bincount(group, counts, GROUPS).astype(np.float64)
    above: Doubles = np.bincount(group, missed, GROUPS).astype(np.float64)
    return judged, above


def _learn_totals(
    c: Calibration, h: int, issued: Issued, actual: Floats, ok: NDArray[np.bool_], keep: float
) -> Calibration:
    y, mean, p50, p90 = (np.where(ok, row, np.float32(0)) for row in (actual, *map(issued.row, ("mean", "p50", "p90"))))
    sums = [np.abs(y - mean).sum(dtype=np.float64), np.abs(y - p50).sum(dtype=np.float64), y.sum(dtype=np.float64)]
    margin = float(np.sqrt(np.square((p90 - mean).clip(0), dtype=np.float64).sum()))
    above = float(sums[2] - mean.sum(dtype=np.float64))
    errors = np.array(sums)
    pooled = c.pooled[h].copy()
    for i, level in enumerate(LEVELS):
        pooled[i] *= np.exp(STEP_POOLED * ((above > pooled[i] * margin) - (1 - level)))
    pooled = pooled.clip(0.1, 20.0)
    pooled[1] = max(pooled[1], pooled[0])
    return replace(c, total=_set(c.total, h, c.total[h] * keep + errors), pooled=_set(c.pooled, h, pooled))
