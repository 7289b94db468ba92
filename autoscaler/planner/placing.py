"""Placement over the slots that are and will be, within the churn budget, and what each replica should hold by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.fleet import Replica, ReplicaState, Tier
from autoscaler.domain.observation import Bools, Floats
from autoscaler.domain.signals import Fresh
from autoscaler.planner.residency import adapters_of, given_up
from autoscaler.planner.scene import Scene
from autoscaler.planner.views import COLD_GROUP, WARM_GROUP
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Overflow
from autoscaler.ring import (
    Choice,
    Limits,
    Placement,
    SlotState,
    SlotTable,
    decide_choice,
    held_by_slot,
    held_shares,
    place,
    resolve_replication,
    restore,
    within_budget,
)

_HOST_FILL = 0.9  # of the host's adapters, as ring.md has it: the rest is for what arrives unasked
_SLOT_FILL = 0.9  # where all owners fit the adapter slots so far, no slot gets more than it can run without loads
_IDLE_SHARE = 0.02  # of what a replica carries
_MOST_STAND_INS = 2
_LEAST_HOURLY_MOVES = 100.0  # a small fleet may always rearrange itself


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A placement, and what it cost.

    Attributes:
        moves: pairs that appear; `cost` is their weight by load, `budget` what is left of it.
        deferred: adapters whose move waits for the budget.
    """

    placement: Placement
    choice: Choice
    moves: int = 0
    cost: float = 0.0
    deferred: tuple[str, ...] = ()
    budget: float = 0.0


def _listed(scene: Scene) -> Bools:
    """Which adapters are on the ring (A): warm and hot ones; cold ones too as long as nothing else serves them.

    Without a resolver a name answers 404 where it is not registered: a cold adapter leaves the ring once every cold
    replica that routers may be sent to has it.
    """
    catalogue = scene.observation.catalogue
    cold = scene.tiers.of(Tier.COLD)[catalogue.tenant_index]
    if scene.policy.engine.resolver or not cold.any():
        return ~cold
    known = [r.registered for r in scene.observation.replicas if r.group == COLD_GROUP and serves_cold(scene, r)]
    ids = np.asarray(catalogue.ids, object)[cold]
    elsewhere = [bool(known) and all(names is None or a in names for names in known) for a in ids.tolist()]
    listed = np.ones(len(catalogue.ids), np.bool_)
    listed[np.flatnonzero(cold)[np.asarray(elsewhere, np.bool_)]] = False
    return listed


def serves_cold(scene: Scene, replica: Replica) -> bool:
    """Whether a replica of the cold group has every adapter that is off the published ring and could be loaded."""
    if replica.state is not ReplicaState.READY or replica.id in scene.departures:
        return False
    if scene.policy.engine.resolver or replica.registered is None or scene.before.published is None:
        return True
    failed = scene.observation.ledger.failed.get(replica.id, {})
    hopeless = {adapter for adapter, failure in failed.items() if given_up(failure)}
    return _cold_adapters(scene) - frozenset(scene.before.published.warm or ()) <= replica.registered | hopeless


