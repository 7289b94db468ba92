"""What is remembered of each series at bucket ends, and how one more bucket changes it."""

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.settings import ForecastSettings

Floats = NDArray[np.float32]
Arrays = TypeVar("Arrays")

# Half-lives of the traits in shares of a day: how often a tenant is active (two hours, a day), how rough its rate is
# (six hours, a day).
TRAIT_DAYS = (1 / 12, 1.0, 1 / 4, 1.0)
ACTIVE_SHORT, ACTIVE_LONG, ROUGH_SHORT, ROUGH_LONG = range(4)
ON_LEVEL_DAYS = 1 / 4
FLOOR_RATIO = 0.02  # rates below this share of a tenant's usual level count as silence when jumps are measured


@dataclass(frozen=True, slots=True, eq=False)
class SeriesState:
    """State of S series at the end of the last closed bucket. Arrays are never written to.

    Attributes:
        day: at most D rows [S], the mean rates of the last day's buckets, newest last; NaN = unknown. Rows are shared
            between the states of successive ticks, so a bucket costs one row and no copy.
        last: [S] last known bucket mean, requests/s; 0 before the first.
        bank: [K, S] EWMAs not yet corrected for age; see `corrected`.
        traits: [4, S] EWMAs of activity and roughness (mean absolute log jump), not corrected.
        on_level: [2, S] EWMA numerator and weight of the rate while active.
        on_age: [S] known buckets active in a row.
        off_age: [S] known buckets silent in a row.
        age: [S] known buckets.
        unknown: [S] buckets since the last known one.
    """

    day: tuple[Floats, ...]
    last: Floats
    bank: Floats
    traits: Floats
    on_level: Floats
    on_age: Floats
    off_age: Floats
    age: Floats
    unknown: Floats

    def lag(self, buckets: int) -> Floats:
        """Return [S] the bucket mean ``buckets`` before the last closed one; NaN = unknown."""
        return self.day[-1 - buckets] if buckets < len(self.day) else np.full_like(self.last, np.nan)

    def span(self, end: int, buckets: int) -> Floats:
        """Return [S] the mean of ``buckets`` buckets, the newest ``end`` before the last; NaN if one is unknown."""
        mean: Floats = np.mean([self.lag(end + k) for k in range(buckets)], axis=0, dtype=np.float32)
        return mean

    def usual(self) -> Floats:
        """Return [S] the usual rate while active, requests/s; 0 for a tenant that never was."""
        level: Floats = self.on_level[0] / np.maximum(self.on_level[1], np.float32(1e-6))
        return level


def empty_series(settings: ForecastSettings, count: int = 0) -> SeriesState:
    """Return the state of ``count`` series of which nothing is known."""
    zero = np.zeros(count, np.float32)
    bank = np.zeros((len(settings.half_lives_s), count), np.float32)
    traits, level = np.zeros((len(TRAIT_DAYS), count), np.float32), np.zeros((2, count), np.float32)
    return SeriesState((), zero, bank, traits, level, zero, zero, zero, zero)


def keeps(half_lives_buckets: NDArray[np.float64]) -> Floats:
    """Return [K, 1] what an EWMA keeps per bucket."""
    kept: Floats = (0.5 ** (1.0 / half_lives_buckets)).astype(np.float32)[:, None]
    return kept


def bank_keeps(settings: ForecastSettings) -> Floats:
    """Return [K, 1] what each EWMA of the bank keeps per bucket."""
    return keeps(np.asarray(settings.half_lives_s) / settings.bucket_s)


def trait_keeps(settings: ForecastSettings) -> Floats:
    """Return [4, 1] what each trait keeps per bucket."""
    return keeps(np.asarray(TRAIT_DAYS) * settings.day_buckets)


def corrected(ewma: Floats, keep: Floats, age: Floats) -> Floats:
    """Return EWMAs as means over what was seen: one that is ``age`` buckets old has a weight of 1 - keep**age."""
    out: Floats = ewma / np.maximum(1 - keep**age, np.float32(1e-6))
    return out


def advance(state: SeriesState, value: Floats, settings: ForecastSettings) -> SeriesState:
    """Return the state after one more bucket with means ``value`` [S]; NaN = unknown, which changes only its age."""
    known = ~np.isnan(value)
    seen = np.where(known, value, np.float32(0))
    active = known & (seen > 0)

    def learn(old: Floats, keep: Floats | np.float32, new: Floats, where: NDArray[np.bool_]) -> Floats:
        out: Floats = np.where(where, keep * old + (1 - keep) * new, old)
        return out

    floor = np.maximum(FLOOR_RATIO * state.usual(), np.float32(1e-9))
    jump = np.abs(np.log(np.maximum(seen, floor) / np.maximum(state.last, floor))).clip(0, 4)
    jump = np.where(state.age > 0, jump, np.float32(0))
    on = active.astype(np.float32)
    on_keep = np.float32(0.5 ** (1 / (ON_LEVEL_DAYS * settings.day_buckets)))
    return SeriesState(
        day=(*state.day, value)[-settings.day_buckets :],
        last=np.where(known, seen, state.last),
        bank=learn(state.bank, bank_keeps(settings), seen, known),
        traits=learn(state.traits, trait_keeps(settings), np.stack([on, on, jump, jump]), known),
        on_level=learn(state.on_level, on_keep, np.stack([seen, on]), active),
        on_age=np.where(known, np.where(active, state.on_age + 1, 0), state.on_age).astype(np.float32),
        off_age=np.where(known, np.where(active, 0, state.off_age + 1), state.off_age).astype(np.float32),
        age=state.age + known.astype(np.float32),
        unknown=np.where(known, 0, state.unknown + 1).astype(np.float32),
    )


def skip(state: SeriesState, buckets: int, settings: ForecastSettings) -> SeriesState:
    """Return the state after ``buckets`` buckets of which nothing is known of any series."""
    blank = np.full_like(state.last, np.nan)
    day = (*state.day, *[blank] * min(buckets, settings.kept_buckets))[-settings.kept_buckets :]
    return replace(state, day=day, unknown=state.unknown + np.float32(buckets))


def narrowed(value: Arrays, rows: NDArray[np.int64]) -> Arrays:
    """Return a dataclass of arrays over series with only the series ``rows``."""

    def take(item: Any) -> Any:
        return tuple(take(i) for i in item) if isinstance(item, tuple) else item[..., rows]

    return type(value)(**{f.name: take(getattr(value, f.name)) for f in fields(value)})  # type: ignore[arg-type]
