"""A fleet, its groups and replicas as JSON."""

from __future__ import annotations

import dataclasses

import numpy as np

from autoscaler.api.render import Json, condition, highest, number, signal, time_of, trail
from autoscaler.domain.decisions import ScaleDecision
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.fleet import Replica
from autoscaler.domain.signals import Fresh
from autoscaler.telemetry import FleetView


def fleet(view: FleetView) -> Json:
    """A fleet's status."""
    plan, seen = view.plan, view.observation
    return {
        "fleet": view.fleet,
        "base_model": view.policy.base_model,
        "mode": view.policy.mode.value,
        "actuation": view.policy.actuation.value,
        "at": time_of(plan.now_s),
        "tick_interval_s": view.policy.tick_interval_s,
        "plan_id": plan.id,
        "leader": view.leader,
        "frozen": view.frozen or None,
        "epoch": plan.ring.epoch,
        "slo_ttft_s": view.policy.slo.ttft_s,
        "health": health(view),
        "groups": groups(view),
        "tenants": {tier.value: count for tier, count in plan.tiers.counts().items()},
        "adapters": len(seen.catalogue.ids),
        "requests_per_s": number(float(np.sum(seen.traffic.requests_per_s))),
        "ttft_p99_s": number(highest(seen.traffic.ttft_p99_s)),
        "churn_budget_remaining": plan.ring.placed.budget,
        "signals": {name: signal(s) for name, s in seen.freshness.items()},
        "routers": [{"router": r.id, "epoch": r.epoch, "age_s": r.age_s} for r in seen.routers],
        "conditions": [condition(c) for c in view.conditions],
        "steps_s": dict(view.steps_s),
        "forecast": forecasting(view),
    }


def forecasting(view: FleetView) -> Json:
    """Which forecaster serves each horizon, how the others compare, the model, and what is learnt beside the tick."""
    demand, learning = view.plan.demand, view.learning
    model = demand.model
    return {
        "horizons": [
            {
                "horizon_s": s.horizon_s,
                "error_ratio": number(s.error_ratio),
                "coverage90_ratio": number(s.coverage90_ratio),
                **{
                    name: {forecaster: number(v) for forecaster, v in getattr(s, name).items()}
                    for name in ("median_loss", "band_loss", "median_serves", "band_serves")
                },
            }
            for s in demand.standing
        ],
        "model": None
        if model is None
        else {
            "version": model.model.version,
            "trained_at": time_of(model.trained_at_s),
            "history_buckets": model.buckets,
            "history_tenants": model.series,
        },
        "outlooks": [
            {"group": g, "season_serves": o.proven, "made_at": time_of(o.made_at_s), "reason": o.reason}
            for g, o in sorted(demand.outlooks.items())
        ],
        "learning": None if learning is None else dataclasses.asdict(learning),
    }


def health(view: FleetView) -> Json:
    """The state of the fleet in a word and a sentence: the worst of what was found."""
    missing = [f"{n}: {s.why}" for n, s in view.observation.freshness.items() if not isinstance(s, Fresh)]
    if missing:
        return {"state": "unknown", "sentence": f"Signals are missing ({'; '.join(missing)}): nothing is scaled in."}
    found = [f for f in view.plan.diagnosis.groups.values() if f.harm > 0 and f.cause is not Cause.NONE]
    if found:
        worst = max(found, key=lambda f: f.harm)
        cure = f". What helps: {worst.cure}" if worst.cure else ""
        return {"state": worst.cause.value, "sentence": f"{worst.group}: {worst.message}{cure}"}
    if view.conditions:
        return {"state": "attention", "sentence": view.conditions[0].message}
    count, late = len(view.observation.replicas), int(np.count_nonzero(view.plan.demand.slo_missed))
    if late:
        tenants = len(view.plan.tiers.ids)
        return {
            "state": "attention",
            "sentence": f"{late} of {tenants} tenants missed their SLO; no cause is known yet",
        }
    return {
        "state": "well",
        "sentence": f"{count} replicas serve {len(view.observation.catalogue.ids)} adapters; nothing hurts.",
    }


def groups(view: FleetView) -> list[Json]:
    """Every group."""
    return [_group(view, d) for d in view.plan.scale.decisions.values()]


def _group(view: FleetView, decision: ScaleDecision) -> Json:
    group = view.observation.groups.get(decision.group)
    finding = view.plan.diagnosis.groups.get(decision.group)
    capacity = view.plan.scale.capacity.get(decision.group)
    members = [r for r in view.observation.replicas if r.group == decision.group]
    return {
        "group": decision.group,
        "tier": decision.tier.value,
        "tenant": decision.tenant or None,
        "current_replicas": decision.current,
        "recommended_replicas": decision.recommended,
        "desired_replicas": decision.desired,
        "ready_replicas": decision.ready,
        "reason": decision.reason.value,
        "trail": trail(decision.trail),
        "pause": group.pause.value if group else "none",
        "pause_reason": (group.pause_reason if group else "") or None,
        "blocked": (group.blocked if group else "") or None,
        "cause": finding.cause.value if finding else "unknown",
        "finding": finding.message if finding else None,
        "cure": (finding.cure if finding else "") or None,
        "thrash_score": finding.thrash if finding else None,
        "saturation": finding.saturation if finding else None,
        "capacity_tokens_per_s": signal(capacity.tokens_per_s) if capacity else None,
        "replicas": [_replica(view, r) for r in members],
    }


def _replica(view: FleetView, replica: Replica) -> Json:
    residency = view.plan.ring.residency
    lack = residency.lacks.get(replica.id)
    finding = view.plan.diagnosis.replicas.get(replica.id)
    gauges = replica.signals
    return {
        "replica": replica.id, "slot": replica.slot, "address": replica.address, "state": replica.state.value,
        "leaving": replica.id in view.plan.ring.departures,
        "running": signal(gauges.running), "waiting": signal(gauges.waiting), "deferred": signal(gauges.deferred),
        "kv_usage_ratio": signal(gauges.kv_usage_ratio), "ttft_p99_s": signal(gauges.ttft_p99_s),
        "generation_tokens_per_s": signal(gauges.generation_tokens_per_s),
        "adapter_loads_per_s": signal(gauges.adapter_loads_per_s),
        "assigned_adapters": len(residency.expected.get(replica.id, ())),
        "missing_adapters": len(lack.absent) if lack else 0,
        "registered_adapters": None if replica.registered is None else len(replica.registered),
        "max_loras": replica.limits.max_loras, "max_cpu_loras": replica.limits.max_cpu_loras,
        "cause": finding.cause.value if finding else "unknown", "thrash_score": finding.thrash if finding else None,
    }  # fmt: skip
