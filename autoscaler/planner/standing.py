"""Who serves the forecasts and by how much: champion and challengers, horizon by horizon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoscaler.forecasting import ForecastMemory, ForecastSettings
from autoscaler.forecasting.calibration import LAST, MODEL, TABLE

FORECASTERS: Mapping[str, int] = {"last": LAST, "table": TABLE, "model": MODEL}
MEDIAN, BAND = range(2)


@dataclass(frozen=True, slots=True)
class HorizonStanding:
    """The last day's figures of one horizon; a figure without evidence is NaN.

    Attributes:
        horizon_s: the horizon.
        error_ratio: absolute error of the served medians over what came.
        coverage90_ratio: share of windows inside the served 90 % bands.
        median_loss, band_loss: forecaster -> its pinball loss at .5 and .9 over the pooled table's, which is 1.
        median_serves, band_serves: forecaster -> share of the rate groups that were judged and that it serves.
    """

    horizon_s: float
    error_ratio: float
    coverage90_ratio: float
    median_loss: Mapping[str, float]
    band_loss: Mapping[str, float]
    median_serves: Mapping[str, float]
    band_serves: Mapping[str, float]


def standing_of(memory: ForecastMemory, settings: ForecastSettings) -> tuple[HorizonStanding, ...]:
    """One for each learnt horizon."""
    calibration = memory.calibration
    errors, coverage = calibration.error_ratio(), calibration.coverage()
    spoken = {n: e for n, e in FORECASTERS.items() if e != MODEL or memory.modelled.version}
    banded = {n: e for n, e in spoken.items() if e != LAST}

    def losses(h: int, which: int, names: Mapping[str, int]) -> dict[str, float]:
        total = calibration.loss[h, :, which].sum(axis=0)
        return {n: float(total[e] / total[TABLE]) if total[TABLE] > 0 else np.nan for n, e in names.items()}

    def serves(h: int, which: int, names: Mapping[str, int]) -> dict[str, float]:
        judged = calibration.loss[h, :, which, TABLE] > 0
        who = calibration.serving[h, judged, which]
        return {n: float(np.mean(who == e)) if who.size else np.nan for n, e in names.items()}

    return tuple(
        HorizonStanding(
            horizon_s, float(errors[h]), float(coverage[h]), losses(h, MEDIAN, spoken), losses(h, BAND, banded),
            serves(h, MEDIAN, spoken), serves(h, BAND, banded),
        )
        for h, horizon_s in enumerate(settings.horizons_s)
    )  # fmt: skip
