"""What a replica would carry at its largest batch, told from smaller ones, against the line that made the samples."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.scaling.batching import FURTHEST, Level, Levels, carried, resized, seen_at

FIXED_S, GROWTH_S = 0.0027, 0.000067  # a token, at no batch and for each running request more: an H100 with an 8B model
AT_256 = 256 / (FIXED_S + 256 * GROWTH_S)


def tokens_at(running: float, fixed_s: float = FIXED_S, growth_s: float = GROWTH_S) -> float:
    return running / (fixed_s + growth_s * running)


def levels_of(*batches: float, ticks: int = 40, fixed_s: float = FIXED_S, growth_s: float = GROWTH_S) -> Levels:
    levels: Levels = ()
    for running in batches:
        for _ in range(ticks):
            levels = seen_at(levels, running, tokens_at(running, fixed_s, growth_s), 15.0)
    return levels


def test_two_loads_tell_the_largest_batch_from_below():
    """20 and 60 running carry 4,950 and 8,930 tokens/s: from these, 256 would carry nearly what the line says."""
    got = carried(levels_of(20, 60), 256)
    assert got == pytest.approx(AT_256, rel=0.15)
    assert got < AT_256, "one standard error is kept back"


def test_one_load_tells_nothing():
    assert carried(levels_of(20), 256) is None
    assert carried((), 256) is None


def test_loads_that_hardly_differ_tell_nothing():
    assert carried(levels_of(20, 25), 256) is None


def test_a_glimpse_is_no_load():
    assert carried(levels_of(20) + levels_of(60, ticks=2), 256) is None


def test_more_samples_leave_less_doubt():
    few, many = (carried(levels_of(20, 60, ticks=n), 256) for n in (4, 40))
    assert few < many < AT_256


def test_it_is_never_followed_far_beyond_what_was_seen():
    """Without growth the line would promise any load: 2.5 times the highest seen is the most that is believed."""
    got = carried(levels_of(4, 8, growth_s=0.0, ticks=4000), 256)
    assert got <= FURTHEST * tokens_at(8, FIXED_S, 0.0) * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.001, 0.02), st.floats(2e-5, 5e-4), st.floats(5, 20), st.floats(2.0, 6.0), st.integers(64, 512))
def test_a_clean_line_is_never_overestimated(fixed_s, growth_s, low, ratio, most):
    levels = levels_of(low, low * ratio, fixed_s=fixed_s, growth_s=growth_s)
    got = carried(levels, max(most, low * ratio))
    if got is not None:
        assert 0 < got <= tokens_at(max(most, low * ratio), fixed_s, growth_s) * (1 + 1e-6)


@pytest.mark.parametrize("factor", [0.6, 1.6])
def test_a_change_of_size_is_followed_within_minutes_in_both_directions(factor):
    """More or fewer adapters a replica make tokens dearer or cheaper; 20 ticks are five minutes."""
    levels = resized(levels_of(20, 40, 60), 5, 16)
    for _ in range(20):
        for running in (20, 60):
            levels = seen_at(levels, running, tokens_at(running) * factor, 15.0)
    known = [level for level in levels if level.ticks > 5]
    assert carried(tuple(known), 256) == pytest.approx(AT_256 * factor, rel=0.2)


def test_a_change_of_size_forgets_no_level():
    levels = levels_of(20, 60)
    for before, after in ((4, 5), (5, 8), (8, 4), (4, 2)):
        levels = resized(levels, before, after)
    assert [level.ticks for level in levels] == [4.0, 4.0]
    assert carried(levels, 256) is not None


def test_what_is_not_seen_again_fades_by_half_in_six_hours():
    (level,) = seen_at((Level(50, 40.0, 20.0, 5000.0),), 0.0, 0.0, 21_600.0)
    assert level.ticks == pytest.approx(20.0)
