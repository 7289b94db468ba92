"""Drives all engines of the process in real time, and measures how late its own event loop is."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import numpy as np

# 10 ms: the error of a first token is 5 ms on average, and 16 busy engines cost 1,600 calls a second, 5 % of a core.
TICK_S = 0.01
_LAGS_KEPT = 6_000


class Driven(Protocol):
    """What the pump drives."""

    def run_to(self, loop_s: float) -> None:
        """Let everything up to `loop_s` (the event loop's clock) happen."""
        ...


class LoopLag:
    """How late a timer fires, over the last minute of ticks: a saturated test bench is no saturated fleet."""

    def __init__(self) -> None:
        self._lags_s: deque[float] = deque(maxlen=_LAGS_KEPT)

    def note(self, lag_s: float) -> None:
        """One timer fired `lag_s` late."""
        self._lags_s.append(max(0.0, lag_s))

    def p99_s(self) -> float:
        """The 99th percentile, 0 before the first tick."""
        return float(np.quantile(np.array(self._lags_s), 0.99)) if self._lags_s else 0.0

    def clear(self) -> None:
        """Begin a new measurement."""
        self._lags_s.clear()


class Pump:
    """One timer for all engines: no wake-up per token, per request or per engine."""

    def __init__(self, tick_s: float = TICK_S) -> None:
        self.lag = LoopLag()
        self._tick_s = tick_s
        self._driven: set[Driven] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, engine: Driven) -> None:
        """Drive this one too; the first one starts the timer."""
        self._driven.add(engine)
        if self._timer is None:
            self._schedule()

    def remove(self, engine: Driven) -> None:
        """Drive it no longer; the last one stops the timer."""
        self._driven.discard(engine)
        if not self._driven and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._tick_s
        self._timer = loop.call_at(due_s, self._tick, due_s)

    def _tick(self, due_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        self.lag.note(now_s - due_s)
        for engine in tuple(self._driven):
            engine.run_to(now_s)
        self._schedule()
