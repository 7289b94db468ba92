"""What tiering and scaling are shown: one tick's columns and groups, put together from demand and observation."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import Override, ReplicaState, Tier
from autoscaler.domain.observation import Bools, Ints, Observation
from autoscaler.domain.signals import UNSEEN, Fresh, Missing, Signal
from autoscaler.forecasting import totals
from autoscaler.planner.demand import Demand
from autoscaler.planner.homes import Home
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling import Capacity, GroupDemand, ScaleView
from autoscaler.tiering import TierPlan, TierView

WARM_GROUP = "warm"
COLD_GROUP = "cold"
_SOME_UNKNOWN = "some adapters' requests are unknown"
_ON_RING = "routers send its tenant's requests to the ring"
_NOTHING = GroupDemand(Fresh(0.0), Fresh(0.0), Missing(_ON_RING), seen_tokens_per_s=Fresh(0.0))


def tier_view(
    observation: Observation,
    demand: Demand,
    diagnosis: Diagnosis,
    capacity: Capacity,
    overrides: tuple[Override, ...],
    policy: FleetPolicy,
) -> TierView:
    """Columns over tenants for `decide_tiers`."""
    catalogue = observation.catalogue
    return TierView(
        ids=catalogue.tenants,
        rate_tokens_per_s=demand.rate_tokens_per_s,
        mean_tokens_per_s=demand.mean_tokens_per_s,
        upper_tokens_per_s=demand.upper_tokens_per_s,
        later_upper_tokens_per_s=demand.forecast.p90[3] * demand.tokens_per_request,
        known=demand.forecast.known,
        burst=demand.bursts.active,
        slo_missed=demand.slo_missed,
        adapters=np.bincount(catalogue.tenant_index, minlength=len(catalogue.tenants)),
        loadable=_loadable(observation),
        capacity_tokens_per_s=capacity.tokens_per_s,
        ring_adapters=ring_adapters(observation, policy),
        diagnosis=diagnosis,
        overrides=overrides,
    )


def _loadable(observation: Observation) -> Bools:
    """False for tenants of whose adapters every serving replica that tried said a final no (T)."""
    catalogue, failed = observation.catalogue, observation.ledger.failed
    serving = [r for r in observation.replicas if r.state is ReplicaState.READY]
    hopeless = np.zeros(len(catalogue.ids), np.int64)
    tried = [r for r in serving if failed.get(r.id)]
    for replica in tried:
        for adapter, failure in failed[replica.id].items():
            if math.isinf(failure.retry_at_s) and adapter in catalogue.row:
                hopeless[catalogue.row[adapter]] += 1
    # Two refusals by different replicas are a bad adapter, one may be a bad replica; a fleet of one has only one.
    refused = hopeless >= max(min(2, len(serving)), 1)
    per_tenant = np.bincount(catalogue.tenant_index, minlength=len(catalogue.tenants))
    return np.bincount(catalogue.tenant_index, refused, len(catalogue.tenants)) < per_tenant


def ring_adapters(observation: Observation, policy: FleetPolicy) -> int | None:
    """Most adapters, one copy each, that the warm group's adapter slots hold; None without a serving replica."""
    serving = [r for r in observation.replicas if r.group == WARM_GROUP and r.state is ReplicaState.READY]
    if not serving:
        return None
    return sum(max(math.floor(policy.tiering.slot_fill_ratio * r.limits.max_loras), 1) for r in serving)


def scale_view(
    observation: Observation,
    demand: Demand,
    diagnosis: Diagnosis,
    tiers: TierPlan,
    policy: FleetPolicy,
    churn_left: bool,
    homes: Mapping[str, Home],
) -> ScaleView:
    """Groups and their demand for `decide_scale`, with this tick's tiers and what routers do."""
    hot = {name: home.tenant for name, home in homes.items()}
    return ScaleView(
        groups=observation.groups,
        replicas=observation.replicas,
        demand=_group_demand(observation, demand, tiers, homes, policy),
        diagnosis=diagnosis,
        hot_tenants=hot,
        asked=frozenset(name for name, tenant in hot.items() if _asked(tenant, tiers, policy)),
        unplaced_adapters=tiers.unplaced_adapters,
        wanted_adapters=tiers.wanted_adapters,
        churn_left=churn_left,
    )


def _asked(tenant: str, tiers: TierPlan, policy: FleetPolicy) -> bool:
    """Whether HOT was asked for by a promise, a pin or an override, and not concluded from load."""
    promised = tenant in policy.slo.dedicated or policy.tiering.pins.get(tenant) is Tier.HOT
    return promised or tiers.explain(tenant).override_expires_at_s is not None


