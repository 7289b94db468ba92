"""What one replica carries, learnt from what it was seen to carry: a good queue target varies threefold with the mix,
tokens per second at the targets do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.diagnosis import Cause, Diagnosis, ReplicaFinding
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.signals import Fresh, Missing, Signal, value_or
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling.batching import carried, resized, seen_at
from autoscaler.scaling.lateness import in_time
from autoscaler.scaling.memory import CapacityMemory, ScalingMemory
from autoscaler.scaling.readings import capacity_waiting, tokens_per_s, weighted

MEASURED_FROM = 3  # samples; one alone may be a burst that the window cut in half
NEAR = 0.7  # of the KV target: from here to the target a batch's cost grows by a tenth
QUEUED = 1.0  # of the queue target: a request that happens to wait when it is counted is no queue
SMOOTHING = 0.1  # of each new tick: about 7 ticks to follow half of a change of mix
PROVEN_HALF_LIFE_S = 43_200.0
IN_TIME = "in time"
ALIKE = 0.8  # groups of sizes within this ratio serve about as many adapters a replica


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica of a group carries.

    Attributes:
        tokens_per_s: Missing where it was neither stated nor measured.
        proven_tokens_per_s: highest load carried without pressure; 0 where none was seen. A lower bound.
        source: `policy`, `measured` (at its targets), `fitted` (from smaller batches), `in time` (by the load from
            which first tokens were late, or up to which they were not), `proven` (none came near its targets yet),
            `unknown`.
    """

    tokens_per_s: Signal
    proven_tokens_per_s: float = 0.0
    source: str = "unknown"


def capacity_of(memory: ScalingMemory, policy: FleetPolicy, group: str) -> Capacity:
    """What a replica of `group` carries: what the policy states, else what was learnt there, else on `warm`.

    A new hot group has not been measured; the warm group's replicas are made alike. What was measured at the targets
    bounds what smaller batches promise, as long as the group has about the size that it had then.
    """
    own = memory.groups.get(group)
    if own is None or not _knows(own.capacity):
        own = memory.groups.get("warm", own)
    learnt = CapacityMemory() if own is None else own.capacity
    proven = learnt.proven_tokens_per_s
    stated = policy.scaling.capacity_tokens_per_s
    if stated is not None:
        return Capacity(Fresh(stated), proven, "policy")
    return _within_slo(_carried(learnt), learnt, policy)


def _carried(learnt: CapacityMemory) -> Capacity:
    """What compute carries, late or not."""
    proven = learnt.proven_tokens_per_s
    fitted = learnt.fitted_tokens_per_s if learnt.fitted_tokens_per_s > 0 else None
    measured = None if learnt.samples < MEASURED_FROM else learnt.tokens_per_s
    if fitted is not None and (measured is None or fitted <= measured or not _alike(learnt)):
        return Capacity(Fresh(fitted), proven, "fitted")
    if measured is not None:
        return Capacity(Fresh(measured if fitted is not None else max(measured, proven)), proven, "measured")
    if proven > 0:
        return Capacity(Missing("no replica came near its targets yet"), proven, "proven")
    return Capacity(Missing("no replica was seen to serve yet"))


def _within_slo(capacity: Capacity, learnt: CapacityMemory, policy: FleetPolicy) -> Capacity:
    """The capacity up to where first tokens are in time, where lateness was seen to begin earlier, or later."""
    if isinstance(capacity.tokens_per_s, Missing):
        return capacity
    promised = capacity.tokens_per_s.value
    proven, most = in_time(learnt.levels, 1.0 - policy.slo.objective_ratio)
    wanted = max(min(promised, most), min(proven, most))
    if wanted == promised or not 0.0 < wanted < math.inf:
        return capacity
    return replace(capacity, tokens_per_s=Fresh(wanted), source=IN_TIME)


def _knows(memory: CapacityMemory) -> bool:
    return memory.samples >= MEASURED_FROM or memory.fitted_tokens_per_s > 0


def _alike(memory: CapacityMemory) -> bool:
    """Whether the group has about the size now that it had when it was measured at its targets."""
    sizes = memory.replicas, memory.measured_replicas
    return min(sizes) >= ALIKE * max(sizes)


def learn(
    memory: CapacityMemory, replicas: Sequence[Replica], diagnosis: Diagnosis, policy: FleetPolicy, now_s: float
) -> CapacityMemory:
    """Capacity after one tick of one group's replicas. A sick replica teaches nothing about compute.

    Near its KV target a replica carries its tokens/s over its KV pressure: at 900 tokens/s and KV .72 of a target of
    .8, that is 1,000. Batches grow costlier as they fill, so this is read from `NEAR` on only. While requests wait for
    compute it carries what it does, once that has lasted for the window that rates are taken over. A replica that
    thrashes is at no target of compute, but what its batches cost meanwhile is what they cost with its adapters.
    """
    if now_s <= memory.at_s:
        return memory
    ready = [r for r in replicas if r.state is ReplicaState.READY]
    cause = {r.id: _cause(diagnosis.replicas.get(r.id)) for r in ready}
    known = {r.id: s for r in ready if (s := _seen(r, policy)) is not None}
    able = [r for r in ready if cause[r.id] not in SICK]
    heard = [r for r in able if r.id in known]
    calm = [r for r in heard if cause[r.id] is not Cause.THRASH]
    late = None
    if _settled(memory, len(ready), policy, now_s):
        late = weighted([r.signals for r in calm], [r.signals.late_ratio for r in calm])
    memory = _fitted(memory, len(ready), able, [known[r.id] for r in heard], late, now_s)
    return replace(_measured(memory, len(ready), [known[r.id] for r in calm], policy, now_s), at_s=now_s)


