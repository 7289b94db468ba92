"""Which tier each tenant should have, before the bounds of hot groups and adapter slots.

An ordered list of rules. Each looks at all tenants at once and answers, for those that it speaks for, a tier; the first
rule that speaks for a tenant decides. Worked numbers with the defaults: a replica carries 4,000 tokens/s and the
threshold is 3 replicas, so a tenant is called HOT at an upper band of 12,000 tokens/s and leaves HOT below 6,000, after
8 quiet ticks and two hours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Override, Tier
from autoscaler.domain.observation import Bools, Floats
from autoscaler.domain.signals import Fresh
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Trigger
from autoscaler.tiering.memory import TIER_COLD, TIER_HOT, TIER_NEW, TIER_WARM, Codes, TieringMemory
from autoscaler.tiering.plan import TIERS
from autoscaler.tiering.view import TierView

MOST_WAKES = 5  # a tenant that keeps waking up needs at most 2^5 dwells of quiet before it sleeps again


@dataclass(frozen=True, eq=False)
class Tenants:
    """All tenants at one moment: the view, aligned memory and the policy's thresholds in tokens/s.

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
        """Upper band from which a tenant is HOT by load; infinite where no capacity is known."""
        capacity = self.view.capacity_tokens_per_s
        if not isinstance(capacity, Fresh):
            return float("inf")
        return self.policy.tiering.hot_threshold_replicas * capacity.value

    @property
    def cold_tokens_per_s(self) -> float:
        """Upper band from which a COLD tenant wakes up."""
        return self.policy.tiering.cold_threshold_tokens_per_s

    @cached_property
    def upper(self) -> Floats:
        """Forecast upper band, or the last window's rate where that is higher; never NaN."""
        view = self.view
        return np.fmax(np.where(view.known, view.upper_tokens_per_s, 0.0), np.nan_to_num(view.rate_tokens_per_s))

    @cached_property
    def heard(self) -> Bools:
        """Tenants whose rate is known now: only these can be called quiet."""
        return self.view.known & np.isfinite(self.view.rate_tokens_per_s)

    @cached_property
    def quiet(self) -> Bools:
        """Below the demotion threshold of the present tier, at this tick."""
        ratio = self.policy.tiering.demote_ratio
        hot_line = ratio * self.hot_tokens_per_s if np.isfinite(self.hot_tokens_per_s) else 0.0
        line = np.where(self.before == TIER_HOT, hot_line, ratio * self.cold_tokens_per_s)
        return np.asarray(self.heard & (self.upper < line))

    @cached_property
    def quiet_ticks(self) -> npt.NDArray[np.uint16]:
        """Quiet ticks in a row, this one included; unknown rates keep the count."""
        if self.now_s <= self.memory.last_tick_s:
            return self.memory.quiet_ticks
        grown = np.minimum(self.memory.quiet_ticks, 65_534) + np.uint16(1)
        kept = np.where(self.heard, np.uint16(0), self.memory.quiet_ticks)
        return np.where(self.quiet, grown, kept).astype(np.uint16)

    @cached_property
    def stayed(self) -> Bools:
        """Whether the minimum stay is over; a tenant that woke up too often needs twice as long for each time."""
        factor = np.where(self.before == TIER_WARM, 2.0 ** np.minimum(self.memory.wakes, MOST_WAKES), 1.0)
        return np.asarray(self.now_s - self.since_s >= self.policy.tiering.dwell_s * factor)

    @cached_property
    def calm(self) -> Bools:
        """Quiet for long enough to be demoted, the minimum stay aside."""
        return np.asarray(self.quiet_ticks >= self.policy.tiering.demote_ticks)

    def rows(self, tenants: list[str]) -> npt.NDArray[np.int64]:
        """Rows of the tenants that exist, in order."""
        return np.array([self.row[t] for t in tenants if t in self.row], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Tenants a rule speaks for: their rows, tier codes and the reason."""

    rows: npt.NDArray[np.int64]
    tier: npt.NDArray[np.int64]
    reason: Reason


Rule: TypeAlias = Callable[[Tenants], Answer]


def _answer(mask_or_rows: npt.NDArray[np.generic], tier: int, reason: Reason) -> Answer:
    rows = np.flatnonzero(mask_or_rows) if mask_or_rows.dtype == np.bool_ else mask_or_rows.astype(np.int64)
    return Answer(rows, np.full(rows.size, tier, np.int64), reason)


def unloadable(tenants: Tenants) -> Answer:
    """No replica can load its adapters: no word of anybody's makes it resident, so it holds no slot and no group."""
    return _answer(~tenants.view.loadable, TIER_COLD, Reason.UNLOADABLE)


def overridden(tenants: Tenants) -> Answer:
    """An operator's word, until it expires."""
    rows = np.array(sorted(tenants.overrides), np.int64)
    tiers = np.array([TIERS.index(tenants.overrides[int(r)].tier) for r in rows], np.int64)
    return Answer(rows, tiers, Reason.OVERRIDE)


def pinned(tenants: Tenants) -> Answer:
    """The policy's word on a tenant's tier."""
    pins = tenants.policy.tiering.pins
    known = [t for t in sorted(pins) if t in tenants.row]
    tiers = np.array([TIERS.index(pins[t]) for t in known], np.int64)
    return Answer(tenants.rows(known), tiers, Reason.OVERRIDE)


def isolated(tenants: Tenants) -> Answer:
    """The policy promises the tenant replicas of its own."""
    return _answer(tenants.rows(sorted(tenants.policy.slo.dedicated)), TIER_HOT, Reason.ISOLATION_ASKED)


def override_ended(tenants: Tenants) -> Answer:
    """What the override displaced comes back; the other rules speak again from the next tick."""
    rows = np.array(tenants.returned, np.int64)
    return Answer(rows, tenants.before[rows].astype(np.int64), Reason.OVERRIDE_EXPIRED)


def worth_replicas(tenants: Tenants) -> Answer:
    """The upper band needs several replicas: a group of its own costs no fragmentation worth the name."""
    load = Trigger.LOAD in tenants.policy.tiering.promote_on
    mask = tenants.view.known & (tenants.view.upper_tokens_per_s > tenants.hot_tokens_per_s)
    return _answer(mask & load, TIER_HOT, Reason.FORECAST_HOT)


def burst(tenants: Tenants) -> Answer:
    """A jump to that load which the forecast does not know yet."""
    load = Trigger.LOAD in tenants.policy.tiering.promote_on
    now = np.nan_to_num(tenants.view.rate_tokens_per_s)
    return _answer(tenants.view.burst & (now > tenants.hot_tokens_per_s) & load, TIER_HOT, Reason.BURST_ONSET)


def slo_missed(tenants: Tenants) -> Answer:
    """It misses its SLO, where the policy answers that with a group."""
    asked = Trigger.SLO in tenants.policy.tiering.promote_on
    return _answer(tenants.view.slo_missed & asked, TIER_HOT, Reason.SLO_MISSED)


def noisy_neighbour(tenants: Tenants) -> Answer:
    """It hurts the others on its replicas, where the policy answers that with a group."""
    policy = tenants.policy
    if Trigger.NOISY_NEIGHBOUR not in policy.tiering.promote_on:
        return _answer(np.zeros(0, np.int64), TIER_HOT, Reason.NOISY_NEIGHBOUR)
    found = tenants.view.diagnosis.tenants
    guilty = [t for t in sorted(found) if found[t].aggressor >= policy.diagnosis.noisy_score_ratio]
    return _answer(tenants.rows(guilty), TIER_HOT, Reason.NOISY_NEIGHBOUR)


def new_tenant(tenants: Tenants) -> Answer:
    """A tenant that was never seen begins on the ring."""
    return _answer(tenants.before == TIER_NEW, TIER_WARM, Reason.NEW_TENANT)


def woke_up(tenants: Tenants) -> Answer:
    """A COLD tenant has traffic again."""
    mask = (tenants.before == TIER_COLD) & (tenants.upper >= tenants.cold_tokens_per_s)
    return _answer(mask & (tenants.upper > 0), TIER_WARM, Reason.WOKE_UP)


def cooled(tenants: Tenants) -> Answer:
    """A HOT tenant that was quiet for long enough goes back to the ring."""
    return _answer((tenants.before == TIER_HOT) & tenants.calm & tenants.stayed, TIER_WARM, Reason.QUIET)


def fell_asleep(tenants: Tenants) -> Answer:
    """A WARM tenant that was quiet for long enough gives its adapter slots back."""
    return _answer((tenants.before == TIER_WARM) & tenants.calm & tenants.stayed, TIER_COLD, Reason.QUIET)


def dwelling(tenants: Tenants) -> Answer:
    """Quiet, but the minimum stay is not over."""
    mask = tenants.calm & (tenants.before != TIER_COLD)
    rows = np.flatnonzero(mask)
    return Answer(rows, tenants.before[rows].astype(np.int64), Reason.DWELL)


def in_band(tenants: Tenants) -> Answer:
    """Nothing asks for a change."""
    return Answer(np.arange(len(tenants.view.ids)), tenants.before.astype(np.int64), Reason.IN_BAND)


RULES: tuple[Rule, ...] = (
    unloadable,
    overridden,
    pinned,
    isolated,
    override_ended,
    worth_replicas,
    burst,
    slo_missed,
    noisy_neighbour,
    new_tenant,
    woke_up,
    cooled,
    fell_asleep,
    dwelling,
    in_band,
)
FIXED = frozenset({Reason.OVERRIDE, Reason.ISOLATION_ASKED})


def in_force(view: TierView, row: dict[str, int], now_s: float) -> dict[int, Override]:
    """Overrides of known tenants that have not ended; `tier` may be any of the three."""
    live = [o for o in view.overrides if o.expires_at_s > now_s and o.tenant in row]
    return {row[o.tenant]: o for o in sorted(live, key=lambda o: (o.tenant, o.revision))}


__all__ = ["FIXED", "RULES", "Answer", "Rule", "Tenants", "Tier", "in_force"]
