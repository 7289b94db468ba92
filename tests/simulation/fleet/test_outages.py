"""What fails on schedule: who notices, what it costs, and that no request is lost by it."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.fleet import ReplicaState
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Missing
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.engines import EngineFleet, FleetShape
from autoscaler.simulator.fleet.platform import Platform, PlatformSettings
from autoscaler.simulator.fleet.scraping import ScrapedMetrics, ScrapeSettings
from autoscaler.simulator.fleet.stream import ArrivalStream
from autoscaler.simulator.strategies.failures import Failure, FailureError, Kind, Struck, put
from autoscaler.simulator.traffic import Arrivals
from tests.simulation.engine.builders import profile
from tests.simulation.fleet.builders import LIMITS, arrivals, poisson


def platform(requests: Arrivals | None = None, replicas: int = 2, startup_s: float = 20.0) -> Platform:
    """A pool behind round robin, whose routers follow its members."""
    engines = EngineFleet(profile(), LIMITS, FleetShape(replicas + 6, 6), 0)
    stream = ArrivalStream([] if requests is None else [requests])
    one = Platform(engines, stream, PlatformSettings(startup_s), LIMITS)

    def table() -> b.Table:
        return tables.round_robin([m.place for m in one.serving()], 6)

    one.changed = lambda: one.route(table())
    one.resize("pool", replicas, now=True)
    one.engines.route(table())
    return one


def counted(one: Platform) -> tuple[int, int, int]:
    total = one.engines.fleet.total
    return int(total[b.FINISHED]), int(total[b.REFUSED]), int(total[b.IN_FLIGHT])


def test_a_killed_replica_s_requests_are_refused_and_the_fleet_is_whole_again_after_a_start() -> None:
    one = platform(arrivals([1.0] * 6 + [30.0] * 6, 0, 1, 1000))
    struck = put(one, [Failure(2.0, Kind.KILL)], seed=1)
    one.run(2.0)
    assert len(one.serving()) == 1
    assert struck == [Struck(2.0, Kind.KILL, 0.0, struck[0].replica, counted(one)[1])]
    assert 0 < struck[0].refused < 6
    one.run(100.0)
    assert counted(one) == (12 - struck[0].refused, struck[0].refused, 0)
    assert sorted(m.name for m in one.serving()) == sorted(
        {"pool-0000", "pool-0001", "pool-0002"} - {struck[0].replica}
    )


def test_a_hung_replica_takes_requests_and_answers_them_later_and_shows_nothing_meanwhile() -> None:
    def answered(until_s: float, *failures: Failure) -> tuple[Platform, ScrapedMetrics]:
        one = platform(arrivals([1.0, 12.0], 0, 1, 100), replicas=1)  # a second of answer
        metrics = ScrapedMetrics(one, ScrapeSettings(interval_s=5.0, max_age_s=8.0), np.arange(6))
        put(one, failures, seed=1)
        one.run(until_s)
        return one, metrics

    hang = Failure(1.5, Kind.HANG, 20.0)
    assert counted(answered(20.0)[0]) == (2, 0, 0)
    one, metrics = answered(20.0, hang)
    assert counted(one) == (0, 0, 2), "the second one came meanwhile"
    assert metrics.engine("pool-0000", 20.0) is None
    assert not one.answers(one.members["pool-0000"])
    one, metrics = answered(26.5, hang)
    assert counted(one) == (2, 0, 0)
    assert metrics.engine("pool-0000", 26.5) is not None


def test_an_idle_replica_that_hangs_begins_nothing() -> None:
    one = platform(arrivals([3.0], 0, 1, 10), replicas=1)
    put(one, [Failure(2.0, Kind.HANG, 10.0)], seed=1)
    one.run(11.9)
    assert counted(one) == (0, 0, 1)
    one.run(13.0)
    assert counted(one) == (1, 0, 0)


async def test_nobody_is_scraped_for_a_while_and_what_was_seen_gets_too_old() -> None:
    one = platform(poisson(10.0, 3000, 1))
    metrics = ScrapedMetrics(one, ScrapeSettings(), np.arange(6))
    put(one, [Failure(100.0, Kind.SCRAPES, 100.0)], seed=1)
    one.run(145.0)
    assert metrics.engine("pool-0000", 145.0) is not None
    one.run(199.0)
    assert metrics.engine("pool-0000", 199.0) is None
    assert metrics.window(199.0) == ([], 0.0)
    read = await metrics.read(0.0, Catalogue.of({f"a{i}": (f"a{i}", "", "", 0) for i in range(6)}), ())
    assert isinstance(read.freshness["engines"], Missing)
    one.run(212.0)
    seen, covered_s = metrics.window(212.0)
    rate = sum(int(s.counts[:, b.P_REQUESTS].sum()) for s in seen) / covered_s
    assert rate == pytest.approx(10.0, rel=0.15), "what came meanwhile is spread over the time that it came in"


def test_a_replica_waits_for_a_machine_starts_then_and_costs_from_then_on() -> None:
    one = platform(replicas=1)
    put(one, [Failure(10.0, Kind.MACHINES, 100.0), Failure(50.0, Kind.MACHINES, 80.0)], seed=1)
    one.run(20.0)
    one.resize("pool", 3)
    one.run(60.0)
    assert one.replica_hours() == pytest.approx(60.0 / 3600), "what waits costs nothing"
    one.shrink("pool", 2)
    one.run(149.0)
    assert [m.state for m in one.members.values()] == [ReplicaState.READY, ReplicaState.STARTING]
    one.run(150.0)
    assert len(one.serving()) == 2, "130 s, when the second shortage ends, and 20 s of start"
    assert one.replica_hours() == pytest.approx((150.0 + 20.0) / 3600)


def test_routers_that_are_held_follow_the_newest_once_they_follow_again() -> None:
    one = platform(arrivals([5.0, 15.0, 25.0, 35.0], 0, 1, 5), replicas=1)
    told: list[str] = []
    put(one, [Failure(10.0, Kind.ROUTERS, 20.0)], seed=1)
    for at_s, what in ((1.0, "a"), (9.5, "b"), (15.0, "c"), (28.5, "d"), (28.9, "e"), (31.0, "f")):
        one.calendar.at(at_s, lambda what=what: one.tell_routers(lambda: told.append(f"{what} {one.now_s:g}")))  # type: ignore[misc]
    one.run(40.0)
    assert told == ["a 2", "e 30", "f 32"]


def test_what_is_newer_is_not_overwritten_by_what_was_held_back() -> None:
    one = platform(replicas=1)
    told: list[str] = []
    put(one, [Failure(10.0, Kind.ROUTERS, 20.0)], seed=1)
    one.calendar.at(28.5, lambda: one.tell_routers(lambda: told.append("older")))
    one.calendar.at(29.0, lambda: one.tell_routers(lambda: told.append("newer")))
    one.run(40.0)
    assert told == ["newer"]


def test_held_routers_ask_a_dead_replica_and_do_not_take_a_new_one_for_it() -> None:
    one = platform(arrivals(np.arange(0.5, 100.5).tolist(), 0, 1, 5), replicas=2)
    put(one, [Failure(10.0, Kind.ROUTERS, 60.0), Failure(20.0, Kind.KILL)], seed=1)
    one.run(100.0)
    finished, refused, in_flight = counted(one)
    assert (finished + refused, in_flight) == (100, 0)
    assert refused == pytest.approx(25, abs=2), "every second one of the 50 s in which they do not know"
    assert {m.place for m in one.serving()} == ({0, 1, 2} - {0 if one.serving()[0].place else 1})


def test_a_failure_says_for_how_long_it_must_last() -> None:
    with pytest.raises(FailureError, match="scrapes has to last"):
        Failure(1.0, Kind.SCRAPES)
    with pytest.raises(FailureError, match="a kill takes no time"):
        Failure(1.0, Kind.KILL, 5.0)


def test_where_nobody_serves_nobody_is_killed() -> None:
    one = platform(replicas=0)
    struck = put(one, [Failure(1.0, Kind.KILL), Failure(2.0, Kind.HANG, 5.0)], seed=1)
    one.run(3.0)
    assert [(s.replica, s.refused) for s in struck] == [("", 0), ("", 0)]


def failure(at_s: float, kind: Kind, seconds: float) -> Failure:
    return Failure(at_s, kind, 0.0 if kind is Kind.KILL else seconds)


FAILURES = st.builds(failure, st.floats(0.0, 60.0), st.sampled_from(list(Kind)), st.floats(0.1, 40.0))
SIZES = st.tuples(st.floats(0.0, 60.0), st.integers(0, 5))


@settings(max_examples=40)
@given(
    failures=st.lists(FAILURES, max_size=8), sizes=st.lists(SIZES, max_size=5), rate=st.floats(5.0, 300.0),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_no_request_is_lost_whatever_fails(
    failures: list[Failure], sizes: list[tuple[float, int]], rate: float, seed: int
) -> None:
    def played() -> tuple[list[Struck], list[int]]:
        one = platform(poisson(rate, 600, seed), replicas=3, startup_s=5.0)
        ScrapedMetrics(one, ScrapeSettings(), np.arange(6))
        struck = put(one, failures, seed)
        for at_s, replicas in sizes:
            one.calendar.at(at_s, partial(one.resize, "pool", replicas))
            one.calendar.at(at_s, partial(one.shrink, "pool", replicas))
        one.run(70.0)
        one.run(1000.0)  # every window checks that arrivals = finished + in flight + refused
        assert sum(counted(one)) == 600
        assert counted(one)[2] == 0, "all that failed has come back, so nothing is left open"
        assert len(one.serving()) == one.specs["pool"].replicas == len(one.members)
        assert one.engines.fleet.in_flight.sum() == 0
        return struck, one.engines.fleet.total.tolist()

    struck, totals = played()
    assert [(s.at_s, s.kind) for s in struck] == sorted(((f.at_s, f.kind) for f in failures), key=lambda f: f[0])
    assert played() == (struck, totals), "the same seed strikes alike"
