"""One tick of tiering: align memory, ask the rules in order, apply the limits, remember."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.domain.decisions import Reason, Step, TierDecision
from autoscaler.domain.observation import Bools
from autoscaler.policy.model import FleetPolicy
from autoscaler.tiering.limits import adapter_slots, hot_groups
from autoscaler.tiering.memory import TIER_COLD, TIER_NEW, TIER_WARM, Displaced, TieringMemory, realign
from autoscaler.tiering.plan import REASON_CODE, REASONS, TIERS, TierPlan
from autoscaler.tiering.rules import FIXED, MOST_WAKES, RULES, Tenants, in_force
from autoscaler.tiering.view import TierView


def decide_tiers(
    view: TierView, policy: FleetPolicy, memory: TieringMemory, now_s: float
) -> tuple[TierPlan, TieringMemory]:
    """Decide every tenant's tier.

    Args:
        view: columns over tenants.
        policy: thresholds, pins, promises, bounds.
        memory: of the last tick; empty after a loss, then everybody is new.
        now_s: seconds since the Unix epoch.

    Returns:
        The plan, and the memory for the next tick.
    """
    tenants = _tenants(view, policy, realign(memory, view.ids), now_s)
    after = np.full(len(view.ids), -1, np.int8)
    reason = np.full(len(view.ids), -1, np.int16)
    open_: Bools = np.ones(len(view.ids), np.bool_)
    for rule in RULES:
        answer = rule(tenants)
        mine = open_[answer.rows]
        rows = answer.rows[mine]
        after[rows] = answer.tier[mine]
        reason[rows] = REASON_CODE[answer.reason]
        open_[rows] = False
    fixed = np.isin(reason, [REASON_CODE[r] for r in FIXED])
    hot_groups(tenants, after, reason, fixed)
    unplaced = adapter_slots(tenants, after, reason, fixed)
    changed = after != tenants.before
    since_s = np.where(changed, now_s, tenants.since_s)
    plan = TierPlan(
        ids=view.ids,
        before=np.where(tenants.memory.tier == TIER_NEW, np.int8(TIER_NEW), tenants.memory.tier),
        after=after,
        reason=reason,
        since_s=since_s,
        unplaced_adapters=unplaced,
        explain_row=lambda row: _decision(tenants, after, reason, since_s, row),
    )
    woke = (tenants.before == TIER_COLD) & (after == TIER_WARM) & (reason == REASON_CODE[Reason.WOKE_UP])
    memory = replace(
        tenants.memory,
        tier=after,
        since_s=since_s,
        quiet_ticks=np.where(changed, np.uint16(0), tenants.quiet_ticks),
        wakes=np.minimum(tenants.memory.wakes + woke.astype(np.uint8), MOST_WAKES).astype(np.uint8),
        reason=reason,
        displaced=_displaced(tenants),
        last_tick_s=max(now_s, memory.last_tick_s),
    )
    return plan, memory


def _tenants(view: TierView, policy: FleetPolicy, memory: TieringMemory, now_s: float) -> Tenants:
    row = {tenant: i for i, tenant in enumerate(view.ids)} if view.overrides or memory.displaced else {}
    overrides = in_force(view, row, now_s)
    before, since_s = memory.tier, memory.since_s
    returned = sorted(row[t] for t in memory.displaced if t in row and row[t] not in overrides)
    if returned:
        before, since_s = before.copy(), since_s.copy()
        for i in returned:
            put_aside = memory.displaced[view.ids[i]]
            before[i], since_s[i] = put_aside.tier, put_aside.since_s
    return Tenants(view, memory, policy, now_s, before, since_s, overrides, tuple(returned))


def _displaced(tenants: Tenants) -> dict[str, Displaced]:
    """What overrides in force put aside; the first word keeps what the next one finds."""
    kept = tenants.memory.displaced
    out: dict[str, Displaced] = {}
    for row in tenants.overrides:
        tenant = tenants.view.ids[row]
        tier = int(tenants.before[row])
        own = Displaced(TIER_WARM if tier == TIER_NEW else tier, float(tenants.since_s[row]))
        out[tenant] = kept.get(tenant, own)
    return out


def _decision(tenants, after, reason, since_s, row) -> TierDecision:  # type: ignore[no-untyped-def]
    before = int(tenants.memory.tier[row])
    why = REASONS[reason[row]]
    tier = TIERS[after[row]]
    override = tenants.overrides.get(row)
    return TierDecision(
        tenant=tenants.view.ids[row],
        before=None if before == TIER_NEW else TIERS[before],
        after=tier,
        reason=why,
        trail=(Step(why, tier.value, f"upper band {tenants.upper[row]:.4g} tokens/s"),),
        since_s=float(since_s[row]),
        override_expires_at_s=None if override is None else override.expires_at_s,
    )
