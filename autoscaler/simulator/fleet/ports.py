"""The controller's ports over a simulated platform: the product's own loop runs behind them, on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from autoscaler.connectors.engines.ledger import LoadBook, NoMemory
from autoscaler.connectors.routers.epochs import judged
from autoscaler.domain.decisions import (
    Applied,
    AssignSlot,
    DecisionRecord,
    Drain,
    Failed,
    Grow,
    LoadAdapter,
    OpenGate,
    Outcome,
    PlatformEffect,
    Renew,
    Shrink,
    Skipped,
    Undrain,
    UnloadAdapter,
)
from autoscaler.domain.fleet import (
    EngineLimits,
    Group,
    LoadLedger,
    Override,
    PauseMode,
    Replica,
    ReplicaState,
    Router,
    Tier,
)
from autoscaler.domain.observation import Catalogue
from autoscaler.simulator.fleet.platform import Member, Platform

EPOCH_S = 1_767_225_600.0
"""The virtual clock's zero, on a Thursday at midnight: the controller's times are seconds since the Unix epoch."""


class VirtualClock:
    """`Clock`. Nobody sleeps here: the driver decides when the next tick is."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        return EPOCH_S + self._platform.now_s

    async def sleep(self, seconds: float) -> None:
        """Let others run; virtual time stands still within a tick."""
        await asyncio.sleep(0)


class SimulatedPlatform:
    """`FleetActuator`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def replicas(self) -> tuple[Replica, ...]:
        """Live replicas, ascending by id."""
        return tuple(self._shown(m) for _, m in sorted(self._platform.members.items()))

    async def groups(self) -> dict[str, Group]:
        """The groups with what their specs ask for."""
        return {n: Group(n, s.tier, s.replicas, s.tenant) for n, s in sorted(self._platform.specs.items())}

    async def apply(self, effect: PlatformEffect) -> Outcome:
        """Do one effect."""
        members = self._platform.members
        match effect:
            case Grow(group=group, replicas=replicas, tenant=tenant):
                tier = Tier.HOT if tenant else Tier.COLD if group == "cold" else Tier.WARM
                return Applied(f"{self._platform.resize(group, replicas, tier, tenant)} more")
            case Shrink(group=group, replicas=replicas, victims=victims, remove=remove):
                return self._shrink(group, replicas, victims, remove=remove)
            case AssignSlot(replica=name, slot=slot) if name in members:
                for other in members.values():
                    other.slot = None if other.slot == slot else other.slot
                members[name].slot = slot
            case Drain(replica=name) if name in members:
                self._platform.drain(members[name])
            case Undrain(replica=name) if name in members:
                self._platform.undrain(members[name])
            case OpenGate() | Renew():
                pass
            case _:
                return Failed(f"there is no replica {effect.replica}: it ended, or never was")
        return Applied()

    def _shrink(self, group: str, replicas: int, victims: Sequence[str], *, remove: bool) -> Outcome:
        spec = self._platform.specs.get(group)
        if spec is None:
            return Applied(f"there is no group {group}")
        for name in victims:
            if name in self._platform.members:
                self._platform.retire(self._platform.members[name])
        spec.replicas = min(spec.replicas, replicas)
        if remove:
            self._platform.shrink(group, 0)
            del self._platform.specs[group]
        return Applied()

    def _shown(self, member: Member) -> Replica:
        limits = member.limits
        kv_tokens = self._platform.engines.profile.kv_tokens(limits)
        shown = EngineLimits(
            limits.max_loras, limits.max_cpu_loras, limits.max_lora_rank, limits.max_num_seqs, kv_tokens
        )
        serves = member.place >= 0
        return Replica(
            member.name, member.group, member.slot, f"{member.name}:8000" if serves else "", member.state,
            EPOCH_S + member.ready_at_s, "simulated", shown,
            recallable=member.state is ReplicaState.DRAINING and serves and not member.retired,
        )  # fmt: skip


class SimulatedEngines:
    """`EngineClient`. A load takes its time on the engine; its name is listed once it is done."""

    def __init__(self, platform: Platform, names: Sequence[str], backoff_s: float) -> None:
        self._platform = platform
        self._names = tuple(names)
        self._row = {name: i for i, name in enumerate(names)}
        self._book = LoadBook("simulated", NoMemory(), backoff_s)
        self._asked: dict[str, set[str]] = {}

    async def registered(self, replica: Replica) -> frozenset[str] | None:
        """Adapter ids that the engine's API lists; None where it does not answer."""
        member = self._platform.members.get(replica.id)
        if member is None or not self._platform.answers(member):
            return None
        listed = frozenset(self._names[i] for i in self._platform.engines.known(member.place).tolist())
        asked = self._asked.get(replica.id, set())
        asked -= listed
        self._book.listed(replica, listed, listed, self._platform.now_s + EPOCH_S)
        return listed

    async def load(self, replica: Replica, effect: LoadAdapter) -> Outcome:
        """Ask for a load; it is under way until the engine lists the name."""
        member, asked = self._platform.members.get(replica.id), self._asked.setdefault(replica.id, set())
        if member is None or not self._platform.answers(member):
            return Failed("the replica does not answer", retry_after_s=10.0)
        if effect.adapter in asked:
            return Skipped("a load of it is under way on this replica")
        if not self._platform.engines.load(member.place, self._row[effect.adapter]):
            return Failed("too many loads wait there", retry_after_s=10.0)
        asked.add(effect.adapter)
        self._book.begin(replica, effect.adapter, effect.revision)
        return Skipped("under way")

    async def unload(self, replica: Replica, effect: UnloadAdapter) -> Outcome:
        """Unload an adapter; an unknown name is Applied."""
        member = self._platform.members.get(replica.id)
        if member is not None and member.place >= 0:
            if not self._platform.answers(member):
                return Failed("the replica does not answer", retry_after_s=10.0)
            self._platform.engines.forget(member.place, self._row[effect.adapter])
        self._book.unloaded(replica, effect.adapter)
        return Applied()

    def keep(self, replicas: frozenset[str]) -> None:
        """Forget replicas that are gone."""
        self._book.keep(replicas)
        self._asked = {r: asked for r, asked in self._asked.items() if r in replicas}

    def reconsider(self, catalogue: Catalogue) -> None:
        """Sources do not change here."""

    def ledger(self) -> LoadLedger:
        """What was loaded."""
        return self._book.ledger()