def place_adapters(scene: Scene, slots: SlotTable) -> Placed:
    """Place what is listed over every slot that is, or is about to be, on the ring."""
    policy, before, catalogue = scene.policy, scene.before, scene.observation.catalogue
    wanted = _wanted_slots(scene, slots)
    mask = _listed(scene)
    adapters = catalogue.ids if mask.all() else tuple(np.asarray(catalogue.ids, object)[mask].tolist())
    previous = before.placement
    if previous is None and before.saved is not None:
        previous = restore(before.saved, adapters)
    if previous is not None and previous.ranking.adapters == adapters:
        adapters = previous.ranking.adapters
    load = np.where(scene.dedicated(), 0.0, scene.demand.adapter_tokens_per_s)[mask]
    engine = scene.limits
    residents = max(math.floor(_HOST_FILL * engine.max_cpu_loras), 1)
    held = _held(load / scene.demand.tokens_per_request[catalogue.tenant_index][mask], scene)
    silent = policy.engine.resolver and not load.any()  # as after a start: who is in use is not known
    stays = previous.replication if previous is not None and silent else 0
    stays = stays if stays * len(adapters) <= residents * len(wanted) else 0
    replication = resolve_replication(
        policy.ring.replication or stays or "auto", load, len(wanted), held=held, max_loras=engine.max_loras,
        residents_per_slot=residents, previous=None if previous is None else previous.replication,
    )  # fmt: skip
    if replication * len(adapters) <= _SLOT_FILL * engine.max_loras * len(wanted):
        residents = min(residents, engine.max_loras)
    limits = Limits(residents, policy.ring.load_bound_ratio, quiet_load=_quiet_load(scene))
    choice = (before.choice if silent else None) or decide_choice(
        held, engine.max_loras, replication=replication, slots=len(wanted), previous=before.choice
    )
    wish = place(
        adapters, load, wanted, limits=limits, replication=replication, previous=previous, vacant=slots.vacant(),
        standbys=_standbys(policy),
    )  # fmt: skip
    budget = _budget(scene, int(wish.copies.sum()))
    if previous is None:
        return Placed(wish, choice, budget=budget)
    credit = _credit(previous, wish) + _credit_of_returning(wish, scene)
    # An overdraft does not eat what new slots bring; what they leave is not kept.
    kept = within_budget(previous, wish, limits, max(budget, 0.0) + credit if credit else budget)
    left = budget - max(kept.cost - credit, 0.0)
    return Placed(kept.placement, choice, len(kept.moves), kept.cost, kept.deferred, left)


def _held(requests_per_s: Floats, scene: Scene) -> Floats:
    """What part of an adapter slot each adapter needs: all of it where a name answers 404 unless it is registered."""
    if not scene.policy.engine.resolver:
        return np.ones(len(requests_per_s))
    return held_shares(requests_per_s, scene.before.choice)


def _quiet_load(scene: Scene) -> float:
    """Load of a slot, tokens/s, below which a fleet is idle: its one busy adapter is not copied to every slot then."""
    capacity = scene.scale.capacity.get(WARM_GROUP)
    if capacity is None or not isinstance(capacity.tokens_per_s, Fresh):
        return 0.0
    return _IDLE_SHARE * capacity.tokens_per_s.value


def _wanted_slots(scene: Scene, slots: SlotTable) -> tuple[str, ...]:
    ready = {r.id for r in scene.warm if r.state is ReplicaState.READY}
    return tuple(
        s.slot
        for s in slots.slots
        if s.replica not in scene.departures
        and (s.state in (SlotState.ACTIVE, SlotState.VACANT) or (s.state is SlotState.PENDING and s.replica in ready))
    )


def _credit(previous: Placement, wish: Placement) -> float:
    """Moves that come with slots that join or leave: each one's part of all pairs.

    Without them a replica that joins carries nothing, and one that is not needed stays, at a replica's price, for the
    sake of loads that take milliseconds. Worked numbers: the seventh of 7 slots for 700 pairs brings 100, and an hour's
    budget of 350 may long be spent.
    """
    before, after = set(previous.ranking.slots), set(wish.ranking.slots)
    joined, gone = len(after - before), len(before - after)
    return float(wish.copies.sum()) * (joined / max(len(after), 1) + gone / max(len(before), 1))


def _credit_of_returning(wish: Placement, scene: Scene) -> float:
    """What the owners of adapters that a hot group hands back may cost: waiting for them, it hands nothing back."""
    returning = np.flatnonzero(scene.returning()).tolist()
    rows = [
        wish.ranking.row_of[a] for i in returning if (a := scene.observation.catalogue.ids[i]) in wish.ranking.row_of
    ]
    total, pairs = float((wish.shares * wish.copies).sum()), float(wish.copies.sum())
    if not rows or total <= 0:
        return float(len(rows))
    return float((wish.copies[rows] * (0.5 + 0.5 * wish.shares[rows] * pairs / total)).sum())


