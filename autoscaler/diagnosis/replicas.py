"""One replica by itself: saturated, thrashing, kept waiting by its adapter store, or well.

Thrash is latency without lack of compute. It is told, while KV cache is to spare, from the share of waiting requests
that are deferred for an adapter slot; from adapter loads per 1,000 requests; and on engines that show neither, from
requests that wait although running ones are below their limit while more adapters are in use than there are slots.
Worked numbers, vLLM with 2 slots and 6 adapters: 16 waiting, 13 of them deferred, KV use .002: thrash .81.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.diagnosis import Cause, ReplicaFinding, Term
from autoscaler.domain.fleet import Replica
from autoscaler.domain.signals import Fresh, Signal, value_or
from autoscaler.policy.model import FleetPolicy

FEW_WAITING = 1.0  # below one waiting request a share of them means nothing
SLOW_LOAD_S = 0.25  # host to GPU takes .004 to .009 s; a quarter of a second is a store, not a copy
LOADING_RATIO = 0.1  # of a replica's time spent in loads, which stall every request on it


@dataclass(frozen=True, slots=True)
class Numbers:
    """One replica's signals, None where unknown; `late` is seconds of lateness over the SLO per second."""

    waiting: float
    deferred: float | None
    running: float
    kv: float
    requests: float | None
    ttft: float | None
    loads: float | None
    load_s: float | None
    working_set: int
    late: float


def finding(replica: Replica, working_set: int, late: float, policy: FleetPolicy) -> ReplicaFinding:
    """What one READY replica's own signals say. `working_set`: adapters with traffic on it."""
    signals, slots = replica.signals, replica.limits.max_loras
    if not isinstance(signals.waiting, Fresh) or not isinstance(signals.kv_usage_ratio, Fresh):
        missing = Term("signals", 0.0, None, "its queue and KV use are not shown, so nothing is concluded")
        return ReplicaFinding(replica.id, replica.group, Cause.UNKNOWN, harm=late, terms=(missing,))
    seen = Numbers(
        waiting=signals.waiting.value,
        deferred=_known(signals.deferred),
        running=value_or(signals.running, 0.0),
        kv=signals.kv_usage_ratio.value,
        requests=_known(signals.requests_per_s),
        ttft=_known(signals.ttft_mean_s),
        loads=_known(signals.adapter_loads_per_s),
        load_s=_known(signals.adapter_load_mean_s),
        working_set=working_set,
        late=late,
    )
    scaling = policy.scaling
    compute = max(0.0, seen.waiting - (seen.deferred or 0.0))
    saturation = max(compute / scaling.queue_per_replica, seen.kv / scaling.kv_usage_ratio)
    thrash = _thrash(seen, slots, replica.limits.max_num_seqs, policy)
    cause = _cause(seen, thrash, saturation, policy)
    return ReplicaFinding(
        replica.id, replica.group, cause, thrash, saturation, _harm(seen, policy), _terms(seen, slots, policy)
    )


def _known(signal: Signal) -> float | None:
    return signal.value if isinstance(signal, Fresh) else None


def _harm(seen: Numbers, policy: FleetPolicy) -> float:
    """Lateness as routers see it per tenant, else as the engine's mean says."""
    if seen.late > 0 or seen.ttft is None:
        return seen.late
    return max(0.0, seen.ttft - policy.slo.ttft_s) * (seen.requests or 0.0)


def _loads_per_1000(seen: Numbers, policy: FleetPolicy) -> float | None:
    if seen.loads is None or seen.requests is None:
        return None
    enough = seen.requests * policy.signals.window_s >= policy.diagnosis.min_requests
    return 1000.0 * seen.loads / seen.requests if enough and seen.requests > 0 else None


def _thrash(seen: Numbers, slots: int, most_running: int, policy: FleetPolicy) -> float:
    """0..1; 0 where compute is short, or where nobody waits and nobody is late."""
    rules = policy.diagnosis
    if seen.kv >= rules.idle_kv_ratio:
        return 0.0
    late = seen.ttft is not None and seen.ttft > policy.slo.ttft_s
    shares = [0.0]
    if seen.waiting >= FEW_WAITING and seen.deferred is not None:
        shares.append(min(1.0, seen.deferred / seen.waiting))
    loads = _loads_per_1000(seen, policy)
    if loads is not None and (late or seen.waiting >= FEW_WAITING) and seen.working_set > slots:
        shares.append(min(1.0, rules.deferred_ratio * loads / rules.thrash_loads_per_1000))
    spare = seen.running < 0.9 * most_running
    if seen.deferred is None and seen.waiting >= FEW_WAITING and spare and seen.working_set > slots:
        shares.append(1.0 - slots / (2.0 * seen.working_set))  # from .5 on: waiting beside spare compute has one cause
    return max(shares)


def _cause(seen: Numbers, thrash: float, saturation: float, policy: FleetPolicy) -> Cause:
    late = seen.ttft is not None and seen.ttft > policy.slo.ttft_s
    loading = (seen.loads or 0.0) * (seen.load_s or 0.0)
    if late and (seen.load_s or 0.0) >= SLOW_LOAD_S and loading >= LOADING_RATIO:
        return Cause.SLOW_ADAPTER_STORE
    if thrash >= policy.diagnosis.deferred_ratio:
        return Cause.THRASH
    return Cause.SATURATION if saturation >= 1 else Cause.NONE


def _terms(seen: Numbers, slots: int, policy: FleetPolicy) -> tuple[Term, ...]:
    rules, slo_s = policy.diagnosis, policy.slo.ttft_s
    deferred = "an unknown number" if seen.deferred is None else f"{seen.deferred:.0f}"
    queue = f"{seen.waiting:.0f} requests wait, {deferred} of them for an adapter slot"
    spare = f"KV use {seen.kv:.2g}; compute is to spare below {rules.idle_kv_ratio:.2g}"
    used = f"{seen.working_set} adapters in use, {slots} adapter slots"
    terms = [
        Term("waiting", seen.waiting, None, queue),
        Term("kv_usage_ratio", seen.kv, rules.idle_kv_ratio, spare),
        Term("working_set", seen.working_set, slots, used),
    ]
    loads, many = _loads_per_1000(seen, policy), rules.thrash_loads_per_1000
    if loads is not None:
        text = f"{loads:.0f} adapter loads per 1,000 requests, many from {many:.0f}"
        terms.append(Term("adapter_loads_per_1000", loads, many, text))
    if seen.load_s is not None:
        terms.append(Term("adapter_load_s", seen.load_s, SLOW_LOAD_S, f"a load takes {seen.load_s:.3g} s"))
    if seen.ttft is not None:
        terms.append(Term("ttft_mean_s", seen.ttft, slo_s, f"mean TTFT {seen.ttft:.3g} s, SLO {slo_s:.3g} s"))
    return tuple(terms)
