"""Golden scenarios: starts, silences, gaps and clocks. No false zero, no false burst."""

import numpy as np
import pytest

from autoscaler.forecasting import ForecastMethod, ForecastSettings, bursts, explain_series, forecast, observe
from tests.forecasting.replay import COARSE, NAN, SETTINGS, START_S, bucketed, started, ticked

HOUR = 3600.0


def at(memory, horizon_s=600.0, settings=SETTINGS):
    return forecast(memory, [horizon_s], memory.last_tick_s, settings)


def test_a_tenant_never_seen_is_unknown_and_says_so():
    memory = started(("a", "b"))
    memory = ticked(memory, [[1.0, NAN]] * 100)
    made = at(memory)
    assert made.known.tolist() == [True, False]
    assert made.method[1] == ForecastMethod.UNSEEN
    assert "Never seen" in explain_series(memory, "b", 600.0, memory.last_tick_s, SETTINGS).sentence


def test_a_new_tenant_is_forecast_from_its_first_tick_with_a_band_above_it():
    memory = ticked(started(("old",)), [[5.0]] * 80)
    memory = observe(memory, memory.last_tick_s + 15, ("old", "new"), [5.0, 40.0], SETTINGS)
    made = at(memory)
    assert made.method[1] == ForecastMethod.LIVE
    assert made.mean[0, 1] == pytest.approx(40.0, rel=0.01)
    assert made.p90[0, 1] > 50.0
    assert not bursts(memory, memory.last_tick_s).active[1]


def test_a_steady_tenant_keeps_its_level_and_its_band_narrows():
    memory = ticked(started(("a",)), [[10.0]] * 40 * 2)
    early = at(memory)
    late = at(bucketed(memory, [[10.0]] * 144))
    assert late.mean[0, 0] == pytest.approx(10.0, rel=0.02)
    assert late.p50[0, 0] == pytest.approx(10.0, rel=0.03)
    assert 10.0 <= late.p90[0, 0] < early.p90[0, 0]


@pytest.mark.slow
def test_a_week_of_silence_is_a_true_zero_and_the_return_is_followed_within_two_ticks():
    ids = ("a", *(f"other-{i}" for i in range(20)))
    busy, silent = [20.0] + [3.0] * 20, [0.0] + [3.0] * 20
    memory = bucketed(started(ids, COARSE), [busy] * 144 + [silent] * 7 * 144)
    made = at(memory)
    assert made.p50[0, 0] == 0.0
    assert made.p90[0, 0] < 2.0
    assert made.mean[0, 1] == pytest.approx(3.0, rel=0.02)
    memory = ticked(memory, [busy] * 2)
    found = bursts(memory, memory.last_tick_s)
    assert found.active.tolist() == [True] + [False] * 20
    assert found.score[0] > 5
    memory = ticked(memory, [busy] * 6)
    assert at(memory).p90[0, 0] > 3.0


def test_a_gap_holds_the_level_grows_the_doubt_and_raises_no_burst():
    memory = bucketed(started(("a",), COARSE), [[10.0]] * 60)
    before = at(memory)
    memory = ticked(memory, [[NAN]] * 200)
    made = at(memory)
    assert made.mean[0, 0] == pytest.approx(10.0, rel=0.05)
    assert made.p90[0, 0] >= before.p90[0, 0]
    assert made.stale_s[0] == 3000.0
    memory = ticked(memory, [[10.0]] * 2)
    assert not bursts(memory, memory.last_tick_s).active[0]
    assert at(memory).mean[0, 0] == pytest.approx(10.0, rel=0.05)


def test_ticks_that_stop_for_hours_leave_unknown_buckets_not_zeros():
    memory = bucketed(started(("a",), COARSE), [[10.0]] * 60)
    now_s = memory.last_tick_s + 5 * HOUR
    memory = observe(memory, now_s, ("a",), [10.0], SETTINGS)
    assert memory.series.age[0] == 60
    assert memory.series.unknown[0] == 30
    assert at(memory).mean[0, 0] == pytest.approx(10.0, rel=0.05)
    assert not bursts(memory, now_s).active[0]


def test_a_counter_reset_arrives_as_unknown_and_changes_nothing():
    rows = [[10.0]] * 400
    rows[200] = [NAN]
    straight, reset = (ticked(started(("a",)), r) for r in ([[10.0]] * 400, rows))
    np.testing.assert_allclose(at(reset).p90, at(straight).p90, rtol=1e-5)
    assert not bursts(reset, reset.last_tick_s).active[0]


