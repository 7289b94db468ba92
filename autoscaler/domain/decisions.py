"""Reasons, trails, effects, outcomes: how a decision is said, done and remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from autoscaler.domain.fleet import Tier


class Reason(StrEnum):
    """Why a number or a tier is what it is. Closed: every member is documented and reachable."""

    # tiers
    FORECAST_HOT = "ForecastHot"  # the forecast mean passed the promotion threshold
    BURST_ONSET = "BurstOnset"  # a jump, seen before the forecast knew it
    SLO_MISSED = "SloMissed"
    NOISY_NEIGHBOUR = "NoisyNeighbour"
    ISOLATION_ASKED = "IsolationAsked"  # the policy asks for a dedicated group
    OVERRIDE = "Override"
    OVERRIDE_EXPIRED = "OverrideExpired"
    QUIET = "Quiet"  # the upper band stayed below half of the threshold
    WOKE_UP = "WokeUp"  # a cold tenant has traffic again
    ADAPTER_SLOT_BUDGET = "AdapterSlotBudget"  # the working set does not fit, this was the least valuable
    HOT_GROUPS_FULL = "HotGroupsFull"
    DWELL = "Dwell"  # the minimum stay is not over
    UNLOADABLE = "Unloadable"  # no replica could load the adapter
    NEW_TENANT = "NewTenant"
    IN_BAND = "InBand"  # nothing asks for a change
    # scale
    SATURATION = "Saturation"
    FORECAST_DEMAND = "ForecastDemand"
    HEADROOM = "Headroom"  # the load fits fewer replicas with margin
    WITHIN_TOLERANCE = "WithinTolerance"
    THRASH_NOT_SATURATION = "ThrashNotSaturation"
    SIGNALS_MISSING = "SignalsMissing"
    SIGNALS_CONTRADICT = "SignalsContradict"
    STABILISING = "Stabilising"
    STEP_LIMIT = "StepLimit"
    BOUNDS = "Bounds"
    SCHEDULE = "Schedule"
    BUDGET = "Budget"
    CHURN_BUDGET = "ChurnBudget"
    PENDING_REPLICAS = "PendingReplicas"
    PAUSED = "Paused"
    BLOCKED = "Blocked"
    FOREIGN_ACTOR = "ForeignActor"
    FIRST_REQUEST = "FirstRequest"
    IDLE = "Idle"
    GROUP_FOR_TENANT = "GroupForTenant"
    GROUP_NOT_NEEDED = "GroupNotNeeded"
    MODE = "Mode"  # advise or export: computed, not acted on
    ADAPTER_SLOTS_SHORT = "AdapterSlotsShort"
    # ring
    MEMBER_JOINED = "MemberJoined"
    MEMBER_LEFT = "MemberLeft"
    MEMBER_REPLACED = "MemberReplaced"
    REBALANCED = "Rebalanced"
    TIERS_CHANGED = "TiersChanged"
    CATALOGUE_CHANGED = "CatalogueChanged"
    REPLICATION_CHANGED = "ReplicationChanged"
    AWAITING_RESIDENCY = "AwaitingResidency"
    RESIDENCY_DEADLINE = "ResidencyDeadline"
    AWAITING_ACK = "AwaitingAck"
    NOTHING_TO_DO = "NothingToDo"
    # saved state holds places in this list: what is new goes to its end
    MERGE_ADVISED = "MergeAdvised"  # a stable hot tenant's adapter is worth merging; nothing is done about it
    TENANTS_BOUNDED = "TenantsBounded"  # the fleet is full: routers bound each tenant, or cease to
    GROUP_TOO_SMALL = "GroupTooSmall"  # a group of its own may not have the replicas that the tenant needs


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a trail: the value after it, the reason that set it, and a sentence with its numbers."""

    reason: Reason
    value: float | str
    message: str


Trail: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class TierDecision:
    """A tenant's tier before and after, and why. `before` is None for a tenant that was never seen."""

    tenant: str
    before: Tier | None
    after: Tier
    reason: Reason
    trail: Trail
    since_s: float = 0.0
    override_expires_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """Replicas of a group: in the spec now, before limits, after limits, and why."""

    group: str
    tier: Tier
    current: int
    recommended: int
    desired: int
    ready: int
    trail: Trail
    tenant: str = ""

    @property
    def reason(self) -> Reason:
        """The reason that set the desired number."""
        return self.trail[-1].reason


@dataclass(frozen=True, slots=True)
class Condition:
    """Something an operator must know that is no decision: `RouterLag`, `AdapterSlotsShort`, `AdapterFailed/acme`."""

    name: str
    message: str
    since_s: float = 0.0


# Effects, in the order in which they are done. Each is idempotent and derived again from what is observed.


@dataclass(frozen=True, slots=True)
class Grow:
    """Raise a group's replicas; make the group where it does not exist. `tenant`: of a hot group."""

    group: str
    replicas: int
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Renew:
    """Make a group's replicas anew from what they are made from by now, by its platform's own rolling update."""

    group: str


@dataclass(frozen=True, slots=True)
class AssignSlot:
    """Give a replica its slot on the ring."""

    replica: str
    slot: str


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Make an adapter resident on a replica. `reason`: why it is wanted there; `urgent`: an active owner lacks it."""

    replica: str
    adapter: str
    source: str
    revision: str
    reason: Reason
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class OpenGate:
    """The replica's assigned adapters are resident (or the deadline passed): let its platform call it ready."""

    replica: str
    resident: bool


@dataclass(frozen=True, slots=True)
class PublishRing:
    """Publish a snapshot. `body` is its wire form (ring.md), `epoch` one more than the last."""

    epoch: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Drain:
    """Tell a replica that it goes: it is out of the acknowledged ring and finishes what it has."""

    replica: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """Take a drain back: the replica is needed after all, and nobody has ended it yet."""

    replica: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """Lower a group's replicas to `replicas`, by these drained victims; remove the group if `remove`."""

    group: str
    replicas: int
    victims: tuple[str, ...]
    remove: bool = False


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    """Take an adapter that this controller loaded out of a replica."""

    replica: str
    adapter: str


PlatformEffect: TypeAlias = Grow | Renew | AssignSlot | OpenGate | Drain | Undrain | Shrink
Effect: TypeAlias = PlatformEffect | LoadAdapter | PublishRing | UnloadAdapter


@dataclass(frozen=True, slots=True)
class Applied:
    """Done, or already so."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Not done, on purpose."""

    why: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Not done. `retry_after_s` is None where trying again cannot help."""

    error: str
    retry_after_s: float | None = None


Outcome: TypeAlias = Applied | Skipped | Failed


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What became of each effect, in order."""

    outcomes: tuple[tuple[Effect, Outcome], ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision as it is kept, shown and counted.

    Attributes:
        id: `<plan id>/<number>`, unique and ascending in time.
        at_s: when it was decided.
        fleet: the fleet's name.
        step: `tiers`, `scale`, `ring` or `apply`.
        subject: `tenant/acme`, `group/warm`, `ring/epoch`, `replica/...`.
        reason: what set the result.
        before, after: as text.
        message: one sentence.
        trail: the steps, for those who ask.
        data: numbers that views need, JSON scalars only.
    """

    id: str
    at_s: float
    fleet: str
    step: str
    subject: str
    reason: Reason
    before: str
    after: str
    message: str
    trail: Trail = ()
    data: Mapping[str, str | float | int | bool] = field(default_factory=dict)
