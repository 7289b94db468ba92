"""`plan(observation, memory, policy, overrides) -> (FleetPlan, memory')`: the whole decision, as a value.

The same function decides in production, in advise and propose mode, in a backtest and in the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash

from autoscaler.diagnosis import diagnose
from autoscaler.domain.decisions import Condition, Effect, Grow, Reason, Renew, Shrink
from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import Override, PauseMode
from autoscaler.domain.observation import Observation
from autoscaler.domain.signals import Missing
from autoscaler.planner.approval import Proposal, approved_scale, approved_tiers, stand
from autoscaler.planner.demand import Demand, foresee
from autoscaler.planner.fairness import fairness, full_at_s
from autoscaler.planner.homes import Home, crowded, find_homes
from autoscaler.planner.memory import PlannerMemory
from autoscaler.planner.merging import MergeAdvice, merge_advice
from autoscaler.planner.ring_step import RingPlan, as_published, plan_ring
from autoscaler.planner.views import WARM_GROUP, scale_view, tier_view
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Actuation, Mode
from autoscaler.scaling import ScalePlan, as_measured, capacity_of, decide_scale
from autoscaler.tiering import TierPlan, decide_tiers

OVERDRAFT = 25.0
"""Moves. A removal brings the moves that it needs, and a replica is dearer than a load: while the ring spends its
budget as it comes, a removal need not wait for a moment in which some is left; beyond this overdraft it waits."""


@dataclass(frozen=True, slots=True, eq=False)
class FleetPlan:
    """One tick's decisions.

    Attributes:
        id: `<fleet>-<milliseconds>`, ascending in time.
        inputs_digest: 16 hex digits over what was observed, and what was learnt beside the tick.
        demand, diagnosis, tiers, scale, ring: the steps' results.
        effects: what leads there, in order of execution; the mode says whether they are done.
        proposals: in propose mode, what waits for approval and is not among the effects.
        conditions: what an operator must know.
        merges: advice on merged checkpoints, of every HOT tenant.
        homes: by hot group, whether it or the ring serves its tenant.
    """

    id: str
    fleet: str
    now_s: float
    mode: Mode
    inputs_digest: str
    demand: Demand
    diagnosis: Diagnosis
    tiers: TierPlan
    scale: ScalePlan
    ring: RingPlan
    effects: tuple[Effect, ...]
    proposals: tuple[Proposal, ...]
    conditions: tuple[Condition, ...]
    merges: tuple[MergeAdvice, ...] = ()
    homes: Mapping[str, Home] = field(default_factory=dict)


def plan(
    observation: Observation,
    memory: PlannerMemory,
    policy: FleetPolicy,
    overrides: tuple[Override, ...] = (),
    approvals: frozenset[str] = frozenset(),
) -> tuple[FleetPlan, PlannerMemory]:
    """Decide everything for one fleet at `observation.now_s`.

    Args:
        observation: what was seen.
        memory: of the last tick; an empty one after a loss only makes decisions cautious.
        policy: what the operator wants.
        overrides: operators' words on tiers; expired ones are ignored.
        approvals: keys of proposals that were approved (propose mode only).

    Returns:
        The plan, and the memory for the next tick. The same input gives the same output.
    """
    now_s, stated = observation.now_s, policy
    policy = as_measured(policy, memory.scaling.starts)
    demand, demand_memory = foresee(observation, memory.demand, policy)
    diagnosis, diagnosis_memory = diagnose(observation, policy, memory.diagnosis, now_s)
    capacity = capacity_of(memory.scaling, policy, WARM_GROUP)
    view = tier_view(observation, demand, diagnosis, capacity, overrides, policy)
    tiers, tiering_memory = decide_tiers(view, policy, memory.tiering, now_s)
    proposals: list[Proposal] = []
    if policy.mode is Mode.PROPOSE:
        tiers, tiering_memory = approved_tiers(tiers, tiering_memory, memory.tiering, approvals, proposals)
    ring_before = as_published(observation, memory.ring)
    homes = find_homes(
        observation, demand, diagnosis, tiers, policy, memory.scaling, memory.ring.departures, ring_before.published,
        memory.homes,
    )  # fmt: skip
    churn_left = memory.ring.budget is None or memory.ring.budget > -OVERDRAFT
    scaling_view = scale_view(observation, demand, diagnosis, tiers, policy, churn_left, homes)
    scale, scaling_memory = decide_scale(scaling_view, policy, memory.scaling, now_s)
    platform = observation.freshness.get("replicas")
    unseen = platform if isinstance(platform, Missing) else None
    if unseen is not None:
        scale = _standing(scale, unseen.why, Reason.SIGNALS_MISSING)
    if policy.mode is Mode.PROPOSE:
        scale = approved_scale(scale, approvals, proposals)
    elsewhere = policy.actuation is Actuation.EXPORT or policy.mode is Mode.ADVISE
    acted_on = _standing(scale, "counts are not changed by this controller", Reason.MODE) if elsewhere else scale
    bounded = ring_before.published is not None and ring_before.published.fairness is not None
    full_s = full_at_s(scale, diagnosis, memory.full_at_s, bounded, now_s)
    bound = fairness(policy, observation.catalogue, full_s, now_s)
    ring, ring_memory = plan_ring(observation, policy, demand, tiers, acted_on, ring_before, bound, homes)
    grows, waiting = _grows(observation, acted_on, policy) if unseen is None else ((), (_unreadable(unseen),))
    found = (*waiting, *tiers.conditions, *scale.conditions, *ring.conditions, *crowded(homes), *_noticed(observation))
    conditions, since_s = _dated(found, memory.conditions_s, now_s)
    decided = FleetPlan(
        id=f"{policy.name}-{round(now_s * 1000):013d}",
        fleet=policy.name,
        now_s=now_s,
        mode=policy.mode,
        inputs_digest=_digest(observation, overrides, stated, demand_memory.learned.version),
        demand=demand,
        diagnosis=diagnosis,
        tiers=tiers,
        scale=scale,
        ring=ring,
        effects=()
        if unseen
        else (
            *grows,
            *_renewals(observation),
            *(e for e in ring.effects if not isinstance(e, Shrink)),
            *_shrinks(ring, acted_on),
        ),
        proposals=tuple(proposals),
        conditions=conditions,
        merges=merge_advice(tiers, scale, observation.catalogue, policy, now_s),
        homes=homes,
    )
    # Advice is not acted on, so the ring that it leads to never comes to be: each advice starts from what is.
    kept_ring = memory.ring if policy.mode is Mode.ADVISE else ring_memory
    kept_scaling = scaling_memory if unseen is None else memory.scaling
    return decided, PlannerMemory(
        demand_memory, diagnosis_memory, tiering_memory, kept_scaling, kept_ring, since_s, full_s, homes
    )


def _unreadable(platform: Missing) -> Condition:
    text = f"{platform.why}. Nothing is scaled, loaded or published until it answers; routers keep the last ring"
    return Condition("PlatformUnreadable", text)


def _standing(scale: ScalePlan, why: str, reason: Reason) -> ScalePlan:
    """The same groups as they are: where nobody could see a count, or this controller does not change it."""
    kept = {n: stand(d, why, reason) for n, d in scale.decisions.items()}
    return replace(scale, decisions=kept, remove=frozenset())


def _grows(
    observation: Observation, scale: ScalePlan, policy: FleetPolicy
) -> tuple[tuple[Grow, ...], tuple[Condition, ...]]:
    """Growth that the budget has room for now: a replica that has yet to go still takes its place."""
    counts = {name: group.current_replicas for name, group in observation.groups.items()}
    for name in counts:
        counts[name] = max(counts[name], sum(r.group == name for r in observation.replicas))
    room = policy.budget.max_replicas_total - sum(counts.values())
    grows, waiting = [], []
    for name, decision in scale.decisions.items():
        wanted = decision.desired - decision.current
        granted = min(wanted, max(room, 0))
        if granted > 0:
            grows.append(Grow(name, decision.current + granted, decision.tenant))
            room -= granted
        if wanted > max(granted, 0):
            short, most = wanted - max(granted, 0), policy.budget.max_replicas_total
            text = f"{name} waits for {short} replicas: budget.maxReplicasTotal {most} is full until others have gone"
            waiting.append(Condition(f"BudgetFull/{name}", text))
    return tuple(grows), tuple(waiting)


def _renewals(observation: Observation) -> Iterable[Renew]:
    """Groups whose turn it is to follow what they are made from, unless somebody stopped them."""
    turn = (g for _, g in sorted(observation.groups.items()) if g.outdated)
    return (Renew(g.name) for g in turn if g.pause is not PauseMode.ALL)


def _shrinks(ring: RingPlan, scale: ScalePlan) -> tuple[Shrink, ...]:
    """Shrinks that the departures are ready for, and groups without a replica that are not needed any more."""
    ready = tuple(e for e in ring.effects if isinstance(e, Shrink))
    named = {e.group for e in ready}
    empty = (n for n in sorted(scale.remove - named) if scale.decisions[n].current == 0)
    return (*ready, *(Shrink(name, 0, (), remove=True) for name in empty))


def _noticed(observation: Observation) -> tuple[Condition, ...]:
    return tuple(Condition(name, message) for name, message in sorted(observation.conditions.items()))


def _dated(
    found: Iterable[Condition], since_s: Mapping[str, float], now_s: float
) -> tuple[tuple[Condition, ...], dict[str, float]]:
    """Conditions with since when each holds, one per name."""
    by_name = {c.name: c for c in found}
    dated = tuple(replace(c, since_s=c.since_s or since_s.get(name, now_s)) for name, c in sorted(by_name.items()))
    return dated, {c.name: c.since_s for c in dated}


def _digest(
    observation: Observation, overrides: tuple[Override, ...], policy: FleetPolicy, learned_version: str
) -> str:
    """XXH64 over what was observed, wanted and learnt."""
    digest = xxhash.xxh64()
    traffic = observation.traffic
    for column in (
        traffic.requests_per_s, traffic.prompt_tokens_per_s, traffic.completion_tokens_per_s, traffic.ttft_p99_s,
        observation.catalogue.ranks,
    ):  # fmt: skip
        digest.update(np.ascontiguousarray(column).tobytes())
    digest.update("\0".join(observation.catalogue.ids).encode())
    rest = (observation.now_s, observation.groups, observation.routers, overrides, policy, learned_version)
    digest.update(repr(rest).encode())
    for replica in observation.replicas:
        digest.update(repr((replica.id, replica.state, replica.slot, replica.signals)).encode())
    return digest.hexdigest()
