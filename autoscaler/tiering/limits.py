"""What cannot be had: more hot groups than there may be, more adapters on the ring than its replicas hold.

Both keep the most valuable tenants. Value is forecast mean tokens/s per adapter; who is inside already counts one and
a half times, so two tenants of like load do not push each other out in turns.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autoscaler.domain.decisions import Reason
from autoscaler.domain.observation import Bools, Floats
from autoscaler.tiering.memory import TIER_COLD, TIER_HOT, TIER_WARM
from autoscaler.tiering.plan import REASON_CODE
from autoscaler.tiering.rules import Tenants

STICKINESS = 1.5


def hot_groups(tenants: Tenants, after: npt.NDArray[np.int8], reason: npt.NDArray[np.int16], fixed: Bools) -> None:
    """Demote HOT tenants beyond the number of groups there may be, in place."""
    hot = np.flatnonzero(after == TIER_HOT)
    most = most_hot_groups(tenants)
    if hot.size <= most:
        return
    value = _value(tenants, tenants.before == TIER_HOT)[hot]
    order = np.lexsort((np.array([tenants.view.ids[i] for i in hot]), -value, ~fixed[hot]))
    out = hot[order[most:]]
    after[out] = TIER_WARM
    reason[out] = REASON_CODE[Reason.HOT_GROUPS_FULL]


def most_hot_groups(tenants: Tenants) -> int:
    """Groups there may be: `groups.hot.maxGroups`, and what the total leaves beside the warm and cold minimum."""
    policy = tenants.policy
    if policy.groups.hot is None:
        return 0
    cold = 0 if policy.groups.cold is None else policy.groups.cold.min_replicas
    left = policy.budget.max_replicas_total - policy.groups.warm.min_replicas - cold
    return max(0, min(policy.groups.hot.max_groups, left // policy.groups.hot.min_replicas))


def adapter_slots(tenants: Tenants, after: npt.NDArray[np.int8], reason: npt.NDArray[np.int16], fixed: Bools) -> int:
    """Demote the least valuable tenants of the ring that do not fit, in place; answers the adapters left unplaced.

    A HOT tenant's adapters count too: the ring takes over when its group is down or full.
    """
    budget = tenants.view.ring_adapters
    ring = np.flatnonzero((after != TIER_COLD) & (tenants.view.adapters > 0))
    count = tenants.view.adapters[ring]
    if budget is None or int(count.sum()) <= budget:
        return 0
    inside = tenants.before >= TIER_WARM
    value = _value(tenants, inside)[ring]
    keep_first = fixed[ring] | (after[ring] == TIER_HOT)
    order = np.lexsort((np.array([tenants.view.ids[i] for i in ring]), ~inside[ring], -value, ~keep_first))
    fits = np.cumsum(count[order]) <= budget
    out = ring[order[~fits & ~keep_first[order]]]
    after[out] = TIER_COLD
    reason[out] = REASON_CODE[Reason.ADAPTER_SLOT_BUDGET]
    active = out[tenants.upper[out] >= max(tenants.cold_tokens_per_s, np.finfo(float).tiny)]
    forced = int(count[keep_first].sum()) - budget
    return int(tenants.view.adapters[active].sum()) + max(0, forced)


def _value(tenants: Tenants, inside: Bools) -> Floats:
    """Forecast mean tokens/s per adapter, or the present rate where that is higher; insiders count more."""
    view = tenants.view
    mean = np.fmax(np.where(view.known, view.mean_tokens_per_s, 0.0), np.nan_to_num(view.rate_tokens_per_s))
    return np.asarray(mean / np.maximum(view.adapters, 1) * np.where(inside, STICKINESS, 1.0))
