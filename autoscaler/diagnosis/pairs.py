"""Who sends how much to which replica, and how late its first tokens are: one tick's traffic, summed up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.observation import Floats, Ints, Observation
from autoscaler.domain.signals import value_or
from autoscaler.policy.model import FleetPolicy

LOUD_ADAPTER_SHARE = 0.01  # adapters below 1 % of a replica's tokens make nobody loud


@dataclass(frozen=True, slots=True, eq=False)
class PairTable:
    """Sums over R replicas and over the L (tenant, replica) pairs that are loud enough to matter.

    Attributes:
        tokens_per_s: prompt and completion tokens/s of each replica (R).
        requests_per_s, ttft_sum: requests/s with a known TTFT, and the sum of rate times TTFT (R).
        working_set: adapters with traffic on each replica (R).
        late: seconds of first-token lateness over the SLO, per second (R).
        loud_tenant, loud_replica: indexes (L), ascending by tenant, then replica.
        loud_tokens_per_s, loud_requests_per_s, loud_ttft_sum: of each loud pair (L).
        tenant, replica, requests, ttft_s: every pair with a known rate (P).
        running, kv_tokens: requests of each pair in its engine at once, and the tokens that they hold, as rates,
            lengths and times per token tell (P); NaN = unknown.
    """

    tokens_per_s: Floats
    requests_per_s: Floats
    ttft_sum: Floats
    working_set: Ints
    late: Floats
    loud_tenant: Ints
    loud_replica: Ints
    loud_tokens_per_s: Floats
    loud_requests_per_s: Floats
    loud_ttft_sum: Floats
    tenant: Ints
    replica: Ints
    requests: Floats
    ttft_s: Floats
    running: Floats
    kv_tokens: Floats


def table(observation: Observation, policy: FleetPolicy) -> PairTable:
    """Sum up one observation's pairs. Tokens of a pair are its adapter's, by its share of the adapter's requests."""
    pairs, catalogue, count = observation.pairs, observation.catalogue, len(observation.replicas)
    known = np.isfinite(pairs.requests_per_s) & (pairs.requests_per_s > 0)
    adapter, replica, requests = pairs.adapter[known], pairs.replica[known], pairs.requests_per_s[known]
    ttft_s, tenant = pairs.ttft_mean_s[known], catalogue.tenant_index[adapter]
    tokens = _tokens(observation, adapter, requests, pairs.completion_tokens_per_s[known])
    per_replica = _sum(replica, tokens, count)
    timed = np.isfinite(ttft_s)
    rate, late_s = np.where(timed, requests, 0.0), np.where(timed, ttft_s, 0.0)
    excess = np.maximum(late_s - _slo_s(observation, policy)[tenant], 0.0)
    loud = tokens >= LOUD_ADAPTER_SHARE * per_replica[replica]
    keys, place = np.unique(tenant[loud] * max(count, 1) + replica[loud], return_inverse=True)
    return PairTable(
        tokens_per_s=per_replica,
        requests_per_s=_sum(replica, rate, count),
        ttft_sum=_sum(replica, rate * late_s, count),
        working_set=np.bincount(replica, minlength=count),
        late=_sum(replica, rate * excess, count),
        loud_tenant=keys // max(count, 1),
        loud_replica=keys % max(count, 1),
        loud_tokens_per_s=_sum(place, tokens[loud], keys.size),
        loud_requests_per_s=_sum(place, rate[loud], keys.size),
        loud_ttft_sum=_sum(place, (rate * late_s)[loud], keys.size),
        tenant=tenant,
        replica=replica,
        requests=requests,
        ttft_s=ttft_s,
        running=(running := _running(observation, replica, requests, ttft_s, pairs.completion_tokens_per_s[known])),
        kv_tokens=running * (tokens - pairs.completion_tokens_per_s[known] / 2) / requests,
    )


def _sum(index: Ints, values: Floats, size: int) -> Floats:
    """Sums of values by index: float64 (size), also where there is nothing to sum."""
    return np.bincount(index, values, size).astype(np.float64)


def _tokens(observation: Observation, adapter: Ints, requests: Floats, completion: Floats) -> Floats:
    traffic = observation.traffic
    total = traffic.prompt_tokens_per_s + traffic.completion_tokens_per_s
    with np.errstate(divide="ignore", invalid="ignore"):
        share = requests / traffic.requests_per_s[adapter]
        tokens = total[adapter] * np.minimum(share, 1.0)
    return np.where(np.isfinite(tokens), tokens, np.nan_to_num(completion))


def _running(observation: Observation, replica: Ints, requests: Floats, ttft_s: Floats, completion: Floats) -> Floats:
    """Requests in the engine at once, by Little's law: rate times (first token, then each further one)."""
    itl_s = np.array([value_or(r.signals.itl_mean_s, np.nan) for r in observation.replicas], np.float64)
    return requests * ttft_s + completion * itl_s[replica]


def _slo_s(observation: Observation, policy: FleetPolicy) -> Floats:
    """Time to first token promised to each tenant (T)."""
    rows = observation.catalogue.tenant_row
    promised = np.full(len(rows), policy.slo.ttft_s)
    for tenant in policy.slo.tenants:
        if tenant in rows:
            promised[rows[tenant]] = policy.slo.ttft_of(tenant)
    return promised
