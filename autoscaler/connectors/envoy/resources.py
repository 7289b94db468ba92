"""A ring snapshot as Envoy's resources: clusters, endpoints with the adapters each one owns, and the route table.

Stock Envoy follows the ring at the `subset` level: exactly the snapshot's candidates, in an order of its own. Endpoints
carry the adapters that they serve as metadata, and a request goes to the subset that lists its adapter. What is in no
list goes to the pool of the cold group.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from autoscaler.connectors.envoy.bootstrap import (
    ADAPTER_HEADER,
    PREFERENCE_HEADER,
    TYPE,
    Json,
    socket_address,
    watched_file,
)
from autoscaler.connectors.envoy.preference import RING_SIZE, preference_key
from autoscaler.ring.owners import Owners, Ring, Via
from autoscaler.ring.snapshot import Choice, Member, MemberState, Overflow, RingSnapshot, Unknown

PREFERRED, LEAST, HOT, ALL, SPRAY = "preferred", "least", "hot", "all", "spray"
UNKNOWN_NAME = "(unknown)"
"""The `adapter` tag of requests for names that no list has: clients cannot make series."""

# A subset lists the owners and these many more where any replica may overflow: with all replicas in every subset the
# assignment would grow as adapters x replicas.
_OVERFLOW_ANY = 2
# Envoy draws so many replicas, with replacement, and takes the least busy. Its default of 2 draws the same one twice in
# half of the picks between two owners, 5 in 1 of 16. More would send a burst of one instant to one replica, since a
# request counts as in flight only once its connection stands.
_CHOICES = 5
_COLD = {"pool": "cold"}


class Mode(StrEnum):
    """How requests are routed: as the ring says, or blind to adapters (least requests, or in turn)."""

    RING = "ring"
    LEAST_REQUESTS = "least-requests"
    SPRAY = "spray"


def response(version: str, resources: Iterable[Json]) -> bytes:
    """The contents of a watched file. Compact: 10,000 routes are 2.3 MB."""
    return json.dumps({"version_info": version, "resources": list(resources)}, separators=(",", ":")).encode()


def clusters(source: Callable[[str], Json], bound_percent: int) -> list[Json]:
    """The clusters, as CDS resources: by ring hash with the request-time bound, by least requests, and in turn.

    `source`: an assignment's name -> where Envoy gets it from.

    `least` also carries the base model's traffic, so that where `choice` is least its counts see all of the load.
    """
    bounded = {
        "lb_policy": "RING_HASH",
        "ring_hash_lb_config": {"minimum_ring_size": RING_SIZE},
        **_balance({"consistent_hashing_lb_config": {"hash_balance_factor": max(100, bound_percent)}}),
        **_subsets(),
    }
    least = {"lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": _CHOICES}, **_balance({})}
    return [
        _cluster(PREFERRED, source, bounded),
        _cluster(LEAST, source, least | _subsets()),
        _cluster(HOT, source, least | _subsets()),
        _cluster(ALL, source, least),
        _cluster(SPRAY, source, {"lb_policy": "ROUND_ROBIN", **_balance({})}, ALL),
    ]


def files_in(directory: Path) -> Callable[[str], Json]:
    """Assignments from files, as `clusters` asks for."""
    return lambda assignment: watched_file(endpoints_file(directory, assignment))


def endpoints_file(directory: Path, assignment: str) -> Path:
    """Where an assignment's file lies."""
    return directory.absolute() / f"endpoints-{assignment}.json"


