"""One tick's decisions as records: what changed, what was held for a new reason, what failed. Nothing is said twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autoscaler.domain.decisions import DecisionRecord, Failed, PublishRing, Reason, Step, Trail
from autoscaler.domain.fleet import Tier
from autoscaler.policy.words import Mode
from autoscaler.telemetry.view import FleetView


def records_of(view: FleetView, before: FleetView | None) -> tuple[DecisionRecord, ...]:
    """Records of a tick, numbered in order; `before` is the last tick's view."""
    # Advice was not acted on: what it decided before is done only from here on, and is told again.
    begins = before is not None and before.plan.mode is Mode.ADVISE and view.plan.mode is not Mode.ADVISE
    scale = _scale(view, None if begins else before)
    return tuple(
        _numbered(
            view,
            (
                *_tiers(view),
                *_merges(view, before),
                *(_groups_begun(view) if begins else ()),
                *scale,
                *_ring(view),
                *_failures(view),
            ),
        )
    )


_Row = tuple[str, str, Reason, str, str, Trail]


def _numbered(view: FleetView, rows: tuple[_Row, ...]) -> Iterator[DecisionRecord]:
    for number, (step, subject, reason, old, new, trail) in enumerate(rows):
        yield DecisionRecord(
            id=f"{view.plan.id}/{number:04d}", at_s=view.plan.now_s, fleet=view.fleet, step=step, subject=subject,
            reason=reason, before=old, after=new, message=trail[-1].message if trail else "", trail=trail,
            data={"mode": view.plan.mode.value, "leader": view.leader},
        )  # fmt: skip


def _tiers(view: FleetView) -> Iterator[_Row]:
    for d in view.plan.tiers.changed:
        yield "tiers", f"tenant/{d.tenant}", d.reason, str(d.before), str(d.after), d.trail


def _merges(view: FleetView, before: FleetView | None) -> Iterator[_Row]:
    """Advice on merged checkpoints, told once when it begins to hold."""
    told = set() if before is None else {a.tenant for a in before.plan.merges if a.advised}
    for advice in view.plan.merges:
        if advice.advised and advice.tenant not in told:
            step = Step(Reason.MERGE_ADVISED, advice.adapter, advice.message)
            yield "tiers", f"tenant/{advice.tenant}", Reason.MERGE_ADVISED, "", advice.adapter, (step,)


def _groups_begun(view: FleetView) -> Iterator[_Row]:
    """The first acting tick takes HOT tenants from the ring, where all were served alike, to groups of their own."""
    changed = {d.tenant for d in view.plan.tiers.changed}
    for row in np.flatnonzero(view.plan.tiers.of(Tier.HOT)).tolist():
        d = view.plan.tiers.explain_row(row)
        if d.tenant not in changed:
            yield "tiers", f"tenant/{d.tenant}", d.reason, Tier.WARM.value, Tier.HOT.value, d.trail


def _scale(view: FleetView, before: FleetView | None) -> Iterator[_Row]:
    old = {} if before is None else before.plan.scale.decisions
    for name, decision in view.plan.scale.decisions.items():
        known = old.get(name)
        same = known is not None and (known.desired, known.current, known.reason) == (
            decision.desired, decision.current, decision.reason,
        )  # fmt: skip
        if not same:
            yield (
                "scale",
                f"group/{name}",
                decision.reason,
                str(decision.current),
                str(decision.desired),
                decision.trail,
            )


def _ring(view: FleetView) -> Iterator[_Row]:
    ring = view.plan.ring
    if ring.published:
        trail = ring.trail
        yield "ring", "ring/epoch", trail[0].reason, str(view.observation.ring_epoch), str(ring.epoch), trail


def _failures(view: FleetView) -> Iterator[_Row]:
    for effect, outcome in view.report.outcomes:
        if isinstance(outcome, Failed):
            name = type(effect).__name__
            where = "ring/epoch" if isinstance(effect, PublishRing) else _subject(effect)
            step = Step(Reason.BLOCKED, name, f"{name} failed: {outcome.error}")
            yield "apply", where, Reason.BLOCKED, "", "failed", (step,)


def _subject(effect: object) -> str:
    replica, group = getattr(effect, "replica", ""), getattr(effect, "group", "")
    return f"replica/{replica}" if replica else f"group/{group}"
