"""A plan in sentences: what, why, and what it would take to change. Every sentence has its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.diagnosis import Basis, Place, PushedOut
from autoscaler.domain.fleet import LoadFailure, Replica, ReplicaSignals, Tier
from autoscaler.domain.names import did_you_mean
from autoscaler.domain.observation import Observation
from autoscaler.domain.signals import Fresh, Signal
from autoscaler.forecasting import ForecastMethod
from autoscaler.planner.plan import FleetPlan
from autoscaler.planner.residency import adapters_of
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import Ring

KINDS = ("tenant", "adapter", "group", "replica", "signal")


class UnknownSubjectError(LookupError):
    """Nothing of that kind and name is in the fleet; the sentence names the nearest that is."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a person asked about.

    Attributes:
        subject: `tenant/acme`.
        summary: one sentence.
        why: the trail, a sentence a step.
        facts: further sentences with numbers.
        to_change: what would change it.
    """

    subject: str
    summary: str
    why: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    to_change: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    seen: Observation
    plan: FleetPlan
    policy: FleetPolicy


def explain(subject: str, seen: Observation, plan: FleetPlan, policy: FleetPolicy) -> Explanation:
    """Explain `KIND/NAME`.

    Raises:
        UnknownSubjectError: another kind, or a name that the fleet does not have.
    """
    kind, _, name = subject.partition("/")
    if kind not in _EXPLAIN or not name:
        raise UnknownSubjectError(f"{subject!r} is no subject; ask for one of {', '.join(f'{k}/NAME' for k in KINDS)}")
    return _EXPLAIN[kind](name, _Known(seen, plan, policy))


def _tenant(name: str, known: _Known) -> Explanation:
    row = _row(name, known.seen.catalogue.tenant_row, "tenant")
    demand, decision = known.plan.demand, known.plan.tiers.explain(name)
    policy, own = known.policy, known.policy.slo
    adapters = adapters_of(known.seen.catalogue, row)
    rate = float(demand.rate_tokens_per_s[row])
    facts = [
        f"It asks for {_number(rate, 'tokens/s')} now; over the next {policy.forecast.horizon_s:g} s "
        f"{demand.mean_tokens_per_s[row]:.1f} tokens/s are expected and {demand.upper_tokens_per_s[row]:.1f} is the "
        f"upper band. A request of its is {demand.tokens_per_request[row]:.0f} tokens.",
        *_forecast_facts(name, known),
        f"It was promised a first token within {own.ttft_of(name):g} s for {own.objective_of(name):.2%} of requests; "
        f"the last window {'missed' if demand.slo_missed[row] else 'met'} it.",
        f"Its adapters: {', '.join(f'{a} on {_owners(a, known)}' for a in adapters[:5])}"
        + (f" and {len(adapters) - 5} more." if len(adapters) > 5 else "."),
    ]
    finding = known.plan.diagnosis.tenants.get(name)
    if finding is not None and max(finding.aggressor, finding.victim) > 0:
        facts += [f"Noisy neighbours: aggressor {finding.aggressor:.2f}, victim {finding.victim:.2f} of 1."]
        facts += [term.message for term in finding.terms]
    served = [c.message for c in known.plan.conditions if c.name == f"ServedByRing/{name}"]
    facts += [f"{text[0].upper()}{text[1:]}." for text in served]
    facts += [advice.message for advice in known.plan.merges if advice.tenant == name]
    return Explanation(
        f"tenant/{name}",
        f"{name} is {decision.after.upper()} since {_ago(known, decision.since_s)}: {decision.reason.value}.",
        tuple(step.message for step in decision.trail),
        tuple(facts),
        _tenant_changes(name, decision.after, known),
    )


def _forecast_facts(name: str, known: _Known) -> tuple[str, ...]:
    """How its forecast was made, and how the boosted model compares in its rate group."""
    demand = known.plan.demand
    made = demand.explain(name, known.policy.forecast.horizon_s)
    told = f"Its forecast: {made.sentence}"
    if made.method is ForecastMethod.UNSEEN or demand.model is None:
        return (told,)
    cheap, model = made.terms.get("table_loss90", 0.0), made.terms.get("model_loss90", 0.0)
    if not cheap > 0:
        return told, f"The model {demand.model.model.version} runs in shadow; nothing of it has come true yet."
    serves = "serves its bands" if made.method is ForecastMethod.MODEL else "does not serve its bands"
    return (
        told,
        f"In its rate group the model {demand.model.model.version} lost {model / cheap:.2f} of what the pooled table "
        f"lost over the last day, and {serves}.",
    )


def _tenant_changes(name: str, tier: Tier, known: _Known) -> tuple[str, ...]:
    tiering, capacity = known.policy.tiering, known.plan.scale.capacity.get("warm")
    changes = [f"An override: `lora-autoscaler override set {name} TIER --reason WHY --ttl 1h`."]
    carried = capacity.tokens_per_s if capacity is not None else None
    if tier is not Tier.HOT and isinstance(carried, Fresh):
        hot = tiering.hot_threshold_replicas * carried.value
        changes.append(
            f"HOT: more than {hot:.0f} tokens/s expected ({tiering.hot_threshold_replicas:g} replicas of "
            f"{carried.value:.0f} tokens/s), or `isolation: dedicated` in the policy."
        )
    if tier is Tier.COLD:
        changes.append(f"WARM: an upper band above {tiering.cold_threshold_tokens_per_s:g} tokens/s.")
    if tier is Tier.WARM:
        limit = tiering.cold_threshold_tokens_per_s * tiering.demote_ratio
        changes.append(
            f"COLD: an upper band below {limit:g} tokens/s for {tiering.demote_ticks} ticks, "
            f"{tiering.dwell_s:g} s after the last change."
        )
    return tuple(changes)


def _adapter(name: str, known: _Known) -> Explanation:
    catalogue = known.seen.catalogue
    row = _row(name, catalogue.row, "adapter")
    tenant = catalogue.tenant_of[row]
    registered = [r.id for r in known.seen.replicas if r.registered is not None and name in r.registered]
    failures = [f"{r}: {_failure(f[name])}" for r, f in sorted(known.seen.ledger.failed.items()) if name in f]
    rank = catalogue.ranks[row]
    facts = [
        f"Its source is {catalogue.sources[row] or 'not given'}, its rank {rank or 'unknown'}, its tenant {tenant}.",
        f"Replicas that have it registered: {len(registered)} ({_listed(registered)}).",
        *(f"A load failed on {failure}" for failure in failures),
        *(_pushed_out(p) for p in known.plan.diagnosis.pushed_out if p.adapter == name),
    ]
    tier = known.plan.tiers.tier(tenant)
    summary = f"{name} ({tier.upper()}) is served by {_owners(name, known)}; "
    summary += f"{known.plan.demand.adapter_tokens_per_s[row]:.1f} tokens/s are expected for it."
    return Explanation(
        f"adapter/{name}", summary, (_why_there(name, known),), tuple(facts), (f"Its tenant's tier: tenant/{tenant}.",)
    )


def _why_there(name: str, known: _Known) -> str:
    placement = known.plan.ring.placement
    row = placement.ranking.row_of.get(name)
    if row is None:
        return "It is on no ring: its tenant is COLD, and any replica that serves cold adapters loads it when asked."
    copies, share = int(placement.copies[row]), float(placement.shares[row])
    if row not in placement.exceptions:
        return f"The hash names its first {placement.replication} slots, and {share:.1f} tokens/s a copy fit there."
    return (
        f"It is an exception to the hash: {copies} copies of {share:.1f} tokens/s each, where a slot's mean load is "
        f"{placement.mean:.1f}."
    )


def _group(name: str, known: _Known) -> Explanation:
    decisions = known.plan.scale.decisions
    _row(name, {group: i for i, group in enumerate(decisions)}, "group")
    d = decisions[name]
    verb = "stays at" if d.desired == d.current else "goes to"
    facts = []
    finding = known.plan.diagnosis.groups.get(name)
    if finding is not None:
        facts += [text for text in (finding.message, finding.cure) if text]
        facts += [f"{cure.kind.capitalize()}: {cure.message}." for cure in finding.cures]
    capacity = known.plan.scale.capacity.get(name)
    if capacity is not None and isinstance(capacity.tokens_per_s, Fresh):
        facts.append(f"One replica carries {capacity.tokens_per_s.value:.0f} tokens/s ({capacity.source}).")
    took = known.plan.scale.startup_s
    facts.append(
        f"A new replica takes {took.value:.0f} s until it answers, as was seen; growth looks so far ahead."
        if isinstance(took, Fresh)
        else f"A new replica takes {known.policy.scaling.startup_s:.0f} s, by the policy's word: {took.why}."
    )
    leaving = [r for r, departure in known.plan.ring.departures.items() if departure.group == name]
    if leaving:
        facts.append(f"On their way out: {_listed(leaving)}.")
    scaling, group = known.policy.scaling, known.seen.groups.get(name)
    utilisation = known.policy.utilisation(group.tier if group is not None else Tier.WARM)
    return Explanation(
        f"group/{name}",
        f"{name} has {d.ready} of {d.current} replicas ready and {verb} {d.desired}: {d.reason.value}.",
        tuple(step.message for step in d.trail),
        tuple(facts),
        (
            f"More: above {scaling.queue_per_replica:g} waiting a replica (less those that wait for an adapter slot), "
            f"KV use above {scaling.kv_usage_ratio:.0%}, TTFT above its target, or forecast demand above "
            f"{utilisation:.0%} of capacity.",
            f"Fewer: all of that with {scaling.scale_in.margin_ratio:.0%} to spare on one replica less, for "
            f"{scaling.scale_in.stabilisation_s:g} s.",
        ),
    )


def _replica(name: str, known: _Known) -> Explanation:
    by_id = {r.id: r for r in known.seen.replicas}
    _row(name, dict.fromkeys(by_id, 0), "replica")
    replica = by_id[name]
    residency = known.plan.ring.residency
    expected, lack = residency.expected.get(name, frozenset()), residency.lacks.get(name)
    facts = [
        f"Adapters that it should hold: {len(expected)}, of which it lacks {len(lack.absent) if lack else 0}; "
        f"{'its list is unknown' if replica.registered is None else f'{len(replica.registered)} are registered'}; "
        f"it has {replica.limits.max_loras} adapter slots and {replica.limits.max_cpu_loras} places in host memory.",
        _gauges(replica),
        *[f"{p.adapter}: {_pushed_out(p)}" for p in known.plan.diagnosis.pushed_out if name in p.replicas][:3],
    ]
    finding = known.plan.diagnosis.replicas.get(name)
    why: tuple[str, ...] = ()
    if finding is not None:
        verdict = f"{finding.cause.value}: thrash {finding.thrash:.2f}, saturation {finding.saturation:.2f}."
        why = (verdict, *(term.message for term in finding.terms))
    departure = known.plan.ring.departures.get(name)
    change = f"It leaves since {_ago(known, departure.since_s)}." if departure else "It stays while its group needs it."
    slot = f"holds slot {replica.slot}" if replica.slot else "holds no slot"
    return Explanation(
        f"replica/{name}",
        f"{name} of group {replica.group} is {replica.state.value} and {slot}.",
        why,
        tuple(facts),
        (change,),
    )


_HOW_KNOWN = {
    Basis.SEEN: "seen; there may be more between two looks",
    Basis.COUNTED: "the engine counts loads, request rates tell whose",
    Basis.ESTIMATED: "estimated from request rates and adapter slots",
}


def _pushed_out(found: PushedOut) -> str:
    """How often others push an adapter out, and who."""
    where = "adapter slots" if found.place is Place.SLOT else "host memory"
    by = ", ".join(f"{name or 'one of several at once'} {share:.0%}" for name, share in found.by)
    text = f"Pushed out of {where} about {found.per_hour:,.0f} times an hour ({_HOW_KNOWN[found.basis]})"
    text += f", by {by}." if by else "."
    if found.without_per_hour is not None:
        before, after = found.without_per_hour
        text += f" Served elsewhere, {before:,.0f} loads an hour on its replicas would be {after:,.0f}."
    return text


def _gauges(replica: Replica) -> str:
    names = ("running", "waiting", "deferred", "kv_usage_ratio", "ttft_p99_s", "generation_tokens_per_s")
    signals: ReplicaSignals = replica.signals
    return "; ".join(f"{n} {_signal(getattr(signals, n))}" for n in names) + "."


def _signal_subject(name: str, known: _Known) -> Explanation:
    freshness = known.seen.freshness
    _row(name, dict.fromkeys(freshness, 0), "signal")
    signal = freshness[name]
    if isinstance(signal, Fresh):
        return Explanation(f"signal/{name}", f"{name} is fresh: its newest sample is {signal.age_s:.1f} s old.")
    return Explanation(
        f"signal/{name}", f"{name} is missing: {signal.why}.",
        ("While it is missing, replicas are held or added, never removed.",), (), ("Run `lora-autoscaler doctor`.",),
    )  # fmt: skip


_EXPLAIN: dict[str, Callable[[str, _Known], Explanation]] = {
    "tenant": _tenant, "adapter": _adapter, "group": _group, "replica": _replica, "signal": _signal_subject,
}  # fmt: skip


def _row(name: str, rows: dict[str, int], kind: str) -> int:
    if name in rows:
        return rows[name]
    hint = did_you_mean(name, rows) or f"; there are {len(rows)} of them"
    raise UnknownSubjectError(f"the fleet has no {kind} {name!r}{hint}")


def _owners(adapter: str, known: _Known) -> str:
    snapshot = known.plan.ring.snapshot
    if snapshot is None:
        return "nobody yet (no ring is published)"
    owners = Ring(snapshot).owners(adapter)
    replicas = [m.replica for m in owners.members]
    return f"{_listed(replicas)} ({owners.via.value})" if replicas else "nobody now"


def _listed(names: Iterable[str], most: int = 5) -> str:
    names = sorted(names)
    if not names:
        return "none"
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _failure(failure: LoadFailure) -> str:
    again = "and will not be tried again" if math.isinf(failure.retry_at_s) else "and is tried again"
    return f"{failure.error} (attempts: {failure.attempts}, {again})."


def _signal(signal: Signal) -> str:
    return f"{signal.value:.3g}" if isinstance(signal, Fresh) else f"unknown ({signal.why})"


def _number(value: float, unit: str) -> str:
    return f"an unknown number of {unit}" if np.isnan(value) else f"{value:.1f} {unit}"


def _ago(known: _Known, at_s: float) -> str:
    seconds = max(known.plan.now_s - at_s, 0.0)
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
