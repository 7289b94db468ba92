"""Replicas on their way out: chosen by what their removal moves, gone only after routers let go of them.

chosen -> out of the published ring -> acknowledged by routers -> draining -> idle (or the drain's deadline) -> gone.
A departure is taken back as long as its replica still exists and is needed after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoscaler.domain.decisions import Drain, Effect, Shrink, Undrain
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.observation import Observation
from autoscaler.domain.signals import Fresh
from autoscaler.planner.acknowledgement import Acknowledgement
from autoscaler.planner.views import WARM_GROUP
from autoscaler.ring import Placement, SlotTable
from autoscaler.scaling import ScalePlan

_SERVES_NOBODY = frozenset({ReplicaState.PENDING, ReplicaState.FAILED, ReplicaState.STARTING})


@dataclass(frozen=True, slots=True)
class Departure:
    """One replica's way out.

    Attributes:
        group: whose replica it is.
        since_s: when it was chosen.
        left_epoch: the epoch that took it out of the ring, 0 before.
        left_at_s: when that epoch was planned.
        drained_since_s: when it was first seen draining, 0 before.
    """

    group: str
    since_s: float
    left_epoch: int = 0
    left_at_s: float = 0.0
    drained_since_s: float = 0.0


Departures = Mapping[str, Departure]


def choose(
    observation: Observation, scale: ScalePlan, before: Departures, placement: Placement | None, slots: SlotTable
) -> dict[str, Departure]:
    """Who leaves, after this tick's scale decisions: those already on their way and still not needed, then more."""
    chosen: dict[str, Departure] = {}
    placed_load = _placed_loads(placement, slots)
    by_group: dict[str, list[Replica]] = {}
    for replica in observation.replicas:
        by_group.setdefault(replica.group, []).append(replica)
    for group, members in by_group.items():
        decision = scale.decisions.get(group)
        leaving = {r.id: before[r.id] for r in members if r.id in before}
        if group in scale.remove:
            fresh = {r.id: Departure(group, observation.now_s) for r in members if r.id not in leaving}
            chosen |= leaving | fresh
        elif decision is not None:
            surplus = max(len(members) - decision.desired, 0)
            kept = sorted(leaving, key=lambda name: (leaving[name].since_s, name))[:surplus]
            wanted = decision.current - decision.desired - len(kept)
            staying = [r for r in members if r.id not in kept]
            order = sorted(staying, key=lambda r: _removal_cost(r, placed_load))
            chosen |= {name: leaving[name] for name in kept}
            chosen |= {r.id: Departure(group, observation.now_s) for r in order[: max(wanted, 0)]}
        else:
            chosen |= leaving
    return {name: _seen_draining(departure, observation, name) for name, departure in chosen.items()}


def _removal_cost(replica: Replica, placed_load: Mapping[str, float]) -> tuple[int, float, float, str]:
    """Least first: replicas that serve nobody, then least placed load; elsewhere least in flight, youngest first."""
    serves = 0 if replica.state in _SERVES_NOBODY else 1
    in_flight = replica.in_flight.value if isinstance(replica.in_flight, Fresh) else 0.0
    load = placed_load.get(replica.id, 0.0) if replica.group == WARM_GROUP else in_flight
    return serves, load, -replica.started_at_s, replica.id


def _placed_loads(placement: Placement | None, slots: SlotTable) -> dict[str, float]:
    """Replica id -> load that is placed on its slot."""
    if placement is None:
        return {}
    loads = dict(zip(placement.ranking.slots, placement.slot_loads.tolist(), strict=True))
    return {name: loads.get(s.slot, 0.0) for s in slots.slots for name in (s.replica, s.heir) if name}


def _seen_draining(departure: Departure, observation: Observation, name: str) -> Departure:
    draining = any(r.id == name and r.state is ReplicaState.DRAINING for r in observation.replicas)
    return (
        replace(departure, drained_since_s=observation.now_s)
        if draining and not departure.drained_since_s
        else departure
    )


def back_on_ring(departures: Departures, active: frozenset[str]) -> Departures:
    """Departures with those that the published ring still names as not out of it: that epoch never came to be."""
    return {name: replace(d, left_epoch=0) if name in active else d for name, d in departures.items()}


def left(departures: Departures, names: frozenset[str], epoch: int, now_s: float) -> dict[str, Departure]:
    """`names` are out of the snapshot with `epoch`; those that were out before keep their epoch."""
    return {
        name: replace(d, left_epoch=epoch, left_at_s=now_s) if name in names and not d.left_epoch else d
        for name, d in departures.items()
    }


def effects(
    observation: Observation, scale: ScalePlan, departures: Departures, acks: Acknowledgement, drain_timeout_s: float
) -> tuple[Effect, ...]:
    """Drains of those that routers let go of, one shrink a group of those that are idle, and drains taken back."""
    by_id = {r.id: r for r in observation.replicas}
    drains: list[Drain] = []
    gone: dict[str, list[str]] = {}
    for name, departure in sorted(departures.items()):
        replica = by_id[name]
        if replica.state in _SERVES_NOBODY:
            gone.setdefault(departure.group, []).append(name)
        elif not departure.left_epoch or not acks.of(departure.left_epoch, departure.left_at_s):
            continue
        elif replica.state is not ReplicaState.DRAINING:
            drains.append(Drain(name))
        elif _idle(replica) or observation.now_s - departure.drained_since_s >= drain_timeout_s:
            gone.setdefault(departure.group, []).append(name)
    # Also what a controller that has lost its memory finds marked.
    back = (Undrain(r.id) for r in observation.replicas if r.recallable and r.id not in departures)
    return (*drains, *back, *_shrinks(observation, scale, gone))


def _idle(replica: Replica) -> bool:
    """No request in flight, by the router's count or by the engine's own; unknown is not idle."""
    if isinstance(replica.in_flight, Fresh) and replica.in_flight.value > 0:
        return False
    running, waiting = replica.signals.running, replica.signals.waiting
    return isinstance(running, Fresh) and isinstance(waiting, Fresh) and running.value + waiting.value == 0


def _shrinks(observation: Observation, scale: ScalePlan, gone: Mapping[str, list[str]]) -> list[Shrink]:
    shrinks = []
    for name, group in sorted(observation.groups.items()):
        victims = tuple(gone.get(name, ()))
        alive = sum(r.group == name for r in observation.replicas)
        remove = name in scale.remove and len(victims) == alive
        # Where replicas are fewer than the spec (already shrunk, still terminating), there is nothing left to lower.
        surplus = group.current_replicas - scale.decisions[name].desired if name in scale.decisions else 0
        if remove or (victims and surplus > 0):
            count = len(victims) if remove else min(len(victims), surplus)
            replicas = 0 if remove else group.current_replicas - count
            shrinks.append(Shrink(name, replicas, victims[:count], remove))
    return shrinks
