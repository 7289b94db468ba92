"""What holds of every history: bounds, order, scale, exact memory."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.forecasting import ForecastMemory, RateForecast, bursts, forecast, observe, totals
from tests.forecasting.replay import COARSE, SETTINGS, START_S, started

HORIZONS = (195.0, 600.0, 1200.0, 3600.0, 7200.0)

rate = st.one_of(st.just(float("nan")), st.just(0.0), st.floats(0, 1e6), st.sampled_from([-1.0, float("inf"), 1e300]))
gap_s = st.sampled_from([15.0, 15.0, 15.0, 600.0, 600.0, 600.0, 0.0, 1.0, 3601.0, 90_000.0, 1e6, -600.0, -1e5])
history = st.lists(st.tuples(gap_s, st.lists(rate, min_size=3, max_size=3)), min_size=1, max_size=14)


def replayed(ticks: list[tuple[float, list[float]]], ids: tuple[str, ...] = ("a", "b", "c")) -> ForecastMemory:
    memory, now_s = started(ids, COARSE), START_S
    for step_s, row in ticks:
        now_s += step_s
        memory = observe(memory, now_s, ids, row, COARSE)
    return memory


def foreseen(memory: ForecastMemory) -> RateForecast:
    return forecast(memory, HORIZONS, memory.last_tick_s, COARSE)


@settings(max_examples=50, deadline=None)
@given(history)
def test_whatever_came_in_what_leaves_is_finite_not_negative_and_in_order(ticks):
    memory = replayed(ticks)
    made = foreseen(memory)
    for values in (made.mean, made.p50, made.p90, made.p95, made.stale_s, made.pooled):
        assert np.isfinite(values).all()
        assert (values >= 0).all()
    assert (made.p50 <= made.p90).all()
    assert (made.p90 <= made.p95).all()
    assert np.isfinite(bursts(memory, memory.last_tick_s).score).all()
    summed = totals(made, [0, 0, 1], 2)
    assert (summed.mean <= summed.p90).all()
    assert (summed.p90 <= summed.p95).all()


@settings(max_examples=20, deadline=None)
@given(history)
def test_the_same_history_twice_gives_the_same_bytes(ticks):
    first, second = replayed(ticks), replayed(ticks)
    assert first.to_json() == second.to_json()
    assert foreseen(first).p90.tobytes() == foreseen(second).p90.tobytes()


@settings(max_examples=20, deadline=None)
@given(history)
def test_memory_comes_back_from_json_bit_by_bit(ticks):
    memory = replayed(ticks)
    back = ForecastMemory.from_json(json.loads(json.dumps(memory.to_json())))
    assert back.to_json() == memory.to_json()
    later_s, row = memory.last_tick_s + 600.0, [1.0, 2.0, 3.0]
    on, back_on = (observe(m, later_s, m.ids, row, COARSE) for m in (memory, back))
    assert foreseen(on).p95.tobytes() == foreseen(back_on).p95.tobytes()


@settings(max_examples=20, deadline=None)
@given(history, st.permutations([0, 1, 2]))
def test_the_order_of_tenants_does_not_matter(ticks, order):
    straight = foreseen(replayed(ticks))
    turned = [(step_s, [row[i] for i in order]) for step_s, row in ticks]
    made = foreseen(replayed(turned, tuple("abc"[i] for i in order)))
    for name in ("mean", "p50", "p90", "p95"):
        np.testing.assert_allclose(getattr(made, name), getattr(straight, name)[:, order], rtol=1e-5, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.one_of(st.just(0.0), st.floats(0.01, 1e3)), min_size=3, max_size=3), min_size=1, max_size=14),
    st.sampled_from([1 / 16, 0.5, 8.0, 1024.0]),
)
def test_a_fleet_k_times_as_busy_is_forecast_k_times_as_much(rows, k):
    base = foreseen(replayed([(600.0, row) for row in rows]))
    busy = foreseen(replayed([(600.0, [k * r for r in row]) for row in rows]))
    for name in ("mean", "p50", "p90", "p95"):
        np.testing.assert_allclose(getattr(busy, name), k * getattr(base, name), rtol=1e-4, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(history, st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), unique=True, max_size=5))
def test_tenants_that_appear_or_leave_do_not_touch_what_is_known_of_the_others(ticks, ids):
    memory = replayed(ticks)
    moved = observe(memory, memory.last_tick_s, ids, [float("nan")] * len(ids), COARSE)
    made = forecast(moved, HORIZONS, moved.last_tick_s, COARSE)
    for i, name in enumerate(ids):
        if name in memory.ids:
            j = memory.ids.index(name)
            assert moved.series.bank[:, i].tobytes() == memory.series.bank[:, j].tobytes()
            assert [row[i].tobytes() for row in moved.series.day] == [row[j].tobytes() for row in memory.series.day]
            assert moved.live[i].tobytes() == memory.live[j].tobytes()
        else:
            assert not made.known[i]
            assert (made.mean[:, i] == 0).all()


def test_memory_of_another_version_is_refused_with_the_remedy():
    data = started(("a",)).to_json() | {"version": 99}
    with pytest.raises(ValueError, match=r"version 99.*start with an empty one"):
        ForecastMemory.from_json(data)


@pytest.mark.parametrize(
    ("ids", "row", "message"),
    [(("a", "a"), [1.0, 1.0], "repeat"), (("a", "b"), [1.0], "one rate per id")],
)
def test_input_that_means_nothing_is_refused(ids, row, message):
    with pytest.raises(ValueError, match=message):
        observe(started(("a",)), START_S + 15, ids, row, SETTINGS)
