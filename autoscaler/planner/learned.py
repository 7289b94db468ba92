"""What is learnt of a fleet beside the tick and handed to it as a value: the boosted model, and outlooks of groups."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from autoscaler.domain.observation import Floats
from autoscaler.forecasting import ForecastSettings, GlobalModel
from autoscaler.policy.model import FleetPolicy

LEARNED_FORMAT = 1
OUTLOOK_KEPT_HOURS = 3
"""An outlook is refitted each hour; one that was not for so long says nothing any more."""


@dataclass(frozen=True, slots=True, eq=False)
class LearnedModel:
    """A trained model with what it was trained for.

    Attributes:
        model: the trees.
        settings: it fits no other buckets, horizons or half-lives.
        trained_at_s: when.
        buckets, series: how much history it has seen.
    """

    model: GlobalModel
    settings: ForecastSettings
    trained_at_s: float
    buckets: int
    series: int

    def fits(self, settings: ForecastSettings) -> bool:
        """Whether it may speak under these settings."""
        return learnt_shape(self.settings) == learnt_shape(settings)

    def to_text(self) -> str:
        """JSON for the store; arrays, never code."""
        data = {
            "format": LEARNED_FORMAT, "settings": asdict(self.settings), "trained_at_s": self.trained_at_s,
            "buckets": self.buckets, "series": self.series, "model": self.model.to_json(),
        }  # fmt: skip
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> LearnedModel:
        """Rebuild a model from `to_text`.

        Raises:
            ValueError: of a newer format, made by another scikit-learn, or damaged; a new one is trained instead.
        """
        try:
            data = json.loads(text)
            if data["format"] != LEARNED_FORMAT:
                raise ValueError(
                    f"the saved forecast model has format {data['format']!r}, this release reads {LEARNED_FORMAT}; "
                    "it is not used, and a new one is trained from history"
                )
            told: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data["settings"].items()}
            return cls(
                GlobalModel.from_json(data["model"]), ForecastSettings(**told), float(data["trained_at_s"]),
                int(data["buckets"]), int(data["series"]),
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"the saved forecast model is damaged ({error!r}); it is not used, and a new one is trained"
            ) from error


@dataclass(frozen=True, slots=True, eq=False)
class GroupOutlook:
    """A group's total hours ahead.

    Attributes:
        made_at_s: the end of the history that it was made from.
        hour_s: length of its hours.
        p90_tokens_per_s: upper band of each hour, float64 (N).
        proven: its season beat the plain level on the last day, and the level has not shifted since.
        reason: why, in a sentence.
    """

    made_at_s: float
    hour_s: float
    p90_tokens_per_s: Floats
    proven: bool
    reason: str

    def peak_tokens_per_s(self, now_s: float, horizon_s: float) -> float | None:
        """The highest band of the hours that begin or go on within `horizon_s`; None where it may not be used."""
        age_s = now_s - self.made_at_s
        if not self.proven or not 0 <= age_s <= OUTLOOK_KEPT_HOURS * self.hour_s:
            return None
        first, last = int(age_s // self.hour_s), int(np.ceil((age_s + horizon_s) / self.hour_s))
        hours = self.p90_tokens_per_s[first:last]
        return float(hours.max()) if hours.size else None


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """Values, with versions: a decision is a function of them as of everything else.

    Attributes:
        model: None before the first, and where the policy wants none.
        outlooks: by group.
    """

    model: LearnedModel | None = None
    outlooks: Mapping[str, GroupOutlook] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Names all of it, for digests."""
        model = "" if self.model is None else self.model.model.version
        return " ".join([model, *(f"{g}@{o.made_at_s:.0f}" for g, o in sorted(self.outlooks.items()))])

    def model_for(self, settings: ForecastSettings, wanted: bool) -> GlobalModel | None:
        """The model that may speak, None where the policy wants none or it was trained for other settings."""
        if self.model is None or not wanted or not self.model.fits(settings):
            return None
        return self.model.model


def settings_of(policy: FleetPolicy) -> ForecastSettings:
    """The forecasting room's settings, as the policy has them."""
    told = policy.forecast
    return ForecastSettings(
        bucket_s=told.bucket_s, horizons_s=told.horizons_s, half_lives_s=told.half_lives_s, day_s=told.day_s,
        max_tick_s=max(60.0 * policy.tick_interval_s / 15.0, policy.tick_interval_s * 2),
    )  # fmt: skip


def learnt_shape(settings: ForecastSettings) -> ForecastSettings:
    """The settings less what does not change the meaning of anything learnt under them."""
    return replace(settings, max_tick_s=settings.bucket_s, model_series=1)


def outlooks_from(data: Mapping[str, Any], made_at_s: float) -> dict[str, GroupOutlook]:
    """Outlooks by group from their JSON."""
    return {
        group: GroupOutlook(
            made_at_s, float(o["hour_s"]), np.asarray(o["p90"], np.float64), bool(o["proven"]), str(o["reason"])
        )
        for group, o in data.items()
    }