def _budget(scene: Scene, pairs: int) -> float:
    """Moves that may be made now: a bucket that holds an hour's worth and fills evenly."""
    hourly = float(scene.policy.ring.moves_per_hour or max(pairs / 2, _LEAST_HOURLY_MOVES))
    if scene.before.budget is None:
        return hourly
    elapsed_s = max(scene.now_s - scene.before.budget_at_s, 0.0)
    return min(scene.before.budget + hourly * elapsed_s / 3600.0, hourly)


def stand_ins(scene: Scene, slots: SlotTable, placement: Placement) -> dict[str, tuple[str, ...]]:
    """Adapter -> slots that hold it in place of owners that were given up for it: the next ones in rank.

    At most `_MOST_STAND_INS` slots more than were lost are tried: what nobody loads is a bad adapter, no bad replica.
    """
    ranking, failed = placement.ranking, scene.observation.ledger.failed
    holder = {s.slot: s.replica for s in slots.slots if s.state is SlotState.ACTIVE}
    registered = {r.id: r.registered for r in scene.warm}
    gave_up: dict[str, set[str]] = {}
    for slot, replica in holder.items():
        known = registered.get(replica)
        if known is None:
            continue
        for adapter, failure in failed.get(replica, {}).items():
            # Where a new revision does not load, the old one serves on.
            if adapter in ranking.row_of and given_up(failure) and adapter not in known:
                gave_up.setdefault(adapter, set()).add(slot)
    found: dict[str, tuple[str, ...]] = {}
    for adapter, without in gave_up.items():
        owners = placement.owners(adapter)
        lost = len(without.intersection(owners))
        in_rank = (ranking.slots[i] for i in ranking.full([ranking.row_of[adapter]])[0].tolist())
        others = [s for s in in_rank if s in holder and s not in owners and holder[s] not in scene.departures]
        found[adapter] = tuple(s for s in others[: lost + _MOST_STAND_INS] if s not in without)[:lost]
    return {adapter: chosen for adapter, chosen in found.items() if chosen}


def expected_residents(
    scene: Scene, slots: SlotTable, placement: Placement, instead: Mapping[str, tuple[str, ...]]
) -> dict[str, frozenset[str]]:
    """Replica id -> adapters that it should hold: by its slot, its hot tenant, or the cold group.

    An heir holds its slot's adapters before it takes the slot over. `instead`: as `stand_ins` has it.
    """
    by_slot = held_by_slot(placement, _standbys(scene.policy))
    for adapter, chosen in instead.items():
        by_slot |= {slot: by_slot[slot] | {adapter} for slot in chosen}
    expected: dict[str, frozenset[str]] = {}
    for slot in slots.slots:
        expected |= {name: by_slot.get(slot.slot, frozenset()) for name in (slot.replica, slot.heir) if name}
    catalogue = scene.observation.catalogue
    hot = {name: frozenset(adapters_of(catalogue, row)) for name, row in scene.hot_groups().items()}
    cold = frozenset() if scene.policy.engine.resolver else _cold_adapters(scene)
    for replica in scene.observation.replicas:
        if replica.group in hot:
            expected[replica.id] = hot[replica.group]
        elif replica.group == COLD_GROUP:
            expected[replica.id] = cold
    return expected


def _cold_adapters(scene: Scene) -> frozenset[str]:
    cold = scene.tiers.of(Tier.COLD)[scene.observation.catalogue.tenant_index]
    return frozenset(np.asarray(scene.observation.catalogue.ids, object)[cold].tolist())


def _standbys(policy: FleetPolicy) -> int:
    """Standbys that must have an adapter registered; a resolver makes it known there at the first request."""
    return policy.ring.standby_count if policy.ring.overflow is Overflow.STANDBYS and not policy.engine.resolver else 0
