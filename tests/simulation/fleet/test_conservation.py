"""No request is lost, whatever routes it, and whatever starts, ends and goes back meanwhile."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Table
from autoscaler.simulator.fleet.engines import EngineFleet, LostRequestError, PlacesFullError
from autoscaler.simulator.fleet.stream import ArrivalStream
from autoscaler.simulator.traffic import Arrivals
from tests.simulation.fleet.builders import LIMITS, arrivals, fleet, play, poisson

NAMES = [f"adapter-{i}" for i in range(6)]
KINDS = ("round robin", "least requests", "hash ring", "scored", "owners")


def table(kind: str, pool: list[int]) -> Table:
    match kind:
        case "round robin":
            return tables.round_robin(pool, 6)
        case "least requests":
            return tables.least_requests(pool, 6, 2)
        case "hash ring":
            return tables.hash_ring(pool, [f"r{p}" for p in pool], NAMES, 125, 16)
        case "scored":
            return tables.scored(pool, 6, 3.0, 2.0, 2.0)
        case _:
            return tables.among_owners(pool, [[pool[i % len(pool)]] for i in range(6)])


@settings(max_examples=25)
@given(
    kind=st.sampled_from(KINDS),
    rate=st.floats(5.0, 400.0),
    seed=st.integers(0, 10_000),
    acts=st.lists(st.sampled_from(["start", "stop", "load", "run", "run"]), min_size=3, max_size=10),
    most=st.sampled_from([20, 50_000]),
)
def test_arrivals_are_finished_in_flight_or_refused(
    kind: str, rate: float, seed: int, acts: list[str], most: int
) -> None:
    one, stream = fleet(2, seed=seed, most_in_flight=most), ArrivalStream([poisson(rate, 600, seed)])
    rng, pool, now_s = np.random.default_rng(seed), [0, 1], 0.0
    one.route(table(kind, pool))
    for act in acts:
        if act == "start" and len(pool) < 4:
            pool = [*pool, one.start(LIMITS)]
        elif act == "stop" and len(pool) > 1:
            one.stop(pool[-1])
            pool = pool[:-1]
        elif act == "load":
            one.load(pool[0], int(rng.integers(0, 6)))
        one.route(table(kind, pool))
        now_s += float(rng.uniform(0.0, 2.0))
        one.run(stream, now_s)
    one.run(stream, now_s + 1e4)
    total = one.fleet.total
    assert total[b.ARRIVED] == 600
    assert total[b.FINISHED] + total[b.REFUSED] == 600
    assert total[b.IN_FLIGHT] == 0
    assert one.fleet.in_flight.sum() == 0


def test_requests_of_an_engine_that_ends_are_refused() -> None:
    one = play(fleet(1), tables.round_robin([0], 6), arrivals([0.0, 0.1, 0.2], 0, 1, 1000), 1.0)
    assert one.stop(0) == 3
    assert (one.fleet.total[b.REFUSED], one.fleet.total[b.IN_FLIGHT]) == (3, 0)
    one.check()


def test_nobody_to_serve_is_refused() -> None:
    one = fleet(1)
    one.run(ArrivalStream([arrivals([0.5])]), 1.0)
    assert one.fleet.total[b.REFUSED] == 1


def test_a_lost_request_is_noticed() -> None:
    one = play(fleet(1), tables.round_robin([0], 6), arrivals([0.0], 0, 1, 1000), 1.0)
    one.fleet.total[b.FINISHED] += 1
    with pytest.raises(LostRequestError, match="1 arrived, 1 finished, 1 in flight"):
        one.check()


def test_places_are_told_when_they_are_full() -> None:
    one = fleet(1)
    one.start(LIMITS)
    one.start(LIMITS)
    with pytest.raises(PlacesFullError, match="all 3 engine places"):
        one.start(LIMITS)


def state(one: EngineFleet) -> list[bytes]:
    arrays = (one.fleet.total, one.fleet.fine, one.fleet.in_flight, one.engines.number, one.engines.adapter)
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize("kind", KINDS)
def test_going_back_and_on_again_gives_the_same(kind: str) -> None:
    one, stream = fleet(2, seed=4), ArrivalStream([poisson(100, 300, 1), poisson(100, 300, 2)])
    one.route(table(kind, [0, 1]))
    one.run(stream, 1.0)
    saved = one.save()
    stream.mark()
    one.run(stream, 4.0)
    after = state(one)
    one.restore(saved)
    stream.rewind()
    assert state(one) != after
    one.run(stream, 4.0)
    assert state(one) == after


def test_windows_may_be_cut_anywhere() -> None:
    whole = play(fleet(2, seed=4), table("least requests", [0, 1]), poisson(100, 500, 1), 6.0)
    cut, stream = fleet(2, seed=4), ArrivalStream([poisson(100, 500, 1)])
    cut.route(table("least requests", [0, 1]))
    for until_s in (0.7, 0.7, 1.3, 4.999, 6.0):
        cut.run(stream, until_s)
    assert cut.fleet.total.tolist() == whole.fleet.total.tolist()
    assert cut.fleet.fine.tolist() == whole.fleet.fine.tolist()


def test_room_grows_with_what_waits() -> None:
    one = play(fleet(1), tables.round_robin([0], 6), arrivals([0.0] * 10_000, 0, 1, 50), 1.0)
    assert one.fleet.total[b.IN_FLIGHT] > 9_000
    one.check()


def test_time_does_not_go_back() -> None:
    one = fleet(1)
    one.run(ArrivalStream([]), 2.0)
    with pytest.raises(ValueError, match="time went back"):
        one.run(ArrivalStream([]), 1.0)
    assert one.now_s == 2.0


def test_a_long_trace_takes_no_more_memory_than_a_short_one() -> None:
    drawn = 0

    def chunks() -> Iterator[Arrivals]:
        nonlocal drawn
        for number in range(300):
            drawn += 1
            yield arrivals((number + np.arange(20) / 20).tolist())

    one, stream = fleet(2), ArrivalStream(chunks())
    one.route(tables.round_robin([0, 1], 6))
    one.run(stream, 20.0)
    assert drawn == 21  # the one that is being read, and no other
    sizes = [array.nbytes for array in (*one.fleet, *one.engines)]
    one.run(stream, 300.0)
    assert [array.nbytes for array in (*one.fleet, *one.engines)] == sizes
    assert len(stream._held) <= 1
