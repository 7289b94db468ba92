"""Propose mode: decisions that an operator has not approved wait, and everything else goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.decisions import Reason, ScaleDecision, Step, TierDecision
from autoscaler.domain.observation import Bools
from autoscaler.scaling import ScalePlan
from autoscaler.tiering import TieringMemory, TierPlan
from autoscaler.tiering.memory import realign


@dataclass(frozen=True, slots=True)
class Proposal:
    """A decision that waits for an operator's word. `key` names exactly this change: another change is another key."""

    key: str
    subject: str
    before: str
    after: str
    message: str


def approved_tiers(
    tiers: TierPlan,
    after: TieringMemory,
    before: TieringMemory,
    approvals: frozenset[str],
    proposals: list[Proposal],
) -> tuple[TierPlan, TieringMemory]:
    """Tier changes that were approved, or that an operator's override asked for; the others wait as proposals."""
    held = np.zeros(len(tiers.ids), np.bool_)
    for decision in tiers.changed:
        key = f"tenant/{decision.tenant}:{decision.before}->{decision.after}"
        if key in approvals or decision.reason in (Reason.OVERRIDE, Reason.OVERRIDE_EXPIRED):
            continue
        held[tiers.row[decision.tenant]] = True
        message = decision.trail[-1].message if decision.trail else ""
        subject = f"tenant/{decision.tenant}"
        proposals.append(Proposal(key, subject, str(decision.before), str(decision.after), message))
    if not held.any():
        return tiers, after
    then = realign(before, tiers.ids)
    kept = replace(
        after,
        tier=np.where(held, then.tier, after.tier),
        since_s=np.where(held, then.since_s, after.since_s),
        reason=np.where(held, then.reason, after.reason),
    )
    return _with_held(tiers, held), kept


def _with_held(tiers: TierPlan, held: Bools) -> TierPlan:
    explain = tiers.explain_row

    def explain_row(row: int) -> TierDecision:
        decision = explain(row)
        if not held[row] or decision.before is None:
            return decision
        step = Step(Reason.MODE, decision.before, f"{decision.before} -> {decision.after} waits for approval")
        return replace(decision, after=decision.before, reason=Reason.MODE, trail=(*decision.trail, step))

    return replace(tiers, after=np.where(held, tiers.before, tiers.after), explain_row=explain_row)


def approved_scale(scale: ScalePlan, approvals: frozenset[str], proposals: list[Proposal]) -> ScalePlan:
    """Changes of replica counts that were approved; the others wait as proposals, and the counts stand."""
    decisions = {}
    for name, decision in scale.decisions.items():
        key = f"group/{name}:{decision.current}->{decision.desired}"
        if decision.desired == decision.current or key in approvals:
            decisions[name] = decision
            continue
        message = decision.trail[-1].message
        proposals.append(Proposal(key, f"group/{name}", str(decision.current), str(decision.desired), message))
        decisions[name] = stand(decision, f"waits for approval of {decision.current} -> {decision.desired}")
    waiting = {p.subject.removeprefix("group/") for p in proposals}
    return replace(scale, decisions=decisions, remove=scale.remove - waiting)


def stand(decision: ScaleDecision, message: str, reason: Reason = Reason.MODE) -> ScaleDecision:
    """The decision with the count as it is, and why as its last step."""
    step = Step(reason, decision.current, message)
    return replace(decision, desired=decision.current, trail=(*decision.trail, step))
