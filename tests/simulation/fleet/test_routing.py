"""Each kind of router chooses as the software that it stands for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.ring import Choice, Member, MemberState, Overflow, Ring, RingSnapshot
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core import loop
from autoscaler.simulator.fleet.core.layout import Table
from autoscaler.simulator.fleet.engines import EngineFleet
from autoscaler.simulator.fleet.tables import Level
from tests.simulation.fleet.builders import arrivals, fleet, play

ADAPTERS = tuple(f"adapter-{i}" for i in range(6))
ROOMY = EngineLimits(max_loras=6, max_cpu_loras=6, max_num_seqs=64, max_num_batched_tokens=512)


def routed(table: Table, busy: list[int], adapter: int, *, seed: int = 0, cluster: int = b.BOUNDED) -> int:
    """The engine that gets one request while the only router has so many in flight on each."""
    one = fleet(len(busy), routers=1, limits=ROOMY, seed=seed)
    one.fleet.in_flight[0, cluster, : len(busy)] = busy
    one.route(table)
    before = one.fleet.in_flight.copy()
    hold(one, adapter)
    changed = np.argwhere(one.fleet.in_flight != before)
    assert len(changed) == 1
    return int(changed[0][2])


def hold(one: EngineFleet, adapter: int) -> None:
    at, row = np.zeros(1, np.int64), np.full(1, adapter, np.int64)
    taken, code = loop.run_window(one.engines, one.fleet, one._table, at, row, at + 1, at + 100, 0, 1)
    assert (taken, code) == (1, loop.DONE)


def spread(table: Table, count: int = 900, engines: int = 3) -> list[int]:
    """Requests that each engine got of many at one instant, for adapter 0."""
    one = play(fleet(engines, routers=1, limits=ROOMY), table, arrivals([0.0] * count, 0, 1, 1000), 0.001)
    return one.fleet.in_flight[0].sum(axis=0)[:engines].tolist()


def test_round_robin_takes_turns() -> None:
    assert spread(tables.round_robin([0, 1, 2], 6)) == [300, 300, 300]


def test_draws_are_even_and_never_beside_the_pool() -> None:
    one = fleet(3, routers=3, limits=ROOMY)
    play(one, tables.least_requests([0, 1, 2], 6, 1), arrivals([0.0] * 3000, 0, 1, 1000), 0.001)
    assert one.fleet.total[b.REFUSED] == 0
    assert one.fleet.in_flight.sum(axis=(0, 1))[:3] == pytest.approx(1000, abs=110)
    assert one.fleet.in_flight.sum(axis=(1, 2)) == pytest.approx(1000, abs=110)


def test_least_requests_of_all_fill_evenly() -> None:
    assert spread(tables.least_requests([0, 1, 2], 6, 0)) == [300, 300, 300]


@pytest.mark.parametrize("seed", range(5))
def test_least_requests_of_all_takes_the_idle_one(seed: int) -> None:
    assert routed(tables.least_requests([0, 1, 2], 6, 0), [4, 1, 2], 0, seed=seed) == 1


def test_a_hash_ring_keeps_its_engine_until_that_is_over_the_bound() -> None:
    table = tables.hash_ring([0, 1, 2], ["r0", "r1", "r2"], ADAPTERS, 125, 64)
    first = int(table.point[table.start[0]])
    assert routed(table, [0, 0, 0], 0) == first
    calm = [4, 4, 4]
    assert routed(table, calm, 0) == first
    calm[first] = 12
    assert routed(table, calm, 0) != first


def test_among_owners_only_owners_serve() -> None:
    table = tables.among_owners([0, 1, 2], [[2, 0]] * 6)
    assert routed(table, [3, 0, 1], 0) == 2
    assert routed(table, [0, 0, 1], 0) == 0


def snapshot(choice: Choice, overflow: Overflow, exceptions: dict[str, tuple[str, ...]]) -> RingSnapshot:
    members = tuple(Member(f"r{i}", f"r{i}:8000", MemberState.ACTIVE, f"s{i:04d}") for i in range(5))
    return RingSnapshot(
        "f", 1, "2026-01-01T00:00:00Z", 2, members, choice, 125, 4, overflow, 1 if overflow is Overflow.STANDBYS else 0,
        exceptions=exceptions,
    )  # fmt: skip


@settings(max_examples=60)
@given(
    busy=st.lists(st.integers(0, 12), min_size=5, max_size=5),
    adapter=st.integers(0, 5),
    overflow=st.sampled_from(list(Overflow)),
)
def test_exact_routers_choose_as_the_specification(busy: list[int], adapter: int, overflow: Overflow) -> None:
    told = snapshot(Choice.PREFERRED, overflow, {"adapter-3": ("s0001", "s0004", "s0002")})
    table = tables.by_snapshot(told, {f"r{i}": i for i in range(5)}, ADAPTERS, Level.EXACT)
    chosen = Ring(told).choose(ADAPTERS[adapter], {f"s{i:04d}": n for i, n in enumerate(busy)})
    assert chosen is not None
    assert routed(table, busy, adapter) == int(chosen.member.replica.removeprefix("r"))


def test_envoy_leaves_its_preferred_owner_only_at_the_bound_of_its_subset() -> None:
    told = snapshot(Choice.PREFERRED, Overflow.OWNERS, {})
    table = tables.by_snapshot(told, {f"r{i}": i for i in range(5)}, ADAPTERS, Level.ENVOY)
    first, second = table.candidate[0, :2].tolist()
    # 125 % of 2 of 5 is below the 100 that Envoy accepts: half of all in flight on the cluster may be on one of two.
    assert table.rule[b.BOUND_PERCENT] == 100
    busy = [2] * 5
    busy[first] = 6
    assert routed(table, busy, 0) == first
    busy[first] = 12
    assert routed(table, busy, 0) == second


def test_where_any_engine_may_serve_envoy_leaves_the_first_owner_at_the_ring_s_own_bound() -> None:
    told = snapshot(Choice.PREFERRED, Overflow.ANY, {"adapter-3": ("s0001", "s0004", "s0002")})
    table = tables.by_snapshot(told, {f"r{i}": i for i in range(5)}, ADAPTERS, Level.ENVOY)
    assert table.rule[b.BOUND_PERCENT] == 125
    first, *others = table.candidate[0].tolist()
    assert first == int(Ring(told).owners("adapter-0").members[0].replica.removeprefix("r"))
    assert sorted([first, *others]) == [0, 1, 2, 3, 4], "all of them may take what is over"
    # 21 with this one, a quarter more, over five: 5.4, and so 6 may be in flight where one more comes.
    busy = [3, 3, 3, 3, 3]
    busy[first] = 6
    busy[others[3]] = 5
    assert routed(table, busy, 0) == first
    busy[first] = 7
    assert routed(table, busy, 0) == others[0]


def test_where_any_engine_may_serve_envoy_draws_among_the_owners_of_a_busy_adapter() -> None:
    told = snapshot(Choice.PREFERRED, Overflow.ANY, {"adapter-3": ("s0001", "s0004", "s0002")})
    table = tables.by_snapshot(told, {f"r{i}": i for i in range(5)}, ADAPTERS, Level.ENVOY)
    assert {routed(table, [3] * 5, 3, seed=seed) for seed in range(20)} == {1, 2, 4}
    assert {routed(table, [0, 9, 9, 0, 9], 3, seed=seed) for seed in range(20)} <= {0, 3}
    assert sorted(table.candidate[3].tolist()) == [0, 1, 2, 3, 4]


def test_the_order_of_the_others_differs_between_adapters_of_one_first_owner() -> None:
    names = [f"adapter-{i}" for i in range(60)]
    table = tables.by_snapshot(
        snapshot(Choice.PREFERRED, Overflow.ANY, {}), {f"r{i}": i for i in range(5)}, names, Level.ENVOY
    )
    orders = {tuple(row[1:]) for row in table.candidate.tolist() if row[0] == 0}
    assert len(orders) > 3, orders


def test_the_cold_pool_counts_its_own_requests_where_any_warm_engine_may_serve() -> None:
    told = RingSnapshot(
        "f", 1, "2026-01-01T00:00:00Z", 2,
        tuple(Member(f"r{i}", f"r{i}:8000", MemberState.ACTIVE, f"s000{i}") for i in range(2)), warm=("adapter-0",),
        cold=(Member("r2", "r2:8000", MemberState.ACTIVE),), overflow=Overflow.ANY,
    )  # fmt: skip
    table = tables.by_snapshot(told, {f"r{i}": i for i in range(3)}, ADAPTERS, Level.ENVOY)
    assert routed(table, [0, 0, 0], 5, cluster=b.COLD) == 2
    assert table.cluster.tolist() == [b.BOUNDED] + [b.COLD] * 5


def test_where_every_adapter_fits_everywhere_envoy_takes_the_less_busy_owner() -> None:
    told = snapshot(Choice.LEAST, Overflow.OWNERS, {})
    table = tables.by_snapshot(told, {f"r{i}": i for i in range(5)}, ADAPTERS, Level.ENVOY)
    first, second = table.candidate[0, :2].tolist()
    busy = [0] * 5
    busy[first] = 9
    assert routed(table, busy, 0, cluster=b.LEAST, seed=3) == second


def test_names_without_a_subset_go_to_the_cold_pool() -> None:
    told = RingSnapshot(
        "f", 1, "2026-01-01T00:00:00Z", 2,
        (Member("r0", "r0:8000", MemberState.ACTIVE, "s0000"),), warm=("adapter-0",),
        cold=(Member("r1", "r1:8000", MemberState.ACTIVE),),
    )  # fmt: skip
    table = tables.by_snapshot(told, {"r0": 0, "r1": 1}, ADAPTERS, Level.ENVOY)
    assert routed(table, [0, 0], 0) == 0
    assert routed(table, [0, 0], 5) == 1


def test_a_replica_that_does_not_exist_any_more_is_left_out() -> None:
    told = snapshot(Choice.PREFERRED, Overflow.OWNERS, {})
    table = tables.by_snapshot(told, {"r0": 0, "r3": 3}, ADAPTERS, Level.ENVOY)
    assert set(table.candidate.ravel().tolist()) <= {-1, 0, 3}
    assert table.pool.tolist() == [0, 3]
