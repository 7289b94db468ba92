"""Seeded schedules of faults, and the smallest one that still fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from autoscaler.domain.decisions import PublishRing
from tests.scenarios import test_random_events as events
from tests.scenarios.faults import DISTORTIONS, ROUTERS_SAY, FaultyWorld, started

Moment: TypeAlias = tuple[str, int, float]
Schedule: TypeAlias = tuple[Moment, ...]
Event: TypeAlias = Callable[[FaultyWorld, int], None]

GAPS_S = (15.0, 60.0, 310.0)
LONGEST = 9


def metrics(world: FaultyWorld, number: int) -> None:
    """Prometheus lies in one way, or in none."""
    names = ("", *DISTORTIONS)
    world.distortion = names[number % len(names)]


def clock(world: FaultyWorld, number: int) -> None:
    """The clock jumps, forward or back, by seconds or by hours."""
    world.now_s += (-3600.0, -60.0, -15.0, 20.0, 600.0, 7200.0)[number % 6]


def adapter_list(world: FaultyWorld, number: int) -> None:
    name = events._one(world, number)
    if name is not None and world.lists.pop(name, None) is None:
        world.lists[name] = ("silent", "ghosts", "partial")[number % 3]


def loads(world: FaultyWorld, number: int) -> None:
    world.loads_hang, world.loads_slow = number % 3 == 1, number % 3 == 2


def restart_loop(world: FaultyWorld, number: int) -> None:
    name = events._one(world, number)
    world.looping = frozenset() if name is None or world.looping else frozenset({name})


def second_router(world: FaultyWorld, number: int) -> None:
    world.says = ROUTERS_SAY[number % len(ROUTERS_SAY)]


def leader_dies(world: FaultyWorld, number: int) -> None:
    """Between any two effects of the next plan; the next leader knows all, what was kept, or nothing."""
    world.dies_after = number % 9
    world.restarts_with = ("nothing", "kept", "before")[number % 3]


def leader_changes(world: FaultyWorld, number: int) -> None:
    """Another instance goes on from what it remembers of its own last turn."""
    world.memory, world.deposed = world.deposed, world.memory


def leader_freezes(world: FaultyWorld, number: int) -> None:
    """Its publication arrives when others have led for a while, or it wakes up in time."""
    if world.late is not None:
        world.publish_late()
    elif world.ring is not None:
        world.late = PublishRing(*world.ring)


def ring_lost(world: FaultyWorld, number: int) -> None:
    """Somebody deleted what was published; routers still have it."""
    world.ring = None


def disk(world: FaultyWorld, number: int) -> None:
    world.disk_full = number % 2 == 0


_NEW: tuple[Event, ...] = (
    metrics, clock, adapter_list, loads, restart_loop, second_router, leader_dies, leader_changes, leader_freezes, disk,
    ring_lost,
)  # fmt: skip
EVENTS: Mapping[str, Event] = {**events.EVENTS, **{event.__name__: event for event in _NEW}}  # type: ignore[dict-item]
# What lies or dies is more interesting than what merely waits.
_DRAWN = (*EVENTS, *(event.__name__ for event in _NEW), "metrics", "metrics", "leader_dies", "load", "load")


def schedule_of(seed: int) -> Schedule:
    """The seed's schedule: the same on every machine."""
    draw = random.Random(seed)
    length = min(draw.randint(1, LONGEST), draw.randint(1, LONGEST))
    return tuple((draw.choice(_DRAWN), draw.randrange(60), draw.choice(GAPS_S)) for _ in range(length))


def run(schedule: Schedule) -> FaultyWorld:
    """Let it happen, a tick after each event and a second one where time passes."""
    world = started()
    for event, number, gap_s in schedule:
        EVENTS[event](world, number)
        world.step(15.0)
        if gap_s > 15.0:
            world.step(gap_s)
    return world


def settle(world: FaultyWorld) -> None:
    """Trouble is over, and time passes: everything must come to rest with every adapter served."""
    world.calm()
    events.settle(world)


def failure(schedule: Schedule, live: Callable[[Schedule], object]) -> str:
    """Where a schedule fails and how, as one line; empty where it does not."""
    try:
        live(schedule)
    except Exception as error:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        where = traceback.tb_frame.f_code.co_name if traceback is not None else ""
        return f"{type(error).__name__} in {where}: {error}"
    return ""


def shrunk(schedule: Schedule, live: Callable[[Schedule], object]) -> Schedule:
    """The smallest schedule found that fails in the same place: first fewer moments, then plainer ones."""
    kind = _kind(failure(schedule, live))
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(schedule):
            if _kind(failure(candidate, live)) == kind:
                schedule, smaller = candidate, True
                break
    return schedule


def _kind(words: str) -> str:
    return words.split(":", 1)[0]


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules that are one step smaller, most promising first."""
    if len(schedule) > 1:
        yield from (schedule[:i] + schedule[i + 1 :] for i in range(len(schedule)))
    for i, (event, number, gap_s) in enumerate(schedule):
        plainer = [("wait", 0, gap_s)] if event != "wait" else []
        plainer += [(event, number, 15.0)] if gap_s > 15.0 else []
        plainer += [(event, number % few, gap_s) for few in (1, 6, 12) if number >= few]
        yield from ((*schedule[:i], plain, *schedule[i + 1 :]) for plain in plainer)
