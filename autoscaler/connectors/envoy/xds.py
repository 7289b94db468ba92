"""A ring snapshot as resources for incremental discovery, so that a move costs what moved and not what there is.

The same clusters, endpoints and routes as in files, cut finer: each endpoint of an assignment is a resource (LEDS), and
so is the route of each adapter, as a virtual host that is chosen by a header (VHDS). A moved adapter changes the two
endpoints and its own route, whatever the number of adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2

# Types that the messages carry packed; the parser must know them.
from envoy.extensions.common.matching.v3 import extension_matcher_pb2 as _matching
from envoy.extensions.filters.http.adaptive_concurrency.v3 import adaptive_concurrency_pb2 as _concurrency
from envoy.extensions.filters.http.composite.v3 import composite_pb2 as _composite
from envoy.extensions.filters.http.set_metadata.v3 import set_metadata_pb2 as _metadata
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2 as _hosts
from envoy.extensions.retry.priority.previous_priorities.v3 import previous_priorities_config_pb2 as _priorities
from envoy.type.matcher.v3 import http_inputs_pb2 as _inputs
from google.protobuf import json_format  # type: ignore[import-untyped]

from autoscaler.connectors.envoy.ads import ASSIGNMENT, CLUSTER, ENDPOINT, FILTER, HOST, ROUTES, Resource
from autoscaler.connectors.envoy.bootstrap import BY_ADS, FAIRNESS, Json
from autoscaler.connectors.envoy.clusters import ASSIGNMENTS, HOT, clusters
from autoscaler.connectors.envoy.fairness import limits
from autoscaler.connectors.envoy.resources import (
    Mode,
    candidates,
    endpoints,
    named_route,
    named_targets,
    subset_names,
    unnamed_routes,
    virtual_host,
)
from autoscaler.ring.snapshot import Member, RingSnapshot

V = TypeVar("V")
TABLE = "fleet"
HOST_HEADER = "x-lora-host"
"""Holds the adapter's name in hex: domains know no case, and a name may hold anything."""
PACKED = (_hosts, _priorities, _matching, _concurrency, _composite, _metadata, _inputs)
_COLLECTION = "xdstp://lora-autoscaler/envoy.config.endpoint.v3.LbEndpoint"
_PRIORITIES = {HOT: 2}


Targets = tuple[str, tuple[Member, ...]]


class Cut:
    """Cuts snapshots into resources, and makes only those anew that changed since the last one."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[object, Resource]] = {}
        self._now: dict[tuple[str, str], tuple[object, Resource]] = {}
        self._hosts: dict[tuple[str, bool, int], Any] = {}
        self._shown: RingSnapshot | None = None

    def resources(
        self, snapshot: RingSnapshot, known: frozenset[str], mode: Mode
    ) -> Mapping[str, Mapping[str, Resource]]:
        """Everything that an Envoy of the fleet needs."""
        found = candidates(snapshot, subset_names(snapshot, known))
        names = (found.keys() | known) - set(snapshot.base_models)
        self._before, self._now = self._now, {}
        before, self._shown = self._shown, snapshot
        made = clusters(lambda assignment: BY_ADS, snapshot, found)
        hosts = {a: _endpoints(endpoints(a, snapshot, found, before)) for a in ASSIGNMENTS}
        rest = _rest("-", snapshot, mode)
        bounded = limits(snapshot, names | set(snapshot.base_models))
        by_name = {c["name"]: self._kept(CLUSTER, c["name"], c, _parsed(cluster_pb2.Cluster)) for c in made}
        # Envoy makes a cluster that changed anew, and waits until it is told the endpoints once more: it asks not.
        parent = {name: cluster.version for name, cluster in by_name.items()}
        assign = _parsed(endpoint_pb2.ClusterLoadAssignment)
        return {
            CLUSTER: by_name,
            ASSIGNMENT: {a: self._kept(ASSIGNMENT, a, _assignment(a), assign, parent[a]) for a in ASSIGNMENTS},
            ENDPOINT: {
                name: self._kept(ENDPOINT, name, host, _endpoint, parent[a])
                for a, listed in hosts.items()
                for name, host in listed.items()
            },
            ROUTES: {TABLE: self._kept(ROUTES, TABLE, _table(snapshot, mode), _parsed(route_pb2.RouteConfiguration))},
            HOST: {
                f"{TABLE}/-": self._kept(HOST, "", rest, _parsed(route_components_pb2.VirtualHost)),
                **{
                    f"{TABLE}/{domain_of(name)}": self._kept(HOST, name, target, partial(self._host, name))
                    for name, target in named_targets(snapshot, names, found, mode).items()
                },
            },
            FILTER: {FAIRNESS: self._kept(FILTER, FAIRNESS, bounded, _filter)},
        }

    def _kept(self, kind: str, name: str, value: V, make: Callable[[V], bytes], parent: str = "") -> Resource:
        before = self._before.get((kind, name))
        if before is None or before[0] != (value, parent):
            before = (value, parent), Resource.of(make(value), parent)
        self._now[kind, name] = before
        return before[1]

    def _host(self, name: str, target: Targets) -> bytes:
        """From a parsed example: parsing takes a millisecond, and there are as many as adapters."""
        cluster, preferred = target
        domain = domain_of(name)
        route = named_route(name, cluster, preferred)
        shares = route["route"].get("weighted_clusters", {"clusters": [route]})["clusters"]
        example = cluster, "request_headers_to_add" in shares[0], len(shares)
        made = route_components_pb2.VirtualHost()
        if example not in self._hosts:
            json_format.ParseDict(virtual_host("", "", [route]), made)
            self._hosts[example] = made
        made = route_components_pb2.VirtualHost()
        made.CopyFrom(self._hosts[example])
        made.name, made.domains[0], made.routes[0].name = f"{TABLE}/{domain}", domain, name
        for shown, wanted in zip(made.routes[0].route.weighted_clusters.clusters or made.routes, shares, strict=True):
            for header in wanted.get("request_headers_to_add", ()):
                shown.request_headers_to_add[0].header.value = header["header"]["value"]
        return bytes(made.SerializeToString(deterministic=True))


def domain_of(name: str) -> str:
    """The name as a domain, as the Lua filter makes it of a request's."""
    return name.encode().hex()


