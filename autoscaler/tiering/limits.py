"""What cannot be had: a large enough group, more hot groups than there may be, more adapters than the ring has slots.

The last two keep whom somebody asked for, then the most valuable. Value is forecast mean tokens/s per adapter; who is
inside counts one and a half times, so two tenants of like load do not push each other out in turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.domain.decisions import Reason
from autoscaler.domain.observation import Bools, Floats, Ints
from autoscaler.tiering.memory import TIER_COLD, TIER_HOT, TIER_WARM, Codes
from autoscaler.tiering.plan import REASON_CODE
from autoscaler.tiering.tenants import Tenants

STICKINESS = 1.5
SETTLING = 3.0
"""Within its dwell a tenant yields its slot only to one worth 4.5 times as much: a handful of requests in a window is a
rate that is wrong by half, and tenants of like rates would change places on every tick. One that was put out yields
as long: it is worth 13.5 times as much as whom it displaces, or waits for its dwell, or for a slot that is free."""


@dataclass(frozen=True, slots=True, eq=False)
class Limited:
    """Tiers and reasons after the limits.

    Attributes:
        unplaced_adapters: with demand, or asked for, that have no adapter slot.
        wanted_adapters: on the ring, and those with demand that are not.
    """

    tier: Codes
    reason: npt.NDArray[np.int16]
    unplaced_adapters: int
    wanted_adapters: int


def limit(tenants: Tenants, tier: Codes, reason: npt.NDArray[np.int16], asked: Bools) -> Limited:
    """Apply the three limits. `asked`: tenants that an operator or the policy put where they are.

    Where there is no cold group, nobody leaves the ring for want of adapter slots: the same replicas would serve it,
    any of them instead of its owners. At 600 adapters and 6 to 10 times 57 slots that took 143 loads per 1,000 requests
    instead of 122, and 128 changes of tier in 40 minutes.
    """
    tier, reason = tier.copy(), reason.copy()
    out = _beyond_replicas(tenants, tier, asked)
    tier[out], reason[out] = TIER_WARM, REASON_CODE[Reason.GROUP_TOO_SMALL]
    out = _beyond_groups(tenants, tier, asked)
    tier[out], reason[out] = TIER_WARM, REASON_CODE[Reason.HOT_GROUPS_FULL]
    out, forced = _beyond_slots(tenants, tier, asked)
    fits = tier != TIER_COLD
    fits[out] = False
    if tenants.policy.groups.cold is not None:
        tier[out], reason[out] = TIER_COLD, REASON_CODE[Reason.ADAPTER_SLOT_BUDGET]
    active = out[tenants.upper[out] >= max(tenants.cold_tokens_per_s, np.finfo(float).tiny)]
    without = int(tenants.view.adapters[active].sum())
    placed = int(tenants.view.adapters[fits].sum())
    return Limited(tier, reason, without + forced, placed + without)


def _beyond_replicas(tenants: Tenants, tier: Codes, asked: Bools) -> Ints:
    """HOT tenants for whose load there can be no group, though nobody asked for one: the ring spreads them wider.

    Up by the band, which has to fit whole; who is inside leaves by the mean. Largest first, each beside those before.
    """
    wanted = np.flatnonzero((tier == TIER_HOT) & ~asked)
    if not wanted.size or not np.isfinite(tenants.usable_tokens_per_s):
        return wanted[:0]
    apart = (tier == TIER_HOT) & asked
    out = []
    for row in wanted[np.lexsort((tenants.memory.keys[wanted], -tenants.mean[wanted]))].tolist():
        inside = tenants.before[row] == TIER_HOT
        asks = tenants.mean[row] if inside else max(tenants.upper[row], tenants.mean[row])
        if asks > tenants.group_replicas(row, apart) * tenants.usable_tokens_per_s:
            out.append(row)
        else:
            apart[row] = True
    return np.array(out, np.int64)


def most_hot_groups(tenants: Tenants) -> int:
    """Groups there may be: `groups.hot.maxGroups`, and what the total leaves beside the warm and cold minimum."""
    groups = tenants.policy.groups
    if groups.hot is None:
        return 0
    cold = 0 if groups.cold is None else groups.cold.min_replicas
    left = tenants.policy.budget.max_replicas_total - groups.warm.min_replicas - cold
    return max(0, min(groups.hot.max_groups, left // groups.hot.min_replicas))


def value(tenants: Tenants, inside: Bools) -> Floats:
    """Forecast mean tokens/s per adapter; insiders count more."""
    return np.asarray(tenants.mean / np.maximum(tenants.view.adapters, 1) * np.where(inside, STICKINESS, 1.0))


def _beyond_groups(tenants: Tenants, tier: Codes, asked: Bools) -> Ints:
    """HOT tenants for whom there is no group. One that was made is kept for its dwell: it cost minutes to start."""
    hot = np.flatnonzero(tier == TIER_HOT)
    most = most_hot_groups(tenants)
    if hot.size <= most:
        return hot[:0]
    inside = tenants.before == TIER_HOT
    settling = inside & (tenants.now_s - tenants.since_s < tenants.policy.tiering.dwell_s)
    worth = value(tenants, inside)[hot]
    order = np.lexsort((tenants.memory.keys[hot], -worth, ~settling[hot], ~asked[hot]))
    return hot[order[most:]]


def _beyond_slots(tenants: Tenants, tier: Codes, asked: Bools) -> tuple[Ints, int]:
    """Tenants of the ring that do not fit its adapter slots, and the adapters that stay although they do not fit.

    HOT tenants' adapters count: the ring takes over when their group is down or full.
    """
    slots = tenants.slots
    ring = np.flatnonzero((tier != TIER_COLD) & (tenants.view.adapters > 0))
    count = tenants.view.adapters[ring]
    if slots is None or int(count.sum()) <= slots:
        return ring[:0], 0
    kept = asked[ring] | (tier[ring] == TIER_HOT)
    left = slots - int(count[kept].sum())
    rest, size = ring[~kept], count[~kept]
    inside = tenants.before >= TIER_WARM
    settling = inside & (tenants.now_s - tenants.since_s < tenants.policy.tiering.dwell_s)
    out = (tenants.before == TIER_COLD) & (tenants.now_s - tenants.since_s < tenants.policy.tiering.dwell_s)
    worth = value(tenants, inside) * np.where(settling, SETTLING, np.where(out, 1.0 / SETTLING, 1.0))
    order = np.lexsort((tenants.memory.keys[rest], ~inside[rest], -worth[rest]))
    fits = _greedy(size[order], max(left, 0))
    return rest[order[~fits]], max(0, -left)


def _greedy(size: Ints, room: int) -> Bools:
    """Who fits, in order; one that is too large lets smaller ones behind it in."""
    fits = np.cumsum(size) <= room
    left = room - int(size[fits].sum())
    first_out = int(np.count_nonzero(fits))
    for i in range(first_out, size.size):
        if left <= 0:
            break
        if size[i] <= left:
            fits[i] = True
            left -= int(size[i])
    return fits
