"""What is written for Envoy, before any Envoy reads it."""

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.connectors.envoy.clusters import balance_percent, clusters
from autoscaler.connectors.envoy.preference import WHOLE_RING_SIZE, _host_of, _ring, point_of, preference_key
from autoscaler.connectors.envoy.resources import (
    UNKNOWN_NAME,
    Mode,
    candidates,
    endpoints,
    files_in,
    routes,
    spread_names,
    subset_names,
)
from autoscaler.ring.hashing import h64
from autoscaler.ring.owners import Ring
from autoscaler.ring.snapshot import Choice, HotGroup, Member, MemberState, Overflow, RingSnapshot, Unknown

NAMES = tuple(f"a{i}" for i in range(40))


def snapshot(replicas: int = 8, **changes: Any) -> RingSnapshot:
    members = tuple(Member(f"r{i}", f"10.0.0.{i}:8000", slot=f"s{i:04d}") for i in range(replicas))
    ring = RingSnapshot("f", 3, "2026-11-29T12:00:00Z", 2, members, warm=NAMES, base_models=("base",))
    return replace(ring, **changes)


def hosts(
    assignment: str, ring: RingSnapshot, known: Iterable[str] = (), before: RingSnapshot | None = None
) -> dict[str, tuple[int, str, dict[str, Any]]]:
    """Address -> (priority, health, metadata)."""
    written = endpoints(assignment, ring, candidates(ring, subset_names(ring, known)), before)
    found = {}
    for level in written["endpoints"]:
        for host in level["lb_endpoints"]:
            at = host["endpoint"]["address"]["socket_address"]
            metadata = host["metadata"]["filter_metadata"]["envoy.lb"]
            found[f"{at['address']}:{at['port_value']}"] = (level["priority"], host["health_status"], metadata)
    return found


def owned(
    assignment: str, ring: RingSnapshot, known: Iterable[str] = (), before: RingSnapshot | None = None
) -> dict[str, set[str]]:
    """Adapter -> addresses that list it."""
    found: dict[str, set[str]] = {}
    for address, (_, _, metadata) in hosts(assignment, ring, known, before).items():
        for name in metadata.get("adapter", ()):
            found.setdefault(name, set()).add(address)
    return found


def table(ring: RingSnapshot, mode: Mode = Mode.RING, known: Iterable[str] = ()) -> dict[str, Any]:
    """Name -> its route; the last resort under UNKNOWN_NAME."""
    found = candidates(ring, subset_names(ring, known))
    body = json.loads(routes("v", ring, {*NAMES, *known}, found, mode))
    matcher = body["resources"][0]["virtual_hosts"][0]["matcher"]
    named = matcher["matcher_tree"]["exact_match_map"]["map"]
    rest = matcher["on_no_match"]["action"]["typed_config"]["routes"][-1]
    return {name: entry["action"]["typed_config"] for name, entry in named.items()} | {UNKNOWN_NAME: rest}


def test_least_lists_the_owners_and_the_base_model_on_every_active_replica() -> None:
    ring = snapshot(choice=Choice.LEAST)
    look_up = Ring(ring)
    expected = {name: {m.address for m in look_up.owners(name).members} for name in NAMES}
    assert owned("least", ring) == expected | {"base": {m.address for m in ring.members}}
    assert owned("preferred", ring) == {}, "the cluster that is not in use lists no adapters: they cost memory"


def test_preferred_lists_the_owners_and_their_standbys() -> None:
    ring = snapshot(overflow=Overflow.STANDBYS, standby_count=1)
    assert Counter(len(addresses) for addresses in owned("preferred", ring).values()) == {3: 40}


def whole(replicas: int = 8, **changes: Any) -> RingSnapshot:
    return snapshot(replicas, overflow=Overflow.ANY, **changes)


def envoy_ring(hash_keys: Iterable[str]) -> tuple[list[int], list[str]]:
    """Points and hosts as Envoy's `RingHashLoadBalancer::Ring` builds them, its running sums in floating point too."""
    keys = list(hash_keys)
    weight = 1.0 / len(keys)
    scale = math.ceil(weight * WHOLE_RING_SIZE) / weight
    current, target, points = 0.0, 0.0, []
    for key in keys:
        target += scale * weight
        i = 0
        while current < target:
            points.append((h64(f"{key}_{i}"), key))
            i, current = i + 1, current + 1.0
    points.sort()
    return [point for point, _ in points], [key for _, key in points]


