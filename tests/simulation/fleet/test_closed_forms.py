"""Where queueing theory or arithmetic knows the answer for several servers, the fleet gives it."""

import numpy as np
import pytest

from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from tests.simulation.engine.builders import STEP_S, profile
from tests.simulation.fleet.builders import arrivals, fleet, play

ONE_SEAT = EngineLimits(max_loras=6, max_cpu_loras=6, max_num_seqs=1, max_num_batched_tokens=64)
FREE = {"loads_are_free": True, "routers": 1}


def test_a_randomly_split_stream_waits_at_each_engine_as_m_m_1() -> None:
    # Two engines of one seat, each with half of the stream: 50 tokens of 10 ms on average, nearly exponential, load .7.
    outputs = np.random.default_rng(1).geometric(1 / 50, 40_000)
    rate_rps = 2 * 0.7 / (outputs.mean() * STEP_S)
    times_s = np.cumsum(np.random.default_rng(2).exponential(1 / rate_rps, len(outputs)))
    done = play(
        fleet(2, limits=ONE_SEAT, **FREE), tables.least_requests([0, 1], 6, 1),
        arrivals(times_s.tolist(), 0, 1, outputs), float(times_s[-1]) + 1e4,
    )  # fmt: skip
    first_s = done.fleet.first_us[:2].sum() / 1e6 / len(outputs)
    service_s = outputs * STEP_S
    expected_s = rate_rps / 2 * (service_s**2).mean() / 2 / 0.3  # Pollaczek-Khinchine
    assert first_s - STEP_S == pytest.approx(expected_s, rel=0.08)


def test_saturated_batches_give_seats_over_step_time_on_every_engine() -> None:
    # 3 engines of 8 seats at 10 ms + 1 ms a decoding request: a wave of 8 takes one step of 10 ms and 99 of 18 ms.
    requests = arrivals([0.0] * 960, 0, 1, 100)
    limits = EngineLimits(max_loras=6, max_cpu_loras=6, max_num_seqs=8, max_num_batched_tokens=64)
    one = fleet(3, limits=limits, costs=profile(per_sequence_ms=1.0), **FREE)
    waves_s = 40 * (0.010 + 99 * 0.018)
    play(one, tables.round_robin([0, 1, 2], 6), requests, waves_s - 0.05)
    assert one.fleet.total[b.FINISHED] == 960 - 24
    another = fleet(3, limits=limits, costs=profile(per_sequence_ms=1.0), **FREE)
    play(another, tables.round_robin([0, 1, 2], 6), requests, waves_s + 0.05)
    assert another.fleet.total[b.FINISHED] == 960


def test_requests_in_flight_are_rate_times_stay() -> None:
    # Seats for all: 40 requests/s stay 100 steps of 10 ms each, so 40 are in flight.
    limits = EngineLimits(max_loras=6, max_cpu_loras=6, max_num_seqs=256, max_num_batched_tokens=512)
    requests = arrivals((np.arange(8_000) / 40.0).tolist(), 0, 1, 100)
    one = play(fleet(2, limits=limits, **FREE), tables.round_robin([0, 1], 6), requests, 150.0)
    assert one.fleet.total[b.IN_FLIGHT] == pytest.approx(40, abs=2)
