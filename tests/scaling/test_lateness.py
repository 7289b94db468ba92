"""From which load on first tokens are late, told from the lateness at each load."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.scaling.batching import Level
from autoscaler.scaling.lateness import PROVEN_TICKS, in_time, late_share, lateness

OBJECTIVE = 0.99


def levels(*shares: float, ticks: float = 40.0) -> tuple[Level, ...]:
    """Levels of 1,000, 2,000, ... tokens/s a replica, with these late shares."""
    return tuple(Level(40 + i, ticks, 10.0 * (i + 1), 1000.0 * (i + 1), late(s), ticks) for i, s in enumerate(shares))


def late(share: float) -> float:
    """The lateness that `late_share` reads as a share."""
    return math.log(math.log(0.01) / math.log(min(max(share, 1e-30), 1 - 1e-9)))


def test_a_p99_at_the_target_means_that_one_in_a_hundred_is_late():
    for p99_s, share in ((1.0, 0.01), (0.5, 0.0001), (2.0, 0.1)):
        assert late_share(lateness([p99_s], 1.0)) == pytest.approx(share)
    assert late_share(lateness([0.0], 1.0)) == 0.0
    assert lateness([], 1.0) is None


def test_a_p99_that_is_high_by_chance_counts_by_its_log_and_one_replica_not_at_all():
    """A p99 of .5 and one of 2, turn about, are 1 at the target; a mean of their shares would read five times that."""
    turns = [lateness([p99_s], 1.0) for p99_s in (0.5, 2.0)]
    assert late_share(sum(turns) / 2) == pytest.approx(0.01)
    assert lateness([0.5, 0.6, 30.0], 1.0) == pytest.approx(math.log(0.6))


def test_between_a_load_in_time_and_a_late_one_lies_what_may_be_asked():
    """.1 % late at 2,000 and 10 % at 3,000; 1 % is allowed, half of the way from .1 to 10 in decades."""
    proven, most = in_time(levels(0.0005, 0.001, 0.1), OBJECTIVE)
    assert (proven, most) == (2000.0, pytest.approx(2500.0))


def test_where_nothing_was_late_there_is_no_limit_but_a_proof():
    assert in_time(levels(0.0, 0.001, 0.002), OBJECTIVE) == (3000.0, math.inf)


def test_what_is_late_at_any_load_is_not_cured_by_less():
    assert in_time(levels(0.5, 0.4, 0.6), OBJECTIVE) == (0.0, math.inf)


def test_a_glimpse_proves_nothing():
    assert in_time(levels(0.0, 0.3, ticks=3.0), OBJECTIVE) == (0.0, math.inf)
    proven, most = in_time(levels(0.0, 0.3, ticks=PROVEN_TICKS - 1), OBJECTIVE)
    assert (proven, most < 2000.0) == (0.0, True)


def test_one_late_level_among_loads_that_were_in_time_is_an_accident():
    """A stall of another cause: its neighbours above say that the load is not to blame."""
    proven, most = in_time(levels(0.0, 0.03, 0.0, 0.0), OBJECTIVE)
    assert (proven, most) == (4000.0, math.inf)


def test_nothing_known_limits_nothing():
    assert in_time((), OBJECTIVE) == (0.0, math.inf)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), st.floats(0.5, 0.999))
def test_what_is_proven_is_never_more_than_what_may_be_asked(shares, objective):
    proven, most = in_time(levels(*shares), objective)
    assert 0.0 <= proven <= most
    assert most == math.inf or 1000.0 <= most <= 1000.0 * len(shares)
