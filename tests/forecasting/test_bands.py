"""Bands hold, sums are pooled, onsets are found and noise is not."""

import numpy as np
import pytest

from autoscaler.forecasting import bursts, forecast, observe, outlook, totals
from tests.forecasting.replay import COARSE, NAN, SETTINGS, bucketed, flapping, started, ticked


@pytest.mark.slow
def test_bands_hold_on_traffic_that_comes_and_goes():
    rows = flapping(600, 40)
    memory = started(tuple(f"t{i}" for i in range(40)), COARSE)
    inside, judged = 0, 0
    for t, row in enumerate(rows[:-1]):
        memory = bucketed(memory, [row])
        if t >= 288:
            band = forecast(memory, [600.0], memory.last_tick_s, COARSE).p90[0]
            counts = (rows[t + 1] > 0) | (band > 0)
            inside += int(((rows[t + 1] <= band) & counts).sum())
            judged += int(counts.sum())
    assert 0.87 <= inside / judged <= 0.93
    np.testing.assert_allclose(memory.calibration.coverage()[0], inside / judged, atol=0.03)


@pytest.mark.slow
def test_a_change_of_the_whole_fleet_is_followed_by_the_bands():
    """All tenants turn rough at once: the bands widen until they hold again."""
    rng = np.random.default_rng(1)
    calm = 10 * np.exp(rng.normal(0, 0.05, (200, 30)))
    rough = 10 * np.exp(rng.normal(0, 0.5, (400, 30)))
    memory = bucketed(started(tuple(f"t{i}" for i in range(30)), COARSE), calm)
    before = forecast(memory, [600.0], memory.last_tick_s, COARSE).p90.mean()
    memory = bucketed(memory, rough[:250])
    missed = []
    for t in range(250, 399):
        memory = bucketed(memory, [rough[t]])
        missed.append((rough[t + 1] > forecast(memory, [600.0], memory.last_tick_s, COARSE).p90[0]).mean())
    assert before < 12.5
    assert 0.07 <= np.mean(missed) <= 0.13


def test_a_sum_has_a_narrower_band_than_the_sum_of_bands_and_medians_are_not_offered():
    memory = bucketed(started(tuple(f"t{i}" for i in range(40)), COARSE), flapping(288, 40))
    made = forecast(memory, [600.0, 3600.0], memory.last_tick_s, COARSE)
    one = totals(made, np.zeros(40, np.int64), 1)
    np.testing.assert_allclose(one.mean[:, 0], made.mean.sum(axis=1))
    assert (one.p90[:, 0] < made.p90.sum(axis=1)).all()
    assert (one.p90[:, 0] > one.mean[:, 0]).all()
    assert not hasattr(one, "p50")


@pytest.mark.slow
def test_the_total_is_inside_its_pooled_band_nine_times_in_ten():
    rows = flapping(700, 40)
    memory = started(tuple(f"t{i}" for i in range(40)), COARSE)
    inside = []
    for t, row in enumerate(rows[:-1]):
        memory = bucketed(memory, [row])
        if t >= 288:
            band = totals(forecast(memory, [600.0], memory.last_tick_s, COARSE), np.zeros(40, np.int64), 1)
            inside.append(rows[t + 1].sum() <= band.p90[0, 0])
    assert 0.85 <= np.mean(inside) <= 0.95


def test_totals_weigh_by_tokens_and_leave_out_those_in_no_group():
    memory = ticked(started(("a", "b", "c")), [[1.0, 2.0, 4.0]] * 80)
    made = forecast(memory, [600.0], memory.last_tick_s, SETTINGS)
    summed = totals(made, [0, 1, -1], 2, [100.0, 10.0, 1.0])
    np.testing.assert_allclose(summed.mean[0], made.mean[0, :2] * [100.0, 10.0])


def test_a_fivefold_jump_is_an_onset_at_its_second_tick_at_the_latest():
    memory = ticked(started(("a", "b")), [[10.0, 10.0]] * 200)
    memory = ticked(memory, [[50.0, 10.0]] * 2)
    found = bursts(memory, memory.last_tick_s)
    assert found.active.tolist() == [True, False]
    assert found.score[0] > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 1.0, 30.0])
def test_arrivals_that_vary_by_chance_raise_next_to_no_alarm(rate):
    """Gamma arrivals with a variation of 1.5, ticks of 15 s: under one alarm per tenant and day."""
    rng = np.random.default_rng(5)
    ids = tuple(f"t{i}" for i in range(100))
    gaps = rng.gamma(1 / 2.25, 2.25 / rate, (100, int(rate * 15 * 500 * 1.5) + 200))
    arrivals = np.cumsum(gaps, axis=1)
    rows = np.stack([np.bincount((a[a < 7500] // 15).astype(int), minlength=500) / 15 for a in arrivals], axis=1)
    memory, alarms = ticked(started(ids), rows[:100]), 0
    for row in rows[100:]:
        memory = ticked(memory, [row])
        alarms += int(bursts(memory, memory.last_tick_s).active.sum())
    days = 400 * 15 * 100 / 86400
    assert alarms / days < 1.0


def test_nothing_is_said_of_an_old_tick_or_an_unknown_one():
    memory = ticked(started(("a",)), [[1.0]] * 100 + [[500.0]] * 2)
    assert bursts(memory, memory.last_tick_s).active[0]
    assert not bursts(memory, memory.last_tick_s + 15).active[0]
    memory = observe(memory, memory.last_tick_s + 15, ("a",), [NAN], SETTINGS)
    assert not bursts(memory, memory.last_tick_s).active[0]


def test_the_outlook_of_a_total_uses_the_season_where_it_is_real():
    t = np.arange(7 * 144)
    rng = np.random.default_rng(2)
    season = 100 + 40 * np.sin(2 * np.pi * t / 144)
    real = outlook(season * np.exp(rng.normal(0, 0.03, t.size)), 6, COARSE)
    assert real.season
    assert real.season_gain < 0.9
    expected = (100 + 40 * np.sin(2 * np.pi * (t[-1] + 1 + np.arange(36)) / 144)).reshape(6, 6).mean(axis=1)
    np.testing.assert_allclose(real.mean, expected, rtol=0.1)
    assert real.peak_p90 >= real.mean.max()
    wander = outlook(100 * np.exp(np.cumsum(rng.normal(0, 0.02, t.size))), 6, COARSE)
    assert not wander.season
    assert "does not serve" in wander.reason


def test_the_outlook_says_when_the_level_has_shifted():
    rng = np.random.default_rng(2)
    level = 100 + rng.normal(0, 2, 5 * 144)
    assert not outlook(level, 3, COARSE).shifted
    level[-18:] += 60
    assert outlook(level, 3, COARSE).shifted


def test_a_short_or_empty_history_has_a_cautious_outlook_or_none():
    made = outlook([NAN] * 6 + [50.0] * 12, 3, COARSE)
    assert made.mean.tolist() == [50.0, 50.0, 50.0]
    assert "2 hours of history" in made.reason
    with pytest.raises(ValueError, match="no whole known hour"):
        outlook([NAN] * 30, 3, COARSE)
