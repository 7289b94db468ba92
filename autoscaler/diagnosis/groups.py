"""One group: the cause that most of its replicas share, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.domain.diagnosis import Cause, GroupFinding, ReplicaFinding
from autoscaler.policy.model import FleetPolicy


def group_finding(name: str, findings: Sequence[ReplicaFinding], policy: FleetPolicy) -> GroupFinding:
    """What a group's replicas say together."""
    heard = [f for f in findings if f.cause is not Cause.UNKNOWN]
    if not heard:
        return GroupFinding(name, Cause.UNKNOWN, message="no replica shows its queue and KV use")
    thrash = sum(f.thrash for f in heard) / len(heard)
    saturation = sum(f.saturation for f in heard) / len(heard)
    if saturation >= 1:
        return GroupFinding(name, Cause.SATURATION, thrash, saturation, message="compute or KV cache is short")
    if thrash >= policy.diagnosis.deferred_ratio:
        return GroupFinding(name, Cause.THRASH, thrash, saturation, message="requests wait for adapter slots")
    return GroupFinding(name, Cause.NONE, thrash, saturation)
