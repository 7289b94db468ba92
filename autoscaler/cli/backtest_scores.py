"""What was foreseen against what came, added up bucket by bucket: errors by horizon and pool, coverage by day."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscaler.domain.observation import Floats, Ints

POOLS = ("head", "middle", "tail")
POOL_EDGES_RPS = (0.1, 1.0)
LEVELS = (0.5, 0.9, 0.95)
METHODS = ("served", "last_value")
_SUMS = ("error", "pinball90", "volume", "upper", "covered", "judged", *(f"below{q}" for q in LEVELS), "windows")


def pools_of(mean_rps: Floats) -> Ints:
    """Index in `POOLS` of each tenant: head from 1 request/s, tail below 0.1."""
    return 2 - np.searchsorted(np.asarray(POOL_EDGES_RPS), np.nan_to_num(mean_rps), side="right")


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """Forecasts of one horizon made at one moment: quantiles [Q, T] at `LEVELS`, the last value [T]."""

    row: int
    quantiles: Floats
    last: Floats


class Scores:
    """Sums of one replay.

    Args:
        horizons_s: of the forecasts.
        bucket_s: length of a bucket.
        pools: index in `POOLS` of each tenant.
        day_s: length of a day, for coverage by day.
    """

    def __init__(self, horizons_s: tuple[float, ...], bucket_s: float, pools: Ints, day_s: float) -> None:
        self._horizons_s, self._pools = horizons_s, pools
        self._buckets = [round(h / bucket_s) for h in horizons_s]
        self._day_buckets = max(1, round(day_s / bucket_s))
        self._waiting: list[deque[Said]] = [deque() for _ in horizons_s]
        self._recent: deque[Floats] = deque(maxlen=max(self._buckets))
        self._sums = np.zeros((len(METHODS), len(horizons_s), len(_SUMS), len(POOLS)))
        self._days: dict[int, Floats] = defaultdict(lambda: np.zeros((len(horizons_s), 2)))

    def came(self, row: int, rates: Floats) -> None:
        """Row `row` came: requests/s of each tenant (T); NaN = unknown, and judges nothing."""
        self._recent.append(rates)
        for h, buckets in enumerate(self._buckets):
            if self._waiting[h] and self._waiting[h][0].row + buckets == row:
                said = self._waiting[h].popleft()
                actual: Floats = np.mean(list(self._recent)[-buckets:], axis=0)
                self._judge(h, said, actual)

    def say(self, h: int, said: Said) -> None:
        """A forecast of horizon `h` that is to be judged once its time has come."""
        self._waiting[h].append(said)

    def _judge(self, h: int, said: Said, actual: Floats) -> None:
        ok = ~np.isnan(actual)
        y, pool = actual[ok], self._pools[ok]
        middle, upper, highest = (q[ok] for q in said.quantiles)
        last = said.last[ok]
        for m, quantiles in enumerate(((middle, upper, highest), (last, last, last))):
            self._sums[m, h] += np.stack([np.bincount(pool, v, len(POOLS)) for v in _measured(y, *quantiles)])
        counted = (y > 0) | (upper > 0)
        self._days[said.row // self._day_buckets][h] += (y <= upper)[counted].sum(), counted.sum()

    def methods(self) -> dict[str, Any]:
        """`{method: {horizon: {pool: {wape, pinball90, coverage90, provisioned_ratio}}}}`; null without evidence."""
        return {
            name: {f"{s:g}": self._pooled(m, h, _figures) for h, s in enumerate(self._horizons_s)}
            for m, name in enumerate(METHODS)
        }

    def calibration(self) -> dict[str, Any]:
        """`{horizon: {pool: {level: share of windows at or below that quantile}}}`."""
        return {f"{s:g}": self._pooled(0, h, _below) for h, s in enumerate(self._horizons_s)}

    def coverage_by_day(self) -> list[dict[str, Any]]:
        """Coverage of the 90 % bands for each day, numbered from the first bucket."""
        return [
            {"day": day, **{f"{s:g}": _ratio(*sums[h]) for h, s in enumerate(self._horizons_s)}}
            for day, sums in sorted(self._days.items())
        ]

    def _pooled(self, m: int, h: int, figures: Any) -> dict[str, Any]:
        sums = self._sums[m, h]
        columns = {"all": sums.sum(axis=1), **{name: sums[:, p] for p, name in enumerate(POOLS)}}
        return {name: figures(dict(zip(_SUMS, column.tolist(), strict=True))) for name, column in columns.items()}


def _measured(y: Floats, middle: Floats, upper: Floats, highest: Floats) -> list[Floats]:
    counted = ((y > 0) | (upper > 0)).astype(np.float64)
    below = [(y <= q) * counted for q in (middle, upper, highest)]
    pinball = np.maximum(0.9 * (y - upper), 0.1 * (upper - y))
    return [np.abs(y - middle), pinball, y, upper, below[1], counted, *below, counted]


def _figures(sums: dict[str, float]) -> dict[str, float | None]:
    volume = sums["volume"]
    return {
        "wape": _ratio(sums["error"], volume),
        "pinball90": _ratio(sums["pinball90"], volume),
        "coverage90": _ratio(sums["covered"], sums["judged"]),
        "provisioned_ratio": _ratio(sums["upper"], volume),
        "windows": sums["windows"],
    }


def _below(sums: dict[str, float]) -> dict[str, float | None]:
    return {f"{q:g}": _ratio(sums[f"below{q}"], sums["windows"]) for q in LEVELS}


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole > 0 else None
