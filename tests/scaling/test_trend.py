"""Where a load is going: who foresees it, judged by what came."""

import pytest

from autoscaler.scaling.trend import LOOK_BACK_S, LoadMemory, Sayer, arrived, foreseen, level, say, seen, upper

NOON = 1_795_867_200.0


def followed(loads, forecast: float | None = None, lead_s: float = 300.0) -> LoadMemory:
    memory = LoadMemory()
    for tick, load in enumerate(loads):
        memory = seen(memory, float(load), NOON + 15.0 * tick)
        if forecast is not None:
            memory = say(memory, forecast, lead_s)
    return memory


def test_a_steady_load_stays():
    memory = followed([1000.0] * 40)
    assert (level(memory), upper(memory, 300.0)) == (pytest.approx(1000.0), pytest.approx(1000.0))


def test_a_rise_goes_on_for_three_quarters_of_its_slope():
    """100 tokens/s more every tick: 6.7 a second, so 300 s on are 1,500 more of 2,000."""
    memory = followed(1000.0 + 100.0 * tick for tick in range(40))
    assert level(memory) == pytest.approx(4900.0)
    assert upper(memory, 300.0) == pytest.approx(4900.0 + 1500.0)


def test_a_fall_is_not_counted_on():
    memory = followed(5000.0 - 100.0 * tick for tick in range(40))
    assert upper(memory, 300.0) == pytest.approx(1100.0)


def test_noise_widens_the_band():
    memory = followed(1000.0 + (100.0 if tick % 2 else -100.0) for tick in range(40))
    assert upper(memory, 300.0) == pytest.approx(1000.0 + 1.28 * 100.0, rel=0.03)


def test_a_burst_is_seen_at_once():
    memory = followed([1000.0] * 38 + [5000.0] * 2)
    assert level(memory) == pytest.approx(5000.0)


def test_before_two_minutes_a_slope_means_nothing():
    memory = followed(1000.0 + 100.0 * tick for tick in range(8))
    assert upper(memory, 300.0) == pytest.approx(1650.0)


def test_a_rate_that_climbs_while_its_window_fills_is_no_rise():
    """From 250 to 1,000 within the first minute: a line through that would say 2,700 five minutes on."""
    memory = followed([250.0, 500.0, 750.0] + [1000.0] * 12)
    assert upper(memory, 300.0) == pytest.approx(1000.0)


def test_nothing_is_said_of_a_load_that_was_never_seen():
    assert (level(LoadMemory()), upper(LoadMemory(), 60.0)) == (None, None)
    assert say(LoadMemory(), 10.0, 60.0) == LoadMemory()


def test_the_forecast_serves_where_there_is_no_line():
    assert LoadMemory().best is Sayer.FORECAST


def test_a_forecast_that_was_far_off_does_not_serve():
    assert followed([1000.0] * 80, forecast=3000.0).best is not Sayer.FORECAST


def test_a_forecast_that_knows_the_ups_and_downs_serves():
    """A load that is 1,000 for ten minutes and 3,000 for ten: the line knows no jump before it came."""
    memory = LoadMemory()
    for tick in range(240):
        memory = seen(memory, jumpy(tick), NOON + 15.0 * tick)
        memory = say(memory, jumpy(tick + 20), 300.0)
    assert memory.best is Sayer.FORECAST


def jumpy(tick: int) -> float:
    return 3000.0 if (tick // 40) % 2 else 1000.0


def test_until_twenty_judgements_the_line_serves():
    lead_ticks = 20
    assert followed([1000.0] * (lead_ticks + 10), forecast=1000.0).best is Sayer.LINE
    assert followed([1000.0] * (lead_ticks + 40), forecast=1000.0).best is Sayer.FORECAST


def test_steps_that_come_again_are_kept_ready_for():
    """Ten minutes of 1,000, ten of 3,000: what the last twenty minutes reached is right, a fall that ends is not."""
    memory = followed([jumpy(tick) for tick in range(400)], forecast=1000.0)
    assert memory.samples[-1][1] == 3000.0
    for tick in range(400, 420):
        memory = say(seen(memory, jumpy(tick), NOON + 15.0 * tick), 1000.0, 300.0)
    assert memory.samples[-1][1] == 1000.0
    assert foreseen(memory, memory.best, 300.0) == pytest.approx(3000.0)
    assert memory.best in LOOK_BACK_S


def test_a_rise_that_goes_on_is_foreseen_by_its_line_and_not_by_what_was_reached():
    memory = followed([1000.0 + 50.0 * tick for tick in range(120)], forecast=1000.0)
    assert memory.best is Sayer.LINE


def test_what_was_reached_is_forgotten_after_its_time():
    memory = followed([5000.0] * 4 + [1000.0] * 100)
    assert foreseen(memory, Sayer.HOUR, 300.0) == 5000.0
    assert foreseen(memory, Sayer.MINUTES, 300.0) == 1000.0
    assert len(followed([1000.0] * 1000).peaks) <= 37


def test_the_same_moment_again_adds_nothing():
    memory = followed([1000.0] * 10, forecast=900.0)
    again = say(seen(memory, 5.0, NOON + 15.0 * 9), 5.0, 300.0)
    assert again == memory


def test_requests_in_flight_are_compared_with_those_of_a_window_ago():
    memory = LoadMemory()
    for tick, in_flight in enumerate((100.0, 130.0, 160.0, 190.0, 220.0)):
        memory, grown = arrived(memory, in_flight, NOON + 15.0 * tick, 60.0)
    assert grown == pytest.approx(2.0)
    for tick in range(5, 10):
        memory, grown = arrived(memory, 220.0, NOON + 15.0 * tick, 60.0)
    assert grown == 0.0
    assert len(memory.in_flight) == 6
