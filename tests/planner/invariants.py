"""What holds after every tick, whatever happened: the promises that users rely on."""

from __future__ import annotations

from autoscaler.domain.decisions import Drain, PublishRing, Shrink
from autoscaler.domain.fleet import ReplicaState
from autoscaler.planner import FleetPlan
from autoscaler.ring import MemberState, Ring, decode
from tests.planner.world import World


def check(world: World, plan: FleetPlan, epoch_before: int) -> None:
    """Assert all of them about one tick's plan, before its effects are done."""
    _epochs_only_grow(plan, epoch_before)
    _published_owners_serve(world, plan)
    _every_warm_adapter_has_an_owner(world, plan)
    _budget_holds(world, plan)
    _drains_wait_for_routers(world, plan)


def _epochs_only_grow(plan: FleetPlan, before: int) -> None:
    for effect in plan.effects:
        if isinstance(effect, PublishRing):
            assert effect.epoch > before
            assert decode(effect.body).epoch == effect.epoch


def _published_owners_serve(world: World, plan: FleetPlan) -> None:
    """An owner that a new snapshot names lives, is ready, and has the adapter registered, unless nobody has."""
    for effect in plan.effects:
        if not isinstance(effect, PublishRing):
            continue
        ring = Ring(decode(effect.body))
        names = ring.snapshot.warm or ()
        serving = {r.id: r for r in world.replicas.values() if r.state is ReplicaState.READY}
        for member in ring.snapshot.members:
            assert member.state is not MemberState.ACTIVE or member.replica in serving, f"{member} does not serve"
        for adapter, owners in zip(names, ring.owners_many(names), strict=True):
            holders = [r for r in serving.values() if adapter in (r.registered or ())]
            named = [m.replica for m in owners.members]
            lacking = [name for name in named if adapter not in (serving[name].registered or ())]
            waited_s = world.now_s - min((serving[name].started_at_s for name in lacking), default=world.now_s)
            late = waited_s >= world.policy.ring.residency_deadline_s
            slots_named = [r for r in holders if any(m.replica == r.id for m in ring.snapshot.members)]
            assert not lacking or late or not slots_named, f"{adapter} is sent to {lacking}, which lack it"


def _every_warm_adapter_has_an_owner(world: World, plan: FleetPlan) -> None:
    snapshot = plan.ring.snapshot
    if snapshot is None or not any(m.state is MemberState.ACTIVE for m in snapshot.members):
        return
    names = snapshot.warm or ()
    for adapter, owners in zip(names, Ring(snapshot).owners_many(names), strict=True):
        assert owners.members, f"{adapter} has no owner although a replica lives"


def _budget_holds(world: World, plan: FleetPlan) -> None:
    growth = sum(e.replicas - _current(world, e.group) for e in plan.effects if type(e).__name__ == "Grow")
    most = world.policy.budget.max_replicas_total
    assert growth <= 0 or len(world.replicas) + growth <= most


def _current(world: World, group: str) -> int:
    return world.groups[group].current_replicas if group in world.groups else 0


def _drains_wait_for_routers(world: World, plan: FleetPlan) -> None:
    """Whoever drains or goes is in no snapshot that a router still applies."""
    going = {e.replica for e in plan.effects if isinstance(e, Drain)}
    going |= {v for e in plan.effects if isinstance(e, Shrink) for v in e.victims}
    for name in going:
        departure = plan.ring.departures[name]
        serves = world.replicas[name].state in (ReplicaState.READY, ReplicaState.DRAINING)
        assert not serves or (departure.left_epoch and world.router_epoch >= departure.left_epoch), name
