"""A ring snapshot as Envoy's resources: endpoints with the adapters that each one owns, and the route table.

Stock Envoy follows the ring at the `subset` level: exactly the snapshot's candidates, in an order of its own. Endpoints
carry the adapters that they serve as metadata, and a request goes to the subset that lists its adapter; in the cluster
`whole` they carry none, and an adapter's route names the one that it prefers. What is in no list goes to the pool of
the cold group.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
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
from autoscaler.connectors.envoy.clusters import (
    ALL,
    COLD_POOL,
    HOT,
    LEAST,
    PREFERRED,
    SPRAY,
    WHOLE,
    ring_cluster,
    serving,
)
from autoscaler.connectors.envoy.preference import point_of, preference_key
from autoscaler.ring.owners import Owners, Ring, Via
from autoscaler.ring.snapshot import Choice, Member, MemberState, RingSnapshot, Unknown

UNKNOWN_NAME = "(unknown)"
"""The `adapter` tag of requests for names that no list has: clients cannot make series."""


class Mode(StrEnum):
    """How requests are routed: as the ring says, or blind to adapters (least requests, or in turn)."""

    RING = "ring"
    LEAST_REQUESTS = "least-requests"
    SPRAY = "spray"


def response(version: str, resources: Iterable[Json]) -> bytes:
    """The contents of a watched file. Compact: 10,000 routes are 2.3 MB."""
    return json.dumps({"version_info": version, "resources": list(resources)}, separators=(",", ":")).encode()


def files_in(directory: Path) -> Callable[[str], Json]:
    """Assignments from files, as `clusters` asks for."""
    return lambda assignment: watched_file(endpoints_file(directory, assignment))


def endpoints_file(directory: Path, assignment: str) -> Path:
    """Where an assignment's file lies."""
    return directory.absolute() / f"endpoints-{assignment}.json"


def endpoints(
    assignment: str,
    snapshot: RingSnapshot,
    found: Mapping[str, tuple[Member, ...]],
    before: RingSnapshot | None = None,
) -> Json:
    """A ClusterLoadAssignment. `found`: the candidates of the adapters that must have their own subset.

    `before`: the snapshot whose routes are in force until new ones follow. A name that changes its cluster is listed in
    both, so that no request finds nobody in between.

    In `hot`, priority 0 holds the hot groups and priority 1 their adapters' ring owners, which take over when a group
    is down or answers that it is full.
    """
    groups = [member for group in snapshot.hot.values() for member in group.members]
    rest = [*snapshot.members, *(snapshot.cold or ())]
    adapters: defaultdict[str, list[str]] = defaultdict(list)
    spread = spread_names(snapshot)
    names = found.keys()
    for name in _listed_in(assignment, snapshot, names) | _listed_in(assignment, before or snapshot, names):
        most = len(snapshot.exceptions[name]) if assignment == LEAST and name in spread else None
        for member in found[name][:most]:
            adapters[member.address].append(name)
    if assignment == LEAST:
        for member in serving(snapshot.members):
            adapters[member.address].extend(snapshot.base_models)
    pool = {member.address for member in cold_members(snapshot)} if assignment != WHOLE else set()
    levels = {HOT: [groups, rest], ALL: [[*groups, *rest]], WHOLE: [list(snapshot.members)]}.get(assignment, [rest])
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
    """The members that may serve each of `names` by its owners, those first, then standbys; cold names have none.

    `known`: the owners of all names, where the caller has them already.
    """
    ring = Ring(snapshot)
    found: dict[str, tuple[Member, ...]] = {}
    ordered = sorted(names)
    listed = ring.owners_many(ordered) if known is None else [known[name] for name in ordered]
    standbys = ring_cluster(snapshot) == PREFERRED
    for name, owners in zip(ordered, listed, strict=True):
        if owners.via is Via.HOT:
            own = ring.owners(name, skip_hot=True)
            takeover = () if own.via in (Via.COLD, Via.BASE) else own.members
            found[name] = (*owners.members, *takeover)
        elif owners.via not in (Via.COLD, Via.BASE):
            found[name] = (*owners.members, *(owners.standbys if standbys else ()))
    return found


def _listed_in(assignment: str, snapshot: RingSnapshot, names: Set[str]) -> Set[str]:
    """Those of `names` that the snapshot's routes send to a subset of this cluster."""
    if assignment == HOT:
        return names & snapshot.hot.keys()
    if assignment == WHOLE:
        return frozenset()
    if assignment == ring_cluster(snapshot):
        return names - snapshot.hot.keys()
    return names & least_names(snapshot) if assignment == LEAST else frozenset()


def spread_names(snapshot: RingSnapshot) -> frozenset[str]:
    """Adapters whose load made them exceptions: their requests are spread over their owners.

    With subsets they go by least requests. Envoy's bound on a preferred owner is loose there (see `balance_percent`): a
    busy adapter would stay on one replica. On 16 simulated replicas 99.5 % of first tokens are in time by it instead of
    95.1 %, at the same few adapter loads. In `whole` each owner is preferred in its turn, by lot, so that the bound
    counts them too: 99.9 % of first tokens in time on 16 replicas at 235 requests/s, by least requests 91 %.
    In a small fleet that lists every adapter, only those with more owners than others have are busy ones.
    """
    if snapshot.choice is not Choice.PREFERRED:
        return frozenset()
    lists_all = snapshot.warm is not None and 3 * len(snapshot.exceptions) > len(snapshot.warm)
    quiet = snapshot.replication_factor if lists_all else 1
    return frozenset(a for a, owners in snapshot.exceptions.items() if len(owners) > quiet and a not in snapshot.hot)


