"""What the operator may say about forecasting: bucket length, horizons, half-lives, season."""

from dataclasses import dataclass, replace

RECENT = 6
"""Bucket means that the boosted model sees one by one."""
MOST_KEPT = 300
"""Rows of history that may be kept per series: 1,200 bytes each, 120 MB at 100,000 tenants."""


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """Frozen settings of the forecasting room; every time is in seconds.

    Attributes:
        bucket_s: length of the buckets that learning is done on. Ticks inside one move the level, not the learning.
        horizons_s: horizons that are learnt and calibrated, ascending multiples of ``bucket_s``; a horizon ``h`` means
            the mean rate over the next ``h``. Other horizons are interpolated between these.
        half_lives_s: half-lives of the EWMA bank, ascending; the first is the fast level, the last the rate a tenant is
            grouped by.
        day_s: length of the season.
        max_tick_s: a rate covers at most this long before its tick; the rest of a longer pause is unknown.
        model_series: how many of the largest tenants the boosted model serves; the others have the cheap ladder.

    Raises:
        ValueError: names the field, its value and what is allowed.
    """

    bucket_s: float = 600.0
    horizons_s: tuple[float, ...] = (600.0, 1800.0, 3600.0)
    half_lives_s: tuple[float, ...] = (600.0, 1200.0, 3600.0, 14400.0, 86400.0)
    day_s: float = 86400.0
    max_tick_s: float = 120.0
    model_series: int = 4096

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        for name in ("bucket_s", "day_s", "max_tick_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be finite and above 0")
        for name in ("horizons_s", "half_lives_s"):
            values = getattr(self, name)
            if not values or not min(values) > 0 or list(values) != sorted(set(values)):
                raise ValueError(f"{name} is {values}; it must be ascending, without repeats, above 0")
        for horizon_s in self.horizons_s:
            if abs(horizon_s / self.bucket_s - round(horizon_s / self.bucket_s)) > 1e-6:
                raise ValueError(
                    f"horizon {horizon_s} s is not a multiple of bucket_s {self.bucket_s} s; choose one that is"
                )

    @property
    def horizon_buckets(self) -> tuple[int, ...]:
        """Horizons counted in buckets."""
        return tuple(round(h / self.bucket_s) for h in self.horizons_s)

    @property
    def day_buckets(self) -> int:
        """Buckets in a season."""
        return max(1, round(self.day_s / self.bucket_s))

    @property
    def kept_buckets(self) -> int:
        """Buckets whose rates are kept: a day, where that is at most 300; else what the longest horizon needs."""
        day = self.day_buckets if self.day_buckets <= MOST_KEPT else RECENT
        return max(day, self.horizon_buckets[-1], RECENT)

    def scaled(self, factor: float) -> "ForecastSettings":
        """Return the same settings with every duration multiplied by ``factor`` (0.1 runs ten times as fast)."""
        return replace(
            self,
            bucket_s=self.bucket_s * factor,
            horizons_s=tuple(h * factor for h in self.horizons_s),
            half_lives_s=tuple(h * factor for h in self.half_lives_s),
            day_s=self.day_s * factor,
            max_tick_s=self.max_tick_s * factor,
        )
