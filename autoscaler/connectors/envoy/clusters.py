"""The clusters of an Envoy of the fleet, and which of them the ring's adapters go to.

Where engines resolve adapters by themselves (`overflow: any`), `whole` hashes over every active warm member, so that
Envoy's bound on a member is the ring's own. Elsewhere an adapter must stay within its candidates, and `preferred` has a
subset for each adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from autoscaler.connectors.envoy.bootstrap import TYPE, Json
from autoscaler.connectors.envoy.preference import SUBSET_RING_SIZE, WHOLE_RING_SIZE
from autoscaler.ring.snapshot import Choice, Member, MemberState, Overflow, RingSnapshot

PREFERRED, WHOLE, LEAST, HOT, ALL, SPRAY = "preferred", "whole", "least", "hot", "all", "spray"
ASSIGNMENTS = (PREFERRED, WHOLE, LEAST, HOT, ALL)
"""Whose endpoints are listed; `spray` has those of `all`."""
# Envoy draws so many replicas, with replacement, and takes the least busy. Its default of 2 draws the same one twice in
# half of the picks between two owners, 5 in 1 of 16. More would send a burst of one instant to one replica, since a
# request counts as in flight only once its connection stands.
_CHOICES = 5
COLD_POOL = {"pool": "cold"}
"""Marks the endpoints that serve what is in no list."""


def ring_cluster(snapshot: RingSnapshot) -> str:
    """The cluster of the ring's adapters."""
    whole = snapshot.choice is Choice.PREFERRED and snapshot.overflow is Overflow.ANY
    return WHOLE if whole else snapshot.choice.value


def clusters(
    source: Callable[[str], Json], snapshot: RingSnapshot, found: Mapping[str, tuple[Member, ...]]
) -> list[Json]:
    """The clusters, as CDS resources: by ring hash with the request-time bound, by least requests, and in turn.

    `source`: an assignment's name -> where Envoy gets it from. `found`: the candidates of adapters with a subset.

    `least` also carries the base model's traffic, so that where `choice` is least its counts see all of the load.
    """
    least = {"lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": _CHOICES}, **_balance({})}
    return [
        _cluster(PREFERRED, source, _hashing(SUBSET_RING_SIZE, balance_percent(snapshot, found)) | _subsets()),
        _cluster(WHOLE, source, _hashing(WHOLE_RING_SIZE, max(100, snapshot.request_bound_percent))),
        _cluster(LEAST, source, least | _subsets()),
        _cluster(HOT, source, least | _subsets()),
        _cluster(ALL, source, least),
        _cluster(SPRAY, source, {"lb_policy": "ROUND_ROBIN", **_balance({})}, ALL),
    ]


def balance_percent(snapshot: RingSnapshot, found: Mapping[str, tuple[Member, ...]]) -> int:
    """Envoy's balance factor with subsets that comes nearest to the snapshot's bound; `found` as `candidates` gives it.

    Envoy lets a replica have factor x (in flight on the cluster) / (candidates of the adapter), the ring bound x (in
    flight) / (active members); so the factor is lowered by their ratio, to no less than the 100 that Envoy accepts.
    """
    active = max(1, len(serving(snapshot.members)))
    # In `whole` nobody has a subset there but the names in no list, which have all of the cold pool.
    listed = found and ring_cluster(snapshot) != WHOLE
    usual = sorted(map(len, found.values()))[len(found) // 2] if listed else active
    return max(100, -(-snapshot.request_bound_percent * min(usual, active) // active))


def serving(members: Iterable[Member]) -> tuple[Member, ...]:
    """Those that may be sent something new."""
    return tuple(member for member in members if member.state is MemberState.ACTIVE)


def _balance(more: Json) -> Json:
    # Panic mode would send to draining and dead hosts as soon as half of a small subset is out. Without a window of 0
    # a second change of who owns what within a second would wait for the second to end.
    return {"common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s", **more}}


def _hashing(ring_size: int, balance_factor: int) -> Json:
    bound = {"consistent_hashing_lb_config": {"hash_balance_factor": balance_factor}}
    return {"lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": ring_size}, **_balance(bound)}


def _subsets() -> Json:
    return {
        "lb_subset_config": {
            "fallback_policy": "DEFAULT_SUBSET",
            "default_subset": COLD_POOL,
            "list_as_any": True,
            "subset_selectors": [{"keys": ["adapter"]}],
        }
    }


def _cluster(name: str, source: Callable[[str], Json], balancing: Json, assignment: str = "") -> Json:
    assignment = assignment or name
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), 1_000_000)
    return {
        "@type": TYPE + "config.cluster.v3.Cluster",
        "name": name,
        "type": "EDS",
        "eds_cluster_config": {
            "service_name": assignment,
            "eds_config": source(assignment),
        },
        "connect_timeout": "1s",
        "outlier_detection": _UNREACHABLE,
        "preconnect_policy": {"per_upstream_preconnect_ratio": 1.5},
        "circuit_breakers": {"thresholds": [limits]},
        "track_cluster_stats": {"per_endpoint_stats": True},
        **balancing,
    }


# A dead replica has nothing in flight, so the bound on load likes it best until the ring lets go of it: one that cannot
# be reached three times in a row is left alone for seconds, at most half of them. What engines answer does not count.
_UNREACHABLE: Json = {
    "split_external_local_origin_errors": True,
    "consecutive_local_origin_failure": 3,
    "base_ejection_time": "2s",
    "max_ejection_time": "10s",
    "max_ejection_percent": 50,
    "interval": "1s",
    **dict.fromkeys(
        (
            "enforcing_consecutive_5xx", "enforcing_consecutive_gateway_failure", "enforcing_success_rate",
            "enforcing_local_origin_success_rate", "enforcing_failure_percentage",
            "enforcing_failure_percentage_local_origin",
        ),
        0,
    ),
}  # fmt: skip
