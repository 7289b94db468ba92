"""Our own Prometheus series. One collector reads the last view of each fleet; counters count what views brought."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from autoscaler.domain.decisions import Applied, DecisionRecord, Failed, LoadAdapter, Reason
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.signals import Fresh
from autoscaler.planner import HorizonStanding
from autoscaler.telemetry.view import FleetView

Labels = tuple[str, ...]

_PREFIX = "lora_autoscaler_"
TOP_TENANTS = 20
"""Noisy neighbours with a series of their own; the rest is in the API."""


class FleetMetrics:
    """The registry that `/metrics` shows. Label `fleet` on every series; per-tenant series are bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge, counter = self._maker(Gauge), self._maker(Counter)
        self._desired = gauge("desired_replicas", "Replicas wanted after limits.", "group")
        self._recommended = gauge("recommended_replicas", "Replicas recommended before limits.", "group")
        self._current = gauge("current_replicas", "Replicas in the group's spec.", "group")
        self._tenants = gauge("tenants", "Tenants per tier.", "tier")
        self._epoch = gauge("ring_epoch", "Epoch of the ring that is in force.")
        self._budget = gauge("ring_churn_budget_remaining", "Moves left in the churn budget, in pairs of mean load.")
        self._thrash = gauge("thrash_score", "Adapter thrash, 0 to 1.", "replica")
        self._noisy = gauge("noisy_neighbour_score", "Aggressor score, 0 to 1, of the highest.", "tenant")
        self._age = gauge("signal_age_seconds", "Age of each source's newest sample; -1 where it is missing.", "signal")
        self._error = gauge("forecast_error_ratio", "Absolute error of the forecast over what came.", "horizon")
        self._coverage = gauge("forecast_coverage_ratio", "Share of the last day inside the 90 % bands.", "horizon")
        compared = ("horizon", "quantile", "forecaster")
        self._loss = gauge("forecast_loss_ratio", "Pinball loss of the last day over the pooled table's.", *compared)
        self._serves = gauge("forecast_serves_ratio", "Share of rate groups that a forecaster serves.", *compared)
        self._model_age = gauge("forecast_model_age_seconds", "Since the boosted model was trained.")
        self._leader = gauge("is_leader", "1 where this instance may act.")
        self._lag = gauge("router_epoch_lag", "Epochs that a router is behind.", "router")
        self._mode = gauge("mode", "1 for the mode that the policy has.", "mode")
        self._conditions = gauge("conditions", "Conditions that hold, by name.", "condition")
        self._waiting = gauge(
            "ring_waiting",
            "Replicas that load adapters before they join (AwaitingResidency), adapters that wait for the churn budget "
            "(ChurnBudget), replicas on their way out (MemberLeft).",
            "reason",
        )
        self._saturation = gauge("saturation_ratio", "Queue and KV pressure of a group over its target.", "group")
        self._requests = gauge("requests_per_second", "Requests that routers saw over the last window.")
        self._ttft = gauge("ttft_p99_seconds", "Time to first token, p99 over the last window, of the worst adapter.")
        self._late = gauge(
            "slo_missed_requests_ratio", "Share of requests that tenants sent whose p99 is over their TTFT target."
        )
        self._late_tenants = gauge("slo_missed_tenants", "Tenants whose p99 is over their TTFT target.")
        self._tier_changes = counter("tier_changes", "Tier changes.", "from", "to", "reason")
        self._moves = counter("ring_moves", "(adapter, slot) pairs that moved.")
        self._loads = counter("adapter_loads", "Adapter loads asked of engines.", "reason", "result")
        self._decisions = counter("decisions", "Decisions recorded.", "step", "reason")
        self._load_s = self._maker(Histogram)("adapter_load_seconds", "How long adapter loads took.")
        self._tick_s = self._maker(Histogram)("tick_duration_seconds", "How long each step of a tick took.", "step")
        self._shown: dict[str, Tally[tuple[Gauge, Labels]]] = {}

    def _maker(self, kind: type) -> Callable[..., Any]:
        return lambda name, text, *labels: kind(_PREFIX + name, text, ["fleet", *labels], registry=self.registry)

    def observed_load(self, fleet: str, seconds: float) -> None:
        """One answered adapter load."""
        self._load_s.labels(fleet).observe(seconds)

    def update(self, view: FleetView, records: Iterable[DecisionRecord]) -> None:
        """Take one tick in. Series of groups, replicas and tenants that are gone are removed."""
        fleet, plan = view.fleet, view.plan
        for gauge, values in self._gauges(view):
            self._replace(fleet, gauge, values)
        self._epoch.labels(fleet).set(plan.ring.epoch)
        self._budget.labels(fleet).set(plan.ring.placed.budget)
        self._leader.labels(fleet).set(1 if view.leader else 0)
        self._late_tenants.labels(fleet).set(np.count_nonzero(plan.demand.slo_missed))
        for gauge, value in zip((self._requests, self._ttft, self._late), _served(view), strict=True):
            self._set_or_remove(fleet, gauge, value)
        model = plan.demand.model
        self._set_or_remove(fleet, self._model_age, np.nan if model is None else plan.now_s - model.trained_at_s)
        self._moves.labels(fleet).inc(plan.ring.placed.moves)
        for decision in plan.tiers.changed:
            self._tier_changes.labels(fleet, str(decision.before), decision.after.value, decision.reason.value).inc()
        for effect, outcome in view.report.outcomes:
            if isinstance(effect, LoadAdapter) and isinstance(outcome, Applied | Failed):
                result = "ok" if isinstance(outcome, Applied) else "failed"
                self._loads.labels(fleet, effect.reason.value, result).inc()
        for record in records:
            self._decisions.labels(fleet, record.step, record.reason.value).inc()
        for step, seconds in view.steps_s.items():
            self._tick_s.labels(fleet, step).observe(seconds)

    def _gauges(self, view: FleetView) -> Iterable[tuple[Gauge, Mapping[Any, float]]]:
        """Gauges with one label, or more as a tuple."""
        plan, seen = view.plan, view.observation
        decisions = plan.scale.decisions
        yield self._desired, {name: d.desired for name, d in decisions.items()}
        yield self._recommended, {name: d.recommended for name, d in decisions.items()}
        yield self._current, {name: d.current for name, d in decisions.items()}
        yield self._tenants, {tier.value: n for tier, n in plan.tiers.counts().items()}
        yield self._thrash, {name: f.thrash for name, f in plan.diagnosis.replicas.items()}
        worst = sorted(plan.diagnosis.tenants.items(), key=lambda item: (-item[1].aggressor, item[0]))[:TOP_TENANTS]
        yield self._noisy, {name: f.aggressor for name, f in worst}
        yield self._age, {n: s.age_s if isinstance(s, Fresh) else -1.0 for n, s in seen.freshness.items()}
        yield self._lag, {r.id: max(plan.ring.epoch - r.epoch, 0) for r in seen.routers}
        yield self._mode, {view.policy.mode.value: 1.0}
        yield self._conditions, Tally(c.name.partition("/")[0] for c in view.conditions)
        told = {step.reason: step.value for step in plan.ring.trail}
        waiting = {r.value: float(told.get(r, 0)) for r in (Reason.AWAITING_RESIDENCY, Reason.CHURN_BUDGET)}
        yield self._waiting, waiting | {Reason.MEMBER_LEFT.value: float(len(plan.ring.departures))}
        groups = plan.diagnosis.groups
        yield self._saturation, {n: f.saturation for n, f in groups.items() if f.cause is not Cause.UNKNOWN}
        yield from self._forecasts(plan.demand.standing)

    def _forecasts(self, standing: Iterable[HorizonStanding]) -> Iterable[tuple[Gauge, Mapping[Any, float]]]:
        """Figures of the last day, those that there is evidence for."""
        told: dict[Gauge, dict[Any, float]] = {g: {} for g in (self._error, self._coverage, self._loss, self._serves)}
        for s in standing:
            horizon = f"{s.horizon_s:g}s"
            told[self._error][horizon], told[self._coverage][horizon] = s.error_ratio, s.coverage90_ratio
            for quantile, loss, serves in (
                ("0.5", s.median_loss, s.median_serves),
                ("0.9", s.band_loss, s.band_serves),
            ):
                told[self._loss] |= {(horizon, quantile, name): v for name, v in loss.items()}
                told[self._serves] |= {(horizon, quantile, name): v for name, v in serves.items()}
        for gauge, values in told.items():
            yield gauge, {label: v for label, v in values.items() if np.isfinite(v)}

    def _replace(self, fleet: str, gauge: Gauge, values: Mapping[Any, float]) -> None:
        wanted = {label if isinstance(label, tuple) else (label,): value for label, value in values.items()}
        shown = self._shown.setdefault(fleet, Tally())
        for known, labels in [key for key in shown if key[0] is gauge and key[1] not in wanted]:
            known.remove(fleet, *labels)
            del shown[known, labels]
        for labels, value in wanted.items():
            gauge.labels(fleet, *labels).set(value)
            shown[gauge, labels] = 1

    def _set_or_remove(self, fleet: str, gauge: Gauge, value: float) -> None:
        if np.isfinite(value):
            gauge.labels(fleet).set(value)
        else:
            gauge.remove(fleet)


def _served(view: FleetView) -> tuple[float, float, float]:
    """Requests/s, the worst p99 in seconds and the share of requests that missed; NaN where routers do not say."""
    traffic = view.observation.traffic
    timed = np.isfinite(traffic.ttft_p99_s) & (traffic.requests_per_s > 0)
    if not timed.any():
        return float(traffic.requests_per_s.sum()), np.nan, np.nan
    rates = traffic.requests_per_s[timed]
    missed = view.plan.demand.slo_missed[view.observation.catalogue.tenant_index][timed]
    return (
        float(traffic.requests_per_s.sum()),
        float(traffic.ttft_p99_s[timed].max()),
        float(rates[missed].sum() / rates.sum()),
    )
