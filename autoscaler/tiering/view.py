"""What tier decisions are made from, as columns over tenants."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import Override
from autoscaler.domain.observation import Bools, Floats, Ints
from autoscaler.domain.signals import UNSEEN, Signal


@dataclass(frozen=True, slots=True, eq=False)
class TierView:
    """Columns of one length T, aligned with `ids`; keep the `ids` object while the catalogue does not change.

    Attributes:
        ids: tenant ids, unique (`Catalogue.tenants`).
        rate_tokens_per_s: prompt and completion tokens/s of the last window; NaN = unknown.
        mean_tokens_per_s, upper_tokens_per_s: forecast mean and upper band over `forecast.horizon`.
        later_upper_tokens_per_s: upper band over `scaling.scaleIn.horizon`, an hour: what looks quiet now and is not
            expected to stay so is not quiet. None = the same as `upper_tokens_per_s`.
        known: whether the forecast rests on something seen.
        burst: an onset was detected.
        slo_missed: the tenant missed its SLO over the last window; false where nothing is known.
        adapters: how many adapters the tenant has in the catalogue (and so asks residency for).
        loadable: false where no replica could load any of its adapters.
        capacity_tokens_per_s: what one replica carries (scaling's estimate); Missing = no tenant is called hot by load.
        ring_adapters: most adapters that the warm group can hold, one copy each (`slotFill` counted); None = unknown,
            then nobody is demoted for slots.
        diagnosis: noisy neighbours, for `promoteOn: [noisyNeighbour]`.
        overrides: operators' words; expired ones may be among them.
    """

    ids: tuple[str, ...]
    rate_tokens_per_s: Floats
    mean_tokens_per_s: Floats
    upper_tokens_per_s: Floats
    known: Bools
    burst: Bools
    slo_missed: Bools
    adapters: Ints
    loadable: Bools
    capacity_tokens_per_s: Signal = UNSEEN
    ring_adapters: int | None = None
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    overrides: tuple[Override, ...] = ()
    later_upper_tokens_per_s: Floats | None = None

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        for name in _COLUMNS:
            column = getattr(self, name)
            shape = (len(self.ids),) if column is None else column.shape
            if shape != (len(self.ids),):
                raise ValueError(f"{name} has shape {shape}, expected ({len(self.ids)},): one value per tenant")

    @classmethod
    def blank(cls, ids: tuple[str, ...]) -> TierView:
        """Tenants of which nothing is known, with one loadable adapter each."""
        size = len(ids)
        zero, no = np.zeros(size), np.zeros(size, np.bool_)
        return cls(ids, np.full(size, np.nan), zero, zero, no, no, no, np.ones(size, np.int64), ~no)


_COLUMNS = (
    "rate_tokens_per_s",
    "mean_tokens_per_s",
    "upper_tokens_per_s",
    "known",
    "burst",
    "slo_missed",
    "adapters",
    "loadable",
    "later_upper_tokens_per_s",
)