class SimulatedRouters:
    """`RingPublisher`: routers apply a snapshot after their delay, and acknowledge it then."""

    def __init__(self, platform: Platform, routers: int, apply: Callable[[bytes], None]) -> None:
        self._platform, self._routers, self._apply = platform, routers, apply
        self._last: tuple[int, bytes] | None = None
        self._applied = 0
        self.published = 0

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Publish a snapshot if `epoch` is higher."""
        outcome = judged(self._last, epoch, body)
        if outcome is not None:
            return outcome
        self._last = epoch, body
        self.published += 1
        self._platform.tell_routers(lambda: self._follow(epoch, body))
        return Applied()

    async def last(self) -> tuple[int, bytes] | None:
        """What is published."""
        return self._last

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Every router, with the epoch that it applies."""
        return tuple(Router(f"router-{i}", self._applied, 0.0) for i in range(self._routers))

    def _follow(self, epoch: int, body: bytes) -> None:
        if epoch > self._applied:
            self._applied = epoch
            self._apply(body)


class NoOverrides:
    """`OverrideStore` of a fleet in which nobody intervenes."""

    def overrides(self, fleet: str) -> tuple[Override, ...]:
        """None."""
        return ()

    def pauses(self, fleet: str) -> dict[str, tuple[PauseMode, str, float]]:
        """None."""
        return {}

    def put(self, fleet: str, override: Override, if_revision: int | None = None) -> Override:
        """Accepted and not kept."""
        return override

    def clear(self, fleet: str, tenant: str, actor: str, if_revision: int | None = None) -> Override | None:
        """Nothing was there."""
        return None

    def pause(self, fleet: str, group: str, mode: PauseMode, reason: str, expires_at_s: float, actor: str) -> None:
        """Accepted and not kept."""


class NoCheckpoints:
    """`CheckpointStore` of a controller that never restarts."""

    def load(self, fleet: str) -> str | None:
        """None."""
        return None

    def save(self, fleet: str, text: str) -> None:
        """Nothing is kept."""


class Decisions:
    """`DecisionLog` that keeps what changed something, the newest `most`."""

    def __init__(self, most: int = 20_000) -> None:
        self._kept: list[DecisionRecord] = []
        self._most = most

    def append(self, records: Sequence[DecisionRecord]) -> None:
        """Keep those that changed something."""
        self._kept.extend(r for r in records if r.before != r.after)
        del self._kept[: max(0, len(self._kept) - self._most)]

    def read(self, fleet: str, since: str = "", subject: str = "", limit: int = 100) -> tuple[DecisionRecord, ...]:
        """Ascending by id."""
        return tuple(r for r in self._kept if r.id > since and subject in ("", r.subject))[:limit]


class AlwaysHeld:
    """`Lease` of the only instance."""

    def held(self, now_s: float) -> bool:
        """Always."""
        return True