def least_names(snapshot: RingSnapshot) -> frozenset[str]:
    """Those of them that are sent to `least`."""
    return spread_names(snapshot) if ring_cluster(snapshot) == PREFERRED else frozenset()


def cold_members(snapshot: RingSnapshot) -> tuple[Member, ...]:
    """Who serves what is in no list: the cold group, or the warm members while it has no replica."""
    return serving(snapshot.cold or ()) or serving(snapshot.members)


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
    """Name -> the cluster of its requests, and whom it prefers: nobody where the cluster hashes not.

    In `preferred` that is the first among these; in `whole` each of them, in equal shares.
    """
    target, rest = _target(snapshot, mode), _rest_target(snapshot, mode)
    # In `whole` the others need not be known.
    most = {PREFERRED: None, WHOLE: 1}.get(target, 0)
    table = {name: (target, found[name][:most]) if name in found else (rest, ()) for name in sorted(names)}
    if mode is Mode.RING:
        for name in spread_names(snapshot) & found.keys():
            table[name] = (LEAST, ()) if target == PREFERRED else (WHOLE, found[name])
        table.update({name: (HOT, ()) for name in snapshot.hot if name in found})
    base_target = LEAST if mode is Mode.RING else target
    table.update(dict.fromkeys(snapshot.base_models, (base_target, ())))
    return table


def named_route(name: str, cluster: str, preferred: Sequence[Member]) -> Json:
    """The route of a name, as `named_targets` says."""
    return _route(name, cluster, _preferences(name, cluster, preferred))


def unnamed_routes(snapshot: RingSnapshot, mode: Mode) -> list[Json]:
    """What is left: the list of models, and names that are in no list."""
    models = _route("(models)", ALL) | {"match": {"path": "/v1/models"}}
    rejects = snapshot.unknown is Unknown.REJECT and mode is Mode.RING
    return [models, _reject() if rejects else _route(UNKNOWN_NAME, _rest_target(snapshot, mode))]


def virtual_host(name: str, domain: str, hosted: Sequence[Json]) -> Json:
    """A virtual host of the fleet's route table; every route of it retries."""
    return {"name": name, "domains": [domain], "retry_policy": _RETRY, "routes": list(hosted)}


def _target(snapshot: RingSnapshot, mode: Mode) -> str:
    return {Mode.RING: ring_cluster(snapshot), Mode.LEAST_REQUESTS: ALL, Mode.SPRAY: SPRAY}[mode]


def traffic_clusters(snapshot: RingSnapshot, mode: Mode) -> tuple[str, ...]:
    """The clusters that traffic passes."""
    if mode is not Mode.RING:
        return (ALL, SPRAY)
    return tuple(dict.fromkeys((ring_cluster(snapshot), _rest_target(snapshot, mode), LEAST, HOT)))


def _rest_target(snapshot: RingSnapshot, mode: Mode) -> str:
    """Where names in no list go: the cold pool is not in `whole`, and is the default subset of `preferred`."""
    target = _target(snapshot, mode)
    return PREFERRED if target == WHOLE and serving(snapshot.cold or ()) else target


def _endpoint(member: Member, adapters: Iterable[str], *, pool: bool) -> Json:
    metadata: Json = {"hash_key": member.slot or member.replica}
    if owned := sorted(set(adapters)):
        metadata["adapter"] = owned
    if pool:
        metadata |= COLD_POOL
    host, _, port = member.address.rpartition(":")
    draining = member.state is not MemberState.ACTIVE
    return {
        "endpoint": {"address": socket_address(host.strip("[]"), int(port))},
        "health_status": "DRAINING" if draining else "HEALTHY",
        "metadata": {"filter_metadata": {"envoy.lb": metadata}},
    }


def _reachable(members: Iterable[Member]) -> tuple[Member, ...]:
    """Active and draining members; a vacant slot has nobody behind its address."""
    return tuple(member for member in members if member.state is not MemberState.VACANT and member.address)


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


def _route(name: str, cluster: str, preferences: Sequence[str] = ()) -> Json:
    """A route to a cluster; one of `preferences` is hashed to choose a host there, else the adapter's name is."""
    hashed = PREFERENCE_HEADER if preferences else ADAPTER_HEADER
    forward: Json = {"timeout": "0s", "hash_policy": [{"header": {"header_name": hashed}}]}
    route: Json = {"name": name, "match": _MATCH_ALL, "route": forward}
    if len(preferences) > 1:
        shares = [{"name": cluster, "weight": 1, "request_headers_to_add": _prefer(text)} for text in preferences]
        forward["weighted_clusters"] = {"clusters": shares}
        return route
    forward["cluster"] = cluster
    for text in preferences:
        route["request_headers_to_add"] = _prefer(text)
    return route


def _prefer(text: str) -> list[Json]:
    header = {"key": PREFERENCE_HEADER, "value": text}
    return [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]


def _preferences(name: str, cluster: str, members: Sequence[Member]) -> list[str]:
    """The texts that fall on those who are preferred; none where there is no choice."""
    keys = [member.slot or member.replica for member in members]
    if cluster == WHOLE:
        return [point_of(name, key) for key in keys]
    return [preference_key(keys)] if len(keys) > 1 else []


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
