"""What an Envoy is sent: exactly what it lacks, in an order that names nothing unsent, and what its answers say."""

from collections.abc import Mapping
from dataclasses import replace

from envoy.config.endpoint.v3.endpoint_components_pb2 import LbEndpoint
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.service.discovery.v3 import discovery_pb2

from autoscaler.connectors.envoy.ads import ASSIGNMENT, CLUSTER, ENDPOINT, HOST, ORDER, ROUTES, Peer, Resource
from autoscaler.connectors.envoy.clusters import ASSIGNMENTS
from autoscaler.connectors.envoy.resources import Mode
from autoscaler.connectors.envoy.xds import Cut, domain_of
from autoscaler.ring.snapshot import Choice, Member, Overflow, RingSnapshot

NAMES = tuple(f"a{i}" for i in range(40))
Request = discovery_pb2.DeltaDiscoveryRequest
Resources = Mapping[str, Mapping[str, Resource]]


def ring(**changes: object) -> RingSnapshot:
    members = tuple(Member(f"r{i}", f"10.0.0.{i}:8000", slot=f"s{i:04d}") for i in range(8))
    made = RingSnapshot("f", 1, "2026-11-29T12:00:00Z", 2, members, warm=NAMES, base_models=("base",))
    return replace(made, **changes)


def asking(resources: Resources, number: int = 1) -> Peer:
    """An Envoy that has asked for everything and accepted it."""
    peer = Peer()
    names = {CLUSTER: [], ROUTES: ["fleet"], HOST: ["fleet"], ASSIGNMENT: list(ASSIGNMENTS)}
    folders = {name.rpartition("/")[0] + "/*" for name in resources[ENDPOINT]}
    for kind, asked in (names | {ENDPOINT: sorted(folders)}).items():
        peer.hear(Request(type_url=kind, resource_names_subscribe=asked))
    accept(peer, told(peer, resources, number))
    return peer


def told(peer: Peer, resources: Resources, number: int) -> list[discovery_pb2.DeltaDiscoveryResponse]:
    return list(peer.lacks(resources, number))


def accept(peer: Peer, responses: list[discovery_pb2.DeltaDiscoveryResponse], refused: str = "") -> None:
    for response in responses:
        answer = Request(type_url=response.type_url, response_nonce=response.nonce)
        if response.type_url == refused:
            answer.error_detail.message = "no such thing"
        peer.hear(answer)


def test_everything_is_sent_once_in_order() -> None:
    cut = Cut().resources(ring(), frozenset(), Mode.RING)
    peer = Peer()
    for kind in ORDER:
        peer.hear(Request(type_url=kind, resource_names_subscribe=["*"]))
    responses = told(peer, cut, 1)
    assert [r.type_url for r in responses] == list(ORDER)
    assert {x.name for r in responses for x in r.resources} == {name for kind in cut.values() for name in kind}
    assert told(peer, cut, 1) == []


def test_a_move_sends_its_endpoints_and_its_route_and_nothing_else() -> None:
    cut = Cut()
    before = ring(exceptions={"a0": ("s0000", "s0001")}, choice=Choice.PREFERRED)
    peer = asking(cut.resources(before, frozenset(), Mode.RING))
    after = ring(exceptions={"a0": ("s0002", "s0001")}, choice=Choice.PREFERRED)
    responses = told(peer, cut.resources(after, frozenset(), Mode.RING), 2)
    sent = {r.type_url: [x.name for x in r.resources] for r in responses}
    assert set(sent) <= {ENDPOINT, HOST}
    assert sent.get(HOST, []) in ([], [f"fleet/{domain_of('a0')}"]), "one text may prefer either owner"
    assert {name.rpartition("/")[2] for name in sent[ENDPOINT]} >= {"10.0.0.0_8000", "10.0.0.2_8000"}
    assert len(sent[ENDPOINT]) <= 4, "its owners and standbys, before and after"


def test_another_first_owner_changes_only_the_route() -> None:
    cut = Cut()
    few = {"warm": ("a0", "a1")}  # a small fleet, which lists its calm adapters too
    peer = asking(cut.resources(ring(exceptions={"a0": ("s0000", "s0001")}, **few), frozenset(), Mode.RING))
    after = ring(exceptions={"a0": ("s0001", "s0000")}, **few)
    responses = told(peer, cut.resources(after, frozenset(), Mode.RING), 2)
    sent = {x.name for r in responses if r.type_url == HOST for x in r.resources}
    assert sent == {f"fleet/{domain_of('a0')}"}


