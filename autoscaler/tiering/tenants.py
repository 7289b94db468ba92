"""All tenants at one moment, as the rules see them: columns, thresholds in tokens/s, who is quiet since when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from autoscaler.domain.fleet import Override
from autoscaler.domain.observation import Bools, Floats
from autoscaler.domain.signals import Fresh, value_or
from autoscaler.policy.model import FleetPolicy
from autoscaler.tiering.memory import TIER_COLD, TIER_HOT, Codes, Counts, TieringMemory
from autoscaler.tiering.view import TierView

MOST_WRONG = 5  # a tenant that keeps coming back needs at most 2^5 dwells of quiet before it is demoted again
MOST_TICKS = 65_535


@dataclass(frozen=True, eq=False)
class Tenants:
    """The view, aligned memory and the policy.

    Attributes:
        before: tier code that counts as the present one; a displaced tier that came back is already in it.
        since_s: when it began.
        overrides: in force, by row.
        returned: rows whose override just ended.
    """

    view: TierView
    memory: TieringMemory
    policy: FleetPolicy
    now_s: float
    before: Codes
    since_s: Floats
    overrides: dict[int, Override]
    returned: tuple[int, ...]

    @cached_property
    def row(self) -> dict[str, int]:
        """Tenant id -> row."""
        return {tenant: i for i, tenant in enumerate(self.view.ids)}

    @cached_property
    def hot_tokens_per_s(self) -> float:
        """Mean over the horizon from which a tenant is HOT by load; infinite where no capacity is known."""
        capacity = self.view.capacity_tokens_per_s
        if not isinstance(capacity, Fresh):
            return float("inf")
        return self.policy.tiering.hot_threshold_replicas * capacity.value

    @cached_property
    def usable_tokens_per_s(self) -> float:
        """What demand may fill of one replica; infinite where no capacity is known."""
        return value_or(self.policy.usable(self.view.capacity_tokens_per_s), float("inf"))

    def group_replicas(self, row: int, apart: Bools) -> int:
        """Replicas that one tenant's own group may have: by its bounds, and by what the others leave of the total.

        `apart`: tenants with groups of their own (T). Worked numbers: 16 in all, the others need 9.4 replicas on the
        ring, and one has a group for 2.2: 16 - 10 - 3 leave 3, where groups.hot.maxReplicas is 8.
        """
        groups = self.policy.groups
        if groups.hot is None:
            return 0
        others = np.ones(len(self.view.ids), np.bool_)
        others[row] = False
        needs = self.mean / self.usable_tokens_per_s
        warm = max(groups.warm.min_replicas, np.ceil(needs[others & ~apart].sum()))
        hot = np.maximum(np.ceil(needs[others & apart]), groups.hot.min_replicas).sum()
        cold = 0 if groups.cold is None else groups.cold.min_replicas
        return int(max(0, min(groups.hot.max_replicas, self.policy.budget.max_replicas_total - warm - hot - cold)))

    def hot_worth_replicas(self, tokens_per_s: float) -> float:
        """By how many replicas HOT beats WARM for a tenant with so much load; below 0 WARM is better.

        A group of its own is rounded up to whole replicas: half a replica on average, which is `demoteBelow`. Isolation
        is worth one replica at the threshold, and in proportion to the load: so the sum is zero where demotion begins.
        """
        return tokens_per_s / self.hot_tokens_per_s - self.policy.tiering.demote_ratio

    @property
    def cold_tokens_per_s(self) -> float:
        """Upper band from which a COLD tenant wakes up."""
        return self.policy.tiering.cold_threshold_tokens_per_s

    @cached_property
    def rate(self) -> Floats:
        """Tokens/s of the last window; NaN where it is unknown or no measurement."""
        seen = self.view.rate_tokens_per_s
        return np.where(np.isfinite(seen) & (seen >= 0), seen, np.nan)

    @cached_property
    def upper(self) -> Floats:
        """Forecast upper band, or the last window's rate where that is higher; never NaN."""
        view = self.view
        return np.fmax(np.where(view.known, view.upper_tokens_per_s, 0.0), self.rate)

    @cached_property
    def later_upper(self) -> Floats:
        """Highest upper band as far as demotion looks ahead; never NaN."""
        later = self.view.later_upper_tokens_per_s
        return self.upper if later is None else np.fmax(self.upper, np.where(self.view.known, later, 0.0))

    @cached_property
    def mean(self) -> Floats:
        """Forecast mean, or the last window's rate where no forecast is; never NaN."""
        return np.where(self.view.known, self.view.mean_tokens_per_s, np.nan_to_num(self.rate))

    @cached_property
    def heard(self) -> Bools:
        """Tenants whose rate is known now: only these can be called quiet."""
        return self.view.known & np.isfinite(self.rate)

    @cached_property
    def quiet_below(self) -> Floats:
        """Upper band below which a tenant is quiet in its present tier, tokens/s; 0 where nothing is."""
        ratio = self.policy.tiering.demote_ratio
        hot = ratio * self.hot_tokens_per_s if np.isfinite(self.hot_tokens_per_s) else 0.0
        return np.where(self.before == TIER_HOT, hot, ratio * self.cold_tokens_per_s)

    @cached_property
    def quiet(self) -> Bools:
        """Below the demotion threshold of the present tier, now and as far as demotion looks ahead."""
        return np.asarray(self.heard & (self.later_upper < self.quiet_below))

    @cached_property
    def quiet_ticks(self) -> Counts:
        """Quiet ticks in a row, this one included; unknown rates keep the count."""
        return self._streak(self.memory.quiet_ticks, self.quiet, self.heard)

    @cached_property
    def missed_ticks(self) -> Counts:
        """Ticks in a row in which the SLO was missed, this one included."""
        return self._streak(self.memory.missed_ticks, self.view.slo_missed, self.heard)

    def _streak(self, before: Counts, holds: Bools, heard: Bools) -> Counts:
        if self.now_s <= self.memory.last_tick_s:
            return before
        grown = np.minimum(before, MOST_TICKS - 1) + np.uint16(1)
        return np.where(holds, grown, np.where(heard, np.uint16(0), before)).astype(np.uint16)

    @cached_property
    def quiet_since_s(self) -> Floats:
        """Since when each tenant has been quiet, infinite where it is not; unknown rates keep what was."""
        began = np.minimum(self.memory.quiet_since_s, self.now_s)
        return np.where(self.quiet, began, np.where(self.heard, np.inf, self.memory.quiet_since_s))

    @cached_property
    def dwell_s(self) -> Floats:
        """Quiet that a demotion needs: the policy's dwell, twice as long for each demotion that proved wrong."""
        return self.policy.tiering.dwell_s * 2.0 ** np.minimum(self.memory.wrong, MOST_WRONG)

    @cached_property
    def stayed(self) -> Bools:
        """Whether the tenant has been in its tier, and quiet, for its dwell."""
        return np.asarray(self.now_s - np.maximum(self.since_s, self.quiet_since_s) >= self.dwell_s)

    @cached_property
    def calm(self) -> Bools:
        """Quiet for enough ticks to be demoted, the dwell aside."""
        return np.asarray(self.quiet & (self.quiet_ticks >= self.policy.tiering.demote_ticks))

    @cached_property
    def fewer_since_s(self) -> float:
        """Since when fewer adapter slots have been seen than count; infinite where not."""
        seen, counted = self.view.ring_adapters, self.memory.slots
        if seen is None or counted is None or seen >= counted:
            return float("inf")
        since_s = min(self.memory.fewer_since_s, self.now_s)
        return since_s if self.now_s - since_s < self.policy.ring.slot_grace_s else float("inf")

    @property
    def slots(self) -> int | None:
        """Adapter slots of the ring. A replica that restarts keeps its slots for `ring.slotGrace`."""
        return self.view.ring_adapters if np.isinf(self.fewer_since_s) else self.memory.slots

    @cached_property
    def on_ring(self) -> int:
        """Adapters of tenants that are not COLD; HOT ones too, since the ring takes over when their group is down."""
        return int(self.view.adapters[self.before != TIER_COLD].sum())

    @cached_property
    def surplus(self) -> int:
        """Adapters on the ring beyond what its adapter slots hold twice; 0 where they fit or nothing is known.

        While everything fits twice, a quiet tenant's slot is of no use to anybody, and it stays.
        """
        slots = self.slots
        return 0 if slots is None else max(0, self.on_ring - slots // 2)

    def rows(self, tenants: list[str]) -> npt.NDArray[np.int64]:
        """Rows of the tenants that exist, in order."""
        return np.array([self.row[t] for t in tenants if t in self.row], np.int64)
