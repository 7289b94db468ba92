"""Fleet and group totals hours ahead, by statsmodels: few series, where the daily season is real.

Meant for the scale-in horizon and for reports, refitted hourly off the tick: one fit takes about a tenth of a second,
which is why no tenant has one. The season serves only where it proves itself on the series' own last day.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.forecasting.settings import ForecastSettings

Doubles = NDArray[np.float64]

PER_DAY = 24
MIN_DAYS = 3
SEASON_GAIN = 0.97
"""The season serves when its error on the last day is at most this share of the plain level's."""
SHIFT_SIGMAS = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """One total hours ahead.

    Attributes:
        mean: [N] expected rate of each of the next hours (24ths of a day), in the unit of the history.
        p90: [N] upper band: the mean plus the .9 quantile of what the last day's forecasts fell short by.
        peak_p90: highest of them: what must fit before a replica may go.
        season: the daily season proved itself and is in the mean.
        season_gain: error with the season over error without, on the last day; NaN = too short a history to tell.
        shifted: the last three hours lie further from what was expected than four standard deviations of a mean of
            three: the level has changed, and the season before it says little.
        reason: the choice in one sentence.
    """

    mean: Doubles
    p90: Doubles
    peak_p90: float
    season: bool
    season_gain: float
    shifted: bool
    reason: str


def outlook(history: ArrayLike, hours: int, settings: ForecastSettings) -> Outlook:
    """Return the outlook of one total.

    Args:
        history: [T] total rate per bucket, oldest first; NaN = unknown, which is bridged by the hour before.
        hours: how many hours (24ths of ``settings.day_s``) ahead, at least 1.
        settings: room settings.

    Raises:
        ValueError: nothing in the history is known, or ``hours`` is below 1.
    """
    hourly = _hourly(np.asarray(history, np.float64), settings)
    if hours < 1:
        raise ValueError(f"hours is {hours}; an outlook needs at least 1")
    if not len(hourly):
        raise ValueError("the history holds no whole known hour; an outlook needs one")
    if len(hourly) < MIN_DAYS * PER_DAY:
        spread = float(np.quantile(np.abs(np.diff(hourly)), 0.9)) if len(hourly) > 1 else 0.5 * float(hourly[-1])
        mean = np.full(hours, hourly[-1])
        why = f"{len(hourly)} hours of history; a season needs {MIN_DAYS * PER_DAY}: the last hour's level stands"
        return _made(mean, spread * np.sqrt(np.arange(1, hours + 1)), False, float("nan"), False, why)
    errors = {season: _last_day_errors(hourly, season) for season in (False, True)}
    absolute = {season: float(np.abs(e).mean()) for season, e in errors.items()}
    gain = absolute[True] / absolute[False] if absolute[False] > 0 else 1.0
    season = gain <= SEASON_GAIN
    one_step = errors[season]
    before, latest = one_step[:-3], one_step[-3:]
    shifted = bool(abs(latest.mean()) > SHIFT_SIGMAS * before.std() / np.sqrt(3)) and before.std() > 0
    growth = np.sqrt(np.minimum(np.arange(1, hours + 1), PER_DAY))
    margin = max(0.0, float(np.quantile(one_step, 0.9))) * growth
    mean = np.maximum(np.asarray(_fit(hourly, season).forecast(hours), np.float64), 0.0)
    said = "serves" if season else "does not serve"
    why = f"the season {said}: its error on the last day was {gain:.2f} of the plain level's (at most {SEASON_GAIN})"
    return _made(mean, margin, season, gain, shifted, why)


def _made(mean: Doubles, margin: Doubles, season: bool, gain: float, shifted: bool, reason: str) -> Outlook:
    upper = mean + margin
    return Outlook(mean, upper, float(upper.max()), season, gain, shifted, reason)


def _hourly(history: Doubles, settings: ForecastSettings) -> Doubles:
    """Return means per 24th of a day, the last one ending with the history; unknown hours repeat the one before."""
    per_hour = max(1, round(settings.day_buckets / PER_DAY))
    usable = history[len(history) % per_hour :].reshape(-1, per_hour)
    known = ~np.isnan(usable)
    counts = known.sum(axis=1)
    means = np.where(counts > 0, np.nan_to_num(usable).sum(axis=1) / np.maximum(counts, 1), np.nan)
    first = np.flatnonzero(counts > 0)
    if not len(first):
        return np.zeros(0)
    means = means[first[0] :]
    latest = np.maximum.accumulate(np.where(np.isnan(means), 0, np.arange(len(means))))
    out: Doubles = means[latest]
    return out


def _fit(hourly: Doubles, season: bool) -> Any:
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    kind = {"seasonal": "add", "seasonal_periods": PER_DAY} if season else {}
    return ExponentialSmoothing(hourly, trend=None, initialization_method="estimated", **kind).fit()


def _last_day_errors(hourly: Doubles, season: bool) -> Doubles:
    """Return actual minus one-step forecast over the last day, with parameters fitted on the days before it only."""
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    fitted = _fit(hourly[:-PER_DAY], season)
    kind = {"seasonal": "add", "seasonal_periods": PER_DAY} if season else {}
    names = ("smoothing_level", "smoothing_seasonal") if season else ("smoothing_level",)
    known = {name: fitted.params[name] for name in names}
    start = {"initial_level": fitted.params["initial_level"]}
    if season:
        start["initial_seasonal"] = fitted.params["initial_seasons"]
    again = ExponentialSmoothing(hourly, trend=None, initialization_method="known", **start, **kind)
    out: Doubles = np.asarray(hourly - again.fit(optimized=False, **known).fittedvalues)[-PER_DAY:]
    return out
