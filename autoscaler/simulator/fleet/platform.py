"""Groups of replicas on the virtual clock: they start after their delay, drain, and end; and what that costs.

One calendar orders all that happens between windows. Whoever scales, a peer's rule or the product's controller, does
it through `resize`, `drain` and `retire`; replica-hours count from the request for a replica to its end.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autoscaler.domain.fleet import ReplicaState, Tier
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.core.layout import Ints, Table
from autoscaler.simulator.fleet.engines import EngineFleet
from autoscaler.simulator.fleet.stream import ArrivalStream

_LOOK_S = 5.0  # between two looks at whether a draining replica has finished


Due = Sequence[tuple[float, int, Callable[[], object]]]


class Calendar:
    """What is due when; equal times in the order of their making."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._number = itertools.count()

    def at(self, when_s: float, what: Callable[[], object]) -> None:
        """Do `what` at `when_s`."""
        heapq.heappush(self._due, (when_s, next(self._number), what))

    def every(self, period_s: float, first_s: float, what: Callable[[], object]) -> None:
        """Do `what` at `first_s` and every `period_s` from then on."""

        def again() -> None:
            what()
            self.every(period_s, first_s + period_s, what)

        self.at(first_s, again)

    def next_s(self) -> float:
        """When something is due; infinite where nothing is."""
        return self._due[0][0] if self._due else float("inf")

    def pop(self) -> Callable[[], object]:
        """What is due next."""
        return heapq.heappop(self._due)[2]

    def save(self) -> Due:
        """All that is due, to `restore`."""
        return tuple(self._due)

    def restore(self, due: Due) -> None:
        """Go back to what was due then."""
        self._due = list(due)


@dataclass(slots=True)
class Member:
    """A replica from the request for it to its end.

    Attributes:
        asked_at_s: since when it has a machine, and costs; ahead of now while there is none.
        place: its engine, -1 before it serves.
        hangs_until_s: it takes requests and answers nobody, its own metrics and API included.
    """

    name: str
    group: str
    asked_at_s: float
    ready_at_s: float
    limits: EngineLimits
    place: int = -1
    state: ReplicaState = ReplicaState.STARTING
    slot: str | None = None
    drains_since_s: float = 0.0
    retired: bool = False
    hangs_until_s: float = 0.0


@dataclass(slots=True)
class GroupSpec:
    """What a group's target says."""

    tier: Tier
    replicas: int = 0
    tenant: str = ""
    numbers: itertools.count[int] = field(default_factory=itertools.count)


@dataclass(frozen=True, slots=True)
class PlatformSettings:
    """How a platform behaves.

    Attributes:
        startup_s: from the request for a replica to its readiness.
        drain_timeout_s: a draining replica ends after so long, finished or not.
        router_delay_s: until routers follow a change of membership.
        warm_with: adapters that a new engine has in memory when it becomes ready, most useful first, as an init
            container would put them there during the start; as far as they fit.
    """

    startup_s: float
    drain_timeout_s: float = 300.0
    router_delay_s: float = 1.0
    warm_with: Ints | None = None


