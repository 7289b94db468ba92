"""Peers' scalers follow the rules of their originals."""

from dataclasses import replace

import pytest

from autoscaler.simulator.strategies.scalers import (
    ActiveHpa,
    ActiveRequests,
    Bounds,
    Predictive,
    QueueHpa,
    Remembered,
    Saturation,
    Scaler,
    Seen,
)

BOUNDS = Bounds(1, 20)


def seen(now_s: float = 0.0, current: int = 4, *, waiting: float = 0.0, kv: float = 0.5, active: float = 0.0,
         arrived: int = 0, ready: int | None = None, tokens: float = 500.0) -> Seen:  # fmt: skip
    count = current if ready is None else ready
    return Seen(now_s, current, count, (waiting,) * count, (kv,) * count, active, arrived, tokens)


def decide(scaler: Scaler, *moments: Seen) -> list[int]:
    memory, counts = Remembered(), []
    for moment in moments:
        count, memory = scaler.decide(moment, memory, BOUNDS)
        counts.append(count)
    return counts


def test_the_hpa_holds_within_its_tolerance_and_grows_in_proportion() -> None:
    assert decide(QueueHpa(5.0), seen(waiting=5.4)) == [4]
    assert decide(QueueHpa(5.0), seen(waiting=7.5)) == [6]
    assert decide(ActiveHpa(30.0), seen(active=200.0)) == [7]


def test_the_hpa_grows_by_four_or_double_at_most_and_stays_in_bounds() -> None:
    assert decide(QueueHpa(5.0), seen(waiting=500.0)) == [8]
    assert decide(QueueHpa(5.0), seen(current=12, waiting=500.0)) == [20]


def test_the_hpa_shrinks_to_the_highest_need_of_five_minutes() -> None:
    assert decide(QueueHpa(5.0), seen(0.0, waiting=5.0), seen(15.0), seen(299.0), seen(301.0)) == [4, 4, 4, 1]


def test_the_hpa_does_not_shrink_before_it_has_seen_five_minutes() -> None:
    assert decide(QueueHpa(5.0), seen(15.0), seen(30.0), seen(314.0), seen(316.0)) == [4, 4, 4, 1]


@pytest.mark.parametrize("scaler", [QueueHpa(5.0), ActiveHpa(30.0), Predictive(1000.0, 0.9), Saturation()])
def test_who_reads_prometheus_keeps_its_count_and_its_memory_while_it_shows_nothing(scaler: Scaler) -> None:
    dark = replace(seen(1000.0), heard=False, waiting=(), kv_usage=())
    before = Remembered(recommended=((0.0, 4),), samples=((900.0, 1.0), (960.0, 2.0)))
    assert scaler.decide(dark, before, BOUNDS) == (4, before)


def test_replicas_that_start_are_not_asked_for_twice() -> None:
    assert decide(QueueHpa(5.0), seen(current=8, ready=4, waiting=8.0)) == [8]


def test_active_requests_are_a_mean_over_the_window_and_shrink_after_a_delay() -> None:
    scaler = ActiveRequests(target=10.0, window_s=20.0)
    steps = [
        seen(0.0, active=80.0),
        seen(10.0, active=40.0),
        seen(20.0),
        seen(30.0),
        seen(40.0),
        seen(50.0),
        seen(60.0),
    ]
    assert decide(scaler, *steps) == [8, 6, 4, 4, 4, 1, 1]


def test_predictive_scaling_follows_the_last_interval_and_its_rise() -> None:
    scaler = Predictive(capacity_tokens_per_s=1000.0, fill=0.5)
    steps = [seen(0.0), seen(60.0, arrived=60), seen(120.0, arrived=180), seen(180.0, arrived=240)]
    assert decide(scaler, *steps) == [4, 1, 3, 1]  # 1, then 2 + 1 of trend, then 1 request/s of 500 tokens


def test_saturation_adds_one_where_spare_capacity_is_short_and_takes_one_where_fewer_keep_it() -> None:
    scaler = Saturation()
    assert decide(scaler, seen(kv=0.75)) == [5]
    assert decide(scaler, seen(waiting=3.0)) == [5]
    assert decide(scaler, seen(kv=0.3)) == [3]
    assert decide(scaler, seen(kv=0.6)) == [4]  # 3 replicas would be at .8
    assert decide(scaler, seen(waiting=9.0)) == [5]
    assert decide(scaler, seen(ready=3, waiting=9.0)) == [4]


@pytest.mark.parametrize(
    "scaler", [QueueHpa(5.0), ActiveHpa(10.0), ActiveRequests(10.0), Predictive(1e3, 0.5), Saturation()], ids=repr
)
def test_bounds_hold_on_every_path(scaler: Scaler) -> None:
    steps = [seen(60.0 * i, current=20, waiting=1e4, kv=1.0, active=1e5, arrived=10**6 * i) for i in range(3)]
    assert all(count == 20 for count in decide(scaler, *steps))
    idle = [seen(400.0 * i, current=1, kv=0.0) for i in range(3)]
    assert all(count == 1 for count in decide(scaler, *idle))