def balance_percent(snapshot: RingSnapshot, found: Mapping[str, tuple[Member, ...]]) -> int:
    """Envoy's balance factor that comes nearest to the snapshot's bound; `found` as `candidates` gives it.

    Envoy lets a replica have factor x (in flight on the cluster) / (candidates of the adapter), the ring bound x (in
    flight) / (active members); so the factor is lowered by their ratio, to no less than the 100 that Envoy accepts.
    """
    active = max(1, len(_serving(snapshot.members)))
    usual = sorted(map(len, found.values()))[len(found) // 2] if found else active
    return max(100, -(-snapshot.request_bound_percent * min(usual, active) // active))


def endpoints(assignment: str, snapshot: RingSnapshot, found: Mapping[str, tuple[Member, ...]]) -> Json:
    """A ClusterLoadAssignment. `found`: the candidates of the adapters that must have their own subset.

    In `hot`, priority 0 holds the hot groups and priority 1 their adapters' ring owners, which take over when a group
    is down or answers that it is full.
    """
    groups = [member for group in snapshot.hot.values() for member in group.members]
    rest = [*snapshot.members, *(snapshot.cold or ())]
    adapters: defaultdict[str, list[str]] = defaultdict(list)
    spread = spread_names(snapshot)
    for name, members in found.items():
        own = HOT if name in snapshot.hot else snapshot.choice.value
        listed = members if assignment == own else ()
        if assignment == LEAST and name in spread:
            listed = members[: len(snapshot.exceptions[name])]
        for member in listed:
            adapters[member.address].append(name)
    if assignment == LEAST:
        for member in _serving(snapshot.members):
            adapters[member.address].extend(snapshot.base_models)
    pool = {member.address for member in cold_members(snapshot)}
    levels = {HOT: [groups, rest], ALL: [[*groups, *rest]]}.get(assignment, [rest])
    seen: set[str] = set()
    priorities = []
    for priority, level in enumerate(levels):
        fresh = {m.address: m for m in _reachable(level) if m.address not in seen}
        seen |= fresh.keys()
        hosts = [_endpoint(member, adapters[at], pool=at in pool) for at, member in fresh.items()]
        priorities.append({"priority": priority, "lb_endpoints": hosts})
    return {
        "@type": TYPE + "config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": assignment,
        "endpoints": [level for level in priorities if level["lb_endpoints"] or level["priority"] == 0],
    }


def candidates(
    snapshot: RingSnapshot, names: Collection[str], known: Mapping[str, Owners] | None = None
) -> dict[str, tuple[Member, ...]]:
    """The members that may serve each of `names` that has a subset, owners first; names of the cold group have none.

    `known`: the owners of all names, where the caller has them already.
    """
    ring = Ring(snapshot)
    found: dict[str, tuple[Member, ...]] = {}
    ordered = sorted(names)
    listed = ring.owners_many(ordered) if known is None else [known[name] for name in ordered]
    rest = _overflow(ring, ordered, listed)
    for name, owners in zip(ordered, listed, strict=True):
        if owners.via is Via.HOT:
            own = ring.owners(name, skip_hot=True)
            takeover = () if own.via in (Via.COLD, Via.BASE) else own.members
            found[name] = (*owners.members, *takeover)
        elif owners.via not in (Via.COLD, Via.BASE):
            found[name] = (*owners.members, *rest.get(name, ()))
    return found


def spread_names(snapshot: RingSnapshot) -> frozenset[str]:
    """Adapters whose load made them exceptions: their requests go by least requests over their owners.

    Envoy's bound on a preferred owner is loose (see `balance_percent`): a busy adapter would stay on one replica.
    On 16 simulated replicas 99.5 % of first tokens are in time by it instead of 95.1 %, at the same few adapter loads.
    In a small fleet that lists every adapter, only those with more owners than others have are busy ones.
    """
    if snapshot.choice is not Choice.PREFERRED:
        return frozenset()
    lists_all = snapshot.warm is not None and 3 * len(snapshot.exceptions) > len(snapshot.warm)
    quiet = snapshot.replication_factor if lists_all else 1
    return frozenset(a for a, owners in snapshot.exceptions.items() if len(owners) > quiet and a not in snapshot.hot)


def cold_members(snapshot: RingSnapshot) -> tuple[Member, ...]:
    """Who serves what is in no list: the cold group, or the warm members while it has no replica."""
    return _serving(snapshot.cold or ()) or _serving(snapshot.members)


def subset_names(snapshot: RingSnapshot, known: Iterable[str]) -> frozenset[str]:
    """The adapters of the ring and of hot groups; where every name is on the ring, the `known` ones."""
    named = {*snapshot.hot, *snapshot.exceptions}
    return frozenset(named.union(known if snapshot.warm is None else snapshot.warm) - set(snapshot.base_models))


def routes(
    version: str, snapshot: RingSnapshot, names: Iterable[str], found: Mapping[str, tuple[Member, ...]], mode: Mode
) -> bytes:
    """The route table as a watched file: every known name by itself (its name is the metrics' tag), then the rest.

    A name of the client's choice never becomes a metric's tag. Where the snapshot rejects unknown names they get 404.
    """
    targets = named_targets(snapshot, names, found, mode)
    table = {name: named_route(name, *target) for name, target in targets.items()}
    by_name = {
        "input": _typed("adapter", "type.matcher.v3.HttpRequestHeaderMatchInput", {"header_name": ADAPTER_HEADER}),
        "exact_match_map": {"map": {name: {"action": _action(route)} for name, route in table.items()}},
    }
    rest = _typed("rest", "config.route.v3.RouteList", {"routes": unnamed_routes(snapshot, mode)})
    matcher: Json = {"on_no_match": {"action": rest}}
    if table:
        matcher["matcher_tree"] = by_name
    host = {"name": "fleet", "domains": ["*"], "retry_policy": _RETRY, "matcher": matcher}
    table_type = TYPE + "config.route.v3.RouteConfiguration"
    return response(version, [{"@type": table_type, "name": "fleet", "virtual_hosts": [host]}])


def named_targets(
    snapshot: RingSnapshot, names: Iterable[str], found: Mapping[str, tuple[Member, ...]], mode: Mode
) -> dict[str, tuple[str, tuple[Member, ...]]]:
    """Name -> the cluster of its requests, and among whom it prefers the first: nobody where the cluster hashes not."""
    target = _target(snapshot, mode)
    table = {name: (target, found.get(name, ()) if target == PREFERRED else ()) for name in sorted(names)}
    if mode is Mode.RING:
        table.update({name: (LEAST, ()) for name in spread_names(snapshot) if name in found})
        table.update({name: (HOT, ()) for name in snapshot.hot if name in found})
    base_target = LEAST if mode is Mode.RING else target
    table.update(dict.fromkeys(snapshot.base_models, (base_target, ())))
    return table


def named_route(name: str, cluster: str, preferred: Sequence[Member]) -> Json:
    """The route of a name, as `named_targets` says."""
    return _route(name, cluster, _preference(preferred))


def unnamed_routes(snapshot: RingSnapshot, mode: Mode) -> list[Json]:
    """What is left: the list of models, and names that are in no list."""
    models = _route("(models)", ALL) | {"match": {"path": "/v1/models"}}
    rejects = snapshot.unknown is Unknown.REJECT and mode is Mode.RING
    return [models, _reject() if rejects else _route(UNKNOWN_NAME, _target(snapshot, mode))]


def virtual_host(name: str, domain: str, hosted: Sequence[Json]) -> Json:
    """A virtual host of the fleet's route table; every route of it retries."""
    return {"name": name, "domains": [domain], "retry_policy": _RETRY, "routes": list(hosted)}


def _target(snapshot: RingSnapshot, mode: Mode) -> str:
    return {Mode.RING: snapshot.choice.value, Mode.LEAST_REQUESTS: ALL, Mode.SPRAY: SPRAY}[mode]


def _balance(more: Json) -> Json:
    # Panic mode would send to draining and dead hosts as soon as half of a small subset is out. Without a window of 0
    # a second change of who owns what within a second would wait for the second to end.
    return {"common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s", **more}}


def _subsets() -> Json:
    return {
        "lb_subset_config": {
            "fallback_policy": "DEFAULT_SUBSET",
            "default_subset": _COLD,
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


def _endpoint(member: Member, adapters: Iterable[str], *, pool: bool) -> Json:
    metadata: Json = {"hash_key": member.slot or member.replica}
    if owned := sorted(set(adapters)):
        metadata["adapter"] = owned
    if pool:
        metadata |= _COLD
    host, _, port = member.address.rpartition(":")
    draining = member.state is not MemberState.ACTIVE
    return {
        "endpoint": {"address": socket_address(host.strip("[]"), int(port))},
        "health_status": "DRAINING" if draining else "HEALTHY",
        "metadata": {"filter_metadata": {"envoy.lb": metadata}},
    }


def _overflow(ring: Ring, names: Sequence[str], owners: Sequence[Owners]) -> dict[str, tuple[Member, ...]]:
    """Who takes what is over the owners' bound, by name."""
    snapshot = ring.snapshot
    if snapshot.choice is Choice.LEAST:
        return {}
    if snapshot.overflow is not Overflow.ANY:
        return {name: own.standbys for name, own in zip(names, owners, strict=True)}
    most = max(_OVERFLOW_ANY, snapshot.standby_count)
    serving = len(_serving(snapshot.members))
    depth = len(snapshot.members) - serving + most + max((len(own.members) for own in owners), default=0)
    ranked = ring.ranked_many(names, depth)
    return {
        name: tuple(m for m in row if m.state is MemberState.ACTIVE and m not in own.members)[:most]
        for name, own, row in zip(names, owners, ranked, strict=True)
    }


def _serving(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(member for member in members if member.state is MemberState.ACTIVE)


def _reachable(members: Iterable[Member]) -> tuple[Member, ...]:
    """Active and draining members; a vacant slot has nobody behind its address."""
    return tuple(member for member in members if member.state is not MemberState.VACANT and member.address)


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
# Nothing has reached the client yet when these retry, and a completion has no side effects: a dead replica costs a
# connection attempt. 503 is an engine that says it is full or going: the next priority (a hot adapter's ring owners) is
# tried.
_RETRY: Json = {
    "retry_on": "connect-failure,refused-stream,reset-before-request,reset,retriable-status-codes",
    "retriable_status_codes": [503],
    "num_retries": 3,
    "retry_host_predicate": [
        {
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {"@type": TYPE + "extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
        }
    ],
    "host_selection_retry_max_attempts": 5,
    "retry_priority": {
        "name": "envoy.retry_priorities.previous_priorities",
        "typed_config": {
            "@type": TYPE + "extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
            "update_frequency": 1,
        },
    },
    "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.1s"},
}
_MATCH_ALL: Json = {"prefix": "/"}


def _route(name: str, cluster: str, preference: str = "") -> Json:
    """A route to a cluster; `preference` is hashed to choose within the subset, else the adapter's name is."""
    hashed = PREFERENCE_HEADER if preference else ADAPTER_HEADER
    forward = {"cluster": cluster, "timeout": "0s", "hash_policy": [{"header": {"header_name": hashed}}]}
    route: Json = {"name": name, "match": _MATCH_ALL, "route": forward}
    if preference:
        header = {"key": PREFERENCE_HEADER, "value": preference}
        route["request_headers_to_add"] = [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
    return route


def _preference(members: Sequence[Member]) -> str:
    """The text that falls on the first member; empty where there is no choice."""
    return preference_key([member.slot or member.replica for member in members]) if len(members) > 1 else ""


def _reject() -> Json:
    error = {"message": "The model does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
    body = {"inline_string": json.dumps({"error": error})}
    as_json = {
        "header": {"key": "content-type", "value": "application/json"},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }
    return {
        "name": UNKNOWN_NAME,
        "match": _MATCH_ALL,
        "direct_response": {"status": 404, "body": body},
        "response_headers_to_add": [as_json],
    }


def _action(route: Json) -> Json:
    return _typed("route", "config.route.v3.Route", route)


def _typed(name: str, kind: str, value: Mapping[str, object]) -> Json:
    return {"name": name, "typed_config": {"@type": TYPE + kind, **value}}
