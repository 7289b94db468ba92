"""How long replicas take to start, told from those that did."""

from dataclasses import replace

import pytest

from autoscaler.domain.fleet import ReplicaState
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.scaling.memory import ScalingMemory
from autoscaler.scaling.starts import KEPT, Starts, as_measured, follow
from tests.scaling.building import NOON, policy, replicas

PENDING, STARTING, READY, FAILED = (
    ReplicaState.PENDING,
    ReplicaState.STARTING,
    ReplicaState.READY,
    ReplicaState.FAILED,
)


def started(starts: Starts, took_s: float, at_s: float, number: int = 0) -> Starts:
    """One more replica that is pending first and then starts."""
    (one,) = replicas(1, first=number, state=PENDING)
    starts = follow(starts, [one], at_s)
    starts = follow(starts, [replace(one, state=STARTING)], at_s + took_s / 2)
    return follow(starts, [replace(one, state=READY)], at_s + took_s)


def test_a_start_is_from_being_asked_for_until_the_engine_answers_and_the_median_counts():
    starts = Starts()
    for number, took_s in enumerate((310.0, 900.0, 330.0)):
        starts = started(starts, took_s, NOON + 1000.0 * number, number)
    assert starts.startup_s == Fresh(330.0)


def test_two_starts_are_too_few_to_overrule_the_policy():
    starts = started(started(Starts(), 400.0, NOON), 420.0, NOON + 500.0, 1)
    assert starts.startup_s == Missing("2 starts were seen, 3 are needed")
    told = policy()
    assert as_measured(told, starts) is told


def test_what_was_measured_is_how_far_growth_looks_ahead():
    starts = Starts(took_s=(560.0, 540.0, 580.0))
    assert as_measured(policy(), starts).scaling.startup_s == 560.0


def test_replicas_that_ran_before_they_were_seen_say_nothing():
    assert follow(Starts(), replicas(4), NOON).took_s == ()


def test_a_process_that_was_starting_before_a_restart_of_ours_counts_from_its_own_start():
    (one,) = replicas(1, state=STARTING)
    starts = follow(Starts(), [replace(one, started_at_s=NOON - 200.0)], NOON)
    assert follow(starts, [replace(one, state=READY)], NOON + 100.0).took_s == (300.0,)


def test_one_that_fails_or_is_given_up_is_no_start():
    (one,) = replicas(1, state=STARTING)
    starts = follow(Starts(), [one], NOON)
    assert follow(starts, [replace(one, state=FAILED)], NOON + 50.0) == Starts()
    assert follow(starts, [], NOON + 50.0) == Starts()


def test_a_container_that_restarts_on_its_machine_is_no_start_of_a_replica():
    starts = started(Starts(), 500.0, NOON)
    (one,) = replicas(1)
    for at_s, state in ((600.0, STARTING), (630.0, READY)):
        starts = follow(starts, [replace(one, state=state)], NOON + at_s)
    assert starts.took_s == (500.0,)
    assert follow(starts, [], NOON + 700.0).answered == frozenset(), "one that is gone is forgotten"


def test_only_the_last_starts_are_kept_so_that_a_new_image_is_learnt():
    starts = Starts()
    for number in range(KEPT):
        starts = started(starts, 900.0, NOON + 1000.0 * number, number)
    for number in range(KEPT // 2 + 1):
        starts = started(starts, 60.0, NOON + 1e5 + 1000.0 * number, 100 + number)
    assert len(starts.took_s) == KEPT
    assert starts.startup_s == Fresh(60.0)


def test_starts_survive_a_restart_of_the_controller():
    memory = ScalingMemory(starts=Starts({"warm-1": NOON}, (300.0, 310.0), frozenset({"warm-0"})))
    assert ScalingMemory.from_json(memory.to_json()) == memory
    with pytest.raises(ValueError, match="could not convert"):
        ScalingMemory.from_json({**memory.to_json(), "starts": {"took_s": ["soon"]}})
