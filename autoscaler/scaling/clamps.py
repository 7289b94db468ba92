"""From what is needed to what is desired, one group at a time: clamps in order, each with the reason for what it did.

A clamp takes the scene and a count, and answers a step where it changes the count or explains why it stays.
"""

from __future__ import annotations

import math

from autoscaler.domain.decisions import Reason, Step, Trail
from autoscaler.domain.fleet import PauseMode
from autoscaler.scaling.scene import Scene
from autoscaler.scaling.shrinking import shrink

PRESSURE = frozenset({Reason.SATURATION})
HALF_AGAIN = 1.5
"""While replicas start, pressure may raise the count to half as many again as serve: a first answer of one more must
not stand for the minutes of a start while the queue grows."""


def direction(scene: Scene, need: Step) -> Trail:
    """Growth at once, within its limits; shrinking by its conditions."""
    wanted = int(need.value)
    if wanted < scene.current:
        return (need, *shrink(scene, wanted)) if scene.wanted else (need,)
    if wanted == scene.current:
        return (need,)
    return (need, *_grow(scene, need))


def _grow(scene: Scene, need: Step) -> Trail:
    guarded = _pending_guard(scene, need)
    if guarded is not None:
        return (guarded,)
    most = scene.policy.scaling.scale_out.max_step_replicas
    if int(need.value) - scene.current <= most:
        return ()
    return (Step(Reason.STEP_LIMIT, scene.current + most, f"at most {most} more in a tick"),)


def _pending_guard(scene: Scene, need: Step) -> Step | None:
    """Replicas on their way are relief that has not come yet.

    While they wait for a machine, asking for more helps nobody. While they start, queues and KV use are those of the
    old count and would be answered twice; a forecast already counts them, so it may still ask for more.
    """
    readings = scene.readings
    if not readings.unready or scene.stuck or scene.current == 0:
        return None
    guard = scene.policy.scaling.scale_out.pending_guard_s
    waiting = f"for {scene.pending_s:.0f} s of at most {guard:.0f} s"
    if readings.unplaced:
        text = f"replicas without a machine yet: {readings.unplaced} ({waiting})"
        return Step(Reason.PENDING_REPLICAS, scene.current, f"{text}: stays at {scene.current}")
    most = max(scene.current, math.ceil(HALF_AGAIN * readings.ready))
    if need.reason in PRESSURE and int(need.value) > most:
        text = f"replicas still starting: {readings.unready} ({waiting}), and this pressure is of those that run"
        kept = f"stays at {most}" if most == scene.current else f"{most} for now"
        granted = min(most, scene.current + scene.policy.scaling.scale_out.max_step_replicas)
        return Step(Reason.PENDING_REPLICAS, granted, f"{text}: {kept}")
    return None


def bounded(scene: Scene, count: int) -> Step | None:
    """The policy's bounds hold on every path, with or without a measure."""
    limits = scene.bounds
    if not scene.wanted:
        return None
    if count < limits.least:
        return Step(limits.least_by, limits.least, f"{limits.least_source} is {limits.least}")
    if count > limits.most:
        return Step(limits.most_by, limits.most, f"{limits.most_source} is {limits.most}")
    return None


def changes(scene: Scene, count: int) -> Step | None:
    """No more changes of counts in this hour; a group that has no replica yet may still get its first."""
    if count == scene.current or scene.changes_left > 0 or scene.current == 0:
        return None
    most = scene.policy.budget.max_changes_per_hour
    return Step(Reason.BUDGET, scene.current, f"budget.maxChangesPerHour {most} is spent: stays at {scene.current}")


def hands_off(scene: Scene, count: int) -> Step | None:
    """A pause, another actor or a platform that cannot act: what runs stays, and no bound is fought over."""
    group = scene.group
    if count == scene.current:
        return None
    if group.blocked:
        return Step(Reason.BLOCKED, scene.current, f"the platform cannot act on it now: {group.blocked}")
    if group.foreign_actor:
        text = f"{group.foreign_actor} set {scene.current} replicas; it is not fought over ({count} would be right)"
        return Step(Reason.FOREIGN_ACTOR, scene.current, text)
    stopped = {
        PauseMode.ALL: True,
        PauseMode.SCALE_IN: count < scene.current,
        PauseMode.SCALE_OUT: count > scene.current,
    }
    if stopped.get(group.pause, False):
        why = f" ({group.pause_reason})" if group.pause_reason else ""
        return Step(
            Reason.PAUSED, scene.current, f"an operator paused {group.pause.value}{why}: stays at {scene.current}"
        )
    return None


CLAMPS = (bounded, changes, hands_off)


def clamp(scene: Scene, need: Step) -> Trail:
    """The trail from the recommendation to what this group would have; its last value is the count."""
    trail = direction(scene, need)
    for rule in CLAMPS:
        step = rule(scene, int(trail[-1].value))
        if step is not None:
            trail = (*trail, step)
    return trail