def _parsed(kind: Callable[[], Any]) -> Callable[[Json], bytes]:
    def make(value: Json) -> bytes:
        parsed = json_format.ParseDict({k: v for k, v in value.items() if k != "@type"}, kind())
        return bytes(parsed.SerializeToString(deterministic=True))

    return make


def _filter(value: Json) -> bytes:
    """One limit is parsed, and copied for every adapter: each takes the parser a millisecond."""
    matcher = dict(value["typed_config"]["xds_matcher"])
    listed = "matcher_list" in matcher
    holder = matcher["on_no_match"]["matcher"] if "on_no_match" in matcher else matcher
    names = list(holder["matcher_tree"]["exact_match_map"]["map"]) if "matcher_tree" in holder else []
    if names:
        tree = holder["matcher_tree"]
        one = {names[0]: tree["exact_match_map"]["map"][names[0]]}
        short = {"matcher_tree": {**tree, "exact_match_map": {"map": one}}}
        matcher = {**matcher, "on_no_match": {"matcher": short}} if listed else short
    made = extension_pb2.TypedExtensionConfig()
    short_config = {**value["typed_config"], "xds_matcher": matcher}
    json_format.ParseDict({"name": value["name"], "typed_config": short_config}, made)
    matched = _matching.ExtensionWithMatcher()
    made.typed_config.Unpack(matched)
    parsed = matched.xds_matcher.on_no_match.matcher if listed else matched.xds_matcher
    limits_of = parsed.matcher_tree.exact_match_map.map
    for name in names[1:]:
        limits_of[name].CopyFrom(limits_of[names[0]])
    made.typed_config.Pack(matched, deterministic=True)
    return bytes(made.SerializeToString(deterministic=True))


def _endpoint(host: Json) -> bytes:
    """Its adapters are put in by hand: the parser takes 10 us for each, and there are hundreds of thousands."""
    marks = dict(host["metadata"]["filter_metadata"]["envoy.lb"])
    adapters = marks.pop("adapter", [])
    value = {**host, "metadata": {"filter_metadata": {"envoy.lb": marks}}}
    parsed = json_format.ParseDict(value, endpoint_components_pb2.LbEndpoint())
    if adapters:
        parsed.metadata.filter_metadata["envoy.lb"].fields["adapter"].list_value.extend(adapters)
    return bytes(parsed.SerializeToString(deterministic=True))


def _assignment(name: str) -> Json:
    """It says only where its endpoints are listed."""
    levels = [
        {
            "priority": priority,
            # An empty locality makes all endpoints of a level one.
            "locality": {},
            "leds_cluster_locality_config": {
                "leds_config": BY_ADS,
                "leds_collection_name": f"{_COLLECTION}/{name}-{priority}/*",
            },
        }
        for priority in range(_PRIORITIES.get(name, 1))
    ]
    return {"cluster_name": name, "endpoints": levels}


def _endpoints(assignment: Json) -> dict[str, Json]:
    """The endpoints of an assignment by the name of each as a resource."""
    found = {}
    for level in assignment["endpoints"]:
        for host in level["lb_endpoints"]:
            at = host["endpoint"]["address"]["socket_address"]
            where = f"{_COLLECTION}/{assignment['cluster_name']}-{level['priority']}"
            found[f"{where}/{at['address'].replace(':', '-')}_{at['port_value']}"] = host
    return found


def _rest(domain: str, snapshot: RingSnapshot, mode: Mode) -> Json:
    """Requests that name no adapter (`-`), and those whose adapter is in no list."""
    return virtual_host(f"{TABLE}/{domain}", domain, unnamed_routes(snapshot, mode))


def _table(snapshot: RingSnapshot, mode: Mode) -> Json:
    """The route table without the adapters: they are its virtual hosts."""
    return {
        "name": TABLE,
        "vhost_header": HOST_HEADER,
        "virtual_hosts": [_rest("*", snapshot, mode)],
        "vhds": {"config_source": BY_ADS},
    }
