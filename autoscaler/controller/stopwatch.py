"""How long each step of a tick took."""

from __future__ import annotations

from autoscaler.ports import Clock


class Stopwatch:
    """Seconds per step, on the controller's own clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_s = 0.0
        self._name = ""
        self.steps_s: dict[str, float] = {}

    def step(self, name: str) -> Stopwatch:
        """The step to time, as a context."""
        self._name = name
        return self

    def __enter__(self) -> None:
        self._started_s = self._clock.now_s()

    def __exit__(self, *_: object) -> None:
        self.steps_s[self._name] = self._clock.now_s() - self._started_s
