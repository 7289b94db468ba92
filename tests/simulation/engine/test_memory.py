"""KV blocks: preemption of the newest, recomputation, and what can never fit."""

import pytest

from autoscaler.simulator.engine.model import BASE_MODEL, FINISHED, FIRST_TOKEN, PREEMPTED, RequestRefusedError
from tests.simulation.engine.builders import STEP_S, engine, in_flight_balance, told


def test_the_newest_running_request_is_preempted_and_computed_again() -> None:
    one = engine(kv_cache_tokens=64)  # 4 blocks
    one.submit(0.0, 1, BASE_MODEL, 16, 40)
    one.submit(0.0, 2, BASE_MODEL, 16, 40)
    events = one.advance(10.0)
    # Both hold 2 blocks after the first decode step; at 33 tokens each needs a third, and request 2 goes.
    assert told(events, PREEMPTED) == [(2, pytest.approx(17 * STEP_S))]
    assert told(events, FIRST_TOKEN) == [(1, STEP_S), (2, STEP_S)]
    finished = dict(told(events, FINISHED))
    assert finished[1] == pytest.approx(40 * STEP_S)
    # 17 tokens were out; 23 more from the moment there is room again, the first of them by its recomputed prefill.
    assert finished[2] == pytest.approx((40 + 23) * STEP_S)
    gauges = one.gauges()
    assert (gauges.preemptions, gauges.generation_tokens, gauges.prompt_tokens) == (1, 80, 32)
    assert in_flight_balance(one) == 0


def test_a_preempted_request_is_first_in_the_queue() -> None:
    one = engine(kv_cache_tokens=64)
    one.submit(0.0, 1, BASE_MODEL, 16, 40)
    one.submit(0.0, 2, BASE_MODEL, 16, 40)
    one.submit(0.1, 3, BASE_MODEL, 16, 1)  # no block is free while the first two run
    order = [request for request, _ in told(one.advance(10.0), FINISHED)]
    assert order.index(2) > order.index(1)
    assert one.gauges().finished == 3


def test_a_request_that_never_fits_is_refused_at_the_door() -> None:
    one = engine(kv_cache_tokens=64)
    with pytest.raises(RequestRefusedError, match="needs 70 tokens of KV cache, the engine has 64"):
        one.submit(0.0, 1, BASE_MODEL, 30, 40)
    assert one.gauges().submitted == 0


def test_kv_usage_counts_blocks_in_use() -> None:
    one = engine(kv_cache_tokens=160)
    one.submit(0.0, 1, BASE_MODEL, 17, 50)
    one.advance(0.005)
    assert one.gauges().kv_usage_ratio == pytest.approx(0.2)
    one.advance(10.0)
    assert one.gauges().kv_usage_ratio == 0.0


def test_waiting_for_memory_keeps_the_order_of_arrival() -> None:
    one = engine(kv_cache_tokens=96, max_num_batched_tokens=128)
    one.submit(0.0, 1, BASE_MODEL, 60, 8)
    one.submit(0.0, 2, BASE_MODEL, 60, 8)  # does not fit beside the first
    one.submit(0.0, 3, BASE_MODEL, 5, 2)  # would fit, but the engine does not overtake for memory
    assert [request for request, _ in told(one.advance(5.0), FIRST_TOKEN)] == [1, 2, 3]
