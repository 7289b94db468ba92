"""What this server saw of a fleet since somebody first looked: the lines of the charts.

The API answers with the present. Lines of months are Grafana's; these are the last half hour, for the person on call.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from dashboard.api import Json
from dashboard.words import instant, value_of

MOST_SAMPLES = 900


class History:
    """Samples of one fleet, oldest first, one for each tick that was seen. Safe for many threads."""

    def __init__(self) -> None:
        self._samples: deque[Json] = deque(maxlen=MOST_SAMPLES)
        self._lock = threading.Lock()

    def see(self, status: Json) -> None:
        """Keep a status, once."""
        at = instant(status.get("at"))
        with self._lock:
            if at is not None and (not self._samples or self._samples[-1]["at"] < at):
                self._samples.append(_sample(status) | {"at": at})

    def samples(self) -> list[Json]:
        """All samples, each a tick: `at` and the columns of `_sample`."""
        with self._lock:
            return list(self._samples)

    def column(self, name: str) -> list[float]:
        """One column without its unknown values; empty where fewer than two are known."""
        known = [s[name] for s in self.samples() if s[name] is not None]
        return known if len(known) > 1 else []


def _sample(status: Json) -> Json:
    replicas = [r for g in status["groups"] for r in g["replicas"]]
    return {
        "requests_per_s": status["requests_per_s"],
        "ttft_p99_s": status["ttft_p99_s"],
        "waiting": total(replicas, "waiting"),
        "deferred": total(replicas, "deferred"),
        "running": total(replicas, "running"),
        "loads_per_s": total(replicas, "adapter_loads_per_s"),
        "current": sum(g["current_replicas"] for g in status["groups"]),
        "desired": sum(g["desired_replicas"] for g in status["groups"]),
    }


def total(replicas: list[Json], name: str) -> float | None:
    """The sum of a signal over replicas; None where one that there is does not tell it."""
    values: list[Any] = [value_of(r[name]) for r in replicas if r["state"] in ("ready", "draining")]
    return None if not values or None in values else float(sum(values))
