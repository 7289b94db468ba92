"""One tick of the ring: what it should be, what it may be now, and the effects that lead from one to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autoscaler.domain.decisions import (
    AssignSlot,
    Condition,
    Effect,
    OpenGate,
    PublishRing,
    Reason,
    Step,
    Trail,
    UnloadAdapter,
)
from autoscaler.domain.fleet import ReplicaState, Tier
from autoscaler.domain.observation import Observation
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.planner import departures as departing
from autoscaler.planner.acknowledgement import Acknowledgement
from autoscaler.planner.demand import Demand
from autoscaler.planner.departures import Departure
from autoscaler.planner.homes import Home
from autoscaler.planner.membership import advance_slots
from autoscaler.planner.memory import RingMemory
from autoscaler.planner.placing import Placed, expected_residents, place_adapters, stand_ins
from autoscaler.planner.publication import Membership, compose, keep_placement, stamped
from autoscaler.planner.residency import Residency, compare, final, loads, unloads
from autoscaler.planner.scene import Scene
from autoscaler.planner.views import WARM_GROUP
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import (
    Fairness,
    MemberState,
    Placement,
    Ring,
    RingSnapshot,
    Slot,
    SlotEvent,
    SlotState,
    SlotTable,
    SnapshotError,
    decode,
    encode,
)
from autoscaler.scaling import ScalePlan
from autoscaler.tiering import TierPlan

_REASON_OF = {
    SlotEvent.JOINED: Reason.MEMBER_JOINED,
    SlotEvent.REPLACED: Reason.MEMBER_REPLACED,
    SlotEvent.RETURNED: Reason.MEMBER_JOINED,
    SlotEvent.VACATED: Reason.MEMBER_LEFT,
    SlotEvent.DRAINING: Reason.MEMBER_LEFT,
    SlotEvent.LEFT: Reason.MEMBER_LEFT,
}

# At one epoch a tick of 15 s: half a year of them. A router that claims more is not believed.
_MOST_EPOCHS_LOST = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class RingPlan:
    """One tick of the ring.

    Attributes:
        epoch: of the snapshot that should be in force, 0 before the first.
        snapshot: it; None before there is a member.
        placement: over the slots that are and will be, and what it moved within the churn budget.
        slots: every slot and who holds it.
        residency: what replicas should hold, and lack.
        departures: replicas on their way out.
        trail: what changed and why; one step NothingToDo where nothing did.
    """

    epoch: int
    snapshot: RingSnapshot | None
    placed: Placed
    slots: SlotTable
    residency: Residency
    departures: Mapping[str, Departure]
    trail: Trail
    effects: tuple[Effect, ...] = ()
    conditions: tuple[Condition, ...] = ()
    published: bool = field(default=False)

    @property
    def placement(self) -> Placement:
        """Over the slots that are and will be."""
        return self.placed.placement


def plan_ring(
    observation: Observation,
    policy: FleetPolicy,
    demand: Demand,
    tiers: TierPlan,
    scale: ScalePlan,
    before: RingMemory,
    fairness: Fairness | None,
    homes: Mapping[str, Home],
) -> tuple[RingPlan, RingMemory]:
    """Decide slots, placement, snapshot, and the effects that lead there.

    Args:
        before: memory of the last tick, with what is published now (`as_published`).
        fairness: the bound that the snapshot should carry.
        homes: hot groups, and whether they or the ring should serve their tenants.
    """
    published, published_at_s = before.published, before.published_at_s
    going = departing.back_on_ring(before.departures, _active(published))
    departures = departing.choose(observation, scale, going, before.placement, before.slots)
    warm = tuple(r for r in observation.replicas if r.group == WARM_GROUP)
    scene = Scene(observation, policy, demand, tiers, scale, before, departures, warm, homes)
    slots, events, joining = advance_slots(scene)
    placed = place_adapters(scene, slots)
    instead = stand_ins(scene, slots, placed.placement)
    expected = expected_residents(scene, slots, placed.placement, instead)
    residency = replace(
        compare(expected, observation.replicas, observation.ledger, observation.catalogue), instead=instead
    )
    membership = Membership({r.id: r for r in observation.replicas}, slots, departures, residency)
    readable = _readable(observation)
    # What cannot be read back cannot be followed by anything: nothing is published, and nobody drains, until it can.
    snapshot = _snapshot(scene, membership, placed) if readable else published
    if readable and snapshot is not None:
        snapshot = replace(snapshot, fairness=fairness)
    changed = snapshot is not None and snapshot != published
    epoch, body = _epoch(published), before.body
    if changed and snapshot is not None:
        epoch, published_at_s = _floor(observation, before) + 1, scene.now_s
        snapshot = stamped(snapshot, epoch, scene.now_s)
        body = encode(snapshot)
    departures = departing.left(departures, _out_of(snapshot, departures), epoch, scene.now_s)
    newest = max(observation.ring_epoch, _epoch(before.published))
    acks = Acknowledgement(observation.routers, policy.ring.ack_timeout_s, scene.now_s, newest)
    lag = acks.lag(epoch, published_at_s)
    plan = RingPlan(
        epoch=epoch,
        snapshot=snapshot,
        placed=placed,
        slots=slots,
        residency=residency,
        departures=departures,
        trail=_trail(scene, events, placed, joining, snapshot if changed else None),
        effects=(
            *_assignments(scene, slots),
            *_loads(scene, slots, residency),
            *_gates(scene, residency, joining),
            *([PublishRing(epoch, body)] if changed and body is not None else []),
            *(departing.effects(observation, scale, departures, acks, policy.ring.drain_timeout_s) if readable else ()),
            *(_unloads(scene, residency) if readable and acks.of(epoch, published_at_s) and not changed else ()),
        ),
        conditions=(*([lag] if lag else []), *_bounded(snapshot), *_load_failures(observation, residency)),
        published=changed,
    )
    unseen = observation.freshness.get("replicas")
    if isinstance(unseen, Missing):
        return _held(plan, published, unseen.why), before
    return plan, replace(
        before, body=body, placement=placed.placement, saved=None, choice=placed.choice, slots=slots,
        published=snapshot, published_at_s=published_at_s, epoch_floor=max(_floor(observation, before), epoch),
        expected=expected, joining_since_s=joining,
        departures=departures, budget=placed.budget, budget_at_s=scene.now_s,
    )  # fmt: skip


def _held(plan: RingPlan, published: RingSnapshot | None, why: str) -> RingPlan:
    """The ring as it is published: a platform that does not answer has not lost its replicas."""
    step = Step(Reason.SIGNALS_MISSING, _epoch(published), f"{why}: the published ring stands, and nothing is done")
    return replace(plan, epoch=_epoch(published), snapshot=published, trail=(step,), effects=(), published=False)


def _epoch(snapshot: RingSnapshot | None) -> int:
    return 0 if snapshot is None else snapshot.epoch


def _floor(observation: Observation, memory: RingMemory) -> int:
    """The highest epoch that anybody has: a router takes none that is lower than its own, wherever ours was lost."""
    known = max(observation.ring_epoch, _epoch(memory.published), memory.epoch_floor)
    claims = [r.epoch for r in observation.routers if r.epoch <= known + _MOST_EPOCHS_LOST]
    return max([known, *claims])


def _readable(observation: Observation) -> bool:
    return isinstance(observation.freshness.get("publisher", Fresh(0.0)), Fresh)


def as_published(observation: Observation, memory: RingMemory) -> RingMemory:
    """The memory with what is published, as it was read back.

    A write that failed, another leader's ring (which may bear the same epoch), or one from before a restart is taken
    as it is: its slots and its exceptions are adopted, so that a controller that lost its memory moves nothing.
    """
    known = memory.published
    same_epoch = _epoch(known) == observation.ring_epoch
    if not _readable(observation) or (same_epoch and memory.body == observation.ring_body):
        return memory
    try:
        found = None if observation.ring_body is None else decode(observation.ring_body)
    except SnapshotError:
        found = None
    if found is None:
        return replace(memory, published=None, body=None, published_at_s=0.0)
    if found == known:
        return replace(memory, body=observation.ring_body)
    now_s = observation.now_s
    slots = tuple(Slot(m.slot, SlotState(m.state.value), m.replica, now_s) for m in found.members)
    ranked = {m.slot for m in found.members if m.state is not MemberState.DRAINING}
    exceptions = {a: [s for s in held if s in ranked] for a, held in found.exceptions.items()}
    as_found = {"replication": found.replication_factor, "slots": sorted(ranked), "exceptions": exceptions}
    return replace(
        memory,
        published=found,
        body=observation.ring_body,
        published_at_s=now_s,
        choice=found.choice,
        slots=SlotTable(tuple(sorted(slots, key=lambda slot: slot.slot.encode()))),
        placement=None,
        saved=as_found,
    )


def _snapshot(scene: Scene, membership: Membership, placed: Placed) -> RingSnapshot | None:
    """What routers should have now: the new placement, unless replicas still prepare for it; None without a member."""
    before, slots = scene.before.published, membership.slots
    if set(placed.placement.ranking.slots) != set(slots.ranked()):
        return None if before is None else keep_placement(scene, membership, placed, before)
    if before is None and not any(s.state is SlotState.ACTIVE for s in slots.slots):
        return None
    return compose(scene, membership, placed, before)


def _out_of(snapshot: RingSnapshot | None, departures: Mapping[str, Departure]) -> frozenset[str]:
    """Departing replicas that the snapshot does not name as active."""
    return frozenset(departures) - _active(snapshot)


def _active(snapshot: RingSnapshot | None) -> frozenset[str]:
    """Replicas that routers send to by this snapshot."""
    if snapshot is None:
        return frozenset()
    groups = (snapshot.members, snapshot.cold or (), *(group.members for group in snapshot.hot.values()))
    return frozenset(m.replica for members in groups for m in members if m.state is MemberState.ACTIVE)


def _assignments(scene: Scene, slots: SlotTable) -> Iterable[Effect]:
    labels = {r.id: r.slot for r in scene.warm}
    for slot in slots.slots:
        for name in (slot.replica, slot.heir):
            if name in labels and labels[name] != slot.slot:
                yield AssignSlot(name, slot.slot)


def _loads(scene: Scene, slots: SlotTable, residency: Residency) -> Iterable[Effect]:
    """Missing adapters. Those of members that routers send to already are urgent."""
    serving = {s.replica for s in slots.slots if s.state is SlotState.ACTIVE}
    names = {r.id for r in scene.observation.replicas if r.id not in scene.departures}
    reasons = {name: Reason.REBALANCED if name in serving else Reason.MEMBER_JOINED for name in names}
    urgent = {name: residency.lacks[name].waited for name in serving if name in residency.lacks}
    replicas = [r for r in scene.observation.replicas if r.id in names]
    return loads(
        residency, replicas, scene.observation.ledger, scene.observation.catalogue, reasons, urgent, scene.now_s
    )


def _gates(scene: Scene, residency: Residency, joining: Mapping[str, float]) -> Iterable[Effect]:
    """Gates of replicas whose adapters are resident, or whose deadline is over."""
    for replica in scene.observation.replicas:
        if not replica.gated or replica.state is not ReplicaState.READY:
            continue
        waited_s = scene.now_s - joining.get(replica.id, scene.now_s)
        late = waited_s >= scene.policy.ring.residency_deadline_s
        resident = replica.id in residency.expected and residency.complete(replica.id)
        if resident or late:
            yield OpenGate(replica.id, resident)


def _unloads(scene: Scene, residency: Residency) -> Iterable[UnloadAdapter]:
    """Adapters that belong elsewhere by now. Cold ones may be asked for anywhere, and stay until they are evicted."""
    if scene.before.published is None:
        return ()
    catalogue = scene.observation.catalogue
    cold = scene.tiers.of(Tier.COLD)[catalogue.tenant_index]
    kept = frozenset(catalogue.ids[row] for row in cold.nonzero()[0].tolist())
    ring = Ring(scene.before.published)
    slot_of = {m.replica: m.slot for m in scene.before.published.members}
    found = unloads(residency, scene.observation.replicas, scene.observation.ledger, kept)
    assigned = ring.assigned_many([e.adapter for e in found])
    return tuple(e for e, slots in zip(found, assigned, strict=True) if slot_of.get(e.replica) not in slots)


def _bounded(snapshot: RingSnapshot | None) -> Iterable[Condition]:
    """`TenantsBounded` while routers refuse what is beyond a tenant's bound."""
    if snapshot is not None and snapshot.fairness is not None:
        most = snapshot.fairness.max_in_flight
        text = f"the warm group is full and may not grow: routers answer 429 beyond {most} requests in flight a tenant"
        yield Condition("TenantsBounded", text)


