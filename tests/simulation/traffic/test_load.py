"""The load generator sends open-loop and reports what a client sees."""

import asyncio
import time
from collections import Counter

import numpy as np
import pytest

from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.http import AdapterTable, EngineOptions, Pump, SimulatedEngine
from autoscaler.simulator.traffic import Arrivals, LoadGenerator

OPTIONS = EngineOptions(
    limits=EngineLimits(max_loras=4), files=AdapterTable({"/adapters/a0": 8, "/adapters/a1": 8}), resolver=True
)


def arrivals(count: int, gap_s: float, output: int = 5) -> Arrivals:
    ones = np.ones(count, np.int64)
    return Arrivals(np.arange(count) * gap_s, np.arange(count) % 2, ones * 7, ones * output)


async def test_it_counts_tokens_times_and_statuses() -> None:
    engine = SimulatedEngine(OPTIONS, Pump())
    await engine.start()
    try:
        load = LoadGenerator(
            engine.url, ("a0", "a1"), streamed_ratio=0.5, chat_ratio=0.3, base_model="base", base_ratio=0.3
        )
        await load.run([arrivals(30, 0.01), arrivals(0, 0.0)])
        seen = load.take()
        unknown = LoadGenerator(engine.url, ("a0", "nobody"))
        await unknown.run([arrivals(4, 0.01)])
    finally:
        await engine.crash()
    assert Counter(seen.status.tolist()) == {200: 30}
    assert seen.errors == 0
    assert set(seen.adapter.tolist()) == {-1, 0, 1}, "-1 is the base model"
    assert seen.output_tokens.tolist() == [5] * 30
    assert (seen.ttft_s <= seen.duration_s).all()
    assert 0 < seen.ttft_quantile_s(0.5) <= seen.ttft_quantile_s(0.99)
    assert load.take().errors == 0, "nothing is counted twice"
    assert Counter(unknown.take().status.tolist()) == {200: 2, 404: 2}


async def test_a_slow_fleet_is_not_spared_and_broken_answers_are_errors() -> None:
    engine = SimulatedEngine(OPTIONS, Pump())
    await engine.start()
    load = LoadGenerator(engine.url, ("a0", "a1"))
    began = time.monotonic()
    running = asyncio.create_task(load.run([arrivals(50, 0.01, output=3000)], drain_s=0.5))
    while load.sent < 50:  # noqa: ASYNC110 - it tells no event
        await asyncio.sleep(0.01)
    assert load.in_flight == 50, "none waited for another"
    await engine.crash()
    await running
    broken = load.take()
    assert time.monotonic() - began < 30
    assert broken.errors == 50
    assert set(broken.status.tolist()) <= {-1, 0}
    assert np.isnan(broken.ttft_s).sum() + (broken.ttft_s > 0).sum() == 50


async def test_a_call_that_comes_at_the_moment_of_a_crash_is_cut_off_and_not_answered() -> None:
    engine = SimulatedEngine(OPTIONS, Pump())
    await engine.start()
    load = LoadGenerator(engine.url, ("a0", "a1"))
    running = asyncio.create_task(load.run([arrivals(50, 0.0001, output=3000)], drain_s=0.5))
    while load.sent < 50:  # noqa: ASYNC110 - it tells no event
        await asyncio.sleep(0)
    await engine.crash()
    await running
    assert set(load.take().status.tolist()) <= {-1, 0}, "a killed process answers nobody, with 500 neither"


def test_no_requests_are_no_quantile() -> None:
    empty = LoadGenerator("http://nowhere", ()).take()
    assert np.isnan(empty.ttft_quantile_s(0.5))
    assert empty.errors == 0
    with pytest.raises(IndexError):
        _ = empty.status[0]
