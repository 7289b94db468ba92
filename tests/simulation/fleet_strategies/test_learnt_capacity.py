"""What the controller thinks a replica carries, told from half of it, beside what saturated replicas do carry."""

import asyncio
from dataclasses import replace

import pytest

from autoscaler.domain.signals import Fresh
from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.controlled import ControlledFleet
from autoscaler.simulator.fleet.tables import Level, least_requests
from autoscaler.simulator.strategies.peers import POOL
from autoscaler.simulator.strategies.run import Stage, fitted
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.traffic import GeneratorSettings

REPLICAS, ADAPTERS, SECONDS = 2, 48, 1500.0


def scenario(rate_rps: float, kernels: str, season_s: float = 86_400.0, season_ratio: float = 1.0) -> Scenario:
    generator = GeneratorSettings(adapters=ADAPTERS, rate_rps=rate_rps, season_s=season_s, season_ratio=season_ratio)
    return Scenario(
        Traffic(generator=generator), f"llama-3.1-8b-h100-64gb-{kernels}", EngineLimits(64, 64), SECONDS, 300.0
    ).static(REPLICAS)  # fmt: skip


def saturated(kernels: str, rate_rps: float) -> float:
    """Prompt and completion tokens/s of a replica that has a little more than it can run."""
    stage = Stage(scenario(rate_rps, kernels))
    stage.platform.resize(POOL, REPLICAS, now=True)
    stage.engines.route(least_requests(list(range(REPLICAS)), ADAPTERS, 0))
    stage.play()
    completed = stage.recorder.outcome("", {}, moves=0, tier_changes=0, resizes=0).tokens_per_s
    chunks = list(stage.scenario.traffic.arrivals(stage.scenario.trace, SECONDS, 0))
    outputs = sum(int(chunk.output_tokens.sum()) for chunk in chunks)
    prompts = sum(int(chunk.prompt_tokens.sum()) for chunk in chunks)
    return completed * (prompts + outputs) / outputs / REPLICAS


def learnt(kernels: str, top_rps: float) -> float:
    """What the controller says after a rise to `top_rps`, from a fifth of it."""
    told = scenario(0.6 * top_rps, kernels, season_s=2 * SECONDS, season_ratio=5.0)
    stage = Stage(told)
    stage.platform.resize("warm", REPLICAS, now=True)
    stage.engines.route(least_requests(list(range(REPLICAS)), ADAPTERS, 0))
    loop = asyncio.new_event_loop()
    try:
        policy = fitted(replace(FleetPolicy(name="fleet", base_model="base")), told)
        fleet = ControlledFleet(stage.platform, policy, stage.names, stage.scraping, Level.EXACT, loop)
        stage.platform.calendar.every(15.0, 15.0, fleet.tick)
        stage.play()
        view = fleet.latest
        fleet.close()
    finally:
        loop.close()
    assert view is not None
    capacity = view.plan.scale.capacity["warm"]
    assert capacity.source == "fitted"
    assert isinstance(capacity.tokens_per_s, Fresh)
    return capacity.tokens_per_s.value


@pytest.mark.slow
@pytest.mark.parametrize(("kernels", "overload_rps", "top_rps"), [("recent", 42.0, 20.0), ("measured", 30.0, 12.0)])
def test_half_a_load_tells_what_saturation_carries_and_is_not_overconfident(
    kernels: str, overload_rps: float, top_rps: float
) -> None:
    most, said = saturated(kernels, overload_rps), learnt(kernels, top_rps)
    print(most, said)
    assert 0.65 * most < said < 1.2 * most
