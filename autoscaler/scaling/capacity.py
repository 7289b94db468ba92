"""What one replica carries, learnt from what it was seen to carry: a good queue target varies threefold with the mix,
tokens per second at the targets do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.diagnosis import Cause, Diagnosis, ReplicaFinding
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling.memory import CapacityMemory, ScalingMemory
from autoscaler.scaling.readings import capacity_waiting, tokens_per_s

MEASURED_FROM = 3  # samples; one alone may be a burst that the window cut in half
NEAR = 0.7  # of the KV target: from here to the target a batch's cost grows by a tenth
QUEUED = 0.2  # of the queue target: at the default of 5, one request waits for compute
SMOOTHING = 0.1  # of each new tick: about 7 ticks to follow half of a change of mix
PROVEN_HALF_LIFE_S = 43_200.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica of a group carries.

    Attributes:
        tokens_per_s: Missing where it was neither stated nor measured.
        proven_tokens_per_s: highest load carried without pressure; 0 where none was seen. A lower bound.
        source: `policy`, `measured`, `proven` (none came near its targets yet), `unknown`.
    """

    tokens_per_s: Signal
    proven_tokens_per_s: float = 0.0
    source: str = "unknown"


def capacity_of(memory: ScalingMemory, policy: FleetPolicy, group: str) -> Capacity:
    """What a replica of `group` carries: what the policy states, else what was measured there, else on `warm`.

    A new hot group has not been measured; the warm group's replicas are made alike.
    """
    own = memory.groups.get(group)
    if own is None or own.capacity.samples < MEASURED_FROM:
        own = memory.groups.get("warm", own)
    learnt = CapacityMemory() if own is None else own.capacity
    proven = learnt.proven_tokens_per_s
    stated = policy.scaling.capacity_tokens_per_s
    if stated is not None:
        return Capacity(Fresh(stated), proven, "policy")
    if learnt.samples >= MEASURED_FROM:
        return Capacity(Fresh(max(learnt.tokens_per_s, proven)), proven, "measured")
    if proven > 0:
        return Capacity(Missing("no replica came near its targets yet"), proven, "proven")
    return Capacity(Missing("no replica was seen to serve yet"))


def learn(
    memory: CapacityMemory, replicas: Sequence[Replica], diagnosis: Diagnosis, policy: FleetPolicy, now_s: float
) -> CapacityMemory:
    """Capacity after one tick of one group's replicas. A thrashing or sick replica teaches nothing about compute.

    Near its KV target a replica carries its tokens/s over its KV pressure: at 900 tokens/s and KV .72 of a target of
    .8, that is 1,000. Batches grow costlier as they fill, so this is read from `NEAR` on only. While requests wait for
    compute it carries what it does, once that has lasted for the window that rates are taken over.
    """
    if now_s <= memory.at_s:
        return memory
    well = [r for r in replicas if r.state is ReplicaState.READY and not _sick(diagnosis.replicas.get(r.id))]
    seen = [Seen(t, *p) for r in well if (t := tokens_per_s(r.signals)) and (p := _pressure(r, policy)) is not None]
    queued = [s.tokens_per_s for s in seen if s.queue >= QUEUED]
    near = [s.tokens_per_s / s.kv for s in seen if s.queue < QUEUED and s.kv >= NEAR]
    calm = [s.tokens_per_s for s in seen if s.queue < QUEUED and s.kv < 1.0]
    since_s = None if not queued else now_s if memory.queued_since_s is None else memory.queued_since_s
    lasting = since_s is not None and now_s - since_s >= policy.signals.window_s
    fade = 0.5 ** ((now_s - memory.at_s) / PROVEN_HALF_LIFE_S) if memory.at_s else 1.0
    proven = max([memory.proven_tokens_per_s * fade, *calm])
    memory = replace(memory, proven_tokens_per_s=proven, queued_since_s=since_s, at_s=now_s)
    samples = near + (queued if lasting else [])
    if not samples:
        return memory
    step = max(SMOOTHING, 1.0 / (memory.samples + 1))
    moved = memory.tokens_per_s + step * (sum(samples) / len(samples) - memory.tokens_per_s)
    return replace(memory, tokens_per_s=moved, samples=memory.samples + 1)


@dataclass(frozen=True, slots=True)
class Seen:
    """One replica at one tick: its throughput, and its KV use and queue over their targets."""

    tokens_per_s: float
    kv: float
    queue: float


def _sick(finding: ReplicaFinding | None) -> bool:
    return finding is not None and finding.cause in (Cause.THRASH, Cause.BAD_REPLICA, Cause.SLOW_ADAPTER_STORE)


def _pressure(replica: Replica, policy: FleetPolicy) -> tuple[float, float] | None:
    """KV use and queue over their targets; None where either is unknown."""
    waiting = capacity_waiting(replica.signals)
    if waiting is None or not isinstance(replica.signals.kv_usage_ratio, Fresh):
        return None
    scaling = policy.scaling
    return replica.signals.kv_usage_ratio.value / scaling.kv_usage_ratio, waiting / scaling.queue_per_replica