@pytest.mark.parametrize("jump_s", [-HOUR, -30.0, HOUR, 400 * 24 * HOUR])
def test_a_clock_that_jumps_loses_no_level_and_raises_no_burst(jump_s):
    memory = ticked(started(("a",)), [[10.0]] * 500)
    memory = observe(memory, memory.last_tick_s + jump_s, ("a",), [10.0], SETTINGS)
    assert not bursts(memory, memory.last_tick_s).active[0]
    memory = ticked(memory, [[10.0]] * 100)
    made = at(memory)
    assert made.mean[0, 0] == pytest.approx(10.0, rel=0.05)
    assert made.stale_s[0] == 0.0
    assert not bursts(memory, memory.last_tick_s).active[0]


@pytest.mark.slow
def test_a_daylight_saving_change_moves_the_daily_peak_by_an_hour_and_nothing_else():
    """Time is Unix time, so the change shows as tenants that come an hour earlier."""

    def day(shift: int) -> list[list[float]]:
        return [[20.0 if 54 <= (b + shift) % 144 < 108 else 10.0] for b in range(144)]

    memory = bucketed(started(("a",), COARSE), [row for _ in range(5) for row in day(0)])
    alarms = 0
    for row in day(6) * 2:
        memory = bucketed(memory, [row])
        made = at(memory, settings=COARSE)
        alarms += int(bursts(memory, memory.last_tick_s).active[0])
        assert 8.0 <= made.mean[0, 0] <= 22.0
    assert alarms <= 2
    assert made.method[0] == ForecastMethod.TABLE


def test_a_second_look_at_the_same_moment_changes_nothing():
    memory = ticked(started(("a",)), [[10.0]] * 100)
    assert observe(memory, memory.last_tick_s, ("a",), [99.0], SETTINGS) is memory


def test_a_rate_covers_no_more_than_the_longest_tick():
    memory = ticked(started(("a",)), [[10.0]] * 40)
    memory = observe(memory, memory.last_tick_s + 590.0, ("a",), [10.0], SETTINGS)
    assert memory.open_known_s[0] == SETTINGS.max_tick_s


def test_a_compressed_day_gives_the_same_forecasts():
    fast = SETTINGS.scaled(0.1)
    slow_memory = ticked(started(("a",)), [[r] for r in (5.0, 8.0, 3.0) * 50])
    fast_memory = ticked(started(("a",), fast, START_S / 10), [[r] for r in (5.0, 8.0, 3.0) * 50], fast, 1.5)
    slow = forecast(slow_memory, [600.0], slow_memory.last_tick_s, SETTINGS)
    quick = forecast(fast_memory, [60.0], fast_memory.last_tick_s, fast)
    np.testing.assert_allclose(quick.p90, slow.p90, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bucket_s": 0.0}, "bucket_s is 0.0"),
        ({"horizons_s": (700.0,)}, "700.0 s is not a multiple of bucket_s 600.0 s"),
        ({"half_lives_s": (900.0, 300.0)}, "ascending"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ForecastSettings(**changes)


def clumps(ticks: int) -> list[list[float]]:
    """Four requests/s on average: every tenth tick brings the other nine's requests at once; beside it a steady one."""
    return [[40.0 if t % 10 == 0 else 0.0, 4.0] for t in range(ticks)]


def test_a_clump_where_requests_always_come_in_clumps_is_no_onset():
    memory = ticked(started(("clumpy", "steady")), clumps(160))
    assert memory.scatter[0, 0] / memory.scatter[1, 0] > 50
    assert memory.scatter[0, 1] == 0
    memory = ticked(memory, [[0.0, 4.0], [40.0, 40.0]])
    assert bursts(memory, memory.last_tick_s).active.tolist() == [False, True]


def test_a_jump_far_past_the_clumps_is_an_onset_of_the_clumpy_one_too():
    memory = ticked(started(("clumpy", "steady")), [*clumps(160), [400.0, 4.0], [400.0, 4.0]])
    assert bursts(memory, memory.last_tick_s).active.tolist() == [True, False]


def test_long_ticks_teach_nothing_about_scatter():
    memory = bucketed(started(("a",), COARSE), [[1.0], [50.0], [2.0], [80.0]])
    assert not memory.scatter.any()