def preferred_by(text: str, ring: tuple[list[int], list[str]]) -> str:
    points, owners = ring
    return owners[bisect_left(points, h64(text)) % len(points)]


def preference(added: dict[str, Any]) -> str:
    """What a route, or a share of it, adds."""
    (header,) = added["request_headers_to_add"]
    return str(header["header"]["value"])


def texts(ring: RingSnapshot) -> dict[str, str]:
    """Adapter -> the one preference that its route adds."""
    return {name: preference(route) for name, route in table(ring).items() if "request_headers_to_add" in route}


def test_where_any_replica_may_serve_one_cluster_without_subsets_has_the_ring_s_own_bound() -> None:
    made = {c["name"]: c for c in clusters(files_in(Path("/d")), whole(64, request_bound_percent=135), {})}
    assert "lb_subset_config" not in made["whole"]
    assert made["whole"]["lb_policy"] == "RING_HASH"
    balance = made["whole"]["common_lb_config"]["consistent_hashing_lb_config"]
    assert balance == {"hash_balance_factor": 135}, "64 members and two owners: with subsets it would be 100"
    assert "lb_subset_config" in made["preferred"], "the names in no list are still a subset"


def test_the_cluster_without_subsets_lists_warm_members_alone_and_no_adapters() -> None:
    ring = whole(cold=(Member("c0", "10.0.1.0:8000"),), hot={"a1": HotGroup("h", (Member("h0", "10.0.2.0:8000"),))})
    states = [MemberState.DRAINING, MemberState.VACANT] + [MemberState.ACTIVE] * 6
    ring = replace(ring, members=tuple(replace(m, state=s) for m, s in zip(ring.members, states, strict=True)))
    shown = hosts("whole", ring)
    health = {"10.0.0.0:8000": "DRAINING"} | {f"10.0.0.{i}:8000": "HEALTHY" for i in range(2, 8)}
    assert {at: state for at, (_, state, _) in shown.items()} == health
    assert [metadata for _, _, metadata in shown.values()] == [{"hash_key": f"s000{i}"} for i in (0, 2, 3, 4, 5, 6, 7)]
    assert owned("preferred", ring) == {}, "adapters in endpoints cost memory"
    assert set(owned("least", ring)) == {"base"}
    assert set(owned("hot", ring)) == {"a1"}


@pytest.mark.parametrize(("replicas", "absent"), [(1, 0), (2, 1), (3, 0), (7, 6), (10, 3), (49, 20)])
def test_every_route_prefers_its_first_owner_in_envoys_ring_whoever_else_is_there(replicas: int, absent: int) -> None:
    ring = whole(replicas)
    first = {name: owners.members[0].slot for name, owners in zip(NAMES, Ring(ring).owners_many(NAMES), strict=True)}
    keys = [member.slot for member in ring.members]
    everybody, fewer = envoy_ring(keys), envoy_ring(key for key in keys if key != f"s{absent:04d}" or len(keys) == 1)
    shown = texts(ring)
    assert {name: preferred_by(text, everybody) for name, text in shown.items()} == first
    stay = [name for name in NAMES if first[name] in set(fewer[1])]
    assert [preferred_by(shown[name], fewer) for name in stay] == [first[name] for name in stay]


def test_a_thousand_hosts_still_have_the_points_that_routes_name() -> None:
    keys = [f"s{i:04d}" for i in range(1000)]
    ring = envoy_ring(keys)
    assert all(preferred_by(point_of(f"a{i}", key), ring) == key for i, key in enumerate(keys))


def test_adapters_of_one_owner_differ_in_the_order_of_the_others() -> None:
    assert len({point_of(f"a{i}", "s0000") for i in range(200)}) == 16


def test_a_member_that_leaves_changes_only_the_routes_that_preferred_it() -> None:
    ring = whole()
    before = texts(ring)
    gone = replace(ring, members=ring.members[1:])
    after = texts(gone)
    assert {name for name in NAMES if before[name] != after[name]} == {
        name for name in NAMES if Ring(ring).owners(name).members[0].slot == "s0000"
    }


