"""One tick a bucket over a recording, by the planner's own steps: demand, tiers, scale. Nothing is applied anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autoscaler.cli.backtest_recording import Recording
from autoscaler.cli.backtest_scores import Said, Scores, pools_of
from autoscaler.cli.errors import UsageError
from autoscaler.controller.jobs import JobError, run_job
from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaSignals, ReplicaState, Tier
from autoscaler.domain.observation import Catalogue, Floats, Observation, Traffic
from autoscaler.domain.signals import Fresh
from autoscaler.forecasting import ForecastSettings, GlobalModel, forecast, totals
from autoscaler.planner import Learned, LearnedModel
from autoscaler.planner.demand import Demand, DemandMemory, by_tenant, foresee
from autoscaler.planner.homes import Home, hot_groups
from autoscaler.planner.learned import settings_of
from autoscaler.planner.views import WARM_GROUP, group_rows, scale_view, tier_view
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling import ScalePlan, ScalingMemory, capacity_of, decide_scale
from autoscaler.tiering import TieringMemory, TierPlan, decide_tiers

SHOWN_TENANTS = 24
_SHADOW_DAYS = 2  # before what is judged, for the first model to show what it is worth
_CALM = ReplicaSignals(
    running=Fresh(1.0), waiting=Fresh(0.0), deferred=Fresh(0.0), kv_usage_ratio=Fresh(0.0), ttft_mean_s=Fresh(0.0),
    ttft_p99_s=Fresh(0.0), queue_time_mean_s=Fresh(0.0),
)  # fmt: skip


@dataclass(slots=True)
class Replay:
    """What came out, row by row from the first judged one.

    Attributes:
        scores: of forecasts.
        ends_s: the rows' times.
        actual, mean, upper: the fleet's requests/s in each bucket, and what was said of it a bucket before.
        changes: tier changes `{tenant, from, to, reason, at_s}`.
        tiers: counts `{cold, warm, hot}` per row.
        shown: the largest tenants, and their tier codes per row.
        groups: per row, group -> (replicas decided, tokens/s that came).
        trained: `{at_s, version}` of each model.
        last: the last tick's demand and tiers.
    """

    scores: Scores
    ends_s: list[float] = field(default_factory=list)
    actual: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    tiers: list[dict[str, int]] = field(default_factory=list)
    shown: tuple[str, ...] = ()
    shown_tiers: list[list[int]] = field(default_factory=list)
    groups: list[dict[str, tuple[int, float]]] = field(default_factory=list)
    trained: list[dict[str, Any]] = field(default_factory=list)
    last: tuple[Demand, TierPlan] | None = None


@dataclass(slots=True)
class _Memory:
    demand: DemandMemory | None = None
    tiering: TieringMemory = field(default_factory=TieringMemory)
    scaling: ScalingMemory = field(default_factory=ScalingMemory)
    counts: dict[str, Group] = field(default_factory=dict)
    trained_at: int | None = None


def replay(recording: Recording, policy: FleetPolicy, progress: Callable[[int, int], None]) -> Replay:
    """Replay every row; `progress` is told (rows done, rows in all)."""
    ticked = replace(policy, tick_interval_s=recording.bucket_s)
    settings = settings_of(ticked)
    catalogue = recording.catalogue
    rates = np.stack([by_tenant(catalogue, row) for row in recording.requests_per_s])
    mean = _mean(rates[: recording.judged_from])
    made = Replay(Scores(settings.horizons_s, recording.bucket_s, pools_of(mean), settings.day_s))
    largest = np.argsort(-np.nan_to_num(mean), kind="stable")[:SHOWN_TENANTS]
    made.shown = tuple(catalogue.tenants[i] for i in largest.tolist())
    memory, warm = _Memory(), policy.groups.warm
    memory.counts[WARM_GROUP] = Group(WARM_GROUP, Tier.WARM, warm.min_replicas)
    ahead: tuple[float, float] | None = None
    for row, end_s in enumerate(recording.ends_s.tolist()):
        seen = _observation(recording, row, end_s, memory.counts)
        if row >= recording.judged_from - _SHADOW_DAYS * settings.day_buckets:
            _learn(memory, rates, row, ticked, settings, made)
        demand, memory.demand = foresee(seen, memory.demand, ticked)
        tiers = _tiers(seen, demand, ticked, memory)
        scale = _scale(seen, demand, tiers, ticked, memory)
        judged = row >= recording.judged_from
        made.scores.came(row, rates[row])
        if judged:
            _note(made, recording, row, end_s, demand, tiers, scale, ticked, ahead)
        if row + 1 >= recording.judged_from:
            ahead = _say(made.scores, row, memory.demand, rates[row], end_s, settings)
        made.last = demand, tiers
        progress(row + 1, len(rates))
    return made


def _mean(rates: Floats) -> Floats:
    counts = (~np.isnan(rates)).sum(axis=0)
    mean: Floats = np.nan_to_num(rates).sum(axis=0) / np.maximum(counts, 1)
    return mean


def _observation(recording: Recording, row: int, end_s: float, counts: dict[str, Group]) -> Observation:
    """Routers as recorded; engines that are calm, so that counts follow demand and nothing else."""
    catalogue, requests = recording.catalogue, recording.requests_per_s[row]
    nan = np.full(len(catalogue.ids), np.nan)
    tokens, zero = recording.tokens_per_s[row], Fresh(0.0)
    traffic = Traffic(recording.bucket_s, requests, nan, nan, nan, nan, nan, zero, zero, zero)
    if not np.isnan(tokens).all():
        traffic = replace(traffic, prompt_tokens_per_s=tokens, completion_tokens_per_s=np.zeros(len(tokens)))
    known = bool((~np.isnan(requests)).any())
    heard = Fresh(0.0) if known else None
    total = float(np.nansum(tokens)) or float(np.nansum(requests)) * 500.0
    replicas = tuple(_replicas(counts, total, catalogue)) if known else ()
    freshness = dict.fromkeys(("engines", "replicas", "publisher"), zero) | ({"traffic": heard} if heard else {})
    return Observation(
        end_s, catalogue, traffic if known else Traffic.unknown(len(catalogue.ids)), replicas, dict(counts),
        freshness=freshness,
    )  # fmt: skip


def _replicas(counts: dict[str, Group], tokens_per_s: float, catalogue: Catalogue) -> list[Replica]:
    most = max(len(catalogue.ids), 1)
    limits = EngineLimits(max_loras=most, max_cpu_loras=most, max_lora_rank=512)
    each = tokens_per_s / max(sum(g.current_replicas for g in counts.values()), 1)
    signals = replace(_CALM, prompt_tokens_per_s=Fresh(0.0), generation_tokens_per_s=Fresh(each))
    return [
        Replica(f"{g.name}-{i:03d}", g.name, None, "", ReplicaState.READY, limits=limits, signals=signals)
        for g in counts.values()
        for i in range(g.current_replicas)
    ]


def _learn(
    memory: _Memory, rates: Floats, row: int, policy: FleetPolicy, settings: ForecastSettings, made: Replay
) -> None:
    """Train as the controller would, on the past alone; at most once a day, so that a replay ends."""
    every = max(round(policy.forecast.retrain_every_s / settings.bucket_s), settings.day_buckets)
    due = memory.trained_at is None or row >= memory.trained_at + every
    if memory.demand is None or not policy.forecast.learned or not due or row < 1.5 * settings.day_buckets:
        return
    memory.trained_at = row
    past = rates[max(0, row - max(round(policy.forecast.history_s / settings.bucket_s), settings.day_buckets)) : row]
    try:
        result = asyncio.run(run_job("train", {"rates": past.astype(np.float32)}, settings))
    except JobError as error:
        if error.expected:
            return
        raise UsageError(f"a model cannot be trained here: {error}") from error
    model = GlobalModel.from_json(result["model"])
    learned = LearnedModel(model, settings, memory.demand.forecast.last_tick_s, len(past), past.shape[1])
    memory.demand = replace(memory.demand, learned=Learned(learned))
    made.trained.append({"at_s": learned.trained_at_s, "version": model.version})


def _tiers(seen: Observation, demand: Demand, policy: FleetPolicy, memory: _Memory) -> TierPlan:
    capacity = capacity_of(memory.scaling, policy, WARM_GROUP)
    view = tier_view(seen, demand, Diagnosis(), capacity, (), policy)
    tiers, memory.tiering = decide_tiers(view, policy, memory.tiering, seen.now_s)
    return tiers


def _scale(
    seen: Observation, demand: Demand, tiers: TierPlan, policy: FleetPolicy, memory: _Memory
) -> ScalePlan | None:
    """Counts, which are there at the next row; None where a replica's capacity is not known."""
    if policy.scaling.capacity_tokens_per_s is None:
        return None
    # There are no routers in a recording: a group serves its tenant once it has a replica.
    there = {r.group for r in seen.replicas}
    homes = {name: Home(tenant, name in there, name in there) for name, tenant in hot_groups(tiers).items()}
    view = scale_view(seen, demand, Diagnosis(), tiers, policy, churn_left=True, homes=homes)
    scale, memory.scaling = decide_scale(view, policy, memory.scaling, seen.now_s)
    for name, decision in scale.decisions.items():
        memory.counts[name] = Group(name, decision.tier, decision.desired, decision.tenant)
        if name in scale.remove:
            del memory.counts[name]
    return scale


