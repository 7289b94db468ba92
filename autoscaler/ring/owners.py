"""Who serves an adapter, read from a snapshot: the six rules of the ring, and a router's own choice at request time.

This is all that a router needs; it knows nothing of how the placement came about.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from autoscaler.ring.hashing import h64_many, scores
from autoscaler.ring.ranking import top_ranked
from autoscaler.ring.snapshot import Choice, Member, MemberState, Overflow, RingSnapshot, Unknown


class Via(StrEnum):
    """The rule that named the owners."""

    HOT = "hot"
    EXCEPTION = "exception"
    HASH = "hash"
    FALLBACK = "fallback"
    BASE = "base"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class Owners:
    """Who serves an adapter now.

    Attributes:
        members: active members, the preferred one first; empty where none is active or the name is rejected.
        via: the rule that named them.
        standbys: the next `standby_count` active slots in rank, where overflow is `standbys`: the adapter is
            registered there too.
        rejected: the name is in no list and the snapshot says that such names get 404.
    """

    members: tuple[Member, ...]
    via: Via
    standbys: tuple[Member, ...] = ()
    rejected: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Slot ids of members on the ring; replica names for `hot`, `base` and `cold`."""
        on_ring = self.via in (Via.EXCEPTION, Via.HASH, Via.FALLBACK)
        return tuple(member.slot if on_ring else member.replica for member in self.members)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The replica for one request. `over`: it is over the bound, and nobody was under it."""

    member: Member
    via: Via
    over: bool = False


class Ring:
    """A snapshot made ready for look-ups. Immutable; make a new one for each epoch."""

    def __init__(self, snapshot: RingSnapshot) -> None:
        """Hashes the slots once: about 0.2 us a slot."""
        self.snapshot = snapshot
        ranked = [member for member in snapshot.members if member.state is not MemberState.DRAINING]
        self._ranked = sorted(ranked, key=lambda member: member.slot.encode())
        self._slot_hashes = h64_many(member.slot for member in self._ranked)
        self._by_slot = {member.slot: member for member in self._ranked}
        self._active = _active(snapshot.members)
        self._vacant = len(self._ranked) - len(self._active)
        self._warm = None if snapshot.warm is None else frozenset(snapshot.warm)
        self._base_models = frozenset(snapshot.base_models)
        self._together: defaultdict[str, list[str]] = defaultdict(list)
        for adapter, tenant in (snapshot.fairness.tenants if snapshot.fairness else {}).items():
            self._together[tenant].append(adapter)

    def ranked(self, adapter: str) -> list[Member]:
        """Members in state active or vacant, by their score for `adapter`, highest first."""
        order = np.argsort(~scores(h64_many([adapter]), self._slot_hashes)[0], kind="stable")
        return [self._ranked[i] for i in order.tolist()]

    def owners(self, adapter: str, *, skip_hot: bool = False) -> Owners:
        """The owners of one name by rules 1 to 6. `skip_hot` leaves out rule 1: its dedicated group is down or full."""
        group = None if skip_hot else self.snapshot.hot.get(adapter)
        if group is not None and (members := _active(group.members)):
            return Owners(members, Via.HOT)
        if not self._is_on_ring(adapter):
            return self._off_ring(adapter)
        listed = self.snapshot.exceptions.get(adapter, ())
        return self._on_ring(adapter, next(iter(self._prefixes([adapter], len(listed)))))

    def owners_many(self, adapters: Sequence[str]) -> list[Owners]:
        """`owners` of each name, in order; 100,000 names on 512 slots take about a second."""
        exceptions = self.snapshot.exceptions
        on_hash = [a for a in adapters if self._is_on_ring(a) and a not in exceptions]
        listed = [a for a in adapters if a in exceptions]
        deepest = max((len(exceptions[a]) for a in listed), default=0)
        known = dict(zip(on_hash, self._prefixes(on_hash), strict=True))
        known |= zip(listed, self._prefixes(listed, deepest), strict=True)
        found = []
        for adapter in adapters:
            group = self.snapshot.hot.get(adapter)
            prefix = known.get(adapter)
            is_hot = group is not None and any(member.state is MemberState.ACTIVE for member in group.members)
            found.append(self.owners(adapter) if is_hot or prefix is None else self._on_ring(adapter, prefix))
        return found

    def assigned(self, adapter: str) -> tuple[str, ...]:
        """The slots that hold an adapter of the ring, the vacant ones included; empty for a name that is not on it.

        This is the placement, which a vacancy does not change, where `owners` is who serves now.
        """
        return self.assigned_many([adapter])[0]

    def assigned_many(self, adapters: Sequence[str]) -> list[tuple[str, ...]]:
        """`assigned` of each name, in order."""
        hashed = [a for a in adapters if self._is_on_ring(a) and a not in self.snapshot.exceptions]
        top, _ = top_ranked(h64_many(hashed), self._slot_hashes, self.snapshot.replication_factor)
        slots = [member.slot for member in self._ranked]
        found = {a: tuple(slots[i] for i in row) for a, row in zip(hashed, top.tolist(), strict=True)}
        for adapter, listed in self.snapshot.exceptions.items():
            found[adapter] = tuple(slot for slot in listed if slot in self._by_slot)
        return [found.get(adapter, ()) for adapter in adapters]

    def choose(self, adapter: str, in_flight: Mapping[str, int], *, skip_hot: bool = False) -> Chosen | None:
        """The replica for one more request for `adapter`, exactly as the snapshot says; None where nobody may serve.

        `in_flight` counts requests by slot on the ring (those of every active member count for the bound), and by
        replica name in hot and cold groups; what is not in it has none. Equal counts go to the first in order.
        """
        owners = self.owners(adapter, skip_hot=skip_hot)
        if not owners.members:
            return None
        if owners.via in (Via.HOT, Via.BASE, Via.COLD):
            least = min(owners.members, key=lambda member: in_flight.get(member.slot or member.replica, 0))
            return Chosen(least, owners.via)
        by_load = sorted(owners.members, key=lambda member: in_flight.get(member.slot, 0))
        limit = self.request_limit(in_flight)
        if self.snapshot.choice is Choice.LEAST:
            return Chosen(by_load[0], owners.via, in_flight.get(by_load[0].slot, 0) + 1 > limit)
        first, *_ = owners.members
        others = [member for member in by_load if member is not first]
        for member in (first, *others, *self._overflow(adapter, owners)):
            if in_flight.get(member.slot, 0) + 1 <= limit:
                return Chosen(member, owners.via)
        return Chosen(by_load[0], owners.via, over=True)

    def request_limit(self, in_flight: Mapping[str, int]) -> int:
        """Most requests in flight on one slot, the next one included, before it is over the bound."""
        snapshot = self.snapshot
        total = sum(in_flight.get(member.slot, 0) for member in self._active) + 1
        mean_ceil = -(-snapshot.request_bound_percent * total // (100 * max(len(self._active), 1)))
        return max(snapshot.request_floor, mean_ceil)

    def refused_ms(self, adapter: str, in_flight: Mapping[str, int]) -> int | None:
        """When a request beyond its tenant's bound may come again, for a 429's `Retry-After`; None: it may pass.

        `in_flight` counts this router's requests by adapter. A dedicated group that serves shares nothing, and is
        not bounded.
        """
        bound = self.snapshot.fairness
        group = self.snapshot.hot.get(adapter)
        if bound is None or (group is not None and _active(group.members)):
            return None
        tenant = bound.tenants.get(adapter)
        taken = sum(in_flight.get(name, 0) for name in (self._together[tenant] if tenant else (adapter,)))
        return bound.retry_after_ms if taken >= bound.max_in_flight else None

    def _is_on_ring(self, adapter: str) -> bool:
        return self._warm is None or adapter in self._warm or adapter in self.snapshot.exceptions

    def _on_ring(self, adapter: str, ranked: list[Member]) -> Owners:
        """Rules 2, 3 and 4. `ranked` may be cut off where enough active slots are left in it (see `_prefixes`)."""
        listed = self.snapshot.exceptions.get(adapter)
        if listed is not None:
            via, holders = Via.EXCEPTION, [self._by_slot[slot] for slot in listed if slot in self._by_slot]
        else:
            via, holders = Via.HASH, ranked[: self.snapshot.replication_factor]
        members = _active(holders) or _active(ranked)[:1]
        if not members or members[0] not in holders:
            via = Via.FALLBACK
        standbys: tuple[Member, ...] = ()
        if self.snapshot.overflow is Overflow.STANDBYS:
            standbys = tuple(m for m in _active(ranked) if m not in members)[: self.snapshot.standby_count]
        return Owners(members, via, standbys)

    def _off_ring(self, adapter: str) -> Owners:
        """Rules 5 and 6."""
        if adapter in self._base_models:
            return Owners(self._active, Via.BASE)
        if self.snapshot.unknown is Unknown.REJECT and adapter not in self.snapshot.hot:
            return Owners((), Via.COLD, rejected=True)
        cold = self.snapshot.cold
        return Owners(self._active if cold is None else _active(cold), Via.COLD)

    def _overflow(self, adapter: str, owners: Owners) -> tuple[Member, ...]:
        if self.snapshot.overflow is not Overflow.ANY:
            return owners.standbys
        return tuple(member for member in _active(self.ranked(adapter)) if member not in owners.members)

    def _prefixes(self, adapters: Sequence[str], listed: int = 0) -> Iterable[list[Member]]:
        """The start of each adapter's ranking, long enough for its owners, the fallback and its standbys.

        `listed` is the number of slots that an exception lists: they are no standbys.
        """
        depth = max(self.snapshot.replication_factor, listed) + self._vacant + self.snapshot.standby_count + 1
        top, _ = top_ranked(h64_many(adapters), self._slot_hashes, depth)
        return ([self._ranked[i] for i in row] for row in top.tolist())


def _active(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(member for member in members if member.state is MemberState.ACTIVE)
