"""What one replica carries, learnt from what it was seen to carry: a good queue target varies threefold with the mix,
tokens per second at saturation do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.diagnosis import Cause, Diagnosis
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.signals import Fresh, Missing, Signal, value_or
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling.memory import CapacityMemory, ScalingMemory
from autoscaler.scaling.readings import capacity_waiting, tokens_per_s

MEASURED_FROM = 3  # saturated ticks; one alone may be a burst that the window cut in half
SMOOTHING = 0.1  # of each new saturated tick: about 7 ticks to follow half of a change of mix
PROVEN_HALF_LIFE_S = 43_200.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica of a group carries.

    Attributes:
        tokens_per_s: Missing where it was neither stated nor measured.
        proven_tokens_per_s: highest load carried without pressure; 0 where none was seen. A lower bound.
        source: `policy`, `measured`, `proven` (no saturation was seen yet), `unknown`.
    """

    tokens_per_s: Signal
    proven_tokens_per_s: float = 0.0
    source: str = "unknown"


def capacity_of(memory: ScalingMemory, policy: FleetPolicy, group: str) -> Capacity:
    """What a replica of `group` carries: what the policy states, else what was measured there, else on `warm`.

    A new hot group has not been measured; the warm group's replicas are made alike.
    """
    own = memory.groups.get(group)
    if own is None or own.capacity.saturated_samples < MEASURED_FROM:
        own = memory.groups.get("warm", own)
    learnt = CapacityMemory() if own is None else own.capacity
    proven = learnt.proven_tokens_per_s
    stated = policy.scaling.capacity_tokens_per_s
    if stated is not None:
        return Capacity(Fresh(stated), proven, "policy")
    if learnt.saturated_samples >= MEASURED_FROM:
        return Capacity(Fresh(max(learnt.saturated_tokens_per_s, proven)), proven, "measured")
    if proven > 0:
        return Capacity(Missing("no replica was saturated yet"), proven, "proven")
    return Capacity(Missing("no replica was seen to serve yet"))


def learn(
    memory: CapacityMemory, replicas: Sequence[Replica], diagnosis: Diagnosis, policy: FleetPolicy, now_s: float
) -> CapacityMemory:
    """Capacity after one tick of one group's replicas. A thrashing or sick replica teaches nothing about compute."""
    if now_s <= memory.at_s:
        return memory
    saturated: list[float] = []
    calm: list[float] = []
    for replica in replicas:
        tokens, pressure = tokens_per_s(replica.signals), _pressure(replica, policy)
        finding = diagnosis.replicas.get(replica.id)
        sick = finding is not None and finding.cause in (Cause.THRASH, Cause.BAD_REPLICA, Cause.SLOW_ADAPTER_STORE)
        if replica.state is ReplicaState.READY and tokens and pressure is not None and not sick:
            (saturated if pressure >= 1.0 else calm).append(tokens)
    since_s = None if not saturated else now_s if memory.saturated_since_s is None else memory.saturated_since_s
    fade = 0.5 ** ((now_s - memory.at_s) / PROVEN_HALF_LIFE_S) if memory.at_s else 1.0
    proven = max([memory.proven_tokens_per_s * fade, *calm])
    memory = replace(memory, proven_tokens_per_s=proven, saturated_since_s=since_s, at_s=now_s)
    if since_s is None or now_s - since_s < policy.signals.window_s:
        return memory  # rates still cover the time before: they would say less than a replica carries
    mean = sum(saturated) / len(saturated)
    step = max(SMOOTHING, 1.0 / (memory.saturated_samples + 1))
    return replace(
        memory,
        saturated_tokens_per_s=memory.saturated_tokens_per_s + step * (mean - memory.saturated_tokens_per_s),
        saturated_samples=memory.saturated_samples + 1,
    )


def _pressure(replica: Replica, policy: FleetPolicy) -> float | None:
    """Queue or KV use over target, the larger; None where unknown."""
    waiting = capacity_waiting(replica.signals)
    if waiting is None or not isinstance(replica.signals.kv_usage_ratio, Fresh):
        return None
    scaling = policy.scaling
    kv = value_or(replica.signals.kv_usage_ratio, 0.0)
    return max(waiting / scaling.queue_per_replica, kv / scaling.kv_usage_ratio)
