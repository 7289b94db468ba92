"""Each property that the specification promises of a placement, over random memberships, loads and histories."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.ring import Limits, Placement, moves_between, place

ROOMY = Limits(residents_per_slot=10_000)

pytestmark = pytest.mark.slow

# Seven properties: together they see more than 1,000 random memberships.
many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def fleets(draw, min_slots=1, max_slots=24, max_adapters=80):
    """(adapters, loads, slots): skewed, even, sparse or zero loads; slot numbers with gaps."""
    n = draw(st.integers(1, max_adapters))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    skew = draw(st.sampled_from([0.0, 0.7, 1.0, 1.5, 3.0]))
    loads = rng.permutation(np.arange(1.0, n + 1) ** -skew) * 10.0 ** draw(st.integers(-9, 9))
    loads[rng.random(n) < draw(st.sampled_from([0.0, 0.5, 1.0]))] = 0.0
    numbers = rng.choice(1000, size=draw(st.integers(min_slots, max_slots)), replace=False)
    return tuple(f"a{rng.integers(10**6)}-{i}" for i in range(n)), loads, tuple(f"s{x:04d}" for x in numbers)


@st.composite
def histories(draw, **sizes):
    """A fleet with the placement of a tick before, whose loads wandered and whose membership may have differed."""
    adapters, loads, slots = draw(fleets(**sizes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    then = loads * np.exp(draw(st.sampled_from([0.0, 0.2, 1.0])) * rng.standard_normal(len(loads)))
    slots_then = slots if draw(st.booleans()) else (*slots[1:], "s5000")
    replication = draw(st.integers(1, 4))
    previous = place(adapters, then, slots_then, limits=ROOMY, replication=replication)
    return adapters, loads, slots, previous


def as_sets(placement: Placement) -> dict[str, frozenset[str]]:
    return {adapter: frozenset(placement.owners(adapter)) for adapter in placement.ranking.adapters}


@many
@given(histories(), st.integers(1, 4))
def test_every_adapter_has_its_copies_on_distinct_slots(history, replication):
    adapters, loads, slots, previous = history
    placement = place(adapters, loads, slots, limits=ROOMY, replication=replication, previous=previous)
    mean = loads.sum() / len(slots)
    for row, adapter in enumerate(adapters):
        owners = placement.owners(adapter)
        assert len(set(owners)) == len(owners) == placement.copies[row]
        assert set(owners) <= set(slots)
        least = max(replication, int(np.ceil(loads[row] / (0.5 * mean) * (1 - 1e-9))) if mean else 0)
        assert len(owners) >= min(least, len(slots)), adapter


@many
@given(histories())
def test_no_slot_is_above_the_bound_plus_one_share(history):
    adapters, loads, slots, previous = history
    for before in (None, previous):
        placement = place(adapters, loads, slots, limits=ROOMY, previous=before)
        share = placement.shares.max(initial=0.0)
        assert placement.slot_loads.max() <= 1.25 * placement.mean + share + 1e-9 * placement.mean


@many
@given(histories(), st.integers(1, 40))
def test_no_slot_holds_more_than_its_residents_and_what_has_no_place_is_named(history, residents_per_slot):
    adapters, loads, slots, previous = history
    limits = Limits(residents_per_slot=residents_per_slot)
    placement = place(adapters, loads, slots, limits=limits, previous=previous)
    residents = dict.fromkeys(slots, 0)
    for adapter in adapters:
        for slot in placement.owners(adapter):
            residents[slot] += 1
    assert max(residents.values()) <= residents_per_slot
    assert [residents[slot] for slot in placement.ranking.slots] == placement.slot_residents.tolist()
    without = {adapter for adapter in adapters if not placement.owners(adapter)}
    assert {item.adapter for item in placement.infeasible} == without
    assert all(item.reason == "ResidentsFull" and item.found < item.wanted for item in placement.infeasible)


@many
@given(histories(), st.randoms())
def test_the_order_of_the_input_does_not_matter(history, random):
    adapters, loads, slots, previous = history
    order = list(range(len(adapters)))
    random.shuffle(order)
    shuffled_slots = random.sample(slots, len(slots))
    for before in (None, previous):
        given_order = place(adapters, loads, slots, limits=ROOMY, previous=before)
        other_order = place(
            [adapters[i] for i in order], loads[order], shuffled_slots, limits=ROOMY, previous=before
        )  # fmt: skip
        assert {a: given_order.owners(a) for a in adapters} == {a: other_order.owners(a) for a in adapters}


@many
@given(histories())
def test_the_same_input_gives_the_same_output_and_then_rests(history):
    adapters, loads, slots, previous = history
    first = place(adapters, loads, slots, limits=ROOMY, previous=previous)
    again = place(adapters, loads, slots, limits=ROOMY, previous=previous)
    assert first.state() == again.state()
    rested = first
    for _ in range(6):  # what had no room at home may find some once others have gone home
        rested, before = place(adapters, loads, slots, limits=ROOMY, previous=rested), rested
    assert rested.state() == before.state()


@many
@given(histories(min_slots=2), st.integers(0, 2**32 - 1))
def test_one_slot_more_or_less_moves_little_beyond_its_own_share(history, seed):
    adapters, loads, slots, _ = history
    before = place(adapters, loads, slots, limits=ROOMY)
    for slots_after in ((*slots, "s7000"), slots[1:]):
        after = place(adapters, loads, slots_after, limits=ROOMY, previous=before)
        had, has = as_sets(before), as_sets(after)
        touched = {row for p in (before, after) for row in p.exceptions}
        by_hash = [a for row, a in enumerate(adapters) if row not in touched]
        changed_slot = set(slots) ^ set(slots_after)
        for adapter in by_hash:
            gained = has[adapter] - had[adapter]
            # Where the hash places, a slot that joins takes only what it wins, one that leaves gives only its own.
            assert gained <= changed_slot or (had[adapter] - set(slots_after) and len(gained) == 1)
        assert len(moves_between(before, after, ROOMY)) == sum(len(has[a] - had[a]) for a in adapters)


@many
@given(histories(min_slots=2))
def test_a_replacement_in_the_same_slot_moves_nothing(history):
    adapters, loads, slots, previous = history
    before = place(adapters, loads, slots, limits=ROOMY, previous=previous)
    for _ in range(6):
        before = place(adapters, loads, slots, limits=ROOMY, previous=before)
    gone = place(adapters, loads, slots, limits=ROOMY, previous=before, vacant=[slots[0]])
    back = place(adapters, loads, slots, limits=ROOMY, previous=gone)
    assert as_sets(before) == as_sets(gone) == as_sets(back)
    assert len(moves_between(before, back, ROOMY)) == 0
