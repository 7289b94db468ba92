"""Tier decisions of the default policy replayed on forecasts, beside thresholds on the last value and on an EWMA."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.signals import Fresh
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Trigger
from autoscaler.tiering import TieringMemory, TierView, decide_tiers

Doubles = NDArray[np.float64]
Tiers = NDArray[np.int8]
COLD, WARM, HOT = 0, 1, 2
HOT_RPS = 10.0
"""A tenant is hot from this rate on: 7 of 162 clients of the development file; the capacity follows from it."""
TOKENS_PER_REQUEST = 500.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What tiering is told, window by window: [T, S] each, requests/s; `later` is the band as far as demotion looks."""

    rate: Doubles
    mean: Doubles
    upper: Doubles
    later: Doubles
    known: NDArray[np.bool_]
    burst: NDArray[np.bool_]

    @classmethod
    def empty(cls, rate: Doubles) -> "Seen":
        """Columns to be written to, beside the rates."""
        mean, upper, later = np.zeros((3, *rate.shape))
        known, burst = np.zeros((2, *rate.shape), np.bool_)
        return cls(rate, mean, upper, later, known, burst)


def by_policy(ids: tuple[str, ...], seen: Seen, window_s: float) -> Tiers:
    """Return [T, S] the tiers that the default policy with `promoteOn: [load]` decides, one tick per window.

    Only its bounds on groups and replicas are lifted: recall is about decisions, not about how many GPUs there are.
    """
    policy = FleetPolicy(name="replay", base_model="any")
    assert policy.groups.hot is not None
    groups = replace(policy.groups, hot=replace(policy.groups.hot, max_groups=len(ids), max_replicas=10_000))
    budget = replace(policy.budget, max_replicas_total=10_000 + 10 * len(ids))
    tiering = replace(policy.tiering, promote_on=(Trigger.LOAD,))
    policy = replace(policy, groups=groups, budget=budget, tiering=tiering)
    capacity = Fresh(HOT_RPS * TOKENS_PER_REQUEST / policy.tiering.hot_threshold_replicas, 0.0)
    memory, out = TieringMemory(), np.zeros(seen.rate.shape, np.int8)
    blank = replace(TierView.blank(ids), capacity_tokens_per_s=capacity)
    for t in range(len(out)):
        view = replace(
            blank,
            rate_tokens_per_s=seen.rate[t] * TOKENS_PER_REQUEST,
            mean_tokens_per_s=seen.mean[t] * TOKENS_PER_REQUEST,
            upper_tokens_per_s=seen.upper[t] * TOKENS_PER_REQUEST,
            later_upper_tokens_per_s=seen.later[t] * TOKENS_PER_REQUEST,
            known=seen.known[t],
            burst=seen.burst[t],
        )
        plan, memory = decide_tiers(view, policy, memory, (t + 1) * window_s)
        out[t] = plan.after
    return out


def by_threshold(level: Doubles, cold: bool = True) -> Tiers:
    """Return [T, S] the tiers of one who compares a level with the same thresholds and remembers nothing.

    Without ``cold`` only HOT and WARM, which is what the policy's replay comes to: its ring has a slot for everybody.
    """
    cold_rps = FleetPolicy(name="replay", base_model="any").tiering.cold_threshold_tokens_per_s / TOKENS_PER_REQUEST
    return np.where(level >= HOT_RPS, HOT, np.where((level > cold_rps) | (not cold), WARM, COLD)).astype(np.int8)


def figures(tiers: Tiers, next_rate: Doubles, windows_per_day: int) -> dict[str, Any]:
    """Return churn and recall over the windows given.

    ``tier_churn_per_day_ratio``: tenants that change tier at least once in a day, over tenants, mean of the days.
    ``hot_recall``: of the requests of tenant-windows that turn out hot, the share whose tenant was HOT before.
    """
    changed = np.diff(tiers, axis=0) != 0
    days = [changed[d : d + windows_per_day].any(axis=0).mean() for d in range(0, len(changed), windows_per_day)]
    hot = np.nan_to_num(np.where(next_rate >= HOT_RPS, next_rate, 0.0))
    volume = float(hot.sum())
    recall = float(hot[tiers == HOT].sum()) / volume if volume > 0 else None
    return {"tier_churn_per_day_ratio": float(np.mean(days)), "hot_recall": recall}
