"""What is written for Envoy, before any Envoy reads it."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.connectors.envoy.preference import _host_of, _ring, preference_key
from autoscaler.connectors.envoy.resources import (
    UNKNOWN_NAME,
    Mode,
    balance_percent,
    candidates,
    clusters,
    endpoints,
    files_in,
    routes,
    spread_names,
    subset_names,
)
from autoscaler.ring.owners import Ring
from autoscaler.ring.snapshot import Choice, HotGroup, Member, MemberState, Overflow, RingSnapshot, Unknown

NAMES = tuple(f"a{i}" for i in range(40))


def snapshot(replicas: int = 8, **changes: Any) -> RingSnapshot:
    members = tuple(Member(f"r{i}", f"10.0.0.{i}:8000", slot=f"s{i:04d}") for i in range(replicas))
    ring = RingSnapshot("f", 3, "2026-11-29T12:00:00Z", 2, members, warm=NAMES, base_models=("base",))
    return replace(ring, **changes)


def hosts(assignment: str, ring: RingSnapshot, known: Iterable[str] = ()) -> dict[str, tuple[int, str, dict[str, Any]]]:
    """Address -> (priority, health, metadata)."""
    written = endpoints(assignment, ring, candidates(ring, subset_names(ring, known)))
    found = {}
    for level in written["endpoints"]:
        for host in level["lb_endpoints"]:
            at = host["endpoint"]["address"]["socket_address"]
            metadata = host["metadata"]["filter_metadata"]["envoy.lb"]
            found[f"{at['address']}:{at['port_value']}"] = (level["priority"], host["health_status"], metadata)
    return found


def owned(assignment: str, ring: RingSnapshot, known: Iterable[str] = ()) -> dict[str, set[str]]:
    """Adapter -> addresses that list it."""
    found: dict[str, set[str]] = {}
    for address, (_, _, metadata) in hosts(assignment, ring, known).items():
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


def test_where_any_replica_may_overflow_two_more_are_listed() -> None:
    assert Counter(len(addresses) for addresses in owned("preferred", snapshot(overflow=Overflow.ANY)).values()) == {
        4: 40
    }


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
    names = [cluster["name"] for cluster in clusters(files_in(Path("/d")), 125)]
    assert names == ["preferred", "least", "hot", "all", "spray"]


def test_panic_never_sends_to_replicas_that_are_out() -> None:
    for cluster in clusters(files_in(Path("/d")), 125):
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