def _say(
    scores: Scores, row: int, memory: DemandMemory, rates: Floats, end_s: float, settings: ForecastSettings
) -> tuple[float, float]:
    """Put every horizon's forecast up for judgement; returns mean and upper band of the fleet's next bucket."""
    made = forecast(memory.forecast, settings.horizons_s, end_s, settings)
    last = np.where(np.isnan(rates), memory.forecast.series.last, rates)
    for h in range(len(settings.horizons_s)):
        scores.say(h, Said(row, np.stack([made.p50[h], made.p90[h], made.p95[h]]), last))
    fleet = totals(made, np.zeros(len(made.ids), np.int64), 1)
    return float(fleet.mean[0, 0]), float(fleet.p90[0, 0])


def _note(
    made: Replay,
    recording: Recording,
    row: int,
    end_s: float,
    demand: Demand,
    tiers: TierPlan,
    scale: ScalePlan | None,
    policy: FleetPolicy,
    ahead: tuple[float, float] | None,
) -> None:
    requests = recording.requests_per_s[row]
    known = bool((~np.isnan(requests)).any())
    made.ends_s.append(end_s)
    made.actual.append(float(np.nansum(requests)) if known else np.nan)
    mean, upper = ahead or (np.nan, np.nan)
    made.mean.append(mean)
    made.upper.append(upper)
    made.changes += [
        {"tenant": d.tenant, "from": str(d.before), "to": d.after.value, "reason": d.reason.value, "at_s": end_s}
        for d in tiers.changed
    ]
    made.tiers.append({tier.value: n for tier, n in tiers.counts().items()})
    made.shown_tiers.append([int(tiers.after[tiers.row[t]]) for t in made.shown])
    if scale is not None:
        names, group_of = group_rows(tiers, hot_groups(tiers), policy)
        came = np.bincount(group_of, np.nan_to_num(demand.rate_tokens_per_s), len(names))
        tokens = dict(zip(names, came.tolist(), strict=True))
        made.groups.append({n: (d.current, tokens.get(n, 0.0)) for n, d in scale.decisions.items()})