def test_names_in_no_list_stay_with_the_cold_pool_where_there_is_one() -> None:
    def cluster(ring: RingSnapshot, name: str) -> str:
        return str(table(ring, known=("cold-one",))[name]["route"]["cluster"])

    cold = Member("c0", "10.0.1.0:8000")
    for name in ("cold-one", UNKNOWN_NAME):
        assert cluster(whole(cold=(cold,)), name) == "preferred"
        assert cluster(whole(cold=(replace(cold, state=MemberState.DRAINING),)), name) == "whole"
        assert cluster(whole(cold=()), name) == cluster(whole(), name) == "whole"
        assert cluster(snapshot(cold=(cold,)), name) == "preferred"
    assert cluster(whole(cold=(cold,)), "a0") == "whole"
    pool = {at for at, (_, _, metadata) in hosts("preferred", whole(cold=(cold,))).items() if "pool" in metadata}
    assert pool == {"10.0.1.0:8000"}


def test_a_busy_exception_prefers_each_of_its_owners_in_equal_shares() -> None:
    owners = ("s0002", "s0005", "s0007")
    ring = whole(exceptions={"a0": owners})
    route = table(ring)["a0"]["route"]
    shares = route["weighted_clusters"]["clusters"]
    assert [(share["name"], share["weight"]) for share in shares] == [("whole", 1)] * 3
    everybody = envoy_ring(member.slot for member in ring.members)
    assert tuple(preferred_by(preference(share), everybody) for share in shares) == owners
    assert "cluster" not in route, "one of the two is all that Envoy takes"
    assert set(owned("least", ring)) == {"base"}
    with_subsets = table(replace(ring, overflow=Overflow.OWNERS))["a0"]["route"]
    assert with_subsets["cluster"] == "least", "where the bound is loose"


def test_a_name_that_changes_its_cluster_is_listed_in_both_until_its_route_has() -> None:
    least, standbys = snapshot(choice=Choice.LEAST), snapshot(overflow=Overflow.STANDBYS, standby_count=1)
    busy = replace(standbys, exceptions={"a0": ("s0002", "s0005")})
    hot = replace(standbys, hot={"a1": HotGroup("h", (Member("h0", "10.0.2.0:8000"),))})
    assert set(owned("preferred", whole(), before=standbys)) == set(NAMES)
    assert set(owned("preferred", least, before=standbys)) == set(NAMES)
    assert set(owned("least", whole(), before=least)) == {*NAMES, "base"}
    assert set(owned("least", standbys, before=busy)) == {"a0", "base"}
    assert set(owned("least", replace(busy, overflow=Overflow.ANY), before=busy)) == {"a0", "base"}
    assert owned("hot", standbys, before=hot) == {"a1": owned("preferred", standbys)["a1"]}
    assert owned("preferred", whole(), before=whole()) == {}, "one epoch later they are gone"


def test_a_ring_of_every_name_lists_the_names_that_are_known() -> None:
    assert set(owned("preferred", snapshot(warm=None), known=("x", "y", "base"))) == {"x", "y"}


def test_a_draining_replica_is_out_and_a_vacant_slot_is_not_there() -> None:
    ring = snapshot()
    states = [MemberState.DRAINING, MemberState.VACANT] + [MemberState.ACTIVE] * 6
    ring = replace(ring, members=tuple(replace(m, state=s) for m, s in zip(ring.members, states, strict=True)))
    shown = hosts("preferred", ring)
    assert shown["10.0.0.0:8000"][1] == "DRAINING"
    assert "adapter" not in shown["10.0.0.0:8000"][2]
    assert "10.0.0.1:8000" not in shown
    assert set(owned("preferred", ring)) == set(NAMES), "every adapter still has somebody"


def test_the_default_pool_is_the_cold_group_or_else_the_warm_one() -> None:
    def pool(ring: RingSnapshot) -> set[str]:
        return {at for at, (_, _, metadata) in hosts("preferred", ring).items() if metadata.get("pool") == "cold"}

    cold = Member("c0", "10.0.1.0:8000")
    everyone = {member.address for member in snapshot().members}
    assert pool(snapshot(cold=(cold,))) == {"10.0.1.0:8000"}
    assert pool(snapshot(cold=())) == everyone
    assert pool(snapshot(cold=None)) == everyone
    assert pool(snapshot(cold=(replace(cold, state=MemberState.DRAINING),))) == everyone


