"""Effects, done in order, each fenced by the lease's own time at the moment of the write.

A plan was derived from what was observed, so effects do not wait for each other: what must come first (residency
before membership, acknowledgement before drain) was already seen when the plan was made, or the effect is not in it.
Adapter loads may outlast a tick; they go on beside it and are not started twice. One that still waits for its turn asks
the lease again before it is sent. An effect that breaks fails by itself: the others are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from autoscaler.controller.observe import World
from autoscaler.domain.decisions import (
    Applied,
    ApplyReport,
    AssignSlot,
    Drain,
    Effect,
    Failed,
    Grow,
    LoadAdapter,
    OpenGate,
    Outcome,
    PublishRing,
    Renew,
    Shrink,
    Skipped,
    Undrain,
    UnloadAdapter,
)
from autoscaler.domain.fleet import Replica
from autoscaler.ports import Clock, Lease, PermanentError, TemporaryError

_log = logging.getLogger(__name__)

ORDER: tuple[type, ...] = (
    Grow, Renew, AssignSlot, LoadAdapter, OpenGate, PublishRing, Drain, Undrain, Shrink, UnloadAdapter
)  # fmt: skip
"""Make before break. An effect type that is not here cannot be executed."""


class Executor:
    """Does effects through the ports of one fleet."""

    def __init__(
        self, world: World, lease: Lease, clock: Clock, loaded: Callable[[float], None] = lambda seconds: None
    ) -> None:
        """`loaded` is told how long each successful adapter load took."""
        self._world = world
        self._loaded = loaded
        self._lease = lease
        self._clock = clock
        self._loading: dict[tuple[str, str], asyncio.Task[Outcome]] = {}
        self._turns: dict[str, tuple[int, asyncio.Semaphore]] = {}

    async def apply(
        self, effects: Iterable[Effect], replicas: Iterable[Replica], wait_s: float, parallel_loads: int
    ) -> ApplyReport:
        """Do them in order. Loads get `wait_s` in all to answer; those still under way are reported as such.

        `parallel_loads`: at once on one replica.
        """
        by_id = {r.id: r for r in replicas}
        fresh = {name: (parallel_loads, asyncio.Semaphore(parallel_loads)) for name in by_id}
        kept = {n: t for n, t in self._turns.items() if n in by_id and t[0] == parallel_loads}
        self._turns = {**fresh, **kept}
        ordered = sorted(effects, key=lambda e: ORDER.index(type(e)))
        loads = [e for e in ordered if isinstance(e, LoadAdapter)]
        wanted = {(e.replica, e.adapter) for e in loads}
        self._loading = {k: task for k, task in self._loading.items() if k in wanted or not task.done()}
        report: list[tuple[Effect, Outcome]] = [(e, self._start_load(by_id, e)) for e in loads]
        others = [e for e in ordered if not isinstance(e, LoadAdapter)]
        report.extend([(effect, await self._fenced(effect, by_id)) for effect in others])
        if self._loading:
            await asyncio.wait(self._loading.values(), timeout=wait_s)
        return ApplyReport(tuple((e, self._load_outcome(e, o)) for e, o in report))

    async def close(self) -> None:
        """Give up loads that are still under way; the engines finish or refuse them by themselves."""
        for task in self._loading.values():
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        self._loading.clear()

    def _start_load(self, by_id: dict[str, Replica], effect: LoadAdapter) -> Outcome:
        key = (effect.replica, effect.adapter)
        if key not in self._loading:
            if not self._lease.held(self._clock.now_s()):
                return _LEASE_LOST
            if effect.replica not in by_id:
                return Skipped("the replica is gone")
            turn = self._turns[effect.replica][1]
            self._loading[key] = asyncio.create_task(self._load(by_id[effect.replica], effect, turn))
        return Skipped("still loading")

    async def _load(self, replica: Replica, effect: LoadAdapter, turn: asyncio.Semaphore) -> Outcome:
        async with turn:
            began_s = self._clock.now_s()
            if not self._lease.held(began_s):
                return _LEASE_LOST
            try:
                outcome = await self._world.engines.load(replica, effect)
            except Exception as error:
                return _failed(effect, error)
        if isinstance(outcome, Applied):
            self._loaded(self._clock.now_s() - began_s)
        return outcome

    def _load_outcome(self, effect: Effect, so_far: Outcome) -> Outcome:
        if not isinstance(effect, LoadAdapter):
            return so_far
        key = (effect.replica, effect.adapter)
        task = self._loading.get(key)
        if task is None or not task.done():
            return so_far
        del self._loading[key]
        return task.result()

    async def _fenced(self, effect: Effect, by_id: dict[str, Replica]) -> Outcome:
        if not self._lease.held(self._clock.now_s()):
            return _LEASE_LOST
        try:
            return await self._do(effect, by_id)
        except Exception as error:
            return _failed(effect, error)

    async def _do(self, effect: Effect, by_id: dict[str, Replica]) -> Outcome:
        if isinstance(effect, PublishRing):
            return await self._world.publisher.publish(effect.epoch, effect.body)
        if isinstance(effect, UnloadAdapter):
            if effect.replica not in by_id:
                return Skipped("the replica is gone")
            return await self._world.engines.unload(by_id[effect.replica], effect)
        if isinstance(effect, LoadAdapter):
            return Skipped("loads are started apart")
        return await self._world.actuator.apply(effect)


_LEASE_LOST = Skipped("the lease is not held")


def _failed(effect: Effect, error: Exception) -> Failed:
    """What a port said, or what broke in it: then with a traceback in the log, and tried again."""
    if isinstance(error, PermanentError):
        return Failed(str(error))
    if not isinstance(error, TemporaryError):
        _log.error("%s broke", type(effect).__name__, exc_info=error)
    return Failed(str(error) or type(error).__name__, retry_after_s=0.0)