def _load_failures(observation: Observation, residency: Residency) -> Iterable[Condition]:
    """`AdapterFailed/<id>`, in the engine's own words, where replicas were given up for what they should hold."""
    on: dict[str, list[str]] = {}
    for name, lack in sorted(residency.lacks.items()):
        for adapter in lack.hopeless:
            on.setdefault(adapter, []).append(name)
    for adapter, names in sorted(on.items()):
        failure = observation.ledger.failed[names[0]][adapter]
        again = "not again until its source or revision changes" if final(failure) else "again every few minutes"
        text = f"{', '.join(names[:5])} cannot load {adapter} (attempts: {failure.attempts}, {again}): {failure.error}"
        yield Condition(f"AdapterFailed/{adapter}", text)


def _trail(
    scene: Scene,
    events: Iterable[tuple[str, SlotEvent]],
    placed: Placed,
    joining: Mapping[str, float],
    changed: RingSnapshot | None,
) -> Trail:
    steps = [Step(_REASON_OF[event], slot, f"slot {slot}: {event.value.lower()}") for slot, event in events]
    before = scene.before.placement
    if before is not None and before.replication != placed.placement.replication:
        change = f"owners per adapter {before.replication} -> {placed.placement.replication}"
        steps.append(Step(Reason.REPLICATION_CHANGED, placed.placement.replication, change))
    if placed.moves:
        text = f"moves: {placed.moves}, weighing {placed.cost:.1f}; {placed.budget:.0f} left in the churn budget"
        steps.append(Step(Reason.REBALANCED, placed.moves, text))
    if placed.deferred:
        text = f"adapters that wait for the churn budget: {len(placed.deferred)} ({placed.budget:.1f} left)"
        steps.append(Step(Reason.CHURN_BUDGET, len(placed.deferred), text))
    waiting = sorted(joining)
    if waiting:
        text = f"replicas that load their adapters before they join: {len(waiting)} ({', '.join(waiting[:5])})"
        steps.append(Step(Reason.AWAITING_RESIDENCY, len(waiting), text))
    bound, published = None if changed is None else changed.fairness, scene.before.published
    if changed is not None and bound != (None if published is None else published.fairness):
        most = "bound off" if bound is None else bound.max_in_flight
        text = f"requests in flight that a tenant may have through one router: {most}"
        steps.append(Step(Reason.TENANTS_BOUNDED, most, text))
    if changed is not None and not steps:
        steps.append(
            Step(Reason.TIERS_CHANGED, changed.epoch, "tiers, groups or the catalogue changed what routers may name")
        )
    return tuple(steps) or (Step(Reason.NOTHING_TO_DO, _epoch(scene.before.published), "members and placement stand"),)
