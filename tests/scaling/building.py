"""Fleets in one line: a warm group of alike replicas, its demand, its policy."""

from dataclasses import replace
from typing import Any

from autoscaler.domain.decisions import ScaleDecision
from autoscaler.domain.diagnosis import Cause, Diagnosis, GroupFinding
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaSignals, ReplicaState, Tier
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.groups import ColdGroup, Groups, HotGroups, WarmGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.steps import Budget, ScaleIn, Scaling
from autoscaler.scaling import GroupDemand, ScalePlan, ScaleView, ScalingMemory, decide_scale
from autoscaler.scaling.memory import CapacityMemory, GroupMemory
from autoscaler.scaling.trend import LoadMemory

NOON = 1_795_867_200.0  # 2026-11-28 12:00 UTC, a Saturday
LIMITS = EngineLimits(max_loras=8, max_cpu_loras=32, max_num_seqs=64)


def signals(
    waiting: float = 0.0,
    kv: float = 0.3,
    *,
    deferred: float | None = 0.0,
    running: float = 8.0,
    tokens: float | None = 1000.0,
    **others: float,
) -> ReplicaSignals:
    """Signals of a replica that was heard; None leaves one out."""
    return ReplicaSignals(
        running=Fresh(running),
        waiting=Fresh(waiting),
        deferred=Missing("not shown") if deferred is None else Fresh(deferred),
        kv_usage_ratio=Fresh(kv),
        prompt_tokens_per_s=Missing("not shown") if tokens is None else Fresh(tokens * 0.75),
        generation_tokens_per_s=Missing("not shown") if tokens is None else Fresh(tokens * 0.25),
        **{name: Fresh(value) for name, value in others.items()},
    )


SILENT = ReplicaSignals()


def replicas(
    count: int,
    seen: ReplicaSignals | None = None,
    *,
    group: str = "warm",
    state: ReplicaState = ReplicaState.READY,
    first: int = 0,
) -> tuple[Replica, ...]:
    """Alike replicas."""
    seen = signals() if seen is None else seen
    return tuple(
        Replica(f"{group}-{i:03d}", group, f"s{i:04d}", f"h{i}:8000", state, limits=LIMITS, signals=seen)
        for i in range(first, first + count)
    )


def demand(
    now: float | None = 0.0,
    horizon: float | None = None,
    requests: float | None = 1.0,
    seen: float | None = None,
) -> GroupDemand:
    """Demand in tokens/s; `horizon` as `now` where left out; None is unknown."""
    later = now if horizon is None else horizon
    unknown = Missing("no router was heard")
    return GroupDemand(
        unknown if now is None else Fresh(now),
        unknown if later is None else Fresh(later),
        unknown if requests is None else Fresh(requests),
        seen_tokens_per_s=unknown if seen is None else Fresh(seen),
    )


def policy(
    *,
    capacity: float | None = 1000.0,
    warm: dict[str, Any] | None = None,
    hot: HotGroups | None = None,
    cold: ColdGroup | None = None,
    total: int = 32,
    changes: int = 60,
    scale_in: dict[str, Any] | None = None,
    **scaling: Any,
) -> FleetPolicy:
    """A policy whose warm group may have 1 to 16 replicas of a stated capacity."""
    return FleetPolicy(
        name="fleet",
        base_model="base",
        groups=Groups(
            warm=WarmGroup(**{"min_replicas": 1, "max_replicas": 16, **(warm or {})}), hot=hot or HotGroups(), cold=cold
        ),
        budget=Budget(max_replicas_total=total, max_changes_per_hour=changes),
        scaling=Scaling(
            capacity_tokens_per_s=capacity,
            scale_in=ScaleIn(**(scale_in or {})),
            **{"utilisation_ratio": 0.7, **scaling},
        ),
    )


def found(cause: Cause, group: str = "warm") -> Diagnosis:
    """A diagnosis of one group."""
    return Diagnosis({group: GroupFinding(group, cause, message=f"seen: {cause.value}")})


def settled(current: int, now_s: float = NOON, group: str = "warm", **fields: Any) -> ScalingMemory:
    """A memory that has watched a group for an hour and saw no higher need than one."""
    return ScalingMemory({group: GroupMemory(now_s - 3600.0, current=current, **fields)})


def steady(load: float, in_flight: float = 0.0, now_s: float = NOON) -> LoadMemory:
    """A load that has been the same for ten minutes before this tick; requests in flight for a window."""
    samples = tuple((now_s - 15.0 * (40 - tick), load) for tick in range(40))
    return LoadMemory(samples, tuple((now_s - 15.0 * back, in_flight) for back in (4, 3, 2, 1)))


def measured(current: int, tokens_per_s: float, proven: float = 0.0) -> ScalingMemory:
    """A settled memory that knows what a replica carries."""
    return settled(current, capacity=CapacityMemory(tokens_per_s, 10, proven, at_s=NOON - 15.0))


def warm(
    current: int,
    seen: tuple[Replica, ...] | None = None,
    wanted: GroupDemand | None = None,
    *,
    told: FleetPolicy | None = None,
    memory: ScalingMemory | None = None,
    now_s: float = NOON,
    diagnosis: Diagnosis | None = None,
    view: dict[str, Any] | None = None,
    **group: Any,
) -> ScaleDecision:
    """The decision for a warm group of `current` replicas, watched for an hour unless said otherwise."""
    plan, _ = decide_scale(
        ScaleView(
            groups={"warm": replace(Group("warm", Tier.WARM, current), **group)},
            replicas=replicas(current) if seen is None else seen,
            demand={"warm": demand() if wanted is None else wanted},
            diagnosis=diagnosis or found(Cause.NONE),
            **(view or {}),
        ),
        told or policy(),
        memory or settled(current, now_s),
        now_s,
    )
    return plan.decisions["warm"]


def plan_of(view: ScaleView, told: FleetPolicy, memory: ScalingMemory, now_s: float = NOON) -> ScalePlan:
    """The plan alone."""
    return decide_scale(view, told, memory, now_s)[0]
