"""One replica: is it saturated, does it thrash, or is it well?

Thrash is told from what waits and for what: on an engine that shows it, the share of waiting requests that are deferred
for an adapter slot while KV cache is to spare; on one that does not, adapter loads per 1,000 requests.
"""

from __future__ import annotations

from autoscaler.domain.diagnosis import Cause, ReplicaFinding, Term
from autoscaler.domain.fleet import Replica
from autoscaler.domain.signals import Fresh
from autoscaler.policy.model import FleetPolicy

FEW_WAITING = 1.0  # below one waiting request a share of them means nothing


def replica_finding(replica: Replica, policy: FleetPolicy) -> ReplicaFinding:
    """What one READY replica's own signals say."""
    signals, rules, scaling = replica.signals, policy.diagnosis, policy.scaling
    if not isinstance(signals.waiting, Fresh) or not isinstance(signals.kv_usage_ratio, Fresh):
        return ReplicaFinding(replica.id, replica.group, Cause.UNKNOWN)
    waiting, kv = signals.waiting.value, signals.kv_usage_ratio.value
    deferred = signals.deferred.value if isinstance(signals.deferred, Fresh) else 0.0
    compute = max(0.0, waiting - deferred)
    saturation = max(compute / scaling.queue_per_replica, kv / scaling.kv_usage_ratio)
    terms = [
        Term("waiting", waiting, None, f"{waiting:.0f} requests wait, {deferred:.0f} of them for an adapter slot"),
        Term(
            "kv_usage_ratio",
            kv,
            rules.idle_kv_ratio,
            f"KV use {kv:.2f}; compute is to spare below {rules.idle_kv_ratio:.2f}",
        ),
    ]
    thrash = 0.0
    if waiting >= FEW_WAITING and kv < rules.idle_kv_ratio:
        thrash = deferred / waiting
    if saturation >= 1:
        cause = Cause.SATURATION
    elif thrash >= rules.deferred_ratio:
        cause = Cause.THRASH
    else:
        cause = Cause.NONE
    return ReplicaFinding(replica.id, replica.group, cause, thrash, saturation, 0.0, tuple(terms))
