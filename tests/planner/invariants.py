"""What holds after every tick, whatever happened: the promises that users rely on."""

from __future__ import annotations

from autoscaler.domain.decisions import Drain, PublishRing, Reason, Shrink, UnloadAdapter
from autoscaler.domain.fleet import ReplicaState
from autoscaler.domain.observation import Observation
from autoscaler.domain.signals import Fresh
from autoscaler.planner import FleetPlan
from autoscaler.ring import MemberState, Ring, decode
from tests.planner.world import World

# Fewer replicas for these are the operator's own word, not a conclusion from load.
TOLD = frozenset({Reason.BOUNDS, Reason.SCHEDULE, Reason.BUDGET, Reason.GROUP_NOT_NEEDED})


def check(world: World, plan: FleetPlan, epoch_before: int, seen: Observation | None = None) -> None:
    """Assert all of them about one tick's plan, before its effects are done. `seen`: what it was made from."""
    _epochs_only_grow(plan, epoch_before)
    _published_owners_serve(world, plan, seen)
    _every_warm_adapter_has_an_owner(world, plan)
    _budget_holds(world, plan)
    _drains_wait_for_routers(world, plan, seen or world.observe())
    _unloads_are_out_of_the_ring(world, plan)
    _overrides_end(world, plan)
    if seen is not None:
        _doubt_never_shrinks(plan, seen)
        _counts_are_in_bounds(world, plan)
        _host_memory_holds(world, plan, seen)


def _epochs_only_grow(plan: FleetPlan, before: int) -> None:
    for effect in plan.effects:
        if isinstance(effect, PublishRing):
            assert effect.epoch > before
            assert decode(effect.body).epoch == effect.epoch


def _published_owners_serve(world: World, plan: FleetPlan, seen: Observation | None) -> None:
    """An owner that a new snapshot names lives, is ready, and has the adapter registered, unless nobody says so."""
    sightings = world.replicas if seen is None else {r.id: r for r in seen.replicas}
    for effect in plan.effects:
        if not isinstance(effect, PublishRing):
            continue
        ring = Ring(decode(effect.body))
        names = ring.snapshot.warm or ()
        serving = {r.id: r for r in world.replicas.values() if r.state is ReplicaState.READY}
        for member in ring.snapshot.members:
            assert member.state is not MemberState.ACTIVE or member.replica in serving, f"{member} does not serve"
        for adapter, owners in zip(names, ring.owners_many(names), strict=True):
            holders = [r for r in sightings.values() if r.id in serving and adapter in (r.registered or ())]
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


def _drains_wait_for_routers(world: World, plan: FleetPlan, seen: Observation) -> None:
    """Whoever drains or goes is in no snapshot that is published, or that a router still applies."""
    going = {e.replica for e in plan.effects if isinstance(e, Drain)}
    going |= {v for e in plan.effects if isinstance(e, Shrink) for v in e.victims}
    published = () if world.ring is None else decode(world.ring[1]).members
    named = {m.replica for m in published if m.state is MemberState.ACTIVE}
    for name in going:
        departure = plan.ring.departures[name]
        serves = world.replicas[name].state in (ReplicaState.READY, ReplicaState.DRAINING)
        heard = all(r.epoch >= departure.left_epoch for r in seen.routers)
        assert not serves or (departure.left_epoch and heard), name
        assert not serves or name not in named, f"{name} goes although the published ring names it"


def _unloads_are_out_of_the_ring(world: World, plan: FleetPlan) -> None:
    """No adapter is unloaded from a replica that the published ring sends it to."""
    effects = [e for e in plan.effects if isinstance(e, UnloadAdapter)]
    if not effects or world.ring is None:
        return
    ring = Ring(decode(world.ring[1]))
    for effect in effects:
        if effect.adapter in (ring.snapshot.warm or ()):
            named = {m.replica for m in ring.owners(effect.adapter).members}
            assert effect.replica not in named, f"{effect} although it is sent there"


def _overrides_end(world: World, plan: FleetPlan) -> None:
    live = {o.tenant for o in world.overrides if o.expires_at_s > world.now_s}
    for tenant in {o.tenant for o in world.overrides} & set(plan.tiers.ids):
        decision = plan.tiers.explain(tenant)
        assert tenant in live or decision.reason is not Reason.OVERRIDE, f"{tenant}: the override outlives its expiry"


def _doubt_never_shrinks(plan: FleetPlan, seen: Observation) -> None:
    """No scale-in while traffic, engines or the platform are not heard; engines only if routers saw requests."""
    dark = {name for name, signal in seen.freshness.items() if not isinstance(signal, Fresh)}
    for decision in plan.scale.decisions.values():
        if decision.desired >= decision.current or decision.reason in TOLD:
            continue
        assert "traffic" not in dark, decision
        assert "engines" not in dark or decision.reason is Reason.IDLE, decision
    if "replicas" in dark:
        assert plan.effects == ()
    if "publisher" in dark:
        assert not any(isinstance(e, Drain | Shrink | PublishRing | UnloadAdapter) for e in plan.effects)


def _counts_are_in_bounds(world: World, plan: FleetPlan) -> None:
    warm, bounds = plan.scale.decisions.get("warm"), world.policy.groups.warm
    if warm is not None and not {s.reason for s in warm.trail} & {Reason.PAUSED, Reason.BUDGET, Reason.BLOCKED}:
        assert bounds.min_replicas <= warm.desired <= bounds.max_replicas, warm


def _host_memory_holds(world: World, plan: FleetPlan, seen: Observation) -> None:
    """What is loaded into a replica fits its host memory, unless it has to know more names than that."""
    for replica in seen.replicas:
        if len(plan.ring.residency.expected.get(replica.id, ())) > replica.limits.max_cpu_loras:
            continue
        ours = set(seen.ledger.loaded.get(replica.id, {})) & (replica.registered or frozenset())
        more = {e.adapter for e in plan.effects if type(e).__name__ == "LoadAdapter" and e.replica == replica.id}
        most = replica.limits.max_cpu_loras
        assert not more or len(ours | more) <= most, f"{replica.id}: {len(ours | more)} adapters in {most} places"
