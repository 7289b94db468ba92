"""One fleet's loop: reload, observe, decide, apply, record. Each step is a verb, a metric's label and a heading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from autoscaler.controller.execute import Executor
from autoscaler.controller.observe import World, observe
from autoscaler.domain.decisions import ApplyReport, DecisionRecord, Effect, Grow, Shrink, Skipped
from autoscaler.domain.observation import Catalogue, Observation
from autoscaler.planner import FleetPlan, PlannerMemory, checkpoint, plan, restored
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Actuation, Mode
from autoscaler.ports import CheckpointStore, Clock, DecisionLog, Lease, PermanentError, TemporaryError
from autoscaler.telemetry import FleetView, records_of

_log = logging.getLogger(__name__)
_INTERVAL_AFTER_FAILURE_S = 5.0
_LOAD_WAIT_SHARE = 0.5  # of a tick: adapter loads that take longer go on beside the loop


@dataclass(frozen=True, slots=True)
class Wanted:
    """What operators want of the fleet now: read anew each tick.

    Attributes:
        policy, catalogue: the last valid ones.
        conditions: why a newer file was not taken, and what else a person must know.
    """

    policy: FleetPolicy
    catalogue: Catalogue
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stores:
    """Where decisions and state are kept."""

    decisions: DecisionLog
    checkpoints: CheckpointStore


class FleetController:
    """Runs one fleet. `latest` is the last tick's view, None before the first; subscribers are called with each."""

    def __init__(
        self,
        world: World,
        stores: Stores,
        lease: Lease,
        clock: Clock,
        wanted: Callable[[], Wanted],
        approvals: Callable[[FleetPlan | None], frozenset[str]],
        subscribers: tuple[Callable[[FleetView, tuple[DecisionRecord, ...]], None], ...] = (),
        frozen: Callable[[], str] = lambda: "",
        loaded: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._world, self._stores, self._lease, self._clock = world, stores, lease, clock
        self._wanted, self._approvals, self._subscribers, self._frozen = wanted, approvals, subscribers, frozen
        self._executor = Executor(world, lease, clock, loaded)
        self._memory: PlannerMemory | None = None
        self._store_conditions: dict[str, str] = {}
        self.latest: FleetView | None = None

    async def run(self) -> None:
        """Tick until cancelled. A tick that fails is logged and changes nothing; the next one tries again."""
        while True:
            started_s = self._clock.now_s()
            interval_s = _INTERVAL_AFTER_FAILURE_S
            try:
                interval_s = (await self.tick()).policy.tick_interval_s
            except Exception:
                _log.exception("a tick failed; everything stays as it is until the next")
            await self._clock.sleep(max(interval_s - (self._clock.now_s() - started_s), 0.0))

    async def tick(self) -> FleetView:
        """Reload, observe, decide, apply, record: once."""
        stopwatch = _Stopwatch(self._clock)
        wanted = self._wanted()
        memory, conditions = self._remembered(wanted)
        previous = self.latest.observation if self.latest else None
        with stopwatch.step("observe"):
            now_s = self._clock.now_s()
            seen = await observe(
                self._world,
                wanted.policy,
                wanted.catalogue,
                now_s,
                previous,
                {**wanted.conditions, **conditions, **self._store_conditions},
            )
        with stopwatch.step("decide"):
            overrides = self._world.overrides.overrides(wanted.policy.name)
            approvals = self._approvals(self.latest.plan if self.latest else None)
            decided, memory = await asyncio.to_thread(plan, seen, memory, wanted.policy, overrides, approvals)
            self._memory = memory
        frozen = self._frozen()
        leader = self._lease.held(self._clock.now_s())
        with stopwatch.step("apply"):
            report = await self._apply(decided, seen, wanted.policy, leader, frozen)
        with stopwatch.step("record"):
            before = self.latest
            self.latest = FleetView(
                wanted.policy.name, wanted.policy, seen, decided, report, overrides, stopwatch.steps_s, leader, frozen
            )
            records = records_of(self.latest, before)
            if leader:
                self._keep(records, memory)
        for subscriber in self._subscribers:
            subscriber(self.latest, records)
        return self.latest

    async def close(self) -> None:
        """Stop acting; what is under way at engines finishes there."""
        await self._executor.close()

    def _remembered(self, wanted: Wanted) -> tuple[PlannerMemory, dict[str, str]]:
        """The last tick's memory; at the first, the checkpoint's. What is lost only makes the controller cautious."""
        if self._memory is not None:
            return self._memory, {}
        text = self._stores.checkpoints.load(wanted.policy.name)
        if text is None:
            return PlannerMemory(), {}
        try:
            return restored(text), {}
        except ValueError as error:
            return PlannerMemory(), {"CheckpointLost": str(error)}

    async def _apply(
        self, decided: FleetPlan, seen: Observation, policy: FleetPolicy, leader: bool, frozen: str
    ) -> ApplyReport:
        why = frozen or ("" if leader else "another instance leads")
        if policy.mode is Mode.ADVISE:
            why = why or "the policy's mode is advise"
        if why:
            return _skipped(decided.effects, why)
        mine = tuple(
            e for e in decided.effects if policy.actuation is Actuation.SCALE or not isinstance(e, Grow | Shrink)
        )
        theirs = tuple(e for e in decided.effects if e not in mine)
        done = await self._executor.apply(mine, seen.replicas, policy.tick_interval_s * _LOAD_WAIT_SHARE)
        return replace(done, outcomes=done.outcomes + _skipped(theirs, "replica counts are exported").outcomes)

    def _keep(self, records: tuple[DecisionRecord, ...], memory: PlannerMemory) -> None:
        """Keep what must survive. A store that fails is told by its own condition at the next tick, never fatal."""
        try:
            self._stores.decisions.append(records)
            self._stores.checkpoints.save(self.latest.fleet if self.latest else "", checkpoint(memory))
            self._store_conditions = {}
        except (TemporaryError, PermanentError) as error:
            self._store_conditions = {"StoreFailed": f"decisions and state are not kept: {error}"}


def _skipped(effects: tuple[Effect, ...], why: str) -> ApplyReport:
    return ApplyReport(tuple((effect, Skipped(why)) for effect in effects))


class _Stopwatch:
    """Seconds per step, on the controller's own clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_s = 0.0
        self._name = ""
        self.steps_s: dict[str, float] = {}

    def step(self, name: str) -> _Stopwatch:
        self._name = name
        return self

    def __enter__(self) -> None:
        self._started_s = self._clock.now_s()

    def __exit__(self, *_: object) -> None:
        self.steps_s[self._name] = self._clock.now_s() - self._started_s
