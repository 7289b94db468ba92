"""The product's own controller while things fail: it holds what it cannot see, waits for routers, becomes whole."""

import asyncio
from dataclasses import dataclass, field

import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import ReplicaState
from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.controlled import ControlledFleet
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.failures import Failure, Kind, Struck
from autoscaler.simulator.strategies.peers import Peer, round_robin
from autoscaler.simulator.strategies.run import fitted, on_an_older_ring, run_ours, run_peer
from autoscaler.simulator.strategies.scalers import QueueHpa
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.traffic import GeneratorSettings

POLICY = FleetPolicy(name="sim", base_model="base")
TICK_S = 15.0
pytestmark = pytest.mark.slow


@dataclass(slots=True)
class Told:
    """What each tick saw and decided, by its time."""

    replicas: dict[float, tuple[int, int, Reason]] = field(default_factory=dict)
    draining: dict[float, int] = field(default_factory=dict)
    epochs: dict[float, tuple[int, int]] = field(default_factory=dict)
    conditions: dict[float, set[str]] = field(default_factory=dict)
    members: dict[float, set[str]] = field(default_factory=dict)
    struck: tuple[Struck, ...] = ()
    totals: tuple[int, ...] = ()

    def between(self, begin_s: float, end_s: float) -> list[float]:
        """Ticks from then to then."""
        return [at_s for at_s in self.replicas if begin_s <= at_s <= end_s]


def scenario(*failures: Failure, seconds: float = 900.0) -> Scenario:
    """Four replicas of which one would do, so that a calm fleet shrinks from 330 s on."""
    traffic = Traffic(generator=GeneratorSettings(adapters=40, rate_rps=6.0))
    return Scenario(
        traffic, limits=EngineLimits(16, 32), seconds=seconds, warmup_s=0.0, replicas=4, least=1, most=8,
        startup_s=60.0, failures=failures,
    )  # fmt: skip


def played(*failures: Failure, seconds: float = 900.0) -> Told:
    made = scenario(*failures, seconds=seconds)
    stage, loop, told = on_an_older_ring(made), asyncio.new_event_loop(), Told()
    platform = stage.platform
    fleet = ControlledFleet(platform, fitted(POLICY, made), stage.names, stage.scraping, Level.ENVOY, loop)

    def tick() -> None:
        fleet.tick()
        view, now_s = fleet.latest, platform.now_s
        assert view is not None
        decision = view.plan.scale.decisions["warm"]
        told.replicas[now_s] = decision.current, decision.desired, decision.reason
        told.draining[now_s] = sum(m.state is ReplicaState.DRAINING for m in platform.members.values())
        told.epochs[now_s] = min(r.epoch for r in view.observation.routers), fleet.routers.published
        told.conditions[now_s] = {c.name for c in view.conditions}
        told.members[now_s] = {m.name for m in platform.serving()}

    platform.calendar.every(TICK_S, TICK_S, tick)
    stage.play()
    fleet.close()
    loop.close()
    told.struck = tuple(stage.recorder.failures)
    told.totals = tuple(platform.engines.fleet.total.tolist())
    return told


@pytest.fixture(scope="module")
def calm() -> Told:
    return played()


def test_without_failures_the_fleet_shrinks(calm: Told) -> None:
    assert calm.replicas[600.0][0] < 4
    assert max(calm.draining[at_s] for at_s in calm.between(330.0, 600.0)) > 0
    assert calm.struck == ()


def test_while_prometheus_scrapes_nothing_no_replica_is_taken_away_and_the_reason_says_why() -> None:
    told = played(Failure(300.0, Kind.SCRAPES, 300.0), seconds=1200.0)
    for at_s in told.between(375.0, 600.0):
        assert told.replicas[at_s] == (4, 4, Reason.SIGNALS_MISSING), at_s
        assert len(told.members[at_s]) == 4
        assert told.draining[at_s] == 0
    assert told.replicas[1200.0][1] < 4, "it shrinks once it has seen enough again"


def test_routers_that_follow_nothing_delay_a_ring_until_they_acknowledge_it_and_drains_until_then(calm: Told) -> None:
    drained_s = next(at_s for at_s in calm.between(0.0, 900.0) if calm.draining[at_s])
    left_s = drained_s - TICK_S
    told = played(Failure(left_s - 1.0, Kind.ROUTERS, 300.0))
    held = told.between(left_s, left_s + 298.0)
    old = told.epochs[left_s][0]
    assert all(told.epochs[at_s][0] == old for at_s in held), "they say what they apply"
    assert told.epochs[held[-1]][1] > old
    assert all(told.draining[at_s] == 0 for at_s in held), "nobody leaves whom routers may still ask"
    assert "RouterLag" in told.conditions[held[-1]]
    after = told.between(left_s + 300.0, 900.0)
    assert told.epochs[after[0]][0] > old
    assert "RouterLag" not in told.conditions[after[1]]
    assert max(told.draining[at_s] for at_s in after) > 0
    assert told.totals[b.REFUSED] == 0


def test_a_killed_replica_s_requests_are_refused_and_its_group_is_whole_again() -> None:
    told = played(Failure(200.0, Kind.KILL), Failure(205.0, Kind.KILL))
    killed = {s.replica for s in told.struck}
    assert len(killed) == 2
    assert sum(s.refused for s in told.struck) <= told.totals[b.REFUSED] <= 40, "and what came within a second of it"
    assert told.totals[b.ARRIVED] == sum(told.totals[i] for i in (b.FINISHED, b.REFUSED, b.IN_FLIGHT))
    assert len(told.members[210.0]) == 2
    assert len(told.members[270.0]) == 4
    assert not killed & told.members[270.0]
    assert told.replicas[225.0][2] is Reason.PENDING_REPLICAS


def test_a_replica_that_hangs_is_missed_and_one_that_waits_for_a_machine_is_pending() -> None:
    told = played(Failure(300.0, Kind.HANG, 150.0))
    assert told.replicas[405.0] == (4, 4, Reason.SIGNALS_MISSING)
    assert told.totals[b.REFUSED] == 0
    told = played(Failure(199.0, Kind.MACHINES, 200.0), Failure(200.0, Kind.KILL), seconds=500.0)
    assert [told.replicas[at_s] for at_s in told.between(210.0, 450.0)] == 17 * [(4, 4, Reason.PENDING_REPLICAS)]
    assert len(told.members[450.0]) == 3
    assert len(told.members[465.0]) == 4


def test_the_same_seed_fails_alike_for_ours_and_for_a_peer_and_the_outcome_tells_it() -> None:
    failures = (Failure(100.0, Kind.SCRAPES, 120.0), Failure(120.0, Kind.KILL), Failure(150.0, Kind.ROUTERS, 30.0))
    made = scenario(*failures, seconds=300.0)
    ours, again = (run_ours(made, "ours", POLICY, {}) for _ in range(2))
    assert ours.figures() == again.figures()
    assert ours.failures == again.failures
    peer = run_peer(made, "round-robin-hpa", Peer(round_robin(), QueueHpa(5.0)), {})
    for outcome in (ours, peer):
        assert [(s.at_s, s.kind) for s in outcome.failures] == [(f.at_s, f.kind) for f in failures]
        assert outcome.errors >= sum(s.refused for s in outcome.failures)
    assert ours.failures[1].replica.rpartition("-")[2] == peer.failures[1].replica.rpartition("-")[2]
    assert peer.resizes == 0, "the peer reads Prometheus too"
