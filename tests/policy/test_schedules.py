"""When a schedule's bounds hold."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from autoscaler.policy.groups import Schedule
from autoscaler.policy.schedules import active
from autoscaler.policy.words import Day

OFFICE = Schedule(
    start="08:00", end="18:00", days=(Day.MON, Day.TUE), time_zone="Europe/Berlin", min_replicas=4, max_replicas=None
)
NIGHT = Schedule(start="22:00", end="06:00", days=(Day.SUN,), time_zone="Europe/Berlin", min_replicas=1, max_replicas=2)
EVER = Schedule(start="00:00", end="00:00", time_zone="UTC", min_replicas=3, max_replicas=None)


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-11-30T07:59:59", None),  # a Monday
        ("2026-11-30T08:00:00", OFFICE),
        ("2026-11-30T17:59:59", OFFICE),
        ("2026-11-30T18:00:00", None),
        ("2026-12-02T12:00:00", None),  # a Wednesday
        ("2026-11-29T21:59:59", None),  # a Sunday
        ("2026-11-29T22:00:00", NIGHT),
        ("2026-11-30T05:59:59", NIGHT),
        ("2026-11-30T06:00:00", None),
        ("2026-12-01T03:00:00", None),
        ("2026-03-29T23:30:00", NIGHT),  # the day on which summer time begins
        ("2026-07-06T08:00:00", OFFICE),  # two hours before UTC in summer
    ],
)
def test_a_schedule_holds_by_its_own_wall_clock(moment: str, expected: Schedule | None) -> None:
    assert active((OFFICE, NIGHT), at(moment)) is expected


def test_equal_ends_are_a_whole_day_and_no_schedule_is_no_bound() -> None:
    assert active((EVER,), at("2026-11-30T00:00:00", "UTC")) is EVER
    assert active((EVER,), at("2026-11-30T23:59:59", "UTC")) is EVER
    assert active((), at("2026-11-30T12:00:00")) is None
