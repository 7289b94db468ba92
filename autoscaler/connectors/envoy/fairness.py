"""A bound on each tenant's requests in flight, by stock filters: what is beyond it gets 429 with `Retry-After`.

A composite filter looks the adapter up and runs the limit of its tenant: Envoy's adaptive concurrency filter, whose
limit cannot adapt, since its least and its most are one number. It counts a request from its headers to the end of its
answer, in one count for all worker threads. The filter's configuration is a resource of its own, so that a bound comes
and goes without a restart; requests that were under way then are not counted by the new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from autoscaler.connectors.envoy.bootstrap import (
    ADAPTER_HEADER,
    FAIRNESS,
    RETRY_AFTER,
    TYPE,
    Json,
    extension,
    matched_composite,
)
from autoscaler.ring.snapshot import MemberState, RingSnapshot

_NEVER = "31536000s"
"""How long the limit's own estimates are apart: a year. They could not move it, and cost a little each time."""


def limits(snapshot: RingSnapshot, names: Iterable[str]) -> Json:
    """The filter's configuration as a resource (ECDS): a limit for each tenant that has one of `names`; else none.

    A dedicated group that serves shares nothing, and its adapter is not bounded. Nor are names in no list.
    """
    bound = snapshot.fairness
    matcher: Json = {}
    if bound is not None:
        single, several = _tenants(snapshot, names)
        limit = {"action": _limit(bound.max_in_flight, max(1, -(-bound.retry_after_ms // 1000)))}
        if single:
            # Entries are equal and yet limits of their own: Envoy makes a filter of each.
            matcher["matcher_tree"] = {"input": _ADAPTER, "exact_match_map": {"map": dict.fromkeys(single, limit)}}
        if several:
            fields = [{"predicate": _any_of(adapters), "on_match": limit} for adapters in several]
            listed: Json = {"matcher_list": {"matchers": fields}}
            matcher = listed | ({"on_no_match": {"matcher": matcher}} if matcher else {})
    return {
        "@type": TYPE + "config.core.v3.TypedExtensionConfig",
        "name": FAIRNESS,
        "typed_config": matched_composite(matcher),
    }


def _tenants(snapshot: RingSnapshot, names: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    """Adapters that are a tenant by themselves, and the adapters of each tenant of several."""
    tenant_of = {} if snapshot.fairness is None else snapshot.fairness.tenants
    own_group = {a for a, g in snapshot.hot.items() if any(m.state is MemberState.ACTIVE for m in g.members)}
    single, several = [], defaultdict(list)
    for name in sorted(set(names) - own_group):
        if name in tenant_of:
            several[tenant_of[name]].append(name)
        else:
            single.append(name)
    single += [adapters[0] for adapters in several.values() if len(adapters) == 1]
    return single, [adapters for adapters in several.values() if len(adapters) > 1]


_ADAPTER = extension(
    "adapter", {"@type": TYPE + "type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": ADAPTER_HEADER}
)


def _any_of(adapters: list[str]) -> Json:
    each = [{"single_predicate": {"input": _ADAPTER, "value_match": {"exact": adapter}}} for adapter in adapters]
    return {"or_matcher": {"predicate": each}}


def _limit(max_in_flight: int, retry_after_s: int) -> Json:
    told = {
        "@type": TYPE + "extensions.filters.http.set_metadata.v3.Config",
        "metadata": [{"metadata_namespace": FAIRNESS, "value": {RETRY_AFTER: str(retry_after_s)}}],
    }
    fixed = {
        "@type": TYPE + "extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
        "gradient_controller_config": {
            "concurrency_limit_params": {
                "max_concurrency_limit": max_in_flight,
                "concurrency_update_interval": _NEVER,
            },
            "min_rtt_calc_params": {"fixed_value": _NEVER, "min_concurrency": max_in_flight},
        },
        "concurrency_limit_exceeded_status": {"code": "TooManyRequests"},
    }
    chain = [
        extension("envoy.filters.http.set_metadata", told),
        extension("envoy.filters.http.adaptive_concurrency", fixed),
    ]
    action = {
        "@type": TYPE + "extensions.filters.http.composite.v3.ExecuteFilterAction",
        "filter_chain": {"typed_config": chain},
    }
    return extension("limit", action)