def _measured(
    memory: CapacityMemory, ready: int, seen: Sequence[Seen], policy: FleetPolicy, now_s: float
) -> CapacityMemory:
    """The memory with what replicas carry at their targets, and with the most that any mean one carried with ease."""
    queued = [s.tokens_per_s for s in seen if s.queue >= QUEUED]
    near = [s.tokens_per_s / s.kv for s in seen if s.queue < QUEUED and s.kv >= NEAR]
    calm = [s.tokens_per_s for s in seen if s.queue < QUEUED and s.kv < 1.0]
    since_s = None if not queued else now_s if memory.queued_since_s is None else memory.queued_since_s
    lasting = since_s is not None and now_s - since_s >= policy.signals.window_s
    fade = 0.5 ** ((now_s - memory.at_s) / PROVEN_HALF_LIFE_S) if memory.at_s else 1.0
    proven = max(memory.proven_tokens_per_s * fade, sum(calm) / len(calm) if calm else 0.0)
    memory = replace(memory, proven_tokens_per_s=proven, queued_since_s=since_s)
    samples = near + (queued if lasting else [])
    if not samples:
        return memory
    if not _alike(memory):
        memory = replace(memory, samples=0)
    step = max(SMOOTHING, 1.0 / (memory.samples + 1))
    moved = memory.tokens_per_s + step * (sum(samples) / len(samples) - memory.tokens_per_s)
    return replace(memory, tokens_per_s=moved, samples=memory.samples + 1, measured_replicas=ready)


def _settled(memory: CapacityMemory, ready: int, policy: FleetPolicy, now_s: float) -> bool:
    """Whether the group has had its size for two windows: adapters that load after a change delay at any load."""
    return ready == memory.replicas and now_s - memory.resized_s >= 2.0 * policy.signals.window_s


def _fitted(
    memory: CapacityMemory, ready: int, able: Sequence[Replica], seen: Sequence[Seen], late: float | None, now_s: float
) -> CapacityMemory:
    """The memory with this tick's mean replica among its levels, and with the batch that its limits allow."""
    levels = resized(memory.levels, memory.replicas, ready)
    since_s = memory.resized_s if ready == memory.replicas else now_s
    memory = replace(memory, levels=levels, replicas=ready or memory.replicas, resized_s=since_s)
    if not seen:
        return memory
    running, kv = (sum(column) / len(seen) for column in zip(*((s.running, s.kv) for s in seen), strict=True))
    tokens = sum(s.tokens_per_s for s in seen) / len(seen)
    by_seqs = float(min(r.limits.max_num_seqs for r in able))
    kv_each = memory.kv_each if running < 1.0 else kv / running
    kv_each = kv_each if memory.kv_each <= 0 else memory.kv_each + SMOOTHING * (kv_each - memory.kv_each)
    most = by_seqs if kv_each <= 0 else min(by_seqs, 1.0 / kv_each)
    levels = seen_at(levels, running, tokens, now_s - memory.at_s if memory.at_s else 0.0, late)
    fitted = carried(levels, most)  # None once loads are alike again: what they told before holds
    known = memory.fitted_tokens_per_s if fitted is None else fitted
    return replace(memory, levels=levels, kv_each=kv_each, most_running=most, fitted_tokens_per_s=known)


@dataclass(frozen=True, slots=True)
class Seen:
    """One replica at one tick: throughput, batch, KV use and queue over their targets."""

    tokens_per_s: float
    running: float
    kv: float
    queue: float


SICK = (Cause.BAD_REPLICA, Cause.SLOW_ADAPTER_STORE)


def _cause(finding: ReplicaFinding | None) -> Cause:
    return Cause.NONE if finding is None else finding.cause


def _seen(replica: Replica, policy: FleetPolicy) -> Seen | None:
    """None where throughput, KV use or queue are unknown, or nothing is served."""
    signals, scaling = replica.signals, policy.scaling
    waiting, tokens = capacity_waiting(signals), tokens_per_s(signals)
    if not tokens or waiting is None or not isinstance(signals.kv_usage_ratio, Fresh):
        return None
    running = value_or(signals.running, 0.0)
    return Seen(
        tokens,
        running,
        signals.kv_usage_ratio.value / scaling.kv_usage_ratio,
        waiting / scaling.queue_per_replica,
    )
