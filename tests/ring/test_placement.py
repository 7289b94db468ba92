"""Placement by example: copies follow load, the tail stays with the hash, places are sticky, what has none is named."""

import json

import numpy as np
import pytest

from autoscaler.ring import Limits, PlacementError, place, ranked
from autoscaler.ring.ranking import rank, rerank

ROOMY = Limits(residents_per_slot=1000)
SLOTS = tuple(f"s{i:04d}" for i in range(16))
EVEN = tuple(f"a{i}" for i in range(1600))


def whale_and_even(whale):
    return ("whale", *EVEN), np.array([whale, *np.ones(1600)])


def test_an_even_fleet_lives_where_the_hash_says():
    placement = place(EVEN, np.ones(1600), SLOTS, limits=ROOMY)
    assert placement.exceptions == {}
    assert placement.owners("a17") == ranked("a17", SLOTS)[:2]


def test_a_whale_gets_so_many_copies_that_none_is_above_half_a_mean_load():
    adapters, loads = whale_and_even(400.0)
    placement = place(adapters, loads, SLOTS, limits=ROOMY)
    # 400 / (0.5 * 2000 / 16) = 6.4
    assert len(placement.owners("whale")) == 7
    assert placement.shares[0] <= 0.5 * placement.mean


def test_copies_grow_at_once_and_shrink_only_below_the_lower_mark():
    adapters, loads = whale_and_even(400.0)
    before = place(adapters, loads, SLOTS, limits=ROOMY)
    calmer = place(*whale_and_even(330.0), SLOTS, limits=ROOMY, previous=before)
    assert len(calmer.owners("whale")) == 7  # 6 would do now, but only 8 copies would be too many at 0.35
    quiet = place(*whale_and_even(100.0), SLOTS, limits=ROOMY, previous=calmer)
    assert len(quiet.owners("whale")) == 3  # ceil(100 / (0.35 * 106))
    assert len(place(*whale_and_even(400.0), SLOTS, limits=ROOMY, previous=quiet).owners("whale")) == 7


def test_a_young_adapter_counts_as_a_mean_load_at_most():
    adapters, loads = whale_and_even(1600.0)
    young = np.arange(len(adapters)) == 0
    assert len(place(adapters, loads, SLOTS, limits=ROOMY, young=young).owners("whale")) == 2
    assert len(place(adapters, loads, SLOTS, limits=ROOMY).owners("whale")) == 16


def test_a_nearly_idle_fleet_does_not_copy_its_one_busy_adapter_everywhere():
    loads = np.zeros(1600)
    loads[3] = 1.0
    assert len(place(EVEN, loads, SLOTS, limits=ROOMY).owners("a3")) == 16
    limits = Limits(residents_per_slot=1000, quiet_load=50.0)
    assert len(place(EVEN, loads, SLOTS, limits=limits).owners("a3")) == 2


def test_when_all_traffic_stops_nothing_moves():
    adapters, loads = whale_and_even(400.0)
    before = place(adapters, loads, SLOTS, limits=ROOMY)
    after = place(adapters, np.zeros(len(adapters)), SLOTS, limits=ROOMY, previous=before)
    assert after.state() == before.state()


def test_what_finds_no_room_is_infeasible_with_its_reason_and_the_largest_stay():
    adapters = tuple(f"a{i}" for i in range(20))
    loads = np.where(np.arange(20) < 12, 10.0, 0.001)
    placement = place(adapters, loads, SLOTS[:3], limits=Limits(residents_per_slot=8), replication=2)
    assert placement.slot_residents.tolist() == [8, 8, 8]
    assert {item.adapter for item in placement.infeasible} == {f"a{i}" for i in range(12, 20)}
    assert {(item.reason.value, item.wanted) for item in placement.infeasible} == {("ResidentsFull", 2)}
    assert placement.owners("a19") == ()


def test_a_full_fleet_places_everyone_and_keeps_all_in_place():
    adapters = tuple(f"a{i}" for i in range(8))
    for seed in range(30):
        loads = np.random.default_rng(seed).random(8)
        limits = Limits(residents_per_slot=4)
        placement = place(adapters, loads, SLOTS[:4], limits=limits)
        assert (placement.infeasible, placement.slot_residents.tolist()) == ((), [4, 4, 4, 4]), seed


def test_an_empty_ring_places_nobody_and_says_why():
    placement = place(("a",), [1.0], (), limits=ROOMY)
    assert [(item.adapter, item.reason.value) for item in placement.infeasible] == [("a", "NoSlots")]


def test_a_vacant_slot_keeps_what_it_has_and_gets_nothing_beyond_the_hash():
    adapters, loads = whale_and_even(400.0)
    placement = place(adapters, loads, SLOTS, limits=ROOMY, vacant=SLOTS[:8])
    home = set(ranked("whale", SLOTS)[:7])
    assert set(placement.owners("whale")) - home <= set(SLOTS[8:])


def test_state_is_small_json():
    adapters, loads = whale_and_even(400.0)
    state = place(adapters, loads, SLOTS, limits=ROOMY).state()
    assert json.loads(json.dumps(state)) == state
    assert set(state["exceptions"]) == {"whale"}


def test_most_adapters_as_exceptions_are_all_published():
    adapters, loads = tuple(f"a{i}" for i in range(6)), np.array([9.0, 8.0, 7.0, 6.0, 1.0, 1.0])
    placement = place(adapters, loads, SLOTS[:6], limits=ROOMY)
    assert 3 * len(placement.exceptions) > 6
    assert list(placement.published_exceptions()) == list(adapters)


@pytest.mark.parametrize("load", [float("nan"), float("inf"), -1.0])
def test_a_load_that_is_no_load_is_refused_by_name(load):
    with pytest.raises(PlacementError, match="the load of 'b' is"):
        place(("a", "b"), [1.0, load], SLOTS, limits=ROOMY)


def test_names_given_twice_are_refused():
    with pytest.raises(ValueError, match="adapter 'a' is named twice"):
        place(("a", "a"), [1.0, 1.0], SLOTS, limits=ROOMY)
    with pytest.raises(ValueError, match="slot 's0000' is named twice"):
        place(("a",), [1.0], ("s0000", "s0000"), limits=ROOMY)


def test_limits_that_contradict_the_algorithm_are_refused():
    for wrong in ({"residents_per_slot": 0}, {"residents_per_slot": 1, "bound": 1.1}):
        with pytest.raises(PlacementError, match=f"{list(wrong)[-1]} is"):
            Limits(**wrong)


def test_an_updated_ranking_is_the_ranking_from_scratch():
    rng = np.random.default_rng(0)
    adapters, slots = [f"x{i}" for i in range(300)], [f"s{i:04d}" for i in range(40)]
    ranking = rank(adapters, slots, 3)
    for step in range(30):
        if step % 3 == 0:
            slots = [*slots, f"s{rng.integers(1000, 9999)}-{step}"]
        elif step % 3 == 1:
            slots.remove(slots[int(rng.integers(len(slots)))])
        else:
            adapters = [*rng.permutation(adapters)[3:].tolist(), f"new-{step}"]
        ranking, scratch = rerank(ranking, adapters, slots, 3), rank(adapters, slots, 3)
        assert (ranking.slots, ranking.adapters) == (scratch.slots, scratch.adapters)
        assert np.array_equal(ranking.top, scratch.top)
        assert np.array_equal(ranking.top_scores, scratch.top_scores)
        assert np.array_equal(ranking.full([0, 5])[:, :3], scratch.top[[0, 5]])
