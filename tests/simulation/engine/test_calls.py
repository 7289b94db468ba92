"""The engine as a passive machine: time, aborts, progress, and when to look again."""

import pytest

from autoscaler.simulator.engine.model import BASE_MODEL, FINISHED, FIRST_TOKEN, RequestRefusedError
from tests.simulation.engine.builders import STEP_S, engine, told


def test_an_idle_engine_has_nothing_to_wait_for() -> None:
    one = engine()
    assert one.next_event_s() is None
    assert len(one.advance(100.0)) == 0


def test_next_event_is_the_end_of_the_step_in_flight() -> None:
    one = engine()
    one.submit(1.0, 1, BASE_MODEL, 10, 3)
    assert one.next_event_s() == 1.0
    one.advance(1.0)
    assert one.next_event_s() == pytest.approx(1.0 + STEP_S)
    one.advance(1.0 + STEP_S)
    assert one.next_event_s() == pytest.approx(1.0 + 2 * STEP_S)


def test_sleeping_from_event_to_event_sees_every_token() -> None:
    one = engine()
    one.submit(0.0, 7, BASE_MODEL, 10, 5)
    seen, now = [], 0.0
    while True:
        one.advance(now)
        seen += one.running_progress()[1].tolist()
        following = one.next_event_s()
        if following is None:
            break
        now = following
    assert seen == [0, 1, 2, 3, 4]
    assert one.gauges().generation_tokens == 5


def test_an_arrival_during_a_step_joins_at_its_end() -> None:
    one = engine()
    one.submit(0.0, 1, BASE_MODEL, 10, 10)
    one.submit(0.004, 2, BASE_MODEL, 10, 10)
    assert told(one.advance(1.0), FIRST_TOKEN) == [(1, STEP_S), (2, 2 * STEP_S)]


def test_arrivals_of_one_moment_join_one_step() -> None:
    one = engine()
    for i in range(3):
        one.submit(1.0, i, BASE_MODEL, 10, 10)
    assert told(one.advance(2.0), FIRST_TOKEN) == [(i, pytest.approx(1.0 + STEP_S)) for i in range(3)]


def test_aborting_a_waiting_request_takes_effect_at_once() -> None:
    one = engine(max_num_seqs=1)
    one.submit(0.0, 1, BASE_MODEL, 10, 10)
    one.submit(0.0, 2, BASE_MODEL, 10, 10)
    assert one.abort(0.015, 2) is True
    assert one.gauges().waiting == 0
    assert [request for request, _ in told(one.advance(5.0), FINISHED)] == [1]
    assert one.gauges().aborted == 1


def test_aborting_a_running_request_frees_its_seat_after_the_step() -> None:
    one = engine(max_num_seqs=1)
    one.submit(0.0, 1, BASE_MODEL, 10, 100)
    one.submit(0.0, 2, BASE_MODEL, 10, 1)
    assert one.abort(0.015, 1) is True
    events = one.advance(5.0)
    assert told(events, FINISHED) == [(2, pytest.approx(3 * STEP_S))]
    assert (one.gauges().aborted, one.gauges().kv_usage_ratio) == (1, 0.0)


def test_aborting_what_is_not_here_says_so() -> None:
    one = engine()
    one.submit(0.0, 1, BASE_MODEL, 10, 1)
    one.advance(1.0)
    assert one.abort(1.0, 1) is False
    assert one.abort(1.0, 42) is False


def test_time_does_not_go_back() -> None:
    one = engine()
    one.advance(2.0)
    with pytest.raises(ValueError, match=r"time went back: 1.0 s after 2.0 s"):
        one.submit(1.0, 1, BASE_MODEL, 10, 10)


def test_a_request_without_tokens_is_refused() -> None:
    with pytest.raises(RequestRefusedError, match="each must be >= 1"):
        engine().submit(0.0, 1, BASE_MODEL, 0, 10)


def test_more_requests_than_rows_grow_the_table() -> None:
    one = engine()
    for i in range(5000):
        one.submit(0.0, i, BASE_MODEL, 1, 1)
    assert one.gauges().waiting == 5000
    assert len(told(one.advance(100.0), FINISHED)) == 5000


def test_gauges_integrate_to_means() -> None:
    one = engine(max_num_seqs=1)
    one.submit(0.0, 1, BASE_MODEL, 10, 100)
    one.submit(0.0, 2, BASE_MODEL, 10, 100)
    one.advance(2.0)
    totals = one.integrals()
    assert totals["running"] == pytest.approx(2.0)
    assert totals["waiting"] == pytest.approx(1.0)