def test_a_hot_group_comes_before_the_ring_owners_of_its_adapter_and_of_no_other() -> None:
    ring = snapshot(hot={"a1": HotGroup("hot-a1", (Member("h0", "10.0.2.0:8000"),))})
    own = {m.address for m in Ring(ring).owners("a1", skip_hot=True).members}
    assert owned("hot", ring) == {"a1": {"10.0.2.0:8000", *own}}
    priorities = {at: priority for at, (priority, _, _) in hosts("hot", ring).items()}
    assert priorities["10.0.2.0:8000"] == 0
    assert {priorities[address] for address in own} == {1}
    assert "a1" not in owned("preferred", ring)
    assert table(ring)["a1"]["route"]["cluster"] == "hot"


def test_an_address_of_ipv6_is_kept_whole() -> None:
    ring = snapshot(1, members=(Member("r0", "[fd00::7]:8000", slot="s0000"),))
    assert set(hosts("all", ring)) == {"fd00::7:8000"}


def test_routes_name_what_is_known_and_nothing_else() -> None:
    known = table(snapshot(), known=("cold-one",))
    assert set(known) == {*NAMES, "cold-one", "base", UNKNOWN_NAME}
    assert {name: route["name"] for name, route in known.items()} == {name: name for name in known}
    assert known["base"]["route"]["cluster"] == "least"
    assert known["a0"]["route"]["cluster"] == "preferred"
    rejected = table(snapshot(unknown=Unknown.REJECT))[UNKNOWN_NAME]
    assert rejected["direct_response"]["status"] == 404


def test_modes_send_everything_to_one_cluster_without_looking_at_names() -> None:
    for mode, cluster in ((Mode.SPRAY, "spray"), (Mode.LEAST_REQUESTS, "all")):
        blind = table(snapshot(unknown=Unknown.REJECT), mode)
        assert {route["route"]["cluster"] for route in blind.values()} == {cluster}


def test_the_bound_is_brought_as_near_as_envoy_allows() -> None:
    every = candidates(snapshot(3, overflow=Overflow.STANDBYS, standby_count=1), NAMES)
    assert balance_percent(snapshot(3), every) == 125, "three candidates of three: Envoy's bound is the ring's"
    few = candidates(snapshot(64), NAMES)
    assert balance_percent(snapshot(64), few) == 100, "two candidates of 64: 3.9 is wanted, 100 is the least it takes"
    names = [cluster["name"] for cluster in clusters(files_in(Path("/d")), snapshot(), {})]
    assert names == ["preferred", "whole", "least", "hot", "all", "spray"]


def test_panic_never_sends_to_replicas_that_are_out() -> None:
    for cluster in clusters(files_in(Path("/d")), snapshot(), {}):
        assert cluster["common_lb_config"]["healthy_panic_threshold"] == {"value": 0}


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=12, unique=True), st.integers(0, 11))
def test_the_preference_falls_on_the_first_of_any_hosts(slots: list[int], turn: int) -> None:
    keys = [f"s{slot:04d}" for slot in slots]
    keys = keys[turn % len(keys) :] + keys[: turn % len(keys)]
    points, owners = _ring(tuple(sorted(keys)))
    assert _host_of(preference_key(keys), points, owners) == keys[0]
    assert len(points) >= 64, "Envoy's ring has at least 64 points, the same number for each host"
    assert len(set(Counter(owners).values())) == 1


def test_an_adapter_whose_load_made_it_an_exception_is_spread_over_its_owners() -> None:
    names = tuple(f"a{i}" for i in range(9))
    busy = {"a0": ("s0000", "s0001"), "a1": ("s0002",)}
    assert spread_names(replace(snapshot(), warm=names, exceptions=busy)) == {"a0"}
    listed = dict.fromkeys(names, ("s0000", "s0001")) | {"a8": ("s0000", "s0001", "s0002")}
    assert spread_names(replace(snapshot(), warm=names, exceptions=listed)) == {"a8"}
    assert spread_names(replace(snapshot(), warm=names, exceptions=busy, choice=Choice.LEAST)) == frozenset()
