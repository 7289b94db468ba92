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
from autoscaler.planner.placing import Placed, serves_cold
from autoscaler.planner.residency import Residency, adapters_of
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

    def active(self) -> dict[str, str]:
        """Slot -> the replica that serves there."""
        return {s.slot: s.replica for s in self.slots.slots if s.state is SlotState.ACTIVE}

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
    cold, listed = _cold(scene, membership), placement.ranking.adapters
    exceptions, unserved = _gated(placement, membership, before)
    if cold and before is not None and before.warm is not None and unserved:
        # What comes back from the cold group is served there until an owner has it.
        waiting = unserved - frozenset(before.warm)
        listed = tuple(a for a in listed if a not in waiting)
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
        exceptions=exceptions,
        hot=_hot(scene, membership, placed),
        cold=cold,
        warm=listed,
        base_models=(policy.base_model,),
        unknown=Unknown(policy.ring.unknown.value),
    )


def keep_placement(scene: Scene, membership: Membership, placed: Placed, before: RingSnapshot) -> RingSnapshot:
    """The last snapshot with today's states and groups: what is published while a change of members is prepared.

    What hot groups hand back meanwhile comes to those of its coming owners that are members already.
    """
    present = scene.observation.catalogue.row
    hot = _hot(scene, membership, placed)
    handed = (before.hot.keys() - hot.keys()) & placed.placement.ranking.row_of.keys()
    holder = membership.active()
    able = {a: tuple(s for s in placed.placement.owners(a) if s in holder) for a in sorted(handed)}
    able = {a: owners for a, owners in able.items() if owners} | _still_able(scene, membership, before)
    return replace(
        before,
        members=membership.members(),
        hot=hot,
        cold=_cold(scene, membership),
        warm=None if before.warm is None else tuple(a for a in before.warm if a in present),
        exceptions={a: owners for a, owners in {**before.exceptions, **able}.items() if a in present},
    )


def _still_able(scene: Scene, membership: Membership, before: RingSnapshot) -> dict[str, tuple[str, ...]]:
    """Adapters of which an owner lost what it had, with the owners that still have it, if any."""
    holder = {slot: membership.replicas[name] for slot, name in membership.active().items()}
    lost = {
        adapter
        for replica in holder.values()
        if replica.registered is not None
        for adapter in scene.before.expected.get(replica.id, frozenset()) - replica.registered
    }
    names = sorted(lost.intersection(before.warm or ()))
    able = {}
    for adapter, owners in zip(names, Ring(before).assigned_many(names) if names else (), strict=True):
        have = tuple(s for s in owners if s in holder and _registered(holder[s], adapter)) or _known_to(holder, adapter)
        if have and have != owners:
            able[adapter] = have
    return able


def _cold(scene: Scene, membership: Membership) -> tuple[Member, ...] | None:
    """The cold group's members that serve, and those that leave; None where the fleet has no such group."""
    if scene.policy.groups.cold is None:
        return None
    members = membership.of_group(COLD_GROUP)
    return tuple(
        m for m in members if m.state is MemberState.DRAINING or serves_cold(scene, membership.replicas[m.replica])
    )


def _hot(scene: Scene, membership: Membership, placed: Placed) -> dict[str, HotGroup]:
    """Adapters whose group serves them: to stay, or until the ring is ready for them."""
    groups: dict[str, HotGroup] = {}
    for name, row in scene.hot_groups().items():
        home, members = scene.homes[name], membership.of_group(name)
        if not home.apart and (not home.listed or scene.now_s - home.since_s >= scene.policy.ring.residency_deadline_s):
            continue
        # Each by itself: an adapter that does not load keeps its tenant's others out of nothing.
        for adapter in adapters_of(scene.observation.catalogue, row) if members else ():
            able = tuple(m for m in members if membership.residency.serves(m.replica, adapter))
            if able and (home.apart or _stays(adapter, scene, membership, placed)):
                groups[adapter] = HotGroup(name, able)
    return groups


def _stays(adapter: str, scene: Scene, membership: Membership, placed: Placed) -> bool:
    """Whether an adapter that goes back to the ring has to wait: its load is counted there, and its owners have it."""
    published = scene.before.published
    if published is None or adapter not in published.hot:
        return False
    if adapter in placed.deferred:
        return True
    if adapter not in placed.placement.ranking.row_of:
        return False
    holder = membership.active()
    owners = [holder[s] for s in placed.placement.owners(adapter) if s in holder]
    lacks = membership.residency.lacks
    return any(name in lacks and adapter in lacks[name].waited for name in owners)


def _gated(
    placement: Placement, membership: Membership, before: RingSnapshot | None
) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
    """The exceptions, owners that do not serve an adapter yet replaced by those that still do; and what nobody does."""
    exceptions = placement.published_exceptions()
    holder = membership.active()
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
        named = (*able, *kept) or _known_to({s: membership.replicas[r] for s, r in holder.items()}, adapter)
        if named:
            exceptions[adapter] = named
    return exceptions, frozenset(lacking) - exceptions.keys()


def _known_to(holder: Mapping[str, Replica], adapter: str) -> tuple[str, ...]:
    """Slots that say they have an adapter: for when all its owners lost it at once, and a standby did not."""
    return tuple(sorted(slot for slot, replica in holder.items() if adapter in (replica.registered or ())))


def _registered(replica: Replica, adapter: str) -> bool:
    """Whether the replica is known to have it; one whose list cannot be read is believed."""
    return replica.registered is None or adapter in replica.registered


def stamped(snapshot: RingSnapshot, epoch: int, now_s: float) -> RingSnapshot:
    """The snapshot as the next epoch."""
    at = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    return replace(snapshot, epoch=epoch, published_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
