"""One group: the cause that explains what its replicas suffer from, the sentence that says so, and the cure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autoscaler.domain.diagnosis import Cause, GroupFinding, ReplicaFinding, TenantFinding, Term
from autoscaler.domain.fleet import Replica
from autoscaler.domain.signals import value_or
from autoscaler.policy.model import FleetPolicy


def finding(
    name: str,
    replicas: Sequence[Replica],
    found: Mapping[str, ReplicaFinding],
    guilty: Sequence[TenantFinding],
    policy: FleetPolicy,
) -> GroupFinding:
    """What a group's READY replicas say together. `guilty`: noisy neighbours on them, worst first."""
    heard = [r for r in replicas if found[r.id].cause is not Cause.UNKNOWN]
    if not heard:
        return GroupFinding(name, Cause.UNKNOWN, message="no ready replica shows its queue and KV use")
    thrash = _thrash(heard, found)
    saturation = sum(found[r.id].saturation for r in heard) / len(heard)
    harm = sum(found[r.id].harm for r in heard)
    cause, message, cure, terms = _cause(heard, found, thrash, saturation, guilty, policy)
    return GroupFinding(name, cause, thrash, saturation, harm, message, cure, terms)


def _thrash(replicas: Sequence[Replica], found: Mapping[str, ReplicaFinding]) -> float:
    """Mean thrash, weighted by what waits: an idle replica does not dilute one that suffers."""
    weights = {r.id: value_or(r.signals.waiting, 0.0) + found[r.id].harm + 1e-9 for r in replicas}
    return sum(found[r.id].thrash * weights[r.id] for r in replicas) / sum(weights.values())


def _cause(
    replicas: Sequence[Replica],
    found: Mapping[str, ReplicaFinding],
    thrash: float,
    saturation: float,
    guilty: Sequence[TenantFinding],
    policy: FleetPolicy,
) -> tuple[Cause, str, str, tuple[Term, ...]]:
    kv = sum(value_or(r.signals.kv_usage_ratio, 0.0) for r in replicas) / len(replicas)
    if thrash >= policy.diagnosis.deferred_ratio and kv < policy.diagnosis.idle_kv_ratio:
        return Cause.THRASH, _thrash_text(replicas, kv), _thrash_cure(replicas, found), _worst(found, replicas)
    if saturation >= 1 and _even(replicas, found) >= 1:
        text = f"queue or KV use is at {saturation:.2f} of its target on average"
        return Cause.SATURATION, text, "more replicas", _worst(found, replicas)
    for cause, cure in _ONE_REPLICA:
        odd = [r.id for r in replicas if found[r.id].cause is cause]
        if odd:
            return cause, f"{', '.join(odd[:5])}: {found[odd[0]].terms[0].message}", cure, found[odd[0]].terms
    if guilty:
        worst = guilty[0]
        return Cause.NOISY_NEIGHBOUR, f"{worst.tenant}: {worst.terms[-1].message}", _ISOLATE, worst.terms
    return Cause.NONE, "", "", ()


def _even(replicas: Sequence[Replica], found: Mapping[str, ReplicaFinding]) -> float:
    """Mean saturation of those that are not odd: one queue of 40 beside five idle replicas is no lack of compute."""
    usual = [found[r.id].saturation for r in replicas if found[r.id].cause not in _ODD]
    return sum(usual) / len(usual) if usual else 1.0


_ODD = (Cause.BAD_REPLICA, Cause.ROUTER_IMBALANCE, Cause.SLOW_ADAPTER_STORE)
_ISOLATE = "a group of its own, or a bound on its requests in flight"
_ONE_REPLICA = (
    (Cause.SLOW_ADAPTER_STORE, "a faster adapter store, or host memory for every adapter the replica owns"),
    (Cause.BAD_REPLICA, "replace the replica; its slot keeps its adapters in place"),
    (Cause.ROUTER_IMBALANCE, "check that routers apply the current epoch and its bound on requests in flight"),
)


def _thrash_text(replicas: Sequence[Replica], kv: float) -> str:
    waiting = sum(value_or(r.signals.waiting, 0.0) for r in replicas)
    deferred = sum(value_or(r.signals.deferred, 0.0) for r in replicas)
    return f"{waiting:.0f} requests wait, {deferred:.0f} of them for an adapter slot, at KV use {kv:.2g}"


def _thrash_cure(replicas: Sequence[Replica], found: Mapping[str, ReplicaFinding]) -> str:
    """What would end it: loads vanish where the adapters in use on a replica fit its slots."""
    sets = {r.id: next((t.value for t in found[r.id].terms if t.name == "working_set"), 0.0) for r in replicas}
    worst = max(replicas, key=lambda r: (sets[r.id] - r.limits.max_loras, r.id))
    used, slots = int(sets[worst.id]), worst.limits.max_loras
    if used <= slots:
        return "fewer adapters per replica by placement or tiers, or more adapter slots; replicas alone do not help"
    spread = math.ceil(len(replicas) * used / max(slots, 1))
    return (
        f"{used} adapter slots on {worst.id} instead of {slots}, or fewer adapters there by placement or tiers; "
        f"replicas would cure it only by number, from {len(replicas)} to about {spread}"
    )


def _worst(found: Mapping[str, ReplicaFinding], replicas: Sequence[Replica]) -> tuple[Term, ...]:
    worst = max(replicas, key=lambda r: (found[r.id].harm, found[r.id].thrash, found[r.id].saturation, r.id))
    return found[worst.id].terms
