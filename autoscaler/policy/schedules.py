"""When a schedule's bounds hold, and whether two of them ever hold together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from itertools import combinations, pairwise
from zoneinfo import ZoneInfo

from autoscaler.policy.groups import Schedule
from autoscaler.policy.words import Day

DAYS = tuple(Day)
MONDAY = date(2027, 1, 4)
"""Overlaps are sought in the 53 weeks from here, so that every shift of summer time between two zones is met."""


def zone(name: str) -> ZoneInfo | None:
    """A time zone by its IANA name; None where there is none of that name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _begins(schedule: Schedule, day: date) -> bool:
    return DAYS[day.weekday()] in schedule.days


def _span_s(schedule: Schedule, day: date, tz: ZoneInfo) -> tuple[float, float]:
    """Start and end, seconds since the epoch, of what begins on `day`: by the wall clock, so a day has 23 to 25 h."""

    def at(clock: str, next_day: bool) -> float:
        hours, minutes = int(clock[:2]), int(clock[3:])
        extra = timedelta(days=next_day + hours // 24)
        return datetime.combine(day + extra, time_of_day(hours % 24, minutes), tz).timestamp()

    return at(schedule.start, False), at(schedule.end, schedule.end <= schedule.start)


def active(schedules: Sequence[Schedule], now_s: float) -> Schedule | None:
    """The schedule whose bounds hold at `now_s` (seconds since the epoch), None where the group's own do."""
    for schedule in schedules:
        tz = zone(schedule.time_zone)
        if tz is None:
            continue
        today = datetime.fromtimestamp(now_s, tz).date()
        for day in (today - timedelta(days=1), today):
            if _begins(schedule, day):
                start_s, end_s = _span_s(schedule, day, tz)
                if start_s <= now_s < end_s:
                    return schedule
    return None


def _year(index: int, schedule: Schedule, tz: ZoneInfo) -> Iterator[tuple[float, float, int]]:
    for number in range(53 * 7):
        day = MONDAY + timedelta(days=number)
        if _begins(schedule, day):
            yield (*_span_s(schedule, day, tz), index)


def overlaps(schedules: Sequence[Schedule]) -> Iterator[tuple[int, int, str]]:
    """Pairs of indexes whose schedules hold together at some time of a year, with the first such moment in UTC.

    Time zones count: 22:00-24:00 in New York overlaps 04:00-05:00 in Berlin. Unknown zones are left out.
    """
    spans = [
        list(_year(i, schedule, tz))
        for i, schedule in enumerate(schedules)
        if (tz := zone(schedule.time_zone)) is not None
    ]
    for one, two in combinations(spans, 2):
        both = sorted(one + two)
        for (_, end_s, i), (start_s, _, j) in pairwise(both):
            if i != j and start_s < end_s:
                moment = datetime.fromtimestamp(start_s, ZoneInfo("UTC"))
                yield min(i, j), max(i, j), moment.strftime("%a %d %b %H:%M UTC")
                break
