"""The ring as it is published: frozen value types, and why a snapshot may be refused (`codec` reads and writes them).

What a snapshot cannot be trusted to say is refused, never guessed at. The tree of refusals (each has a `code`, the
same word that the golden vectors use):

    SnapshotError(ValueError)
      MalformedSnapshotError    too-long, not-json, duplicate-key, not-integer, wrong-type, out-of-range, missing-field
      UnsupportedSnapshotError  unknown-version, unknown-hash
      WrongDigestError          wrong-digest
      LowerEpochError           lower-epoch

Fields of the top level that version 1 does not know are covered by the digest and otherwise ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MemberState(StrEnum):
    """What a member takes part in: `active` serves; `vacant` is ranked and waits for its replica; `draining` leaves."""

    ACTIVE = "active"
    VACANT = "vacant"
    DRAINING = "draining"


class Choice(StrEnum):
    """Which owner a router prefers: the first, or the one with fewest requests in flight."""

    PREFERRED = "preferred"
    LEAST = "least"


class Overflow(StrEnum):
    """Who may serve beyond the owners: nobody, the next in rank where the adapter is registered, or any replica."""

    OWNERS = "owners"
    STANDBYS = "standbys"
    ANY = "any"


class Unknown(StrEnum):
    """What becomes of a name that is in no list: the cold group serves it, or routers answer 404."""

    COLD = "cold"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Member:
    """A replica in a group. `slot` is empty in hot and cold groups; a vacant slot's replica and address may be."""

    replica: str
    address: str
    state: MemberState = MemberState.ACTIVE
    slot: str = ""


@dataclass(frozen=True, slots=True)
class HotGroup:
    """The dedicated group of a hot adapter."""

    group: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Fairness:
    """A bound on each tenant: what is beyond it gets 429 from the router, so that its neighbours get their answers.

    Attributes:
        max_in_flight: requests that one tenant may have in flight through one router, >= 1.
        retry_after_ms: when one that was refused may ask again.
        tenants: adapter -> tenant, for tenants of several adapters; every other adapter is a tenant by itself.
    """

    max_in_flight: int
    retry_after_ms: int
    tenants: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RingSnapshot:
    """Everything a router needs, at one epoch.

    Attributes:
        fleet, epoch, published_at: whose, its version (only ever grows), and when (RFC 3339, UTC, ending in Z).
        replication_factor: owners of an adapter that is no exception, >= 1.
        choice, request_bound_percent, request_floor, overflow, standby_count: the rule at request time.
        members: the warm group, one a slot.
        exceptions: adapter -> slots, for adapters whose owners are not the first of their ranking.
        hot: adapter -> its dedicated group.
        cold: the cold group's members; None where the fleet has no cold group (empty: it has one, with no replica now).
        warm: the adapters on the ring; None means that every name is.
        base_models: names served by any warm member.
        unknown: what becomes of other names.
        fairness: the bound on each tenant while the fleet is full; None while it is not.
    """

    fleet: str
    epoch: int
    published_at: str
    replication_factor: int
    members: tuple[Member, ...]
    choice: Choice = Choice.PREFERRED
    request_bound_percent: int = 125
    request_floor: int = 4
    overflow: Overflow = Overflow.OWNERS
    standby_count: int = 0
    exceptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hot: Mapping[str, HotGroup] = field(default_factory=dict)
    cold: tuple[Member, ...] | None = None
    warm: tuple[str, ...] | None = None
    base_models: tuple[str, ...] = ()
    unknown: Unknown = Unknown.COLD
    fairness: Fairness | None = None


class SnapshotError(ValueError):
    """A snapshot that must not be used. `code` is a short constant word, the text a sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class MalformedSnapshotError(SnapshotError):
    """Not a snapshot: too long, not JSON, or a field that is missing, of the wrong type or out of range."""


class UnsupportedSnapshotError(SnapshotError):
    """A snapshot of another version or hash: upgrade the reader before the writer."""


class WrongDigestError(SnapshotError):
    """The digest does not match what was read: damaged on the way, or edited by hand."""


class LowerEpochError(SnapshotError):
    """An epoch below the one in use: an old replica of the source, or a deposed leader's."""


def newest(current: RingSnapshot | None, offered: RingSnapshot) -> RingSnapshot:
    """The snapshot to use from now on. Raises LowerEpochError: a client never goes back."""
    if current is None or offered.epoch > current.epoch:
        return offered
    if offered.epoch < current.epoch:
        raise LowerEpochError(
            "lower-epoch", f"epoch {offered.epoch} is below epoch {current.epoch}, which stays in use"
        )
    return current
