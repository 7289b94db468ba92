"""What the application is made of: everything that it reads and commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry

from autoscaler.api.auth import Authenticator
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.connectors.stores.audit import AuditEntry
from autoscaler.connectors.stores.detachments import Detachment
from autoscaler.connectors.stores.proposals import StoredProposal
from autoscaler.planner.approval import Proposal
from autoscaler.ports import DecisionLog, OverrideStore
from autoscaler.telemetry import FleetView


class AuditLog(Protocol):
    """Who changed what."""

    def add(self, fleet: str, actor: str, action: str, subject: str, before: str = "", after: str = "") -> None:
        """Add an entry."""
        ...

    def read(self, fleet: str = "", before_number: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Newest first."""
        ...

    def reaches_back_to_s(self) -> float | None:
        """When the oldest kept entry was made."""
        ...


class Proposals(Protocol):
    """What waits for an operator in propose mode."""

    def propose(self, fleet: str, proposals: Iterable[Proposal]) -> None:
        """What waits now."""
        ...

    def approvals(self, fleet: str) -> frozenset[str]:
        """Keys of changes that are approved now."""
        ...

    def list(self, fleet: str) -> tuple[StoredProposal, ...]:
        """Newest first."""
        ...

    def decide(self, fleet: str, proposal_id: str, actor: str, *, approve: bool) -> StoredProposal | None:
        """Approve or reject one that waits; None where there is none."""
        ...


class Detachments(Protocol):
    """Fleets that are out of the controller's hands."""

    def read(self, fleet: str) -> Detachment | None:
        """The fleet's detachment, None where it is managed."""
        ...

    def detach(self, fleet: str, actor: str, reason: str) -> Detachment:
        """Detach a fleet; the first detachment stands where there is one."""
        ...

    def attach(self, fleet: str, actor: str) -> Detachment | None:
        """Manage it again; None where it was managed."""
        ...


@dataclass(frozen=True, slots=True)
class SharedStores:
    """What operators say and what was decided, in one place for all instances of a controller."""

    overrides: OverrideStore
    decisions: DecisionLog
    audit: AuditLog
    proposals: Proposals
    detachments: Detachments


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the API reads and commands.

    Attributes:
        views: the last view of each fleet, by name.
        hubs: each fleet's ring as routers read it.
        detachments: fleets that are out of the controller's hands.
        let_go: opens a fleet's gates and removes its marks; what was done, a sentence each.
        authenticator: who a bearer token belongs to.
        metrics: our own series.
        now_s: the controller's clock.
        ready: why this instance is not ready, empty where it is.
    """

    views: Callable[[], Mapping[str, FleetView]]
    hubs: Mapping[str, RingHub]
    overrides: OverrideStore
    decisions: DecisionLog
    audit: AuditLog
    proposals: Proposals
    detachments: Detachments
    let_go: Callable[[str], Awaitable[tuple[str, ...]]]
    authenticator: Authenticator
    metrics: CollectorRegistry
    now_s: Callable[[], float]
    ready: Callable[[], str]
