"""The product's own controller at the wheel: it fills engines, publishes rings, grows and shrinks the fleet."""

from dataclasses import replace

import pytest

from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.peers import Peer, round_robin
from autoscaler.simulator.strategies.run import fitted, run_ours, run_peer
from autoscaler.simulator.strategies.scalers import QueueHpa
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.traffic import GeneratorSettings

POLICY = FleetPolicy(name="sim", base_model="base")
pytestmark = pytest.mark.slow


def scenario(rate_rps: float, **more: object) -> Scenario:
    traffic = Traffic(generator=GeneratorSettings(adapters=40, rate_rps=rate_rps))
    made = Scenario(
        traffic, limits=EngineLimits(16, 32), seconds=600.0, warmup_s=240.0, replicas=3, least=2, most=8, startup_s=60.0
    )
    return replace(made, **more)  # type: ignore[arg-type]


def run(rate_rps: float, **more: object) -> Outcome:
    return run_ours(scenario(rate_rps, **more), "ours", POLICY, {}, Level.ENVOY)


@pytest.fixture(scope="module")
def calm() -> Outcome:
    return run(12.0)


def test_a_calm_fleet_keeps_its_promise_and_its_adapters(calm: Outcome) -> None:
    assert calm.slo_attainment > 0.999
    assert calm.errors == 0
    assert calm.requests == pytest.approx(12 * 360, rel=0.1)
    assert any(d["subject"] == "ring/epoch" for d in calm.decisions)


def test_it_loads_far_fewer_adapters_than_round_robin(calm: Outcome) -> None:
    spray = run_peer(scenario(12.0).static(3), "round-robin-hpa", Peer(round_robin(), QueueHpa(5.0)), {})
    assert calm.adapter_loads_per_1000 < 0.4 * spray.adapter_loads_per_1000


def test_the_same_seed_gives_the_same_run(calm: Outcome) -> None:
    again = run(12.0)
    assert again.figures() == calm.figures()
    assert again.decisions == calm.decisions
    assert run(12.0, seed=1).requests != calm.requests


def test_pressure_grows_the_fleet_within_its_bounds() -> None:
    grown = run(75.0)
    assert grown.timeline is not None
    assert max(grown.timeline.replicas) > 3
    assert max(grown.timeline.replicas) <= 8
    assert grown.resizes > 0


def test_the_scenario_says_what_engines_hold_and_the_policy_all_else() -> None:
    made = fitted(replace(POLICY, tick_interval_s=7.0), scenario(1.0))
    assert (made.engine.limits.max_loras, made.engine.limits.max_cpu_loras, made.engine.resolver) == (16, 32, True)
    assert (made.groups.warm.min_replicas, made.groups.warm.max_replicas) == (2, 8)
    assert (made.scaling.startup_s, made.tick_interval_s) == (60.0, 7.0)
