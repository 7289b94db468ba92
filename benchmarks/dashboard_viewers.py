"""What dashboards ask of the API while people look, without the people: the same questions, as often, by the same code.

    python -m benchmarks.dashboard_viewers --url http://127.0.0.1:8080 --token TOKEN --fleet bench --viewers 20

Each viewer looks at one page and asks again as often as the dashboard does; the dashboard's server asks the API once
for all of them. It ends when it is ended, and has the lowest priority that there is: viewers are on other machines.
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable

from dashboard.api import Answer, Api
from dashboard.settings import Settings

Read = Callable[..., Answer]


def _thrash(read: Read) -> None:
    worst = [item["replica"] for item in read("adapter-thrash").items[:24]]
    read("")
    read("residency", replica=worst)


def _ring(read: Read) -> None:
    for path in ("", "ring"):
        read(path)
    read("adapters", limit=25)
    read("ring/moves", limit=12)
    read("decisions", subject="ring/epoch", limit=50)


def _both(*paths: str) -> Callable[[Read], None]:
    def look(read: Read) -> None:
        for path in ("", *paths):
            read(path)

    return look


LOOKS: tuple[Callable[[Read], None], ...] = (
    _both(),
    lambda read: void(read("tenants", limit=50, sort="-rate")),
    _both("noisy-neighbours"),
    _thrash,
    _ring,
    lambda read: void(read(""), read("decisions", limit=300)),
    _both("overrides"),
    _both("costs"),
)
"""What each page reads at each look, as `dashboard/views` do."""


def void(*answers: Answer) -> None:
    """Answers that nobody draws."""


def watch(api: Api, fleet: str, viewers: int, every_s: float, over: threading.Event) -> list[threading.Thread]:
    """Start so many viewers, spread over the pages and over time."""

    def read(path: str, **params: object) -> Answer:
        return api.get(f"fleets/{fleet}" + (f"/{path}" if path else ""), params)

    def view(number: int) -> None:
        over.wait(every_s * number / viewers)
        while not over.is_set():
            LOOKS[number % len(LOOKS)](read)
            over.wait(every_s)

    threads = [threading.Thread(target=view, args=(n,), daemon=True) for n in range(viewers)]
    for thread in threads:
        thread.start()
    return threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--fleet", required=True)
    parser.add_argument("--viewers", type=int, default=20)
    told = parser.parse_args()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for thread in watch(Api(told.url, told.token), told.fleet, told.viewers, Settings().refresh_s, threading.Event()):
        thread.join()


if __name__ == "__main__":
    main()
