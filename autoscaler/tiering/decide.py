"""One tick of tiering: align memory, ask the rules in order, apply the limits, remember."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Override
from autoscaler.domain.observation import Bools
from autoscaler.policy.model import FleetPolicy
from autoscaler.tiering.explain import Evidence, conditions, decision
from autoscaler.tiering.limits import Limited, limit
from autoscaler.tiering.memory import TIER_NEW, TIER_WARM, Displaced, TieringMemory, realign
from autoscaler.tiering.plan import REASON_CODE, TierPlan
from autoscaler.tiering.rules import ASKED, LEARNT, RULES
from autoscaler.tiering.tenants import MOST_WRONG, Tenants
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
    size = len(view.ids)
    tier, reason, open_ = np.full(size, -1, np.int8), np.full(size, -1, np.int16), np.ones(size, np.bool_)
    for rule in RULES:
        answer = rule(tenants)
        mine = open_[answer.rows]
        rows = answer.rows[mine]
        tier[rows], reason[rows], open_[rows] = answer.tier[mine], REASON_CODE[answer.reason], False
    asked = np.isin(reason, [REASON_CODE[r] for r in ASKED])
    limited = _named_return(tenants, limit(tenants, tier, reason, asked), asked)
    changed = limited.tier != tenants.before
    since_s = np.where(changed, now_s, tenants.since_s)
    evidence = Evidence(tenants, tier, reason, limited.tier, limited.reason, since_s, asked)
    plan = TierPlan(
        ids=view.ids,
        before=tenants.memory.tier,
        after=limited.tier,
        reason=limited.reason,
        since_s=since_s,
        conditions=conditions(evidence),
        unplaced_adapters=limited.unplaced_adapters,
        wanted_adapters=limited.wanted_adapters,
        explain_row=lambda row: decision(evidence, row),
    )
    restarted = changed | (tenants.memory.tier != tenants.before)
    promoted = (tenants.before >= 0) & (limited.tier > tenants.before)
    learnt = np.isin(limited.reason, [REASON_CODE[r] for r in LEARNT])
    wrong = promoted & learnt & (tenants.memory.reason == REASON_CODE[Reason.QUIET])
    memory = replace(
        tenants.memory,
        tier=limited.tier,
        since_s=since_s,
        quiet_since_s=np.where(restarted, np.inf, tenants.quiet_since_s),
        quiet_ticks=np.where(restarted, np.uint16(0), tenants.quiet_ticks),
        missed_ticks=np.where(restarted, np.uint16(0), tenants.missed_ticks),
        wrong=np.minimum(tenants.memory.wrong + wrong.astype(np.uint8), MOST_WRONG).astype(np.uint8),
        reason=np.where(restarted | learnt, limited.reason, tenants.memory.reason),
        displaced=_displaced(tenants),
        slots=tenants.memory.slots if tenants.slots is None else tenants.slots,
        fewer_since_s=tenants.fewer_since_s,
        last_tick_s=max(now_s, memory.last_tick_s),
    )
    return plan, memory


def _named_return(tenants: Tenants, limited: Limited, asked: Bools) -> Limited:
    """Where an override just ended and what it displaced is what holds now, that is the reason."""
    rows = np.array([r for r in tenants.returned if limited.tier[r] == tenants.before[r] and not asked[r]], np.int64)
    reason = limited.reason.copy()
    reason[rows] = REASON_CODE[Reason.OVERRIDE_EXPIRED]
    return replace(limited, reason=reason) if rows.size else limited


def _tenants(view: TierView, policy: FleetPolicy, memory: TieringMemory, now_s: float) -> Tenants:
    row = {tenant: i for i, tenant in enumerate(view.ids)} if view.overrides or memory.displaced else {}
    overrides = _in_force(view, row, now_s)
    before, since_s = memory.tier, memory.since_s
    returned = sorted(row[t] for t in memory.displaced if t in row and row[t] not in overrides)
    if returned:
        before, since_s = before.copy(), since_s.copy()
        for i in returned:
            put_aside = memory.displaced[view.ids[i]]
            before[i], since_s[i] = put_aside.tier, put_aside.since_s
    return Tenants(view, memory, policy, now_s, before, since_s, overrides, tuple(returned))


def _in_force(view: TierView, row: dict[str, int], now_s: float) -> dict[int, Override]:
    """Overrides of known tenants that have not ended, by row; the highest revision where a tenant has several."""
    live = [o for o in view.overrides if o.expires_at_s > now_s and o.tenant in row]
    return {row[o.tenant]: o for o in sorted(live, key=lambda o: (o.tenant, o.revision))}


def _displaced(tenants: Tenants) -> dict[str, Displaced]:
    """What overrides in force put aside; a later override of the same tenant keeps what the first one found."""
    kept = tenants.memory.displaced
    out: dict[str, Displaced] = {}
    for row in tenants.overrides:
        tenant = tenants.view.ids[row]
        tier = int(tenants.before[row])
        own = Displaced(TIER_WARM if tier == TIER_NEW else tier, float(tenants.since_s[row]))
        out[tenant] = kept.get(tenant, own)
    return out
