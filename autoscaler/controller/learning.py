"""Beside the loop: memory is filled from recorded history, a model is trained, groups' outlooks are fitted.

All of it reaches a decision only as a value in memory that is put there between two ticks. Nothing here is waited for:
a controller without history, or whose fits fail, decides by the cheap forecasters, and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from autoscaler.controller.jobs import JobError, run_job
from autoscaler.controller.recorder import Recorder
from autoscaler.domain.observation import Catalogue
from autoscaler.forecasting import ForecastMemory, ForecastSettings, GlobalModel, empty_memory
from autoscaler.forecasting.model import MIN_DAYS
from autoscaler.forecasting.outlook import MIN_DAYS as OUTLOOK_DAYS
from autoscaler.forecasting.outlook import PER_DAY
from autoscaler.planner import FleetPlan, Learned, LearnedModel, PlannerMemory
from autoscaler.planner.demand import DemandMemory
from autoscaler.planner.learned import learnt_shape, outlooks_from, settings_of
from autoscaler.planner.lookahead import recorded_totals
from autoscaler.planner.refill import begun, joined, replayed
from autoscaler.policy.model import FleetPolicy
from autoscaler.ports import CheckpointStore, Clock, HistoryPiece, HistorySource, PermanentError, TemporaryError
from autoscaler.telemetry import LearningView

_log = logging.getLogger(__name__)
_ASK_AGAIN_S = 300.0
_OUTLOOK_HOURS = 2 * PER_DAY
_FOLLOW_BUCKETS = 6  # kept by every memory, so that none is missed

Job = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class _Fill:
    """One reading of history under way."""

    task: asyncio.Task[tuple[ForecastMemory, Recorder, str]]
    done: int = 0
    of: int = 0


@dataclass(slots=True)
class _Timer:
    """A job that is done now and then."""

    due_s: float = 0.0
    task: asyncio.Task[None] | None = None
    trouble: str = ""
    waits_for: str = ""

    def free(self, now_s: float) -> bool:
        return now_s >= self.due_s and (self.task is None or self.task.done())


@dataclass(slots=True)
class _Known:
    """What is learnt now."""

    learned: Learned = field(default_factory=Learned)
    refused: str = ""


class Learner:
    """One fleet's. `before` and `after` are called around each decision, by the loop.

    Args:
        clock: of the loop.
        store: where a model is saved, under `<fleet>/forecast-model`.
        history: where memory is filled from; None = nothing is recorded anywhere.
        job: does a heavy fit; a child process.
    """

    def __init__(
        self, clock: Clock, store: CheckpointStore, history: HistorySource | None = None, job: Job = run_job
    ) -> None:
        self._clock, self._store, self._history, self._job = clock, store, history, job
        self._shape: ForecastSettings | None = None
        self._known = _Known()
        self._recorder = Recorder()
        self._fill: _Fill | None = None
        self._ask_at_s: float | None = None
        self._trouble = ""
        self._training, self._fitting = _Timer(), _Timer()

    def before(self, memory: PlannerMemory, policy: FleetPolicy, catalogue: Catalogue) -> PlannerMemory:
        """The memory to decide with: with what was learnt since, and history once it is read."""
        settings, now_s = settings_of(policy), self._clock.now_s()
        if self._shape is None:
            self._load(policy.name)
        if self._shape != learnt_shape(settings):
            self._begin_anew(settings, policy, now_s)
        self._ask(policy, catalogue, settings, now_s)
        demand = memory.demand or DemandMemory(empty_memory(settings), settings)
        if self._fill is not None and self._fill.task.done():
            demand = self._filled(self._fill, demand, settings, policy, now_s)
        return replace(memory, demand=replace(demand, learned=self._known.learned))

    def after(self, memory: PlannerMemory, plan: FleetPlan, policy: FleetPolicy, *, leader: bool) -> LearningView:
        """Keep what the tick has seen, and start what is due; only a leader trains. Returns what people may know."""
        settings, now_s = settings_of(policy), self._clock.now_s()
        assert memory.demand is not None
        self._recorder.follow(memory.demand.forecast, settings, policy.forecast.history_s or settings.day_s * 7)
        if leader and policy.forecast.learned and self._fill is None:
            self._start_due(plan, policy, settings, now_s)
        return LearningView(
            known_buckets=self._recorder.known_buckets,
            day_buckets=settings.day_buckets,
            model_buckets=round(MIN_DAYS * settings.day_buckets),
            training=self._training.task is not None and not self._training.task.done(),
            trouble=self._training.trouble or self._known.refused,
            waits_for=self._training.waits_for,
        )

    def _start_due(self, plan: FleetPlan, policy: FleetPolicy, settings: ForecastSettings, now_s: float) -> None:
        recorded_days = self._recorder.known_buckets * settings.bucket_s / settings.day_s
        model, every_s = self._known.learned.model, policy.forecast.retrain_every_s
        fresh = model is not None and model.fits(settings) and now_s < model.trained_at_s + every_s
        if not fresh and recorded_days >= MIN_DAYS and self._training.free(now_s):
            self._start(self._training, self._train(policy.name, settings, now_s), now_s + settings.day_s / PER_DAY)
        if recorded_days >= OUTLOOK_DAYS and self._fitting.free(now_s):
            self._start(self._fitting, self._fit(plan, policy, settings), now_s + settings.day_s / PER_DAY)

    def conditions(self, policy: FleetPolicy) -> dict[str, str]:
        """What an operator must know."""
        told = {"ForecastModelRefused": self._known.refused} if self._known.refused else {}
        if self._training.trouble or self._fitting.trouble:
            trouble = "; ".join(filter(None, (self._training.trouble, self._fitting.trouble)))
            told["ForecastTrainingFailed"] = f"{trouble}; the cheap forecasters serve, and it is tried again"
        settings = settings_of(policy)
        known, day = self._recorder.known_buckets, settings.day_buckets
        if policy.forecast.history_s > 0 and known < day:
            hours = known * settings.bucket_s / 3600
            told["HistoryShort"] = (
                f"forecasts know {hours:.3g} h of {settings.day_s / 3600:.3g} h: {self._why_short()}; until they know "
                "a day their bands are wide, and no daily season is known"
            )
        return told

    async def close(self) -> None:
        """End what is under way; a child process with it."""
        under_way = (self._training.task, self._fitting.task, None if self._fill is None else self._fill.task)
        tasks: list[asyncio.Task[Any]] = [task for task in under_way if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _why_short(self) -> str:
        if self._fill is not None:
            return f"history is being read, {self._fill.done} of {self._fill.of} buckets so far"
        if self._trouble:
            return (
                f"history could not be read ({self._trouble}), and is asked for again every {_ASK_AGAIN_S / 60:g} min"
            )
        if self._ask_at_s is None:
            return "metrics are scraped and only a Prometheus remembers, so they start from what this process sees"
        return "no more is recorded"

    def _load(self, fleet: str) -> None:
        try:
            text = self._store.load(_key(fleet))
            if text is not None:
                self._known.learned = Learned(LearnedModel.from_text(text))
        except ValueError as error:
            self._known.refused = str(error)
        except (TemporaryError, PermanentError) as error:
            self._known.refused = f"the saved forecast model cannot be read: {error}"

    def _begin_anew(self, settings: ForecastSettings, policy: FleetPolicy, now_s: float) -> None:
        """What was recorded in other buckets means nothing in these."""
        self._shape = learnt_shape(settings)
        self._recorder = Recorder()
        if self._fill is not None:
            self._fill.task.cancel()
        self._fill, self._trouble = None, ""
        self._known.learned = replace(self._known.learned, outlooks={})
        wanted = policy.forecast.history_s >= settings.bucket_s
        self._ask_at_s = now_s if wanted and self._history is not None else None

    def _ask(self, policy: FleetPolicy, catalogue: Catalogue, settings: ForecastSettings, now_s: float) -> None:
        """Begin to read history, where that is due."""
        if self._history is None or self._ask_at_s is None or now_s < self._ask_at_s or self._fill is not None:
            return
        if not catalogue.ids:
            return
        step_s = settings.bucket_s
        end_s = now_s // step_s * step_s
        start_s = end_s - policy.forecast.history_s // step_s * step_s
        pieces = self._history.history(catalogue, start_s + step_s, end_s, step_s)
        if pieces is None:
            self._ask_at_s = None
            return
        self._ask_at_s = float("inf")
        fill = _Fill(asyncio.create_task(self._read(pieces, catalogue, settings, start_s)), 0)
        fill.of = round((end_s - start_s) / step_s)
        self._fill = fill

    async def _read(
        self, pieces: AsyncIterator[HistoryPiece], catalogue: Catalogue, settings: ForecastSettings, start_s: float
    ) -> tuple[ForecastMemory, Recorder, str]:
        memory, recorder, trouble = begun(settings, catalogue, start_s), Recorder(), ""
        async for piece in pieces:
            trouble = piece.trouble or trouble
            for at in range(0, len(piece.times_s), _FOLLOW_BUCKETS):
                part = slice(at, at + _FOLLOW_BUCKETS)
                times_s, rates = piece.times_s[part], piece.requests_per_s[part]
                memory = await asyncio.to_thread(replayed, memory, catalogue, times_s, rates, settings)
                recorder.follow(memory, settings, float("inf"))
                if self._fill is not None:
                    self._fill.done += len(times_s)
        return memory, recorder, trouble

    def _filled(
        self, fill: _Fill, demand: DemandMemory, settings: ForecastSettings, policy: FleetPolicy, now_s: float
    ) -> DemandMemory:
        """Memory with the history that was read before what was seen meanwhile."""
        self._fill = None
        try:
            recorded, recorder, self._trouble = fill.task.result()
        except Exception as error:
            _log.exception("history cannot be used; the forecasts start from what is seen")
            self._trouble, self._ask_at_s = str(error) or type(error).__name__, now_s + _ASK_AGAIN_S
            return demand
        if not recorder.known_buckets:
            self._ask_at_s = now_s + _ASK_AGAIN_S if self._trouble else float("inf")
            return demand
        self._recorder = recorder
        memory = joined(recorded, demand.forecast, settings)
        recorder.follow(memory, settings, policy.forecast.history_s)
        return replace(demand, forecast=memory, settings=settings)

    def _start(self, timer: _Timer, work: Awaitable[None], due_s: float) -> None:
        timer.due_s = due_s
        timer.task = asyncio.ensure_future(_told(timer, work))

    async def _train(self, fleet: str, settings: ForecastSettings, now_s: float) -> None:
        history = await asyncio.to_thread(self._recorder.history)
        result = await self._job("train", {"rates": history.rates}, settings)
        model = GlobalModel.from_json(result["model"])
        made = LearnedModel(model, settings, now_s, len(history.rates), len(history.ids))
        self._known.learned, self._known.refused = replace(self._known.learned, model=made), ""
        self._store.save(_key(fleet), made.to_text())

    async def _fit(self, plan: FleetPlan, policy: FleetPolicy, settings: ForecastSettings) -> None:
        history = await asyncio.to_thread(self._recorder.history)
        groups, totals = recorded_totals(plan, policy, history.ids, history.rates)
        result = await self._job("outlook", {"totals": totals}, settings, hours=_OUTLOOK_HOURS)
        found = {group: o for group, o in zip(groups, result["outlooks"], strict=True) if o is not None}
        outlooks = outlooks_from(found, history.end_s)
        self._known.learned = replace(self._known.learned, outlooks=outlooks)


async def _told(timer: _Timer, work: Awaitable[None]) -> None:
    """The work, with what went wrong as a sentence."""
    try:
        await work
        timer.trouble = timer.waits_for = ""
    except JobError as error:
        timer.trouble, timer.waits_for = ("", str(error)) if error.expected else (str(error), "")
    except (OSError, ValueError, TemporaryError, PermanentError) as error:
        timer.trouble = str(error)


def _key(fleet: str) -> str:
    """No fleet's own checkpoint has this name: a fleet's has no slash."""
    return f"{fleet}/forecast-model"
