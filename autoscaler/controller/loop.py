"""One fleet's loop: reload, observe, decide, apply, record. Each step is a verb, a metric's label and a heading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from autoscaler.controller.execute import Executor
from autoscaler.controller.learning import Learner
from autoscaler.controller.observe import World, observe
from autoscaler.controller.stopwatch import Stopwatch
from autoscaler.controller.stores import StoreRoom, Stores
from autoscaler.domain.decisions import ApplyReport, DecisionRecord, Effect, Grow, Shrink, Skipped
from autoscaler.domain.observation import Catalogue, Observation
from autoscaler.planner import FleetPlan, PlannerMemory, plan
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Actuation, Mode
from autoscaler.ports import Clock, Lease
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
        learner: Learner | None = None,
    ) -> None:
        self._world, self._stores, self._lease, self._clock = world, StoreRoom(stores), lease, clock
        self._wanted, self._approvals, self._subscribers, self._frozen = wanted, approvals, subscribers, frozen
        self._executor, self._learner = Executor(world, lease, clock, loaded), learner
        self._memory: PlannerMemory | None = None
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
        stopwatch = Stopwatch(self._clock)
        wanted = self._wanted()
        fleet, told, last = wanted.policy.name, self._world.overrides, self.latest
        memory, learner = self._memory or self._stores.remembered(fleet), self._learner
        if learner is not None:
            memory = self._memory = learner.before(memory, wanted.policy, wanted.catalogue)
        pauses = self._stores.ask("pauses", lambda: told.pauses(fleet))
        overrides = self._stores.ask("overrides", lambda: told.overrides(fleet))
        approvals = self._stores.ask("approvals", lambda: self._approvals(last.plan if last else None))
        with stopwatch.step("observe"):
            now_s = self._clock.now_s()
            seen = await observe(
                self._world,
                wanted.policy,
                wanted.catalogue,
                now_s,
                last.observation if last else None,
                {
                    **wanted.conditions,
                    **self._stores.conditions(),
                    **(learner.conditions(wanted.policy) if learner else {}),
                },
                pauses,
            )
        with stopwatch.step("decide"):
            decided, memory = await asyncio.to_thread(plan, seen, memory, wanted.policy, overrides, approvals)
            self._memory = memory
        frozen = self._stores.ask("detachments", self._frozen)
        leader = self._lease.held(self._clock.now_s())
        with stopwatch.step("apply"):
            report = await self._apply(decided, seen, wanted.policy, leader, frozen)
        with stopwatch.step("record"):
            learning = learner.after(memory, decided, wanted.policy, leader=leader) if learner else None
            self.latest = FleetView(
                fleet, wanted.policy, seen, decided, report, overrides, stopwatch.steps_s, leader, frozen, learning
            )
            records = records_of(self.latest, last)
            if leader and self._lease.held(self._clock.now_s()):
                self._stores.keep(fleet, records, memory)
        for subscriber in self._subscribers:
            subscriber(self.latest, records)
        return self.latest

    async def close(self) -> None:
        """Stop acting and learning; what is under way at engines finishes there."""
        await self._executor.close()
        if self._learner is not None:
            await self._learner.close()

    async def _apply(
        self, decided: FleetPlan, seen: Observation, policy: FleetPolicy, leader: bool, frozen: str
    ) -> ApplyReport:
        why = frozen or ("" if leader else "another instance leads")
        if policy.mode is Mode.ADVISE:
            why = why or "the policy's mode is advise"
        if why:
            # Loads that were started while it was allowed and still wait for their turn are not sent any more.
            await self._executor.close()
            return _skipped(decided.effects, why)
        exported = policy.actuation is Actuation.EXPORT
        theirs = tuple(e for e in decided.effects if exported and isinstance(e, Grow | Shrink))
        mine = tuple(e for e in decided.effects if not exported or not isinstance(e, Grow | Shrink))
        wait_s, parallel = policy.tick_interval_s * _LOAD_WAIT_SHARE, policy.engine.loading.parallel_per_replica
        done = await self._executor.apply(mine, seen.replicas, wait_s, parallel)
        return replace(done, outcomes=done.outcomes + _skipped(theirs, "replica counts are exported").outcomes)


def _skipped(effects: tuple[Effect, ...], why: str) -> ApplyReport:
    return ApplyReport(tuple((effect, Skipped(why)) for effect in effects))
