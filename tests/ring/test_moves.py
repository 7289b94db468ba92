"""Moves between placements, and which of them wait when the churn budget is short."""

import numpy as np
import pytest

from autoscaler.ring import Limits, Urgency, moves_between, place, restore, within_budget

ROOMY = Limits(residents_per_slot=1000)
SLOTS = tuple(f"s{i:04d}" for i in range(8))


def fleet(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(f"adapter-{i}" for i in range(n)), rng.permutation(1.0 / np.arange(1, n + 1))


def pairs(placement):
    return {(a, slot) for a in placement.ranking.adapters for slot in placement.owners(a)}


def test_moves_are_the_pairs_that_appear():
    adapters, loads = fleet()
    before = place(adapters, loads, SLOTS, limits=ROOMY)
    after = place(adapters[1:], loads[1:] * 2, (*SLOTS[1:], "s0008"), limits=ROOMY, previous=before)
    found = moves_between(before, after, ROOMY)
    names, slots = after.ranking.adapters, after.ranking.slots
    told = {(names[row], slots[slot]) for row, slot in zip(found.rows, found.slots, strict=True)}
    assert told == pairs(after) - pairs(before)


def test_all_pairs_of_a_fleet_cost_as_much_as_their_number():
    adapters, loads = fleet()
    nothing = place((), [], SLOTS, limits=ROOMY)
    placement = place(adapters, loads, SLOTS, limits=ROOMY)
    found = moves_between(nothing, placement, ROOMY)
    assert len(found) == placement.copies.sum()
    assert found.costs.sum() == pytest.approx(len(found))
    assert set(found.urgency.tolist()) == {Urgency.UNSERVED}


def test_a_step_of_replication_alone_is_no_move():
    adapters, _ = fleet(n=2000)
    before = place(adapters, np.ones(2000), SLOTS, limits=ROOMY, replication=2)
    after = place(adapters, np.ones(2000), SLOTS, limits=ROOMY, replication=3, previous=before)
    assert after.copies.sum() == 6000
    assert len(moves_between(before, after, ROOMY)) <= 3 * len({*before.exceptions, *after.exceptions})


def test_a_budget_that_covers_everything_changes_nothing():
    adapters, loads = fleet()
    before = place(adapters, loads, SLOTS, limits=ROOMY)
    after = place(adapters, loads, (*SLOTS, "s0008"), limits=ROOMY, previous=before)
    result = within_budget(before, after, ROOMY, budget=1e9)
    assert result.placement is after
    assert (result.deferred, len(result.moves)) == ((), len(moves_between(before, after, ROOMY)))


def test_without_a_budget_a_new_slot_gets_nothing_and_everything_stays_served():
    adapters, loads = fleet()
    before = place(adapters, loads, SLOTS, limits=ROOMY)
    after = place(adapters, loads, (*SLOTS, "s0008"), limits=ROOMY, previous=before)
    result = within_budget(before, after, ROOMY, budget=0.0)
    assert pairs(result.placement) == pairs(before)
    assert (result.cost, len(result.moves)) == (0.0, 0)


def test_what_a_lost_slot_leaves_without_an_owner_moves_at_any_price():
    adapters, loads = fleet()
    before = place(adapters, loads, SLOTS, limits=ROOMY, replication=1)
    after = place(adapters, loads, SLOTS[1:], limits=ROOMY, replication=1, previous=before)
    result = within_budget(before, after, ROOMY, budget=0.0)
    orphans = {a for a in adapters if before.owners(a) == (SLOTS[0],)}
    assert orphans
    assert all(result.placement.owners(a) for a in adapters)
    assert result.cost > 0
    assert {after.ranking.adapters[row] for row in result.moves.rows} == orphans


def test_moves_that_restore_an_owner_go_before_those_that_only_go_home():
    adapters, loads = fleet()
    before = place(adapters, loads, SLOTS, limits=ROOMY)
    after = place(adapters, loads, (*SLOTS[1:], "s0008"), limits=ROOMY, previous=before)
    found = moves_between(before, after, ROOMY)
    lost = found.costs[found.urgency <= Urgency.OWNER_LOST].sum()
    result = within_budget(before, after, ROOMY, budget=float(lost) - 1e-9)
    assert lost > 0
    assert result.deferred
    assert set(result.moves.urgency.tolist()) <= {Urgency.UNSERVED, Urgency.OWNER_LOST}
    assert len(result.moves) == int((found.urgency <= Urgency.OWNER_LOST).sum())


def test_deferred_moves_arrive_over_the_next_ticks():
    adapters, loads = fleet()
    slots = (*SLOTS, "s0008")
    placement = place(adapters, loads, SLOTS, limits=ROOMY)
    aim = place(adapters, loads, slots, limits=ROOMY, previous=placement)
    budget = moves_between(placement, aim, ROOMY).costs.sum() / 4
    for _ in range(12):
        wanted = place(adapters, loads, slots, limits=ROOMY, previous=placement)
        placement = within_budget(placement, wanted, ROOMY, budget).placement
    assert "s0008" in {slot for _, slot in pairs(placement)}
    assert not moves_between(placement, place(adapters, loads, slots, limits=ROOMY, previous=placement), ROOMY)


def test_no_slot_passes_its_residents_because_others_wait():
    adapters = tuple(f"a{i}" for i in range(30))
    limits = Limits(residents_per_slot=8)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        before = place(adapters, rng.random(30), SLOTS, limits=limits)
        after = place(adapters, rng.random(30), (*SLOTS[1:], "s0008"), limits=limits, previous=before)
        for budget in (0.0, 1.0, 3.0, 8.0):
            result = within_budget(before, after, limits, budget)
            unserved = {after.ranking.adapters[r] for r in result.moves.rows[result.moves.urgency == 0]}
            assert result.placement.slot_residents.max() <= 8 or unserved


def test_the_kept_state_restores_the_placement():
    adapters, loads = fleet(n=3000)
    placement = place(adapters, loads, SLOTS, limits=ROOMY)
    again = restore(placement.state(), adapters)
    assert pairs(again) == pairs(placement)
    assert len(moves_between(again, place(adapters, loads, SLOTS, limits=ROOMY, previous=again), ROOMY)) == 0
    fewer = restore(placement.state(), adapters[10:])
    assert pairs(fewer) == {(a, slot) for a, slot in pairs(placement) if a in adapters[10:]}
