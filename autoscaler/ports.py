"""What the shell needs of the world, as Protocols. Implementations live in `connectors` and `simulator`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from autoscaler.domain.decisions import (
    DecisionRecord,
    LoadAdapter,
    Outcome,
    PlatformEffect,
    UnloadAdapter,
)
from autoscaler.domain.fleet import Group, LoadLedger, Override, PauseMode, Replica, ReplicaSignals, Router
from autoscaler.domain.observation import Catalogue, Floats, PairTraffic, Traffic
from autoscaler.domain.signals import Signal


class TemporaryError(Exception):
    """The world did not answer, or not in time; the same call may succeed later."""


class PermanentError(Exception):
    """The world said no; the same call will fail again until somebody changes something."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a metrics source saw at one moment.

    Attributes:
        replicas: replica id -> its engine's signals; a live replica without series has Missing signals.
        traffic, pairs: what routers saw, aligned with the catalogue and the replicas that were passed in.
        freshness: `engines` and `traffic`: age of the newest sample, or why there is none.
        conditions: name -> sentence, for what a person must know (a renamed metric, duplicated series).
        resident: replica id -> adapter ids in its memory, as the engine shows them or else as modelled.
        limits: replica id -> field of `EngineLimits` -> what its engine shows; only what is shown.
        in_flight: replica id -> requests that routers have open on it, where routers show it.
    """

    replicas: dict[str, ReplicaSignals]
    traffic: Traffic
    pairs: PairTraffic
    freshness: dict[str, Signal]
    conditions: dict[str, str]
    resident: dict[str, frozenset[str]] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    in_flight: dict[str, Signal] = field(default_factory=dict)


class MetricsSource(Protocol):
    """Engines' and routers' metrics: Prometheus, or direct scraping."""

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        """Read everything for one tick; the number of queries does not grow with tenants. Never raises for absence."""
        ...


@dataclass(frozen=True, slots=True)
class HistoryPiece:
    """Request rates of some points in time.

    Attributes:
        times_s: ascending, float64 (P); each is the end of what its rates cover.
        requests_per_s: float64 (P, A), columns as the catalogue's rows; NaN = no router was heard.
        trouble: why it could not be read, empty where it could.
    """

    times_s: Floats
    requests_per_s: Floats
    trouble: str = ""


class HistorySource(Protocol):
    """Recorded request rates: where forecasts start from."""

    def history(
        self, catalogue: Catalogue, start_s: float, end_s: float, step_s: float
    ) -> AsyncIterator[HistoryPiece] | None:
        """Mean rates over each step that ends at `start_s`, `start_s + step_s`, ... up to `end_s`, oldest first.

        None where nothing is recorded. What cannot be read is a piece with `trouble`; nothing is raised for absence.
        """
        ...


class FleetActuator(Protocol):
    """The platform: replicas and groups."""

    async def replicas(self) -> tuple[Replica, ...]:
        """Live replicas, ascending by id, without signals and adapter lists. Raises TemporaryError."""
        ...

    async def groups(self) -> dict[str, Group]:
        """Groups by name. Raises TemporaryError."""
        ...

    async def apply(self, effect: PlatformEffect) -> Outcome:
        """Do one effect; doing it again changes nothing."""
        ...


@runtime_checkable
class Detachable(Protocol):
    """A `FleetActuator` whose platform carries marks of ours: gates, labels, annotations."""

    async def detach(self) -> tuple[str, ...]:
        """Open every gate and remove every mark; returns a sentence for each thing done. Doing it again is harmless.

        It is done again while the fleet stays detached, so that a replica that starts later is not held back. Raises
        TemporaryError or PermanentError.
        """
        ...


class EngineClient(Protocol):
    """One fleet's engines, by replica: adapter lists, loads and unloads."""

    async def registered(self, replica: Replica) -> frozenset[str] | None:
        """Adapter ids that the engine's API knows; None where it does not answer."""
        ...

    async def load(self, replica: Replica, effect: LoadAdapter) -> Outcome:
        """Load an adapter. `already loaded` is Applied; 404 path and rank too high are Failed without retry."""
        ...

    def keep(self, replicas: frozenset[str]) -> None:
        """Forget replicas that are gone from the platform."""
        ...

    def reconsider(self, catalogue: Catalogue) -> None:
        """Give adapters whose source or revision has changed a new trial."""
        ...

    def ledger(self) -> LoadLedger:
        """What this controller loaded on which replica, what failed, and what others loaded."""
        ...

    async def unload(self, replica: Replica, effect: UnloadAdapter) -> Outcome:
        """Unload an adapter; an unknown name is Applied."""
        ...


class RingPublisher(Protocol):
    """Where routers read membership."""

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Publish a snapshot if `epoch` is higher than what is there; a lower one is refused, never written."""
        ...

    async def last(self) -> tuple[int, bytes] | None:
        """The published epoch and snapshot, None where there is none. Raises TemporaryError."""
        ...

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Routers that this publisher hears of, with the epoch each applies."""
        ...


class OverrideStore(Protocol):
    """Operators' overrides and pauses. Nothing is lost once a call has returned."""

    def overrides(self, fleet: str) -> tuple[Override, ...]:
        """All that were not cleared, expired ones included, ascending by tenant."""
        ...

    def put(self, fleet: str, override: Override, if_revision: int | None = None) -> Override:
        """Set a tenant's override.

        With `if_revision` only over exactly that revision (0: none). Raises ConflictError.
        """
        ...

    def clear(self, fleet: str, tenant: str, actor: str, if_revision: int | None = None) -> Override | None:
        """Clear it; returns what was there. Raises ConflictError."""
        ...

    def pauses(self, fleet: str) -> dict[str, tuple[PauseMode, str, float]]:
        """Group -> (mode, reason, expires_at_s)."""
        ...

    def pause(self, fleet: str, group: str, mode: PauseMode, reason: str, expires_at_s: float, actor: str) -> None:
        """Set a group's pause; `PauseMode.NONE` ends it."""
        ...


class ConflictError(Exception):
    """Somebody changed it since it was read; `current_revision` is what is there now."""

    def __init__(self, message: str, current_revision: int) -> None:
        super().__init__(message)
        self.current_revision = current_revision


class CheckpointStore(Protocol):
    """The small decision state that must survive a restart."""

    def load(self, fleet: str) -> str | None:
        """The last saved JSON text, None where there is none or it cannot be read."""
        ...

    def save(self, fleet: str, text: str) -> None:
        """Replace it, atomically."""
        ...


class DecisionLog(Protocol):
    """Decision records, newest kept, bounded."""

    def append(self, records: Sequence[DecisionRecord]) -> None:
        """Keep these."""
        ...

    def read(self, fleet: str, since: str = "", subject: str = "", limit: int = 100) -> tuple[DecisionRecord, ...]:
        """Ascending by id, after `since`, of one subject where given."""
        ...


class Lease(Protocol):
    """Leadership, fenced by the lease's own time."""

    def held(self, now_s: float) -> bool:
        """Whether this instance may still write at `now_s`, with the renewal deadline already counted."""
        ...


class Clock(Protocol):
    """Time, so that simulations bring their own."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        ...


__all__ = [
    "CheckpointStore",
    "Clock",
    "ConflictError",
    "DecisionLog",
    "Detachable",
    "EngineClient",
    "FleetActuator",
    "HistoryPiece",
    "HistorySource",
    "Lease",
    "LoadLedger",
    "Metrics",
    "MetricsSource",
    "OverrideStore",
    "PermanentError",
    "RingPublisher",
    "TemporaryError",
]
