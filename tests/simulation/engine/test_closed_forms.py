"""Where queueing theory or arithmetic knows the answer, the engine gives it."""

import math

import numpy as np
import pytest

from autoscaler.simulator.calibration.replay import Arrivals, Replay, replay
from autoscaler.simulator.engine.model import BASE_MODEL
from tests.simulation.engine.builders import STEP_S, engine, profile


def serve(rate: float, outputs: np.ndarray, *, seats: int, seed: int = 3, **step: float) -> tuple[Arrivals, Replay]:  # type: ignore[type-arg]
    """Poisson arrivals of one-token prompts for the base model."""
    count = len(outputs)
    times = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))
    ones = np.ones(count, np.int64)
    arrivals = Arrivals(times, BASE_MODEL * ones, ones, outputs.astype(np.int64))
    one = engine(costs=profile(**step), max_num_seqs=seats, max_num_batched_tokens=max(64, seats))
    return arrivals, replay(one, arrivals, float(times[-1]) + 1e4, 10**6)


def test_one_seat_with_exponential_lengths_waits_as_m_m_1() -> None:
    # Geometric output lengths of mean 50 at 10 ms a token: service .5 s, nearly exponential; load 70 %.
    outputs = np.random.default_rng(1).geometric(1 / 50, 60_000)
    rate = 0.7 / (outputs.mean() * STEP_S)
    arrivals, result = serve(rate, outputs, seats=1)
    service = outputs * STEP_S
    waits = result.first_token_s - STEP_S - arrivals.time_s
    expected = rate * (service**2).mean() / 2 / (1 - rate * service.mean())  # Pollaczek-Khinchine
    assert waits.mean() == pytest.approx(expected, rel=0.05)
    assert expected == pytest.approx(0.7 / 0.3 * service.mean(), rel=0.03)  # which is what M/M/1 says


def test_one_seat_with_constant_lengths_waits_half_as_long() -> None:
    outputs = np.full(60_000, 50)
    arrivals, result = serve(1.4, outputs, seats=1)
    waits = result.first_token_s - STEP_S - arrivals.time_s
    assert waits.mean() == pytest.approx(0.7 / 0.3 * 0.5 / 2, rel=0.05)


def test_seats_for_all_hold_what_little_says() -> None:
    arrivals, result = serve(20.0, np.full(20_000, 100), seats=512)
    span = arrivals.time_s[-1] + 1e4
    stay = result.finished_s - arrivals.time_s
    assert result.running * span == pytest.approx(100 * STEP_S * 20_000, rel=1e-6)
    # An arrival waits on average half a step for the one in flight.
    assert stay.mean() == pytest.approx(100 * STEP_S + STEP_S / 2, rel=1e-2)


def test_a_saturated_batch_gives_seats_over_step_time() -> None:
    # 16 seats, 10 ms + 1 ms a decoding sequence: a wave of 16 takes one step of 10 ms and 99 of 26 ms.
    arrivals, result = serve(1e4, np.full(4000, 100), seats=16, per_sequence_ms=1.0)
    makespan = result.finished_s.max() - arrivals.time_s[0]
    assert 4000 * 100 / makespan == pytest.approx(1600 / (0.010 + 99 * 0.026), rel=1e-3)


def test_context_makes_each_step_dearer_by_what_it_reads() -> None:
    one = engine(costs=profile(per_context_token_ms=0.1))
    one.submit(0.0, 1, BASE_MODEL, 10, 5)
    finished = one.advance(10.0)["time_s"][-1]
    # The prefill step reads no context; then 4 tokens over contexts 10, 11, 12, 13.
    assert finished == pytest.approx(5 * STEP_S + 1e-4 * (10 + 11 + 12 + 13), abs=1e-9)


def test_the_token_budget_bounds_the_batch_where_prompts_share_it() -> None:
    # Budget B, prompts p, outputs o: a steady batch R decodes and admits R/o prompts a step, R (1 + p/o) = B.
    count, prompt, output = 6000, 220, 190
    outputs = np.random.default_rng(0).geometric(1 / output, count)
    arrivals = Arrivals(np.zeros(count), np.full(count, BASE_MODEL), np.full(count, prompt), outputs)
    result = replay(engine(max_num_seqs=2048, max_num_batched_tokens=2048), arrivals, 6.0, 10**6)
    assert result.gauges.running == pytest.approx(2048 / (1 + prompt / output), rel=0.08)


def test_a_chunked_prompt_takes_as_many_steps_as_budgets() -> None:
    one = engine()
    one.submit(0.0, 1, BASE_MODEL, 200, 1)  # 64 + 64 + 64 + 8
    assert one.advance(1.0)["time_s"][0] == pytest.approx(4 * STEP_S)


def test_start_up_grows_with_the_slots_that_graphs_are_captured_for() -> None:
    startup = profile().startup
    assert startup.total_s(8) == 1 + 2 + 3 + 4 + 4
    assert startup.total_s(8, compiled=True) == startup.total_s(8) - 3
    assert math.isclose(startup.total_s(108) - startup.total_s(8), 50)
