"""The benchmark's definitions, on numbers that can be followed by hand."""

import numpy as np
import pytest

from benchmarks.forecast import actuals, peers, pools_of, score, settings_for
from benchmarks.forecast_cost import cost
from benchmarks.forecast_onsets import counted, measured
from benchmarks.forecast_tiers import HOT, WARM, figures
from benchmarks.rates import RateWindows, read_windows

NAN = float("nan")


def test_figures_are_by_volume_and_coverage_leaves_out_silence_that_was_foreseen():
    y = np.array([[0.0, 10.0, 30.0, NAN]])
    made = score(y, np.array([[0.0, 12.0, 20.0, 5.0]]), np.array([[0.0, 20.0, 25.0, 5.0]]))
    assert made["wape"] == pytest.approx(12 / 40)
    assert made["pinball90"] == pytest.approx((0.1 * 10 + 0.9 * 5) / 40)
    assert made["provisioned_ratio"] == pytest.approx(45 / 40)
    assert made["coverage90"] == 0.5


def test_a_pool_without_volume_has_no_figures():
    nothing = np.zeros((3, 0))
    assert score(nothing, nothing, nothing) == dict.fromkeys(
        ("wape", "pinball90", "provisioned_ratio", "coverage90"), None
    )


def test_a_window_without_a_line_is_unknown(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("client_id,window_start_s,rate_rps\na,0,1\na,600,2\na,1800,4\nb,0,5\nb,600,6\nb,1200,7\nb,1800,8\n")
    read = read_windows(path)
    assert (read.clients, read.window_s) == (("client-a", "client-b"), 600.0)
    np.testing.assert_array_equal(read.rps[:, 0], [1, 2, NAN, 4])
    np.testing.assert_array_equal(actuals(read, 2)[:, 0], [NAN, NAN, NAN, NAN])
    np.testing.assert_array_equal(actuals(read, 2)[:, 1], [6.5, 7.5, NAN, NAN])


def test_horizons_are_whole_windows_of_the_file():
    assert settings_for(600.0).horizons_s == (600.0, 1800.0, 3600.0)
    assert settings_for(900.0).horizons_s == (900.0, 1800.0, 3600.0)
    assert settings_for(3600.0).horizons_s == (3600.0,)


def test_the_peers_know_nothing_of_the_test_days():
    rng = np.random.default_rng(1)
    rates = RateWindows(("a", "b"), 600.0, rng.uniform(0, 5, (300, 2)))
    changed = RateWindows(rates.clients, 600.0, np.vstack([rates.rps[:200], 50 * rates.rps[200:]]))
    settings = settings_for(600.0)
    first, second = (peers(r, settings, 200, pools_of(r, 200)) for r in (rates, changed))
    for name, walk in first.items():
        np.testing.assert_array_equal(walk.upper[:, :200], second[name].upper[:, :200])


def test_churn_counts_tenants_once_a_day_and_recall_counts_requests():
    tiers = np.array([[WARM, WARM], [HOT, WARM], [WARM, WARM], [WARM, WARM], [WARM, WARM]], np.int8)
    rate = np.array([[0.0, 0.0], [30.0, 1.0], [10.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    made = figures(tiers, rate, 2)
    assert made["tier_churn_per_day_ratio"] == pytest.approx((0.5 + 0.0) / 2)
    assert made["hot_recall"] == pytest.approx(30 / 40)


def test_drawn_requests_have_the_rate_and_the_unevenness_that_were_asked_for():
    rng = np.random.default_rng(3)
    poisson, clumpy = (np.concatenate([counted(20.0, cv, 40, rng) for _ in range(50)]) for cv in (1.0, 4.0))
    assert poisson.mean() == pytest.approx(20.0, rel=0.02)
    assert clumpy.mean() == pytest.approx(20.0, rel=0.1)
    assert clumpy.var() > 5 * poisson.var()
    assert not counted(0.0, 1.0, 40, rng).any()


def test_a_steady_client_raises_no_alarm_and_a_jump_is_seen_within_two_ticks():
    rates = RateWindows(("steady", "jump"), 600.0, np.array([[20.0, 20.0]] * 12 + [[20.0, 200.0]]))
    made = measured(rates, np.ones(rates.rps.shape), from_window=10, windows=3, seed=1)
    assert (made["onsets"], made["seen_within_two_ticks_ratio"], made["hot"]["onsets"]) == (1, 1.0, 1)
    assert (made["false_alarms_per_tenant_day"], made["false_hot_alarms_per_tenant_day"]) == (0.0, 0.0)


@pytest.mark.slow
def test_the_room_is_timed_at_more_tenants_than_the_file_has():
    made = cost(np.full((20, 2), 3.0), 5, settings_for(600.0))
    assert made["tenants"] == 5.0
    assert min(made.values()) >= 0.0