class Platform:
    """Replicas, routers and time around one `EngineFleet`.

    What is down comes back at `unscraped_until_s` (Prometheus scrapes nothing), `no_machine_until_s` (replicas that are
    asked for wait for a machine before they start) and `routers_held_until_s` (routers follow nothing new).
    """

    def __init__(
        self, engines: EngineFleet, stream: ArrivalStream, settings: PlatformSettings, limits: EngineLimits
    ) -> None:
        self.engines, self.calendar, self.settings = engines, Calendar(), settings
        self._stream, self._limits = stream, limits
        self.specs: dict[str, GroupSpec] = {}
        self.members: dict[str, Member] = {}
        self.changed: Callable[[], None] = lambda: None
        self.unscraped_until_s = self.no_machine_until_s = self.routers_held_until_s = 0.0
        self._held_back: Callable[[], None] | None = None
        self._unsafe: set[int] = set()
        self._spent_s = 0.0
        self._counted_from_s = 0.0

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self.engines.now_s

    def run(self, until_s: float) -> None:
        """Run to `until_s`, doing what falls due on the way and exactly then."""
        while self.calendar.next_s() <= until_s:
            self.engines.run(self._stream, max(self.calendar.next_s(), self.now_s))
            self.calendar.pop()()
        self.engines.run(self._stream, until_s)

    def resize(self, group: str, replicas: int, tier: Tier = Tier.WARM, tenant: str = "", *, now: bool = False) -> int:
        """Ask for more replicas (`now`: that serve at once). How many more; fewer is not done here."""
        spec = self.specs.setdefault(group, GroupSpec(tier, tenant=tenant))
        added = max(0, replicas - spec.replicas)
        spec.replicas += added
        for _ in range(added):
            self._add(group, spec, 0.0 if now else self.settings.startup_s)
        return added

    def serving(self, group: str | None = None) -> list[Member]:
        """Members that are ready and not leaving, oldest first."""
        return [m for m in self.members.values() if m.state is ReplicaState.READY and group in (None, m.group)]

    def drain(self, member: Member) -> None:
        """Take a member out; it ends once it is idle, `retire` allowing."""
        if member.state is not ReplicaState.DRAINING:
            member.drains_since_s = self.now_s
            member.state = ReplicaState.DRAINING
            self.changed()

    def undrain(self, member: Member) -> None:
        """Take a drain back, unless the member was told to end."""
        if member.state is ReplicaState.DRAINING and member.place >= 0 and not member.retired:
            member.state = ReplicaState.READY
            self.changed()

    def retire(self, member: Member) -> None:
        """Let a member end: as soon as it is idle after routers know, or at the drain's time-out."""
        self.drain(member)
        if member.retired:
            return
        member.retired = True
        self._look(member)

    def shrink(self, group: str, replicas: int) -> None:
        """As a Deployment: those that are not ready go first, then the newest."""
        spec = self.specs[group]
        mine = [m for m in self.members.values() if m.group == group and m.state is not ReplicaState.DRAINING]
        mine.sort(key=lambda m: m.name, reverse=True)
        mine.sort(key=lambda m: (m.state is ReplicaState.READY, -m.asked_at_s))
        for member in mine[: max(0, len(mine) - replicas)]:
            self.retire(member)
        spec.replicas = min(spec.replicas, replicas)

    def kill(self, name: str) -> int:
        """A process dies with what it had; its platform starts another under the same group. Requests refused."""
        member = self.members[name]
        dropped = self._end(member)
        self._add(member.group, self.specs[member.group], self.settings.startup_s)
        return dropped

    def hang(self, name: str, seconds: float) -> None:
        """A process stands still with all that it has, and goes on later."""
        member = self.members[name]
        member.hangs_until_s = max(member.hangs_until_s, self.now_s + seconds)
        self.engines.stall(member.place, seconds)

    def answers(self, member: Member) -> bool:
        """Whether a member's process has an API that answers."""
        return member.place >= 0 and not self.lasts(member.hangs_until_s)

    def lasts(self, until_s: float) -> bool:
        """Whether what ends then still lasts. The clock counts picoseconds: a float may be a few of them off."""
        return self.now_s < until_s - 1e-9

    def route(self, table: Table) -> None:
        """Routers follow `table` after their delay."""
        self.tell_routers(lambda: self.engines.route(table))

    def tell_routers(self, follow: Callable[[], None]) -> None:
        """Have routers `follow` something after their delay, or once they follow again; then only what is newest."""
        self.calendar.at(self.now_s + self.settings.router_delay_s, lambda: self._told(follow))

    def _told(self, follow: Callable[[], None]) -> None:
        if not self.lasts(self.routers_held_until_s):
            self._held_back = None
            follow()
            return
        if self._held_back is None:
            self.calendar.at(self.routers_held_until_s, self._catch_up)
        self._held_back = follow

    def _catch_up(self) -> None:
        if self._held_back is not None:
            follow, self._held_back = self._held_back, None
            self._told(follow)

    def count_from(self, at_s: float) -> None:
        """Replica-hours count from `at_s` on."""
        self._counted_from_s = at_s

    def replica_hours(self) -> float:
        """Replica-hours so far, of starting and draining replicas too."""
        open_s = sum(max(0.0, self.now_s - max(m.asked_at_s, self._counted_from_s)) for m in self.members.values())
        return (self._spent_s + open_s) / 3600.0

    def _add(self, group: str, spec: GroupSpec, startup_s: float) -> None:
        name = f"{group}-{next(spec.numbers):04d}"
        member = Member(name, group, self.now_s, self.now_s + startup_s, self._limits)
        self.members[name] = member
        self._find(member, startup_s)

    def _find(self, member: Member, startup_s: float) -> None:
        """Give it a machine, now or once there is one."""
        waits = self.lasts(self.no_machine_until_s)
        member.asked_at_s = self.no_machine_until_s if waits else self.now_s
        member.ready_at_s = member.asked_at_s + startup_s
        if waits:
            self.calendar.at(member.asked_at_s, lambda: self._find(member, startup_s))
        elif startup_s > 0:
            self.calendar.at(member.ready_at_s, lambda: self._begin(member))
        else:
            self._begin(member)

    def _begin(self, member: Member) -> None:
        if member.state is not ReplicaState.STARTING:
            return
        # Routers that follow nothing would take a new engine for the one that was at its place before.
        self._unsafe = self._unsafe if self.lasts(self.routers_held_until_s) else set()
        member.place = self.engines.start(member.limits, self._unsafe)
        if self.settings.warm_with is not None:
            self.engines.warm(member.place, self.settings.warm_with)
        member.state = ReplicaState.READY
        self.changed()

    def _look(self, member: Member) -> None:
        waited_s = self.now_s - member.drains_since_s
        known = waited_s >= self.settings.router_delay_s
        if member.place < 0 or (known and self.engines.idle(member.place)) or waited_s >= self.settings.drain_timeout_s:
            self._end(member)
        else:
            self.calendar.at(self.now_s + _LOOK_S, lambda: self._look(member))

    def _end(self, member: Member) -> int:
        if self.members.pop(member.name, None) is None:
            return 0
        self._spent_s += max(0.0, self.now_s - max(member.asked_at_s, self._counted_from_s))
        dropped = self.engines.stop(member.place) if member.place >= 0 else 0
        self._unsafe.add(member.place)
        member.state = ReplicaState.FAILED
        self.changed()
        return dropped
