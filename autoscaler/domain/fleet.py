"""Replicas, groups, routers, overrides: what a fleet consists of, as it was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autoscaler.domain.signals import UNSEEN, Signal


class Tier(StrEnum):
    """Where a tenant lives. The values are the wire's words."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


class ReplicaState(StrEnum):
    """What a serving process is doing, as its platform and its engine say."""

    PENDING = "pending"  # asked for, not placed on a machine: it has no metrics and counts as no load
    STARTING = "starting"  # the process runs, the engine does not answer yet
    READY = "ready"  # the engine answers; ring membership is another question
    DRAINING = "draining"  # finishes what it has
    FAILED = "failed"  # does not answer, restarts in a loop, or was evicted


class PauseMode(StrEnum):
    """Which scaling of a group an operator has stopped."""

    NONE = "none"
    SCALE_IN = "scale-in"
    SCALE_OUT = "scale-out"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What one engine can hold. Defaults are vLLM's.

    Attributes:
        max_loras: adapter slots, the most distinct adapters in one batch.
        max_cpu_loras: adapters resident in host memory, >= max_loras.
        max_lora_rank: highest rank that loads.
        max_num_seqs: most running requests.
        kv_tokens: KV cache capacity in tokens, 0 where unknown.
    """

    max_loras: int = 1
    max_cpu_loras: int = 1
    max_lora_rank: int = 16
    max_num_seqs: int = 256
    kv_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaSignals:
    """One engine's gauges and windowed rates.

    Attributes:
        running, waiting: requests; `waiting` includes deferred ones.
        deferred: requests that wait for an adapter slot, not for compute.
        kv_usage_ratio: 0..1, the mean over the process's engines.
        ttft_mean_s, ttft_p99_s, queue_time_mean_s, itl_mean_s: over the last window; Missing without traffic.
        late_ratio: share of the last window's first tokens beyond the policy's target; Missing without traffic.
        prompt_tokens_per_s, generation_tokens_per_s, requests_per_s, preemptions_per_s: rates over the last window.
        adapter_loads_per_s, adapter_load_mean_s: host to GPU, where the engine shows them.
    """

    running: Signal = UNSEEN
    waiting: Signal = UNSEEN
    deferred: Signal = UNSEEN
    kv_usage_ratio: Signal = UNSEEN
    ttft_mean_s: Signal = UNSEEN
    ttft_p99_s: Signal = UNSEEN
    late_ratio: Signal = UNSEEN
    queue_time_mean_s: Signal = UNSEEN
    itl_mean_s: Signal = UNSEEN
    prompt_tokens_per_s: Signal = UNSEEN
    generation_tokens_per_s: Signal = UNSEEN
    requests_per_s: Signal = UNSEEN
    preemptions_per_s: Signal = UNSEEN
    adapter_loads_per_s: Signal = UNSEEN
    adapter_load_mean_s: Signal = UNSEEN


@dataclass(frozen=True, slots=True)
class Replica:
    """One serving process.

    Attributes:
        id: unique while it lives (a pod's name).
        group: the group that it scales with.
        slot: its stable identity on the ring, None until one is given.
        address: `host:port` of its HTTP API, empty while pending.
        state: what it is doing.
        started_at_s: when the process started, on the observation's clock.
        revision: what it was made from (a template hash); replicas of one rollout differ in it.
        limits: its engine's limits.
        signals: its engine's gauges.
        registered: adapter ids its API knows, None where the list could not be read. Not residency.
        resident: adapter ids in the engine's memory, as it shows them or else as modelled; None where neither is known.
        in_flight: requests that routers have open on it.
        replaces: id of the older replica whose place it takes in a rolling update, empty if none.
        gated: whether its platform holds it unready until its gate is opened.
        recallable: DRAINING by a controller's mark alone: without the mark it serves again.
    """

    id: str
    group: str
    slot: str | None
    address: str
    state: ReplicaState
    started_at_s: float = 0.0
    revision: str = ""
    limits: EngineLimits = field(default_factory=EngineLimits)
    signals: ReplicaSignals = field(default_factory=ReplicaSignals)
    registered: frozenset[str] | None = None
    resident: frozenset[str] | None = None
    in_flight: Signal = UNSEEN
    replaces: str = ""
    gated: bool = False
    recallable: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Replicas that scale together.

    Attributes:
        name: `warm`, `cold`, or `hot-<adapter or tenant>`.
        tier: which tier it serves.
        current_replicas: what its target's spec says.
        tenant: the tenant that a hot group belongs to, else empty.
        pause: what an operator stopped, with the reason.
        foreign_actor: who else changed its replicas since our last change (a field manager's name), empty if nobody.
        blocked: why the platform cannot act on it now (deleted, paused, in rollout, over quota), empty if it can.
        outdated: what its replicas are made from has changed since, and it is its turn to follow.
    """

    name: str
    tier: Tier
    current_replicas: int
    tenant: str = ""
    pause: PauseMode = PauseMode.NONE
    pause_reason: str = ""
    foreign_actor: str = ""
    blocked: str = ""
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class Router:
    """A router, and the ring epoch that it says it applies. `age_s`: since it was last heard of."""

    id: str
    epoch: int
    age_s: float


LONGEST_OVERRIDE_S = 90 * 86400.0
"""An override that should last longer than a quarter belongs into the policy."""


@dataclass(frozen=True, slots=True)
class Override:
    """An operator's word on a tenant's tier. It beats policy, not physical limits, and it ends.

    Attributes:
        actor: who, from the credential.
        created_at_s, expires_at_s: on the observation's clock.
        revision: grows with each change of this tenant's override; the ETag of the API.
    """

    tenant: str
    tier: Tier
    reason: str
    actor: str
    created_at_s: float
    expires_at_s: float
    revision: int = 1


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """An adapter that a replica did not load.

    Attributes:
        attempts: how many failed in a row.
        retry_at_s: when the next one may be made; infinite where trying again cannot help.
        error: the engine's own words.
    """

    attempts: int
    retry_at_s: float
    error: str


@dataclass(frozen=True, slots=True)
class LoadLedger:
    """What this controller loaded and what failed, by replica id; it dies with the replica's process.

    Attributes:
        loaded: adapter id -> revision, for loads that the engine answered with success.
        failed: adapter id -> the failure.
        foreign: adapter ids registered on the replica that this controller did not load.
    """

    loaded: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    failed: Mapping[str, Mapping[str, LoadFailure]] = field(default_factory=dict)
    foreign: Mapping[str, frozenset[str]] = field(default_factory=dict)
