"""Who is on the ring: which replicas serve what they should, which prepare, which may leave."""

from __future__ import annotations

from autoscaler.domain.fleet import ReplicaState
from autoscaler.planner.residency import Residency, compare
from autoscaler.planner.scene import Scene
from autoscaler.ring import SeenReplica, SlotEvent, SlotState, SlotTable, advance

_ANSWERS = frozenset({ReplicaState.READY, ReplicaState.DRAINING})


def advance_slots(scene: Scene) -> tuple[SlotTable, tuple[tuple[str, SlotEvent], ...], dict[str, float]]:
    """Slots after this tick, what became of them, and since when each replica prepares to join."""
    lacks = compare(scene.before.expected, scene.warm, scene.observation.ledger, scene.observation.catalogue)
    joining = _joining(scene)
    seen = _seen(scene, lacks, joining)
    slots, events = advance(
        scene.before.slots, seen, now_s=scene.now_s, slot_grace_s=scene.policy.ring.slot_grace_s,
        drain=_may_leave(scene, lacks),
    )  # fmt: skip
    return slots, events, joining


def _joining(scene: Scene) -> dict[str, float]:
    """Replicas that answer and do not hold an active slot, nor handed theirs over: replica id -> since when."""
    since, held = scene.before.joining_since_s, _on_ring(scene) | scene.departures.keys()
    held |= set(scene.before.slots.displaced)
    return {r.id: since.get(r.id, scene.now_s) for r in scene.warm if r.state in _ANSWERS and r.id not in held}


def _on_ring(scene: Scene) -> set[str]:
    """Replicas that hold an active or draining slot."""
    on_ring = (SlotState.ACTIVE, SlotState.DRAINING)
    return {s.replica for s in scene.before.slots.slots if s.state in on_ring}


def _seen(scene: Scene, lacks: Residency, joining: dict[str, float]) -> list[SeenReplica]:
    """The warm group as the slots see it.

    A replica serves once it answers and what it should hold (as of the last tick) is resident, or its deadline is
    over. Replicas for new slots join together, so that a scale-out of three is one epoch.
    """
    prepared = {name: _prepared(scene, lacks, name, since_s) for name, since_s in joining.items()}
    newcomers = {
        name for name in joining if (s := scene.before.slots.slot_of(name)) is None or s.state is SlotState.PENDING
    }
    together = all(prepared[name] for name in newcomers)
    seen, on_ring = [], _on_ring(scene)
    for replica in scene.warm:
        ours = replica.id in scene.departures
        if ours and replica.id not in on_ring:
            # Whoever is to go before it has joined does not join on its way out.
            seen.append(SeenReplica(replica.id, False, True, replica.replaces, replica.slot or ""))
            continue
        serving = replica.state is ReplicaState.READY or (replica.state is ReplicaState.DRAINING and ours)
        if replica.id in joining:
            serving = serving and prepared[replica.id] and (together or replica.id not in newcomers)
        leaving = replica.state is ReplicaState.DRAINING and not ours
        seen.append(SeenReplica(replica.id, serving, leaving, replica.replaces, replica.slot or ""))
    return seen


def _prepared(scene: Scene, lacks: Residency, name: str, since_s: float) -> bool:
    late = scene.now_s - since_s >= scene.policy.ring.residency_deadline_s
    return late or (name in scene.before.expected and lacks.complete(name))


def _may_leave(scene: Scene, lacks: Residency) -> tuple[str, ...]:
    """Slots of departing replicas whose adapters are resident elsewhere, or for which time is up."""
    before = scene.before
    staying = [r.id for r in scene.warm if r.id not in scene.departures and r.id in before.expected]
    safe = all(lacks.complete(name) for name in staying)
    slots = []
    for name, departure in scene.departures.items():
        held = before.slots.slot_of(name)
        if held is None:
            continue
        # The tick that chose it placed its adapters elsewhere; only the next one can have seen them there.
        foreseen = name in before.departures and safe
        overdue = scene.now_s - departure.since_s >= scene.policy.ring.residency_deadline_s
        if held.state is SlotState.DRAINING or foreseen or overdue:
            slots.append(held.slot)
    return tuple(slots)
