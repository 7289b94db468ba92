"""What hurts, where, and how that is known: the findings that tiering, scaling and every view read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Cause(StrEnum):
    """Why requests are slow. Closed; the cures differ, so the words must."""

    NONE = "none"  # nothing hurts
    SATURATION = "saturation"  # compute or KV cache is short: replicas cure it
    THRASH = "thrash"  # adapter slots are short: placement, tiers or slots cure it, replicas do not
    NOISY_NEIGHBOUR = "noisy-neighbour"  # one tenant's load is the others' latency
    BAD_REPLICA = "bad-replica"  # one replica is slow under the load that its peers carry
    ROUTER_IMBALANCE = "router-imbalance"  # some replicas queue while others are idle
    SLOW_ADAPTER_STORE = "slow-adapter-store"  # loads themselves take long
    UNKNOWN = "unknown"  # the signals do not suffice for a verdict


@dataclass(frozen=True, slots=True)
class Term:
    """One number of the evidence, what it is held against, and a sentence with both.

    Attributes:
        name: `deferred_ratio`, `kv_usage_ratio`, `ttft_effect_s`, ...; the unit is in the name.
        value: the number.
        limit: what it is compared with; None where it only informs.
    """

    name: str
    value: float
    limit: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Effect:
    """A difference in seconds, with its 95 % confidence interval. Without enough evidence the interval is infinite.

    Attributes:
        mean_s, low_s, high_s: the estimate and its interval.
        samples: independent comparisons behind it.
        missing: what would be needed for a verdict; empty where the evidence suffices.
    """

    mean_s: float = 0.0
    low_s: float = float("-inf")
    high_s: float = float("inf")
    samples: int = 0
    missing: str = ""


class Basis(StrEnum):
    """How an eviction is known. Closed."""

    SEEN = "seen"  # it left a replica's memory, as shown or modelled, while others came in
    COUNTED = "counted"  # the engine counts its loads; whose they were is told by how often each is asked for
    ESTIMATED = "estimated"  # by how often each is asked for and the adapter slots alone


class Place(StrEnum):
    """Where an adapter was pushed out of. Closed."""

    SLOT = "slot"  # the GPU's adapter slots: it comes back by a copy from the host
    MEMORY = "memory"  # the host's memory: it comes back from the adapter store


@dataclass(frozen=True, slots=True)
class PushedOut:
    """One adapter that others push out, over all its replicas.

    Attributes:
        per_hour: how often. `seen` counts what two looks at a time can show, so it is at least that.
        requests_per_hour: how often it is asked for there; 0 where unknown.
        replicas: where, the most often first.
        by: (adapter, share of the evictions), the largest first, five at most. An empty name stands for several that
            came in between two looks, which cannot be told apart.
        without_per_hour: loads/h of all adapters on these replicas now, and if it were served elsewhere; None where
            that is not known.
    """

    adapter: str
    place: Place
    basis: Basis
    per_hour: float
    requests_per_hour: float = 0.0
    replicas: tuple[str, ...] = ()
    by: tuple[tuple[str, float], ...] = ()
    without_per_hour: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Cure:
    """One thing that would lessen adapter thrash, with what it is expected to do.

    Attributes:
        kind: `slots`, `tier` or `placement`.
        before_per_hour, after_per_hour: adapter loads of the group's READY replicas, without it and with it.
        message: the sentence with the numbers.
    """

    kind: str
    before_per_hour: float
    after_per_hour: float
    message: str


@dataclass(frozen=True, slots=True)
class ReplicaFinding:
    """One replica.

    Attributes:
        thrash: 0..1, 1 = adapter slots explain all of the wait.
        saturation: pressure over target, 1 = at the target; the larger of queue and KV use.
        harm: seconds of first-token lateness over the SLO, summed over requests, per second; findings rank by it.
    """

    replica: str
    group: str
    cause: Cause
    thrash: float = 0.0
    saturation: float = 0.0
    harm: float = 0.0
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupFinding:
    """One group: the cause that explains most of its harm, and the sentence that says so.

    Attributes:
        cure: what would help, a sentence; empty where nothing hurts.
        cures: of a thrashing group: adapter slots, tiers, placement, each with its estimated effect.
    """

    group: str
    cause: Cause
    thrash: float = 0.0
    saturation: float = 0.0
    harm: float = 0.0
    message: str = ""
    cure: str = ""
    terms: tuple[Term, ...] = ()
    cures: tuple[Cure, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantFinding:
    """One tenant that hurts others, or is hurt. Tenants that are neither have no finding.

    Attributes:
        aggressor, victim: 0..1; from the policy's `diagnosis.noisyScore` it is a verdict.
        effect: as an aggressor, what its activity adds to others' TTFT; as a victim, what is added to its own.
        share: of its replicas' tokens, 0..1.
        others: the victims of an aggressor, the aggressors of a victim; worst first.
        added_s: for each of an aggressor's `others`: seconds that its first tokens are later beside the aggressor than
            on its own other owners now; NaN where it has none.
        harm: seconds of first-token lateness over the SLO, summed over requests, per second.
    """

    tenant: str
    aggressor: float = 0.0
    victim: float = 0.0
    effect: Effect = field(default_factory=Effect)
    share: float = 0.0
    others: tuple[str, ...] = ()
    added_s: tuple[float, ...] = ()
    harm: float = 0.0
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of one tick; a group or replica without an entry was not looked at.

    Attributes:
        groups, replicas: by name and id.
        tenants: by id, only those that hurt or are hurt.
        pushed_out: adapters that others push out of memory or adapter slots, the most often first; bounded.
    """

    groups: Mapping[str, GroupFinding] = field(default_factory=dict)
    replicas: Mapping[str, ReplicaFinding] = field(default_factory=dict)
    tenants: Mapping[str, TenantFinding] = field(default_factory=dict)
    pushed_out: tuple[PushedOut, ...] = ()

    def cause(self, group: str) -> Cause:
        """The group's cause; `unknown` where it was not looked at."""
        found = self.groups.get(group)
        return Cause.UNKNOWN if found is None else found.cause