def test_where_any_replica_may_serve_a_move_sends_one_route() -> None:
    cut = Cut()
    few = {"warm": ("a0", "a1"), "overflow": Overflow.ANY}
    peer = asking(cut.resources(ring(exceptions={"a0": ("s0000", "s0001")}, **few), frozenset(), Mode.RING))
    peer.sent_bytes = 0
    after = ring(exceptions={"a0": ("s0002", "s0001")}, **few)
    (response,) = told(peer, cut.resources(after, frozenset(), Mode.RING), 2)
    assert [x.name for x in response.resources] == [f"fleet/{domain_of('a0')}"]
    assert peer.sent_bytes < 800
    second = ring(exceptions={"a0": ("s0002", "s0003")}, **few)
    assert told(peer, cut.resources(second, frozenset(), Mode.RING), 3) == [], "a second owner is nothing to Envoy"


def test_the_route_of_a_busy_exception_names_each_of_its_owners() -> None:
    busy = {"a0": ("s0000", "s0001"), "a1": ("s0004", "s0005")}
    hosts = Cut().resources(ring(exceptions=busy, overflow=Overflow.ANY), frozenset(), Mode.RING)[HOST]
    for name, slots in busy.items():
        route = VirtualHost.FromString(hosts[f"fleet/{domain_of(name)}"].body).routes[0]
        shares = route.route.weighted_clusters.clusters
        told = [(s.name, s.request_headers_to_add[0].header.value.partition("_")[0]) for s in shares]
        assert told == [("whole", slot) for slot in slots]


def test_with_least_requests_a_move_changes_no_route() -> None:
    cut = Cut()
    before = ring(exceptions={"a0": ("s0000", "s0001")}, choice=Choice.LEAST)
    peer = asking(cut.resources(before, frozenset(), Mode.RING))
    after = ring(exceptions={"a0": ("s0002", "s0001")}, choice=Choice.LEAST)
    responses = told(peer, cut.resources(after, frozenset(), Mode.RING), 2)
    (sent,) = responses
    assert {x.name.rpartition("/")[2] for x in sent.resources} == {"10.0.0.0_8000", "10.0.0.2_8000"}
    hosts = {x.name.rpartition("/")[2]: LbEndpoint.FromString(x.resource.value) for x in sent.resources}
    listed = {n: "a0" in h.metadata.filter_metadata["envoy.lb"]["adapter"] for n, h in hosts.items()}
    assert listed == {"10.0.0.0_8000": False, "10.0.0.2_8000": True}


def test_what_is_gone_is_removed() -> None:
    cut = Cut()
    peer = asking(cut.resources(ring(), frozenset(), Mode.RING))
    responses = told(peer, cut.resources(ring(warm=NAMES[1:]), frozenset(), Mode.RING), 2)
    assert f"fleet/{domain_of('a0')}" in {name for r in responses for name in r.removed_resources}


def test_a_collection_without_members_is_answered_too() -> None:
    peer = Peer()
    peer.hear(Request(type_url=ENDPOINT, resource_names_subscribe=["xdstp://x/hot-0/*"]))
    (response,) = told(peer, {ENDPOINT: {}}, 1)
    assert list(response.removed_resources) == ["xdstp://x/hot-0/*"]


def test_one_that_comes_back_is_sent_only_what_it_lacks() -> None:
    resources = Cut().resources(ring(), frozenset(), Mode.RING)
    peer = Peer()
    has = {name: r.version for name, r in resources[HOST].items()}
    del has["fleet/-"]
    peer.hear(Request(type_url=HOST, resource_names_subscribe=["fleet"], initial_resource_versions=has))
    (response,) = told(peer, resources, 1)
    assert [x.name for x in response.resources] == ["fleet/-"]


def test_an_epoch_is_applied_once_all_of_it_is_accepted_and_never_where_it_was_refused() -> None:
    cut = Cut()
    peer = asking(cut.resources(ring(), frozenset(), Mode.RING), 1)
    assert peer.applied == 1
    moved = cut.resources(ring(exceptions={"a0": ("s0002", "s0005")}), frozenset(), Mode.RING)
    responses = told(peer, moved, 2)
    assert peer.applied == 1, "sent is not applied"
    accept(peer, responses, refused=ENDPOINT)
    assert peer.applied == 1
    assert peer.refused == {ENDPOINT: (2, "no such thing")}
    accept(peer, told(peer, cut.resources(ring(), frozenset(), Mode.RING), 3))
    assert (peer.applied, peer.refused) == (3, {})


def test_names_that_differ_in_case_or_hold_anything_have_hosts_of_their_own() -> None:
    names = ("Acme", "acme", "a/b", "ü")
    hosts = Cut().resources(ring(warm=names), frozenset(), Mode.RING)[HOST]
    for name in names:
        host = VirtualHost.FromString(hosts[f"fleet/{domain_of(name)}"].body)
        assert (host.domains[0], host.routes[0].name) == (domain_of(name), name)
    assert len({domain_of(name) for name in names}) == len(names)
