"""Replicas of every group: gather, remember, recommend, clamp, share the total, explain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from autoscaler.domain.decisions import Condition, ScaleDecision
from autoscaler.domain.fleet import EngineLimits, Group, PauseMode, ReplicaState, Tier
from autoscaler.domain.signals import Fresh, Signal
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling.capacity import capacity_of, learn
from autoscaler.scaling.clamps import clamp
from autoscaler.scaling.memory import GroupMemory, ScalingMemory
from autoscaler.scaling.needs import recommend
from autoscaler.scaling.readings import Readings, read
from autoscaler.scaling.scene import Scene, disagree, lead_s, no_requests
from autoscaler.scaling.schedule import Bounds, bounds
from autoscaler.scaling.starts import follow
from autoscaler.scaling.total import Claim, within_total
from autoscaler.scaling.trend import LoadMemory, arrived, say, seen
from autoscaler.scaling.view import GroupDemand, ScalePlan, ScaleView

HOUR_S = 3600.0
ORDER = {Tier.WARM: 0, Tier.COLD: 1, Tier.HOT: 2}


def decide_scale(
    view: ScaleView, policy: FleetPolicy, memory: ScalingMemory, now_s: float
) -> tuple[ScalePlan, ScalingMemory]:
    """Decide how many replicas each group should have.

    Args:
        view: groups, replicas, demand with this tick's tiers, diagnosis.
        policy: bounds, targets, budgets.
        memory: of the last tick; empty after a loss, which only delays scale-in.
        now_s: seconds since the Unix epoch.

    Returns:
        The plan, and the memory for the next tick. Groups that the policy does not have are left alone.
    """
    groups = _all_groups(view, policy)
    readings = {group.name: read(group, view.replicas) for group in groups}
    memory = _remember(view, groups, readings, policy, memory, now_s)
    scenes = [s for g in groups if (s := _scene(view, g, readings[g.name], policy, memory, now_s)) is not None]
    needs = {scene.group.name: recommend(scene) for scene in scenes}
    memory = _with_needs(memory, {name: int(need.value) for name, need in needs.items()}, policy, now_s)
    scenes = [replace(scene, memory=memory.groups[scene.group.name]) for scene in scenes]
    trails = {scene.group.name: clamp(scene, needs[scene.group.name]) for scene in scenes}
    over = sum(scene.current for scene in scenes) > policy.budget.max_replicas_total
    claims = tuple(_claim(scene, int(trails[scene.group.name][-1].value), view, over) for scene in scenes)
    trails = within_total(claims, trails, policy.budget.max_replicas_total)
    decisions = {
        scene.group.name: ScaleDecision(
            group=scene.group.name,
            tier=scene.group.tier,
            current=scene.current,
            recommended=int(needs[scene.group.name].value),
            desired=int(trails[scene.group.name][-1].value),
            ready=scene.readings.ready,
            trail=trails[scene.group.name],
            tenant=scene.group.tenant,
        )
        for scene in scenes
    }
    decided = {n: replace(g, desired=decisions[n].desired) if n in decisions else g for n, g in memory.groups.items()}
    memory = replace(memory, groups=decided)
    conditions = tuple(Condition(n, text) for n, text in sorted(_conditions(scenes).items()))
    remove = frozenset(
        scene.group.name for scene in scenes if not scene.wanted and decisions[scene.group.name].desired == 0
    )
    capacity = {scene.group.name: scene.capacity for scene in scenes}
    return ScalePlan(decisions, conditions, capacity, remove, memory.starts.startup_s), memory


def _all_groups(view: ScaleView, policy: FleetPolicy) -> list[Group]:
    """What exists and what is wanted and does not exist yet, in a fixed order."""
    groups = dict(view.groups)
    for name, tenant in view.hot_tenants.items():
        groups.setdefault(name, Group(name, Tier.HOT, 0, tenant))
    if policy.groups.cold is not None:
        groups.setdefault("cold", Group("cold", Tier.COLD, 0))
    return sorted(groups.values(), key=lambda g: (ORDER[g.tier], g.name))


def _scene(
    view: ScaleView, group: Group, readings: Readings, policy: FleetPolicy, memory: ScalingMemory, now_s: float
) -> Scene | None:
    limits = bounds(group, policy, now_s)
    wanted = group.tier is not Tier.HOT or group.name in view.hot_tenants
    if limits is None and wanted:
        return None
    found = view.diagnosis.groups.get(group.name)
    return Scene(
        group=group,
        readings=readings,
        demand=view.demand.get(group.name, GroupDemand()),
        cause=view.diagnosis.cause(group.name),
        cause_message="" if found is None else found.message,
        capacity=capacity_of(memory, policy, group.name),
        bounds=limits or Bounds(0, 0),
        memory=memory.groups[group.name],
        policy=policy,
        now_s=now_s,
        wanted=wanted,
        slots=_slots(view, policy),
        wanted_adapters=view.wanted_adapters if group.tier is Tier.WARM else 0,
        unplaced_adapters=view.unplaced_adapters if group.tier is Tier.WARM else 0,
        churn_left=view.churn_left or group.tier is not Tier.WARM,
        changes_left=policy.budget.max_changes_per_hour - len(memory.changes_s),
    )


def _remember(
    view: ScaleView,
    groups: list[Group],
    readings: Mapping[str, Readings],
    policy: FleetPolicy,
    memory: ScalingMemory,
    now_s: float,
) -> ScalingMemory:
    """Take in what is seen: pending and idle times, changes of counts, capacity. The same moment again adds nothing."""
    changes = [t for t in memory.changes_s if now_s - t < HOUR_S]
    out: dict[str, GroupMemory] = {}
    for group in groups:
        seen = memory.groups.get(group.name)
        if seen is not None and seen.current != group.current_replicas and not group.foreign_actor:
            changes.append(now_s)
        last = GroupMemory(now_s, current=group.current_replicas) if seen is None else seen
        unready = readings[group.name].unready > 0
        wanted, seen_now = view.demand.get(group.name, GroupDemand()), readings[group.name]
        quiet = no_requests(wanted) and not seen_now.busy
        mine = [r for r in view.replicas if r.group == group.name]
        out[group.name] = replace(
            last,
            pending_since_s=_since_when(unready, last.pending_since_s, now_s),
            idle_since_s=_since_when(quiet, last.idle_since_s, now_s),
            contradicted_since_s=_since_when(_contradicted(wanted, seen_now, last), last.contradicted_since_s, now_s),
            current=group.current_replicas,
            capacity=learn(last.capacity, mine, view.diagnosis, policy, now_s),
            load=_followed(last.load, wanted, seen_now, policy, now_s),
        )
    starts = follow(memory.starts, view.replicas, now_s)
    return replace(memory, groups=out, changes_s=tuple(changes), starts=starts)


def _followed(
    memory: LoadMemory, demand: GroupDemand, readings: Readings, policy: FleetPolicy, now_s: float
) -> LoadMemory:
    """The load after this tick: answers that ended, and what is in flight beyond a window ago, which has arrived."""
    load, in_flight = demand.seen_tokens_per_s, readings.in_flight
    if not isinstance(load, Fresh):
        return memory
    if memory.samples and now_s <= memory.samples[-1][0]:
        return memory
    grown = 0.0
    if in_flight is not None:
        memory, grown = arrived(memory, in_flight, now_s, policy.signals.window_s)
    memory = seen(memory, max(load.value + grown * demand.tokens_per_request, 0.0), now_s)
    said = demand.now_tokens_per_s
    return say(memory, said.value, lead_s(policy)) if isinstance(said, Fresh) else memory


def _contradicted(wanted: GroupDemand, seen: Readings, last: GroupMemory) -> bool:
    """Whether routers and engines disagree, or did when they were last both heard: silence settles no dispute."""
    in_dispute = last.contradicted_since_s is not None
    unheard = not seen.complete or not isinstance(wanted.requests_per_s, Fresh)
    return disagree(wanted, seen) or (in_dispute and unheard)


def _since_when(holds: bool, since_s: float | None, now_s: float) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else min(since_s, now_s)


def _with_needs(memory: ScalingMemory, needs: Mapping[str, int], policy: FleetPolicy, now_s: float) -> ScalingMemory:
    """Keep the needs of the stabilisation window; one that a later, higher need outshines is dropped."""
    oldest = now_s - policy.scaling.scale_in.stabilisation_s
    groups = dict(memory.groups)
    for name, need in needs.items():
        kept = tuple((t, n) for t, n in groups[name].needs if oldest <= t < now_s and n > need)
        groups[name] = replace(groups[name], needs=(*kept, (now_s, need)))
    return replace(memory, groups=groups)


def _claim(scene: Scene, desired: int, view: ScaleView, over: bool) -> Claim:
    """What a group asks of the total. Doubt makes no room for others; it does not excuse from the total itself."""
    held = bool(scene.group.blocked or scene.group.foreign_actor)
    paused = scene.group.pause in (PauseMode.ALL, PauseMode.SCALE_IN)
    doubtful = not (scene.readings.complete or scene.idle or over) and scene.wanted
    return Claim(
        group=scene.group.name,
        tier=scene.group.tier,
        current=scene.current,
        desired=desired,
        least=min(scene.bounds.least, desired),
        fixed=held or paused or doubtful,
        asked=scene.group.name in view.asked,
    )


def _slots(view: ScaleView, policy: FleetPolicy) -> int:
    """Adapter slots of one warm replica that residents may take up, at least 1."""
    ready = [r for r in view.replicas if r.group == "warm" and r.state is ReplicaState.READY]
    limits = policy.limits(Tier.WARM, ready[0].limits if ready else EngineLimits())
    return max(1, math.floor(limits.max_loras * policy.tiering.slot_fill_ratio))


def _conditions(scenes: list[Scene]) -> dict[str, str]:
    """What an operator must know that is no decision."""
    out: dict[str, str] = {}
    for scene in scenes:
        name = scene.group.name
        if scene.stuck:
            out[f"ReplicasStuck/{name}"] = (
                f"replicas of {name} not ready after {scene.pending_s:.0f} s: {scene.readings.unready}; look at the "
                "events of its pods: nobody waits for them any more"
            )
        if scene.group.foreign_actor:
            out[f"ForeignActor/{name}"] = (
                f"{scene.group.foreign_actor} changed the replicas of {name} to {scene.current}; scaling holds until "
                "only one of the two acts on it"
            )
        if scene.unplaced_adapters:
            out["AdapterSlotsShort"] = _shortage(scene)
        if scene.contradicted:
            out[f"SignalsContradict/{name}"] = (
                f"routers saw {_shown(scene.demand.requests_per_s)} requests/s for {name}, its engines say otherwise; "
                "is there traffic past the routers, or a stale exporter?"
            )
    return out


def _shortage(scene: Scene) -> str:
    now = max(scene.current, 1)
    needed = math.ceil(scene.wanted_adapters / now / scene.policy.tiering.slot_fill_ratio)
    return (
        f"{scene.unplaced_adapters} adapters with demand have no adapter slot on {now} replicas of {scene.slots} each; "
        f"{scene.slot_replicas} replicas, or {needed} adapter slots in each, would hold all {scene.wanted_adapters}"
    )


def _shown(signal: Signal) -> str:
    return f"{signal.value:.3g}" if isinstance(signal, Fresh) else "unknown"
