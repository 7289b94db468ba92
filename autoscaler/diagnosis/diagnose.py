"""One tick of diagnosis: pairs, replicas by themselves, replicas among their peers, tenants, groups."""

from __future__ import annotations

import math
from dataclasses import replace

from autoscaler.diagnosis import displacement, groups, neighbours, peers, replicas, residents
from autoscaler.diagnosis.memory import DiagnosisMemory
from autoscaler.diagnosis.pairs import table
from autoscaler.domain.diagnosis import Cause, Diagnosis, ReplicaFinding, Term
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
        Findings for every group and READY replica, and for the tenants that are loud, hurt others or are hurt; memory
        for the next tick.
    """
    pairs = table(observation, policy)
    ready = [(i, r) for i, r in enumerate(observation.replicas) if r.state is ReplicaState.READY]
    found: dict[str, ReplicaFinding] = {
        r.id: replicas.finding(r, int(pairs.working_set[i]), float(pairs.late[i]), policy) for i, r in ready
    }
    slow: dict[str, Term] = {}
    uneven: dict[str, Term] = {}
    by_group = {name: [r for _, r in ready if r.group == name] for name in sorted(observation.groups)}
    for members in by_group.values():
        odd = peers.compare(members, found, memory.odd_since_s.keys())
        slow |= odd.slow
        uneven |= odd.uneven
    odd_since_s = peers.since(slow, memory.odd_since_s, now_s)
    uneven_since_s = peers.since(uneven, memory.uneven_since_s, now_s)
    found = peers.lasting(found, Cause.ROUTER_IMBALANCE, uneven, uneven_since_s, policy, now_s)
    found = peers.lasting(found, Cause.BAD_REPLICA, slow, odd_since_s, policy, now_s)
    gathered = neighbours.gather(observation, pairs, memory, policy, now_s)
    tenants = neighbours.findings(observation, pairs, gathered, policy)
    guilty = sorted(
        (f for f in tenants.values() if f.aggressor >= policy.diagnosis.noisy_score_ratio),
        key=lambda f: (-f.harm, -f.aggressor, f.tenant),
    )
    on = {name: {r.id for r in members} for name, members in by_group.items()}
    summed = {
        name: groups.finding(
            name, members, found,
            [f for f in guilty if any((f.tenant, replica) in gathered.looks for replica in on[name])], policy,
        )
        for name, members in by_group.items()
    }  # fmt: skip
    passed_s = max(now_s - memory.last_tick_s, 0.0) if math.isfinite(memory.last_tick_s) else 0.0
    in_memory = residents.seen(observation.replicas, memory.residents, passed_s)
    rivals = displacement.competition(observation)
    for name, group in summed.items():
        if group.cause is Cause.THRASH:
            summed[name] = replace(group, cures=displacement.cures(rivals, on[name], policy.groups.cold is not None))
    pushed_out = displacement.pushed_out(rivals, residents.pushed_out(in_memory, displacement.MOST_TOLD))
    remembered = DiagnosisMemory(
        max(now_s, memory.last_tick_s), gathered.sums, gathered.owner_sums, odd_since_s, uneven_since_s, in_memory
    )
    return Diagnosis(summed, found, tenants, pushed_out), remembered
