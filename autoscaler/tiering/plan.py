"""The tiers of all tenants after a tick: columns, and objects only for those that changed or are asked about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from autoscaler.domain.decisions import Condition, Reason, TierDecision
from autoscaler.domain.fleet import Tier
from autoscaler.domain.observation import Bools, Floats
from autoscaler.tiering.memory import Codes

TIERS = (Tier.COLD, Tier.WARM, Tier.HOT)
REASONS = tuple(Reason)
REASON_CODE = {reason: code for code, reason in enumerate(REASONS)}


@dataclass(frozen=True, eq=False)
class TierPlan:
    """Columns of T tenants, aligned with `ids`.

    Attributes:
        before: tier code before (0 cold, 1 warm, 2 hot, -1 never seen).
        after: tier code after.
        reason: index in `REASONS`.
        since_s: when the tier after began.
        conditions: what an operator must know (`AdapterSlotsShort`).
        unplaced_adapters: adapters of active tenants, and of tenants fixed to the ring, for which there is no slot.
        wanted_adapters: adapters that have a slot on the ring, and those with demand that have none.
        explain_row: builds one tenant's decision with its trail.
    """

    ids: tuple[str, ...]
    before: Codes
    after: Codes
    reason: npt.NDArray[np.int16]
    since_s: Floats
    conditions: tuple[Condition, ...] = ()
    unplaced_adapters: int = 0
    wanted_adapters: int = 0
    explain_row: Callable[[int], TierDecision] = field(repr=False, default=lambda row: _unexplained(row))

    @cached_property
    def row(self) -> dict[str, int]:
        """Tenant id -> row."""
        return {tenant: i for i, tenant in enumerate(self.ids)}

    @cached_property
    def changed(self) -> tuple[TierDecision, ...]:
        """Decisions of the tenants whose tier changed, never-seen ones left out, in row order."""
        rows = np.flatnonzero((self.before != self.after) & (self.before >= 0))
        return tuple(self.explain_row(int(row)) for row in rows)

    def explain(self, tenant: str) -> TierDecision:
        """One tenant's decision with its trail. Raises KeyError for a tenant that is not in the catalogue."""
        return self.explain_row(self.row[tenant])

    def tier(self, tenant: str) -> Tier:
        """A tenant's tier after this tick. Raises KeyError for a tenant that is not in the catalogue."""
        return TIERS[self.after[self.row[tenant]]]

    def of(self, tier: Tier) -> Bools:
        """Mask (T) of the tenants in a tier."""
        return np.asarray(self.after == TIERS.index(tier))

    def counts(self) -> dict[Tier, int]:
        """How many tenants each tier has."""
        return {tier: int(np.count_nonzero(self.after == code)) for code, tier in enumerate(TIERS)}


def _unexplained(row: int) -> TierDecision:
    raise KeyError(f"row {row} of this plan keeps no evidence")