def _group_demand(
    observation: Observation, demand: Demand, tiers: TierPlan, homes: Mapping[str, Home], policy: FleetPolicy
) -> dict[str, GroupDemand]:
    """Pooled upper bands per group. A hot tenant counts on the ring too while routers send it there.

    Its group then has to become large enough to take it, where it may. Over the horizon of scale-in, a group whose
    daily season has proven itself has at least its outlook's peak.
    """
    names, group_of = group_rows(tiers, {name: home.tenant for name, home in homes.items()}, policy)
    index = {name: i for i, name in enumerate(names)}
    pooled = totals(demand.forecast, group_of, len(names), demand.tokens_per_request)
    elsewhere = {name for name, home in homes.items() if not (home.apart and home.listed)}
    hopeless = {name for name in elsewhere if not homes[name].fits}
    on_ring = np.isin(group_of, [index[WARM_GROUP], *(index[name] for name in elsewhere)])
    extra_rows = np.flatnonzero(on_ring & (group_of != index[WARM_GROUP]))
    extra = demand.forecast.p90[:, extra_rows] @ demand.tokens_per_request[extra_rows]
    rates = observation.traffic.requests_per_s
    requests = np.bincount(group_of[observation.catalogue.tenant_index], rates, len(names))
    requests[index[WARM_GROUP]] = rates[on_ring[observation.catalogue.tenant_index]].sum()
    traffic = observation.freshness.get("traffic", UNSEEN)
    base = observation.traffic.base_tokens_per_s
    base_tokens = base.value if isinstance(base, Fresh) else 0.0
    seen = np.bincount(group_of, demand.rate_tokens_per_s, len(names))
    seen[index[WARM_GROUP]] = demand.rate_tokens_per_s[on_ring].sum()
    result = {}
    for name, i in index.items():
        if name in hopeless:
            result[name] = _NOTHING
            continue
        # A group moves its tenant in where it carries all of it, without the tolerance that growth has.
        whole = 1.0 + policy.scaling.tolerance_ratio if name in elsewhere else 1.0
        more = extra if name == WARM_GROUP else np.zeros_like(extra)
        plus = base_tokens if name == WARM_GROUP else 0.0
        pooled_tokens = float(pooled.p90[2, i])
        outlook = demand.outlooks.get(name)
        peak = None if outlook is None else outlook.peak_tokens_per_s(observation.now_s, demand.forecast.horizons_s[2])
        later = pooled_tokens if peak is None else max(pooled_tokens, peak)
        by_router = _requests(requests[i], observation.traffic.base_requests_per_s, name, traffic)
        result[name] = GroupDemand(
            now_tokens_per_s=_signal(pooled.p90[1, i] * whole + more[1] + plus, demand, traffic),
            horizon_tokens_per_s=_over_horizon(_signal(later + more[2] + plus, demand, traffic), requests[i]),
            requests_per_s=Missing(_ON_RING) if name in elsewhere else by_router,
            seen_tokens_per_s=_seen(seen[i] * whole + plus, traffic),
            horizon_by="by the group's daily season" if later > pooled_tokens else "",
        )
    return result


def group_rows(tiers: TierPlan, hot: Mapping[str, str], policy: FleetPolicy) -> tuple[list[str], Ints]:
    """Names of groups, and for each tenant the index of its own (T); COLD tenants without a pool are on the ring."""
    names = [WARM_GROUP, *([COLD_GROUP] if policy.groups.cold is not None else []), *hot]
    group_of = np.zeros(len(tiers.ids), np.int64)
    if policy.groups.cold is not None:
        group_of[tiers.of(Tier.COLD)] = 1
    for i, (_, tenant) in enumerate(hot.items(), len(names) - len(hot)):
        group_of[tiers.row[tenant]] = i
    return names, group_of


def _seen(tokens_per_s: float, traffic: Signal) -> Signal:
    if not isinstance(traffic, Fresh):
        return traffic
    return Missing(_SOME_UNKNOWN) if math.isnan(tokens_per_s) else Fresh(float(tokens_per_s), traffic.age_s)


def _over_horizon(upper_tokens_per_s: Signal, requests_per_s: float) -> Signal:
    """What scale-in must fit: a forecast from memory does not stand in for requests that nobody can see now."""
    return Missing(_SOME_UNKNOWN) if math.isnan(requests_per_s) else upper_tokens_per_s


def _signal(tokens_per_s: float, demand: Demand, traffic: Signal) -> Signal:
    if not demand.forecast.known.any():
        return Missing("no traffic was seen yet")
    return Fresh(float(tokens_per_s), traffic.age_s) if isinstance(traffic, Fresh) else traffic


def _requests(requests_per_s: float, base: Signal, group: str, traffic: Signal) -> Signal:
    if not isinstance(traffic, Fresh):
        return traffic
    if math.isnan(requests_per_s):
        return Missing(_SOME_UNKNOWN)
    if group != WARM_GROUP:
        return Fresh(float(requests_per_s), traffic.age_s)
    if isinstance(base, Missing) and requests_per_s <= 0:
        # No request for any adapter is not yet no traffic: the base model's is served by the same replicas.
        return Missing(f"the base model's requests are unknown: {base.why}")
    of_base = base.value if isinstance(base, Fresh) else 0.0
    return Fresh(float(requests_per_s) + of_base, traffic.age_s)
