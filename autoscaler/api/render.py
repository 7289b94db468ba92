"""Views as JSON: snake case, units in names, unknown numbers as null with the reason beside them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from autoscaler.connectors.stores.audit import AuditEntry
from autoscaler.domain.decisions import Condition, DecisionRecord, Trail
from autoscaler.domain.diagnosis import TenantFinding
from autoscaler.domain.fleet import Override, ReplicaState
from autoscaler.domain.signals import Fresh, Signal
from autoscaler.ring import Ring
from autoscaler.telemetry import FleetView

Json = dict[str, Any]


def time_of(at_s: float) -> str | None:
    """RFC 3339 in UTC with milliseconds; None for a time that is not finite."""
    if not math.isfinite(at_s):
        return None
    at = datetime.datetime.fromtimestamp(at_s, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number(value: float) -> float | None:
    """The number, None where it is not finite."""
    return float(value) if np.isfinite(value) else None


def signal(value: Signal) -> Json:
    """`{value, age_s}`, or `{value: null, missing: why}`."""
    if isinstance(value, Fresh):
        return {"value": value.value, "age_s": value.age_s}
    return {"value": None, "missing": value.why}


def trail(steps: Trail) -> list[Json]:
    """Steps in order."""
    return [{"reason": s.reason.value, "value": s.value, "message": s.message} for s in steps]


def condition(c: Condition) -> Json:
    """One condition."""
    return {"name": c.name, "message": c.message, "since": time_of(c.since_s)}


def override(o: Override, now_s: float) -> Json:
    """One override; `active` is false once it has expired."""
    return {
        "tenant": o.tenant, "tier": o.tier.value, "reason": o.reason, "actor": o.actor,
        "created_at": time_of(o.created_at_s), "expires_at": time_of(o.expires_at_s), "revision": o.revision,
        "active": o.expires_at_s > now_s,
    }  # fmt: skip


def record(r: DecisionRecord) -> Json:
    """One decision record."""
    return {
        "id": r.id, "at": time_of(r.at_s), "fleet": r.fleet, "step": r.step, "subject": r.subject,
        "reason": r.reason.value, "before": r.before, "after": r.after, "message": r.message,
        "trail": trail(r.trail), "data": dict(r.data),
    }  # fmt: skip


def audit_entry(entry: AuditEntry) -> Json:
    """One audited change."""
    return {
        "number": entry.number, "at": time_of(entry.at_s), "fleet": entry.fleet, "actor": entry.actor,
        "action": entry.action, "subject": entry.subject, "before": entry.before, "after": entry.after,
    }  # fmt: skip


def tenant_rows(view: FleetView, rows: list[int]) -> Iterator[Json]:
    """Tenants in a list, each with the replicas that serve its adapters."""
    catalogue = view.observation.catalogue
    chosen = np.flatnonzero(np.isin(catalogue.tenant_index, rows)).tolist()
    serving: dict[int, set[str]] = {row: set() for row in rows}
    for index, found in zip(chosen, _owners_many(view, [catalogue.ids[i] for i in chosen]), strict=True):
        serving[int(catalogue.tenant_index[index])].update(found)
    for row in rows:
        yield {**tenant_row(view, row), "owners": sorted(serving[row])}


def _owners_many(view: FleetView, adapters: list[str]) -> list[list[str]]:
    """Replicas that serve each adapter, preferred first; none before there is a ring."""
    snapshot = view.plan.ring.snapshot
    if snapshot is None:
        return [[] for _ in adapters]
    return [[m.replica for m in found.members] for found in Ring(snapshot).owners_many(adapters)]


def tenant_row(view: FleetView, row: int) -> Json:
    """A tenant without its owners."""
    plan, policy = view.plan, view.policy
    name, demand = plan.tiers.ids[row], plan.demand
    finding = plan.diagnosis.tenants.get(name, TenantFinding(name))
    return {
        "tenant": name,
        "tier": ("cold", "warm", "hot")[plan.tiers.after[row]],
        "since": time_of(float(plan.tiers.since_s[row])),
        "rate_tokens_per_s": number(float(demand.rate_tokens_per_s[row])),
        "forecast_mean_tokens_per_s": float(demand.mean_tokens_per_s[row]),
        "forecast_p90_tokens_per_s": float(demand.upper_tokens_per_s[row]),
        "ttft_p99_s": number(_ttft(view, row)),
        "slo_ttft_s": policy.slo.ttft_of(name),
        "slo_missed": bool(demand.slo_missed[row]),
        "aggressor_score": finding.aggressor,
        "victim_score": finding.victim,
    }


def tenant(view: FleetView, name: str) -> Json:
    """A tenant in full. KeyError if the fleet does not have it."""
    catalogue, plan = view.observation.catalogue, view.plan
    row = catalogue.tenant_row[name]
    decision = plan.tiers.explain(name)
    adapters = [catalogue.ids[i] for i in np.flatnonzero(catalogue.tenant_index == row).tolist()]
    per_request, foreseen = plan.demand.tokens_per_request[row], plan.demand.forecast
    finding = plan.diagnosis.tenants.get(name)
    return {
        **tenant_row(view, row),
        "reason": decision.reason.value,
        "trail": trail(decision.trail),
        "override": next((override(o, plan.now_s) for o in view.overrides if o.tenant == name), None),
        "tokens_per_request": float(per_request),
        "forecast": [
            {
                "horizon_s": horizon_s,
                **{
                    f"{band}_tokens_per_s": float(getattr(foreseen, band)[i, row] * per_request)
                    for band in ("mean", "p50", "p90")
                },
            }
            for i, horizon_s in enumerate(foreseen.horizons_s)
        ],
        "slo_objective_ratio": view.policy.slo.objective_of(name),
        "adapters": [{"adapter": a, **owners(view, a)} for a in adapters],
        "evidence": [] if finding is None else [term.message for term in finding.terms],
    }


def _ttft(view: FleetView, row: int) -> float:
    return highest(view.observation.traffic.ttft_p99_s[view.observation.catalogue.tenant_index == row])


def highest(column: Any) -> float:
    """The highest known number of a column; NaN where none is."""
    known = column[np.isfinite(column)]
    return float(known.max()) if known.size else math.nan


def owners(view: FleetView, adapter: str) -> Json:
    """Who serves an adapter by the ring that is in force, and by which rule."""
    snapshot = view.plan.ring.snapshot
    if snapshot is None:
        return {"owners": [], "via": None, "standbys": []}
    found = Ring(snapshot).owners(adapter)
    return {
        "owners": [{"replica": m.replica, "slot": m.slot or None, "address": m.address} for m in found.members],
        "via": found.via.value,
        "standbys": [m.slot for m in found.standbys],
    }


def adapter_rows(view: FleetView, rows: list[int]) -> Iterator[Json]:
    """Adapters in a list, each with the replicas that serve it, preferred first."""
    ids = view.observation.catalogue.ids
    for row, found in zip(rows, _owners_many(view, [ids[row] for row in rows]), strict=True):
        yield {**adapter_row(view, row), "owners": found}


def adapter_row(view: FleetView, row: int) -> Json:
    """An adapter without its owners."""
    catalogue = view.observation.catalogue
    tenant_id = catalogue.tenant_of[row]
    return {
        "adapter": catalogue.ids[row], "tenant": tenant_id, "source": catalogue.sources[row],
        "rank": int(catalogue.ranks[row]) or None, "revision": catalogue.revisions[row] or None,
        "tier": view.plan.tiers.tier(tenant_id).value,
        "requests_per_s": number(float(view.observation.traffic.requests_per_s[row])),
        "forecast_mean_tokens_per_s": float(view.plan.demand.adapter_tokens_per_s[row]),
    }  # fmt: skip


def adapter(view: FleetView, name: str) -> Json:
    """An adapter in full. KeyError if the fleet does not have it."""
    seen = view.observation
    ledger = seen.ledger
    return {
        **adapter_row(view, seen.catalogue.row[name]),
        **owners(view, name),
        "assigned_to": sorted(r for r, held in view.plan.ring.residency.expected.items() if name in held),
        "registered_on": [r.id for r in seen.replicas if r.registered is not None and name in r.registered],
        "resident_on": [r.id for r in seen.replicas if r.resident is not None and name in r.resident],
        "loaded_by_us_on": sorted(r for r, loaded in ledger.loaded.items() if name in loaded),
        "failures": [
            {
                "replica": r,
                "attempts": f[name].attempts,
                "error": f[name].error,
                "retry_at": time_of(f[name].retry_at_s),
            }
            for r, f in sorted(ledger.failed.items())
            if name in f
        ],
    }


def noisy_neighbours(view: FleetView) -> list[Json]:
    """Tenants that hurt or are hurt, worst first, with the evidence."""
    found = sorted(view.plan.diagnosis.tenants.values(), key=lambda f: (-max(f.aggressor, f.victim), f.tenant))
    return [
        {
            "tenant": f.tenant, "aggressor_score": f.aggressor, "victim_score": f.victim, "share_ratio": f.share,
            "effect_s": number(f.effect.mean_s), "effect_low_s": number(f.effect.low_s),
            "effect_high_s": number(f.effect.high_s), "samples": f.effect.samples,
            "missing": f.effect.missing or None, "others": list(f.others), "harm": f.harm,
            "added_s": [number(s) for s in f.added_s], "evidence": [t.message for t in f.terms],
        }
        for f in found
    ]  # fmt: skip


def residency(view: FleetView, wanted: Collection[str]) -> Iterator[Json]:
    """What replicas should hold, lack, and are known to hold, by adapter id; `wanted` replicas, or all where empty."""
    plan = view.plan.ring.residency
    for replica in view.observation.replicas:
        if wanted and replica.id not in wanted:
            continue
        lack = plan.lacks.get(replica.id)
        yield {
            "replica": replica.id, "group": replica.group, "max_loras": replica.limits.max_loras,
            "max_cpu_loras": replica.limits.max_cpu_loras,
            "assigned": sorted(plan.expected.get(replica.id, ())),
            "missing": sorted(lack.absent) if lack else [],
            "registered": None if replica.registered is None else sorted(replica.registered),
            "resident": None if replica.resident is None else sorted(replica.resident),
        }  # fmt: skip


def adapter_thrash(view: FleetView) -> list[Json]:
    """Replicas by thrash, worst first, with their working set against their adapter slots."""
    found = sorted(view.plan.diagnosis.replicas.values(), key=lambda f: (-f.thrash, f.replica))
    expected = view.plan.ring.residency.expected
    limits = {r.id: r.limits for r in view.observation.replicas}
    return [
        {
            "replica": f.replica, "group": f.group, "cause": f.cause.value, "thrash_score": f.thrash, "harm": f.harm,
            "assigned_adapters": len(expected.get(f.replica, ())),
            "max_loras": limits[f.replica].max_loras if f.replica in limits else None,
            "evidence": [t.message for t in f.terms],
        }
        for f in found
    ]  # fmt: skip


def pushed_out(view: FleetView) -> list[Json]:
    """Adapters that others push out of adapter slots or memory, the most often first; bounded."""
    catalogue = view.observation.catalogue
    return [
        {
            "adapter": p.adapter,
            "tenant": catalogue.tenant_of[catalogue.row[p.adapter]] if p.adapter in catalogue.row else None,
            "place": p.place.value, "basis": p.basis.value, "per_hour": p.per_hour,
            "requests_per_hour": p.requests_per_hour or None, "replicas": list(p.replicas),
            "by": [{"adapter": name or None, "share_ratio": share} for name, share in p.by],
            "loads_per_hour": p.without_per_hour[0] if p.without_per_hour else None,
            "loads_per_hour_without": p.without_per_hour[1] if p.without_per_hour else None,
        }
        for p in view.plan.diagnosis.pushed_out
    ]  # fmt: skip


def cures(view: FleetView) -> list[Json]:
    """What would lessen thrash in each thrashing group, with the estimated loads before and after."""
    return [
        {
            "group": name, "kind": c.kind, "message": c.message,
            "loads_per_hour": c.before_per_hour, "loads_per_hour_after": c.after_per_hour,
        }
        for name, found in view.plan.diagnosis.groups.items()
        for c in found.cures
    ]  # fmt: skip


def costs(view: FleetView) -> Json:
    """Replicas by group and tokens' share by tenant (the 100 largest), against a deployment per tenant.

    The simplest peer that isolates tenants is one replica for each that was active; the simplest that does not is the
    same fleet without affinity, whose size cannot be known from here and is not guessed.
    """
    demand, plan = view.plan.demand, view.plan
    total = float(demand.mean_tokens_per_s.sum())
    order = np.argsort(-demand.mean_tokens_per_s, kind="stable")[:100].tolist()
    live = [r for r in view.observation.replicas if r.state is not ReplicaState.FAILED]
    return {
        "replica_hours_per_hour": {name: d.current for name, d in plan.scale.decisions.items()},
        "replicas": len(live),
        "deployment_per_tenant_replicas": int(np.count_nonzero(demand.mean_tokens_per_s > 0)),
        "tenants": [
            {
                "tenant": plan.tiers.ids[i],
                "share_ratio": float(demand.mean_tokens_per_s[i]) / total if total else 0.0,
                "replica_hours_per_hour": len(live) * float(demand.mean_tokens_per_s[i]) / total if total else 0.0,
            }
            for i in order
        ],
    }


def listed(items: Iterable[Json], cursor: str | None = None, **extra: object) -> Json:
    """A page: `items`, and the cursor of the next one where there is more."""
    return {"items": list(items), "next_cursor": cursor, **extra}
