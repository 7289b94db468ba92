"""From which load on first tokens are late, told from the share that was late at each load."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.scaling.batching import Level
from autoscaler.scaling.lateness import PROVEN_TICKS, in_time

ALLOWED = 0.01


def levels(*shares: float, ticks: float = 40.0) -> tuple[Level, ...]:
    """Levels of 1,000, 2,000, ... tokens/s a replica, with these late shares."""
    return tuple(Level(40 + i, ticks, 10.0 * (i + 1), 1000.0 * (i + 1), s, ticks) for i, s in enumerate(shares))


def test_between_a_load_in_time_and_a_late_one_lies_what_may_be_asked():
    """.1 % late at 2,000 and 10 % at 3,000; 1 % is allowed, half of the way from .1 to 10 in decades."""
    proven, most = in_time(levels(0.001, 0.001, 0.1, ticks=1e6), ALLOWED)
    assert (proven, most) == (2000.0, pytest.approx(2500.0, rel=1e-4))


def test_what_one_load_had_for_a_minute_is_half_believed_and_what_it_had_for_long_is_believed():
    """1.8 % late where smaller loads had .2 %: after 5 ticks .7 % is told, after 160 it is 1.7 %."""
    assert in_time(short_of_time(5.0), ALLOWED)[1] == math.inf
    assert 1000.0 < in_time(short_of_time(160.0), ALLOWED)[1] < 2000.0
    assert 1000.0 < in_time(levels(0.002, 0.3, ticks=8.0), ALLOWED)[1] < 2000.0, "a third late is no accident"


def short_of_time(ticks: float) -> tuple[Level, ...]:
    below, above = levels(0.002, 0.018)
    return below, replace(above, late_ticks=ticks)


def test_where_nothing_was_late_there_is_no_limit_but_a_proof():
    assert in_time(levels(0.0, 0.001, 0.002), ALLOWED) == (3000.0, math.inf)


def test_what_is_late_at_any_load_is_not_cured_by_less():
    assert in_time(levels(0.5, 0.4, 0.6), ALLOWED) == (0.0, math.inf)


def test_a_glimpse_proves_nothing():
    assert in_time(levels(0.0, 0.3, ticks=1.5), ALLOWED) == (0.0, math.inf)
    proven, most = in_time(levels(0.0, 0.3, ticks=PROVEN_TICKS - 1), ALLOWED)
    assert (proven, most < 2000.0) == (0.0, True)


def test_one_late_level_among_loads_that_were_in_time_is_an_accident():
    """A stall of another cause: its neighbours above say that the load is not to blame."""
    proven, most = in_time(levels(0.0, 0.03, 0.0, 0.0), ALLOWED)
    assert (proven, most) == (4000.0, math.inf)


def test_nothing_known_limits_nothing():
    assert in_time((), ALLOWED) == (0.0, math.inf)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_what_is_proven_is_never_more_than_what_may_be_asked(shares, may_be_late):
    proven, most = in_time(levels(*shares), may_be_late)
    assert 0.0 <= proven <= most
    assert most == math.inf or 1000.0 <= most <= 1000.0 * len(shares)
