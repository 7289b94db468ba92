"""Replicas on the virtual clock: what they take to start, to leave, and in hours."""

import numpy as np
import pytest

from autoscaler.domain.fleet import ReplicaState
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.engines import EngineFleet
from autoscaler.simulator.fleet.platform import Calendar, Platform, PlatformSettings
from autoscaler.simulator.fleet.stream import ArrivalStream
from autoscaler.simulator.traffic import Arrivals
from tests.simulation.fleet.builders import LIMITS, arrivals, fleet


def platform(requests: Arrivals | None = None, **settings: float) -> Platform:
    stream = ArrivalStream([] if requests is None else [requests])
    return Platform(fleet(0, limits=LIMITS), stream, PlatformSettings(**{"startup_s": 60.0, **settings}), LIMITS)


def engines_of(one: Platform) -> EngineFleet:
    return one.engines


def test_equal_times_come_in_the_order_of_their_making() -> None:
    told: list[int] = []
    calendar = Calendar()
    for number in (1, 2, 3):
        calendar.at(5.0, lambda number=number: told.append(number))  # type: ignore[misc]
    while calendar.next_s() <= 5.0:
        calendar.pop()()
    assert told == [1, 2, 3]


def test_a_replica_serves_after_its_start_and_costs_from_the_request_on() -> None:
    one = platform()
    assert one.resize("pool", 1) == 1
    one.run(59.0)
    assert one.serving() == []
    one.run(60.0)
    assert [m.name for m in one.serving()] == ["pool-0000"]
    one.run(3600.0)
    assert one.replica_hours() == pytest.approx(1.0)


def test_asking_for_what_is_there_adds_nothing() -> None:
    one = platform()
    one.resize("pool", 2, now=True)
    assert one.resize("pool", 2) == 0
    assert len(one.members) == 2


def test_a_retired_replica_finishes_what_it_has() -> None:
    one = platform(arrivals([1.0], 0, 1, 3000))  # 30 s of answer
    one.resize("pool", 2, now=True)
    one.engines.route(tables.round_robin([0], 6))
    one.run(2.0)
    busy = next(m for m in one.serving() if m.place == 0)
    one.retire(busy)
    one.run(30.0)
    assert busy.state is ReplicaState.DRAINING
    one.run(40.0)
    assert list(one.members) == ["pool-0001"]
    assert (engines_of(one).fleet.total[b.FINISHED], engines_of(one).fleet.total[b.REFUSED]) == (1, 0)


def test_the_drain_time_out_ends_it_all_the_same() -> None:
    one = platform(arrivals([1.0], 0, 1, 100_000), drain_timeout_s=20.0)
    one.resize("pool", 1, now=True)
    one.engines.route(tables.round_robin([0], 6))
    one.run(2.0)
    one.retire(one.serving()[0])
    one.run(30.0)
    assert one.members == {}
    assert engines_of(one).fleet.total[b.REFUSED] == 1


def test_a_drain_may_be_taken_back_before_the_end_is_told() -> None:
    one = platform()
    one.resize("pool", 1, now=True)
    member = one.serving()[0]
    one.drain(member)
    assert one.serving() == []
    one.undrain(member)
    assert one.serving() == [member]
    one.retire(member)
    one.undrain(member)
    assert one.serving() == []


def test_shrinking_takes_those_that_start_then_the_newest() -> None:
    one = platform()
    one.resize("pool", 2, now=True)
    one.run(1.0)
    one.resize("pool", 3)
    one.shrink("pool", 1)
    one.run(20.0)
    assert list(one.members) == ["pool-0000"]
    assert one.specs["pool"].replicas == 1


def test_a_killed_replica_comes_back_empty_under_its_group() -> None:
    one = platform(arrivals([1.0], 0, 1, 1000))
    one.resize("pool", 1, now=True)
    one.engines.route(tables.round_robin([0], 6))
    one.run(2.0)
    assert one.kill("pool-0000") == 1
    one.run(70.0)
    assert [m.name for m in one.serving()] == ["pool-0001"]
    assert one.engines.known(0).tolist() == []


def test_routers_follow_after_their_delay() -> None:
    one = platform(arrivals([1.5, 3.5]), router_delay_s=2.0)
    one.resize("pool", 1, now=True)
    one.run(1.0)
    one.route(tables.round_robin([0], 6))
    one.run(5.0)
    assert (one.engines.fleet.total[b.REFUSED], one.engines.fleet.total[b.ARRIVED]) == (1, 2)


def test_engines_are_warm_as_far_as_their_memory_goes() -> None:
    one = Platform(
        fleet(0, limits=LIMITS), ArrivalStream([arrivals([0.5, 2.5], [5, 0])]),
        PlatformSettings(0.0, warm_with=np.array([5, 4, 3, 2, 1, 0])), LIMITS,
    )  # fmt: skip
    one.resize("pool", 1, now=True)
    one.engines.route(tables.round_robin([0], 6))
    one.run(2.0)
    assert one.engines.adapter_loads() == 0  # 2 adapter slots, 4 places in host memory: 5 is on the GPU
    one.run(4.0)
    assert one.engines.adapter_loads() == 1
