"""How many owners an adapter has, and where affinity gains nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.ring import Choice, decide_choice, held_shares, resolve_replication
from autoscaler.ring.replication import MOST_MISSES

EVERYWHERE = {"replication": 16, "slots": 16}

many = settings(max_examples=200, deadline=None)


@st.composite
def rates(draw, busy=0):
    """Requests/s of 1 to 400 adapters, at least `busy` of them above 0: even to very skewed, in any unit."""
    n = draw(st.integers(max(busy, 1), 400))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = np.arange(1.0, n + 1) ** -draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0]))
    found *= rng.lognormal(0.0, draw(st.sampled_from([0.0, 1.0, 4.0])), n) * 10.0 ** draw(st.integers(-9, 9))
    found[busy:][rng.random(n - busy) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = 0.0
    return found


def auto(loads, previous=None, held=1.0, max_loras=64, slots=16):
    return resolve_replication(
        "auto", loads, slots, held=held, max_loras=max_loras, residents_per_slot=115, previous=previous
    )


@pytest.mark.parametrize(
    ("n", "previous", "expected"),
    [
        (100, None, 9),  # 0.9 * 64 = 57 residents of 16 slots hold 100 adapters 9 times
        (1000, None, 1),  # two copies are 125 a slot, over 115
        (900, None, 2),  # 112.5 fit the host's memory, though not the adapter slots
        (50, None, 16),  # all fit everywhere
        (100, 2, 3),  # one step at a time
        (100, 9, 9),
        (1000, 2, 1),
    ],
)
def test_replication_is_what_residency_allows_one_step_at_a_time(n, previous, expected):
    assert auto(np.ones(n), previous) == expected


def test_replication_does_not_flap_at_its_edge():
    loads = np.ones(101)  # nine copies need 56.8 of 57: enough to stay, too close to step up to
    assert (auto(loads, 9), auto(loads, 8)) == (9, 8)


def test_adapters_that_nobody_asks_for_take_host_memory_but_no_adapter_slots():
    """160 adapters, 40 of them busy: by adapter slots they would fit everywhere, 115 in host memory are 11 copies."""
    loads = np.repeat([1.0, 0.0], [40, 120])
    assert (auto(loads), auto(loads, held=held_shares(loads))) == (5, 11)


@many
@given(rates(), st.integers(2, 64), st.integers(2, 32))
def test_replication_is_no_smaller_for_a_working_set_than_for_the_catalogue(found, max_loras, slots):
    def at(held, max_loras):
        return auto(found, held=held, max_loras=max_loras, slots=slots)

    catalogue, working_set = at(1.0, max_loras), at(held_shares(found), max_loras)
    assert catalogue <= working_set <= at(held_shares(found), max_loras + 1) <= slots


@many
@given(rates(busy=1), st.sampled_from([None, *Choice]))
def test_the_working_set_leaves_the_misses_it_allows_in_any_unit_and_order(found, previous):
    held = held_shares(found, previous)
    misses = float((found * (1.0 - held)).sum() / found.sum())
    allowed = MOST_MISSES * (2.0 if previous is Choice.LEAST else 1.0)
    assert misses == pytest.approx(allowed, rel=2e-3)
    assert ((held >= 0) & (held <= 1)).all()
    assert (held[found == 0] == 0).all()
    assert (np.diff(held[np.argsort(found)]) >= 0).all()
    assert held_shares(found * 1024.0, previous) == pytest.approx(held)
    assert held_shares(found[::-1], previous)[::-1] == pytest.approx(held, abs=1e-6)
    assert held_shares(np.append(found, 0.0), previous)[:-1] == pytest.approx(held, abs=1e-6)


def test_rates_whose_sum_is_no_number_are_weighed_all_the_same():
    assert held_shares(np.array([1e308, 1e308, 1e308, 1e-308, 0.0])) == pytest.approx([0.995, 0.995, 0.995, 0.0, 0.0])


def test_where_nobody_asks_for_anything_each_adapter_counts():
    assert held_shares(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
    assert held_shares(np.zeros(0)).tolist() == []


def test_the_choice_is_least_where_every_adapter_fits_everywhere_with_hysteresis():
    def of(n, previous=None):
        return decide_choice(np.ones(n), 64, replication=2, slots=16, previous=previous)

    assert of(57, Choice.LEAST) is Choice.LEAST
    assert of(57) is Choice.PREFERRED
    assert of(54, Choice.PREFERRED) is Choice.LEAST
    assert of(58, Choice.LEAST) is Choice.PREFERRED


def test_the_choice_is_least_where_the_busy_adapters_fit_and_half_of_the_slots_own_each():
    held = held_shares(np.repeat([1.0, 0.0], [40, 120]))

    def of(replication, previous=None):
        return decide_choice(held, 64, replication=replication, slots=16, previous=previous)

    assert (of(8), of(7), of(7, Choice.LEAST), of(6, Choice.LEAST)) == (
        Choice.LEAST, Choice.PREFERRED, Choice.LEAST, Choice.LEAST,
    )  # fmt: skip
    assert of(5, Choice.LEAST) is Choice.PREFERRED


@many
@given(rates(), st.integers(1, 400), st.sampled_from([None, *Choice]))
def test_more_adapter_slots_never_take_least_away_and_all_that_fit_are_always_least(found, max_loras, previous):
    held = held_shares(found, previous)
    now, more = (decide_choice(held, n, previous=previous, **EVERYWHERE) for n in (max_loras, max_loras + 1))
    assert more is Choice.LEAST or now is Choice.PREFERRED
    stays = decide_choice(held, max_loras, previous=Choice.LEAST, **EVERYWHERE)
    assert stays is Choice.LEAST or decide_choice(held, max_loras, **EVERYWHERE) is Choice.PREFERRED
    assert decide_choice(held, 2 * len(found), replication=1, slots=16, previous=previous) is Choice.LEAST


@pytest.mark.parametrize("n", [100, 1000])
def test_many_adapters_that_are_asked_for_alike_prefer_an_owner(n):
    assert decide_choice(held_shares(np.full(n, 0.3)), 64, **EVERYWHERE) is Choice.PREFERRED


def test_load_that_wanders_by_a_fifth_does_not_change_the_choice():
    """46 busy ones of 162, as in a recorded day: 45 to 47 of the 57 that may be taken up."""
    rng = np.random.default_rng(0)
    level = np.repeat([1.0, 0.0005], [46, 116])
    choice, changes = Choice.LEAST, 0
    for _ in range(200):
        held = held_shares(level * rng.lognormal(0.0, 0.2, 162), choice)
        after = decide_choice(held, 64, previous=choice, **EVERYWHERE)
        choice, changes = after, changes + (after is not choice)
    assert changes == 0
