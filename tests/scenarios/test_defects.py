"""Would anybody notice? Defects put into the planner one at a time, each of which a promise must catch.

A defect is a patch, here only; it would pass unseen if the promise that catches it were not checked. docs/guarantees.md
lists them.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from autoscaler.domain.fleet import ReplicaState
from autoscaler.planner import departures, membership, publication, residency, ring_step, views
from autoscaler.planner.acknowledgement import Acknowledgement
from autoscaler.ring import Member, MemberState
from autoscaler.scaling import decide
from tests.scenarios import schedules
from tests.scenarios.faults import FaultyWorld, started
from tests.scenarios.schedules import Schedule, failure, run

# The package gives the name to the function.
plan = importlib.import_module("autoscaler.planner.plan")
_count = itertools.count()

Patch = Callable[[Any], Any]
WAITS: Schedule = tuple(("wait", 0, gap_s) for gap_s in (310.0, 60.0, 60.0, 60.0))


@dataclass(frozen=True)
class Defect:
    """`patches`: (where, name, what makes the wrong thing of the right one). `most`: replicas in the budget."""

    caught_by: str
    schedule: Schedule
    patches: tuple[tuple[Any, str, Patch], ...]
    most: int | None = None


def _always(value: object) -> Patch:
    return lambda right: lambda *args, **more: value


def _active_while_draining(right: Any) -> Any:
    def member(self: publication.Membership, slot: str, state: Any, holder: str) -> Member:
        found = self.replicas.get(holder)
        if found is not None and found.state is ReplicaState.DRAINING:
            return Member(holder, found.address, MemberState.ACTIVE, slot)
        return right(self, slot, state, holder)  # type: ignore[no-any-return]

    return member


def _endless(right: Any) -> Any:
    return lambda o, d, g, c, told, p: right(o, d, g, c, tuple(replace(t, expires_at_s=math.inf) for t in told), p)


def _dropped(right: Any) -> Any:
    return lambda o, d, g, c, told, p: right(o, d, g, c, (), p)


def _unlimited(right: Any) -> Any:
    def grows(observation: Any, scale: Any, policy: Any) -> Any:
        return right(observation, scale, replace(policy, budget=replace(policy.budget, max_replicas_total=10_000)))

    return grows


def _without_newest(right: Any) -> Any:
    return lambda self, epoch, at_s: right(replace(self, newest=2**53), epoch, at_s)


def _of_anything(right: Any) -> Any:
    def found(scene: Any, of: Any) -> Any:
        seen = scene.observation
        return residency.unloads(replace(of, expected={}), seen.replicas, seen.ledger, frozenset())

    return found


def _at_once(right: Any) -> Any:
    """Drains begin while the ring still names the replica."""
    return lambda observation, scale, going, acks, timeout_s: right(
        observation, scale, {n: replace(d, left_epoch=d.left_epoch or 1) for n, d in going.items()},
        replace(acks, routers=(), timeout_s=0.0), timeout_s,
    )  # fmt: skip


DEFECTS = {
    "the acknowledgement is not waited for": Defect(
        "_drains_wait_for_routers", WAITS, ((Acknowledgement, "of", _always(True)),)
    ),
    "a router that claims a future epoch is believed": Defect(
        "_truth_of_routers", (("second_router", 2, 310.0), *WAITS[1:]), ((Acknowledgement, "of", _without_newest),)
    ),
    "replicas are drained before the ring lets go of them": Defect(
        "_drains_wait_for_routers", WAITS, ((departures, "effects", _at_once),)
    ),
    "a group shrinks although requests are NaN": Defect(
        "_lies_shrink_nothing", (("metrics", 1, 310.0),),
        ((views, "_over_horizon", lambda right: lambda upper, seen: upper),),
    ),
    "a group shrinks although engines and routers contradict": Defect(
        "_lies_shrink_nothing", (("wait", 0, 310.0), ("metrics", 5, 15.0)), ((decide, "_contradicted", _always(False)),)
    ),
    "an epoch is one too low": Defect(
        "_epochs_only_grow", (("crash", 0, 15.0),), ((ring_step, "_floor", lambda right: lambda o, m: right(o, m) - 1),)
    ),
    "a lost ring begins anew": Defect(
        "_epochs_only_grow", (("ring_lost", 0, 15.0),),
        ((ring_step, "_floor", lambda right: lambda o, m: o.ring_epoch),),
    ),
    "an override is dropped": Defect("_overrides_hold", (("override", 0, 15.0),), ((plan, "tier_view", _dropped),)),
    "an override outlives its expiry": Defect(
        "_overrides_end", (("override", 0, 60.0),), ((plan, "tier_view", _endless),)
    ),
    "the budget of replicas is ignored": Defect(
        "_budget_holds", (("load", 4, 60.0), ("wait", 0, 60.0)),
        ((plan, "_grows", _unlimited), (decide, "within_total", lambda right: lambda claims, trails, most: trails)),
        most=4,
    ),
    "a draining replica is sent to": Defect(
        "_published_owners_serve", WAITS, ((publication.Membership, "_member", _active_while_draining),)
    ),
    "an owner is named before it has the adapter": Defect(
        "_published_owners_serve", (("load", 4, 60.0), ("loads", 1, 60.0), ("wait", 0, 60.0)),
        ((residency.Residency, "serves", _always(True)), (membership, "_prepared", _always(True))),
    ),
    "what is sent to a replica is unloaded there": Defect(
        "_unloads_are_out_of_the_ring", (("wait", 0, 15.0),), ((ring_step, "_unloads", _of_anything),)
    ),
    "a ring that cannot be read back is written over": Defect(
        "_doubt_never_shrinks", (("silence_publisher", 0, 15.0), ("crash", 0, 15.0)),
        ((ring_step, "_readable", _always(True)),),
    ),
    "the plan depends on more than its input": Defect(
        "step", (("wait", 0, 15.0),), ((plan, "_digest", lambda right: lambda *args: str(next(_count))),)
    ),
}  # fmt: skip


def _with_budget(most: int) -> FaultyWorld:
    world = started()
    world.policy = replace(world.policy, budget=replace(world.policy.budget, max_replicas_total=most))
    return world


@pytest.mark.parametrize("name", DEFECTS)
def test_a_promise_catches_the_defect(name: str, monkeypatch: pytest.MonkeyPatch):
    defect = DEFECTS[name]
    started()
    if defect.most is not None:
        monkeypatch.setattr(schedules, "started", lambda: _with_budget(defect.most or 0))
    assert failure(defect.schedule, run) == "", "as it is, the planner keeps every promise"
    for where, attribute, patch in defect.patches:
        monkeypatch.setattr(where, attribute, patch(getattr(where, attribute)))
    assert f" in {defect.caught_by}:" in failure(defect.schedule, run)
