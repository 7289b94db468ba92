"""The bound's trials leave no trace: its run is what a run with its counts gives."""

from dataclasses import replace

import pytest

from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.strategies.oracle import run_oracle
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.traffic import GeneratorSettings

SCENARIO = Scenario(
    Traffic(generator=GeneratorSettings(adapters=20, rate_rps=26.0)), limits=EngineLimits(20, 20), seconds=300.0,
    warmup_s=60.0, replicas=2, least=1, most=4, startup_s=30.0,
)  # fmt: skip


@pytest.mark.slow
def test_trials_that_are_given_up_change_nothing() -> None:
    searched = run_oracle(SCENARIO, "oracle", {"routing": "least"})
    fixed = run_oracle(SCENARIO.static(2), "oracle", {"routing": "least"})
    assert searched.timeline is not None
    assert set(searched.timeline.ready) == {2}, "one replica was tried every minute and is too few"
    assert replace(searched, timeline=None) == replace(fixed, timeline=None)
    assert repr(searched.timeline) == repr(fixed.timeline), "NaN before the first measured request included"


@pytest.mark.slow
def test_a_bound_that_cannot_keep_the_slo_takes_all_replicas() -> None:
    crowded = replace(SCENARIO, replicas=1, most=2, target_ttft_s=0.005)
    found = run_oracle(crowded, "oracle", {"routing": "least"})
    assert found.slo_attainment < 0.99
    assert found.timeline is not None
    assert set(found.timeline.ready) == {2}
    assert found.timeline.at_s == sorted(set(found.timeline.at_s)), "a trial's samples are taken back"
