"""One forecast at one horizon: base level times pooled or modelled ratios, read at the calibrated levels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting import table
from autoscaler.forecasting.calibration import BASE_Z, LAST, MODEL, ROWS, Calibration, Issued
from autoscaler.forecasting.features import Cells, View, base_level, cell_of, group_of
from autoscaler.forecasting.series import Floats

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Modelled:
    """What the boosted model said at the last bucket's end.

    Attributes:
        version: the model's version; empty = no model.
        alphas: [H] share of the last value in the model's base.
        ratios: [H, 2, S] ratios to that base at .5 and .9; NaN = not modelled.
    """

    version: str
    alphas: tuple[float, ...]
    ratios: Floats


@dataclass(frozen=True, slots=True)
class Shared:
    """What all horizons of one moment share: levels, cells and rate groups of S series."""

    view: View
    cell: Cells
    group: Cells


def shared(view: View) -> Shared:
    """Return the view with each series' cell and rate group."""
    return Shared(view, cell_of(view), group_of(view))


def issue(at: Shared, calibration: Calibration, h: int, modelled: Modelled) -> Issued:
    """Return what is said at horizon index ``h``."""
    view, cell, group = at.view, at.cell, at.group
    base = base_level(view, calibration.alpha()[h][group].astype(np.float32))
    ratios = _table_ratios(at, calibration, h)
    table50, table90, low, high = (row * base for row in ratios)
    model50, model90, model_low, model_high = _model_rates(at, calibration, h, modelled)
    who = calibration.serving[h][group]
    has_model = ~np.isnan(model50)
    median_by_model, bands_by_model = has_model & (who[:, 0] == MODEL), has_model & (who[:, 1] == MODEL)
    cheap50 = np.where((who[:, 0] == LAST) & (view.unknown == 0), view.last, table50)
    p50 = np.where(median_by_model, model50, cheap50)
    p90 = np.maximum(np.where(bands_by_model, model_low, low), p50)
    p95 = np.maximum(np.where(bands_by_model, model_high, high), p90)
    rows = {
        "cell": cell, "group": group, "base": base, "last": view.last, "fast": view.fast,
        "table50": table50, "table90": table90, "table_low": low, "table_high": high,
        "model50": model50, "model90": model90, "model_low": model_low, "model_high": model_high,
        "mean": base * _mean_ratio(calibration, h)[cell], "p50": p50, "p90": p90, "p95": p95,
    }  # fmt: skip
    return Issued(np.stack([rows[name] for name in ROWS]).astype(np.float32))


def _normal_cdf(z: Doubles) -> Doubles:
    """Return the normal distribution function, by Abramowitz and Stegun 26.2.17 (error below 1e-7), for z >= 0."""
    t = 1.0 / (1.0 + 0.2316419 * z)
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    out: Doubles = 1.0 - np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * tail
    return out


def _table_ratios(at: Shared, calibration: Calibration, h: int) -> Floats:
    """Return [4, S] table ratios: the median, the plain .9, and the two calibrated bands.

    A series whose signal is missing is read from the longest horizon's table: doubt grows with silence.
    """
    z = calibration.z[h, :, 0]
    levels = np.concatenate([[0.5, 0.9], _normal_cdf(z[:, 0]), _normal_cdf(z[:, 1])])
    groups = len(z)

    def read(counts: Doubles) -> Floats:
        q = table.quantiles(counts, levels).astype(np.float32)
        columns = (0, 1, 2 + at.group, 2 + groups + at.group)
        return np.stack([q[at.cell, c] for c in columns])

    ratios = read(calibration.counts[h])
    missing = at.view.unknown > 0
    if h + 1 < len(calibration.counts) and missing.any():
        ratios = np.where(missing, np.maximum(ratios, read(calibration.counts[-1])), ratios)
    return ratios


def _mean_ratio(calibration: Calibration, h: int) -> Floats:
    """Return [C] actual rate over base level per cell; 1 where nothing was seen."""
    base, actual = calibration.volume[h].T
    ratio = np.where(base > 0, actual / np.maximum(base, 1e-300), 1.0)
    out: Floats = ratio.clip(0, 3).astype(np.float32)
    return out


def _model_rates(at: Shared, calibration: Calibration, h: int, modelled: Modelled) -> tuple[Floats, ...]:
    """Return the model's median, plain .9 and calibrated bands, each [S]; NaN where it says nothing."""
    if not modelled.version:
        blank = np.full_like(at.view.last, np.nan)
        return blank, blank, blank, blank
    base = base_level(at.view, modelled.alphas[h])
    mid, upper = modelled.ratios[h]
    z = calibration.z[h, :, 1][at.group].astype(np.float32)

    def read(score: Floats) -> Floats:
        rate: Floats = (mid + (upper - mid) * (score / np.float32(BASE_Z[0]))) * base
        return rate

    return mid * base, upper * base, read(z[:, 0]), read(z[:, 1])
