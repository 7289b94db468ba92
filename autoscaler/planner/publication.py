"""The snapshot that routers get: placement as far as replicas serve it, never further.

An adapter whose new owner does not serve it yet keeps the owners it had, so that membership is made before it is
broken, pair by pair.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.planner.departures import Departures
from autoscaler.planner.placing import Placed, adapters_of
from autoscaler.planner.residency import Residency
from autoscaler.planner.scene import Scene
from autoscaler.planner.views import COLD_GROUP
from autoscaler.policy.words import Overflow as PolicyOverflow
from autoscaler.ring import (
    HotGroup,
    Member,
    MemberState,
    Overflow,
    Placement,
    Ring,
    RingSnapshot,
    SlotState,
    SlotTable,
    Unknown,
)


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """Who may be named: replicas by id, slots, those on their way out, and what each serves."""

    replicas: Mapping[str, Replica]
    slots: SlotTable
    departures: Departures
    residency: Residency

    def members(self) -> tuple[Member, ...]:
        """The warm group's members; slots that still prepare are left out."""
        return tuple(
            self._member(s.slot, s.state, s.replica) for s in self.slots.slots if s.state is not SlotState.PENDING
        )

    def _member(self, slot: str, state: SlotState, holder: str) -> Member:
        replica = self.replicas.get(holder)
        if replica is None:
            return Member("", "", MemberState.VACANT, slot)
        return Member(replica.id, replica.address, MemberState(state.value), slot)

    def of_group(self, group: str) -> tuple[Member, ...]:
        """Members of a hot or cold group, those that leave as draining."""
        return tuple(
            Member(r.id, r.address, MemberState.DRAINING if r.id in self.departures else MemberState.ACTIVE)
            for r in self.replicas.values()
            if r.group == group and (r.state is ReplicaState.READY or self._drains(r))
        )

    def _drains(self, replica: Replica) -> bool:
        return replica.state is ReplicaState.DRAINING and replica.id in self.departures


def compose(scene: Scene, membership: Membership, placed: Placed, before: RingSnapshot | None) -> RingSnapshot:
    """The snapshot for a placement over the ring's own slots, epoch and time left as they were."""
    policy, placement = scene.policy, placed.placement
    standbys = policy.ring.standby_count if policy.ring.overflow is PolicyOverflow.STANDBYS else 0
    return RingSnapshot(
        fleet=policy.name,
        epoch=before.epoch if before is not None else 0,
        published_at=before.published_at if before is not None else "",
        replication_factor=placement.replication,
        members=membership.members(),
        choice=placed.choice,
        request_bound_percent=policy.ring.request_bound_percent,
        request_floor=policy.ring.request_floor,
        overflow=Overflow(policy.ring.overflow.value),
        standby_count=standbys,
        exceptions=_gated(placement, membership, before),
        hot=_hot(scene, membership),
        cold=None if policy.groups.cold is None else membership.of_group(COLD_GROUP),
        warm=placement.ranking.adapters,
        base_models=(policy.base_model,),
        unknown=Unknown(policy.ring.unknown.value),
    )


def keep_placement(scene: Scene, membership: Membership, before: RingSnapshot) -> RingSnapshot:
    """The last snapshot with today's states and groups: what is published while a change of members is prepared."""
    present = scene.observation.catalogue.row
    able = _still_able(scene, membership, before)
    return replace(
        before,
        members=membership.members(),
        hot=_hot(scene, membership),
        cold=None if scene.policy.groups.cold is None else membership.of_group(COLD_GROUP),
        warm=None if before.warm is None else tuple(a for a in before.warm if a in present),
        exceptions={a: owners for a, owners in {**before.exceptions, **able}.items() if a in present},
    )


def _still_able(scene: Scene, membership: Membership, before: RingSnapshot) -> dict[str, tuple[str, ...]]:
    """Adapters of which an owner lost what it had, with the owners that still have it, if any."""
    holder = {s.slot: membership.replicas[s.replica] for s in membership.slots.slots if s.state is SlotState.ACTIVE}
    lost = {
        adapter
        for replica in holder.values()
        if replica.registered is not None
        for adapter in scene.before.expected.get(replica.id, frozenset()) - replica.registered
    }
    names = sorted(lost.intersection(before.warm or ()))
    able = {}
    for adapter, owners in zip(names, Ring(before).assigned_many(names) if names else (), strict=True):
        have = tuple(s for s in owners if s in holder and _registered(holder[s], adapter))
        if have and have != owners:
            able[adapter] = have
    return able


def _hot(scene: Scene, membership: Membership) -> dict[str, HotGroup]:
    groups: dict[str, HotGroup] = {}
    for name, row in scene.hot_groups().items():
        members = membership.of_group(name)
        # Each by itself: an adapter that does not load keeps its tenant's others out of nothing.
        for adapter in adapters_of(scene.observation.catalogue, row) if members else ():
            able = tuple(m for m in members if membership.residency.serves(m.replica, adapter))
            if able:
                groups[adapter] = HotGroup(name, able)
    return groups


def _gated(placement: Placement, membership: Membership, before: RingSnapshot | None) -> dict[str, tuple[str, ...]]:
    """The exceptions, with owners that do not serve an adapter yet replaced by those that still do."""
    exceptions = placement.published_exceptions()
    holder = {s.slot: s.replica for s in membership.slots.slots if s.state is SlotState.ACTIVE}
    lacking = {
        adapter
        for replica in holder.values()
        if (lack := membership.residency.lacks.get(replica)) is not None
        for adapter in lack.absent
        if adapter in placement.ranking.row_of
    }
    names = sorted(lacking)
    had = Ring(before).assigned_many(names) if before is not None and names else [()] * len(names)
    for adapter, last in zip(names, had, strict=True):
        wanted = placement.owners(adapter)
        able = [s for s in wanted if s in holder and membership.residency.serves(holder[s], adapter)]
        instead = membership.residency.instead.get(adapter, ())
        kept = [
            s for s in dict.fromkeys((*last, *instead))
            if s in holder and s not in wanted and _registered(membership.replicas[holder[s]], adapter)
        ]  # fmt: skip
        if able or kept:
            exceptions[adapter] = (*able, *kept)
    return exceptions


def _registered(replica: Replica, adapter: str) -> bool:
    """Whether the replica is known to have it; one whose list cannot be read is believed."""
    return replica.registered is None or adapter in replica.registered


def stamped(snapshot: RingSnapshot, epoch: int, now_s: float) -> RingSnapshot:
    """The snapshot as the next epoch."""
    at = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    return replace(snapshot, epoch=epoch, published_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
