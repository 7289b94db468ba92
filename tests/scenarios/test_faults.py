"""A thousand seeded schedules of faults: whatever fails, lies or dies in whatever order, every promise holds.

`FAULT_SEEDS=5000:9000` runs other seeds; a schedule that fails is made as small as it gets and printed as it belongs
into `FOUND`.
"""

from __future__ import annotations

import os

import pytest

from tests.scenarios.schedules import EVENTS, Schedule, failure, run, schedule_of, settle, shrunk

SCHEDULES = 1000
AT_ONCE = 40
SETTLES_EVERY = 8

FOUND: tuple[Schedule, ...] = (
    # A forecast from memory stood in for requests that nobody could see, and the group shrank.
    (("metrics", 1, 310.0),),
    # Engines' counters all zero while routers saw requests: a shrink, until the window of a disagreement was over.
    (("wait", 0, 310.0), ("metrics", 5, 15.0)),
    # Engines fell silent in a dispute with the routers, and their silence was taken for agreement.
    (("metrics", 4, 310.0), ("silence_engines", 5, 15.0)),
    # A router claimed an epoch that never was, and was believed to have let go of a replica.
    (("second_router", 2, 310.0), ("wait", 0, 60.0), ("wait", 0, 15.0)),
    # Both owners of an adapter lost it at once; the standby that had it was not named.
    (("adapter_list", 2, 15.0), ("restart", 3, 15.0)),
    # What was published had been deleted: the next epoch began at 1, which no router takes.
    (("ring_lost", 0, 15.0),),
    (("ring_lost", 0, 15.0), ("lose_checkpoint", 0, 15.0)),
)  # fmt: skip


def _seeds() -> range:
    first, _, last = os.environ.get("FAULT_SEEDS", f"0:{SCHEDULES}").partition(":")
    return range(int(first), int(last))


@pytest.mark.parametrize("schedule", FOUND)
def test_what_faults_have_found_once_holds(schedule: Schedule):
    settle(run(schedule))


@pytest.mark.slow
@pytest.mark.parametrize("first", _seeds()[::AT_ONCE])
def test_promises_hold_through_every_schedule_of_faults(first: int):
    for seed in range(first, min(first + AT_ONCE, _seeds().stop)):
        schedule = schedule_of(seed)
        live = _settled if seed % SETTLES_EVERY == 0 else run
        found = failure(schedule, live)
        if found:
            smallest = shrunk(schedule, live)
            pytest.fail(f"seed {seed}: {found}\nsmallest: {smallest}\n{failure(smallest, live)}", pytrace=False)


def _settled(schedule: Schedule):
    world = run(schedule)
    settle(world)
    unserved = set(world.catalogue.ids) - {a for a in world.catalogue.ids if world.holders(a)}
    assert not unserved, f"trouble is over, and nobody has {sorted(unserved)}"
    return world


def test_every_fault_is_drawn_within_the_schedules():
    drawn = {event for seed in range(SCHEDULES) for event, _, _ in schedule_of(seed)}
    assert drawn == set(EVENTS)


def test_a_schedule_is_made_as_small_as_it_gets():
    """Both moments are needed, and nothing else: the rest goes, and numbers and gaps become plain."""

    def live(schedule: Schedule):
        names = [event for event, _, _ in schedule]
        assert not ("crash" in names and "clock" in names), "crash and clock"

    long = tuple((name, 41, 310.0) for name in ("wait", "crash", "load", "metrics", "clock", "pause", "disk"))
    assert shrunk(long, live) == (("crash", 0, 15.0), ("clock", 0, 15.0))
