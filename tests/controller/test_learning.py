"""History, models and outlooks reach the loop as values, and nothing of it is waited for or can stop a tick."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from autoscaler.api.render_fleet import forecasting
from autoscaler.controller.jobs import JobError, done, packed, run_job
from autoscaler.controller.learning import Learner
from autoscaler.controller.recorder import Recorder
from autoscaler.domain.observation import Catalogue
from autoscaler.forecasting import ForecastSettings, GlobalModel, empty_memory, observe
from autoscaler.planner import LearnedModel, explain
from autoscaler.planner.learned import settings_of
from autoscaler.policy.steps import Forecasting
from autoscaler.ports import HistoryPiece, PermanentError
from autoscaler.telemetry import FleetView
from tests.controller.stage import Stage, TimedLease, VirtualClock, stage
from tests.planner.world import catalogue, policy
from tests.scenarios.troubled import TroubledWorld

DAY_S, BUCKET_S = 3600.0, 60.0
FORECAST = Forecasting(
    bucket_s=BUCKET_S, horizons_s=(60.0, 180.0), half_lives_s=(60.0, 120.0, 600.0), day_s=DAY_S, horizon_s=60.0,
    history_s=192 * BUCKET_S, retrain_every_s=DAY_S / 2,
)  # fmt: skip
SETTINGS = settings_of(policy(forecast=FORECAST))
NAN = float("nan")


def rates_at(times_s: np.ndarray, adapters: int) -> np.ndarray:
    """Rates [P, A] that rise and fall within an hour, and wander: 0.02 to 2 requests/s."""
    phase = 2 * np.pi * times_s[:, None] / DAY_S + np.arange(adapters)
    wander = np.sin(times_s[:, None] * (1.7 + np.arange(adapters)) / 97.0)
    return 1.0 / np.arange(1, adapters + 1) * (1.2 + np.sin(phase) + 0.2 * wander)


@dataclass
class Recording:
    """A Prometheus: answers for every moment but those in `gap`, unless it is in `trouble`."""

    trouble: str = ""
    gap: tuple[float, float] = (0.0, 0.0)
    from_s: float = 0.0
    asked: list[tuple[float, float, float]] = field(default_factory=list)

    def history(
        self, catalogue: Catalogue, start_s: float, end_s: float, step_s: float
    ) -> AsyncIterator[HistoryPiece] | None:
        self.asked.append((start_s, end_s, step_s))
        return self._pieces(len(catalogue.ids), np.arange(start_s, end_s + step_s / 2, step_s))

    async def _pieces(self, adapters: int, times_s: np.ndarray) -> AsyncIterator[HistoryPiece]:
        for part in np.array_split(times_s, 3):
            rates = rates_at(part, adapters)
            rates[((part > self.gap[0]) & (part <= self.gap[1])) | (part < self.from_s)] = NAN
            yield HistoryPiece(part, np.full_like(rates, NAN) if self.trouble else rates, self.trouble)


@dataclass
class MemoryModels:
    """A checkpoint store."""

    texts: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None

    def load(self, fleet: str) -> str | None:
        if self.failure is not None:
            raise self.failure
        return self.texts.get(fleet)

    def save(self, fleet: str, text: str) -> None:
        self.texts[fleet] = text


async def here(kind: str, arrays: Any, settings: ForecastSettings, **options: float) -> dict[str, Any]:
    """An outlook in this process, and no training."""
    if kind == "train":
        raise JobError("not in this test", expected=True)
    return done(packed(kind, arrays, settings, options))


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """What a training job answers after two such days of twelve tenants."""
    times_s = 988_080.0 + BUCKET_S * np.arange(1, 121)
    import_module("sklearn.ensemble")  # a limit holds for threads of what is loaded; waiting threads cost minutes
    with threadpool_limits(1):
        return done(packed("train", {"rates": rates_at(times_s, 12)}, SETTINGS, {}))


def learning_stage(recording: Recording | None, models: MemoryModels | None = None, **parts: Any) -> Stage:
    changes = parts.pop("changes", {})
    world = TroubledWorld(policy(forecast=parts.pop("forecast", FORECAST), **changes), catalogue(12))
    world.start("warm", 4)
    clock = VirtualClock()
    learner = Learner(clock, models or MemoryModels(), recording, parts.pop("job", here))
    return stage(world, clock=clock, learner=learner, **parts)


async def until(staged: Stage, holds: Callable[[FleetView], bool], seconds: float = 0.0) -> FleetView:
    """Tick until something holds, `seconds` apart; what goes on beside the loop gets real time in between."""
    for _ in range(3000):
        view = await staged.tick(seconds)
        if holds(view):
            return view
        await asyncio.sleep(0.02)
    raise AssertionError(f"never held; conditions {[c.message for c in view.conditions]}, {view.learning}")


def told(view: FleetView) -> dict[str, str]:
    return {c.name: c.message for c in view.conditions}


def knows_a_day(view: FleetView) -> bool:
    assert view.learning is not None
    return view.learning.known_buckets >= view.learning.day_buckets


async def test_memory_starts_from_recorded_history_and_goes_on_from_there():
    recording = Recording()
    staged = learning_stage(recording)
    first = await staged.tick()
    assert "HistoryShort" in told(first)
    assert "history is being read" in told(first)["HistoryShort"]
    view = await until(staged, knows_a_day)
    assert "HistoryShort" not in told(await staged.tick())
    start_s, end_s, step_s = recording.asked[0]
    assert (step_s, end_s % BUCKET_S, (end_s - start_s) / BUCKET_S) == (BUCKET_S, 0.0, 191.0)
    assert len(recording.asked) == 1
    terms = view.plan.demand.explain("t000", 60.0).terms
    assert terms["known_buckets"] >= 191
    assert terms["usual_rate"] == pytest.approx(1.2, rel=0.35), "the level of history, not the present 0.64"


async def test_a_gap_in_what_is_recorded_stays_unknown_and_is_no_silence():
    recording = Recording(gap=(990_000.0, 993_000.0))
    staged = learning_stage(recording)
    view = await until(staged, knows_a_day)
    terms = view.plan.demand.explain("t000", 60.0).terms
    assert terms["known_buckets"] == pytest.approx(192 - 50, abs=3)
    assert terms["silent_buckets"] == 0.0


async def test_without_anything_recorded_it_says_so_until_it_has_seen_a_day_itself():
    staged = learning_stage(None)
    view = await staged.ticks(2)
    assert "metrics are scraped and only a Prometheus remembers" in told(view)["HistoryShort"]
    assert view.plan.scale.decisions["warm"].desired >= 2
    view = await until(staged, knows_a_day, BUCKET_S)
    assert "HistoryShort" not in told(await staged.tick())


async def test_a_prometheus_that_does_not_answer_is_named_and_asked_again():
    recording = Recording(trouble="http://prometheus does not answer: refused")
    staged = learning_stage(recording)
    view = await until(staged, lambda v: "could not be read" in told(v).get("HistoryShort", ""))
    assert "http://prometheus does not answer: refused" in told(view)["HistoryShort"]
    assert "asked for again every 5 min" in told(view)["HistoryShort"]
    recording.trouble = ""
    asked = len(recording.asked)
    await staged.tick(300.0)
    await until(staged, knows_a_day)
    assert len(recording.asked) == asked + 1


async def test_a_policy_that_wants_no_history_gets_none_and_no_complaint():
    recording = Recording()
    staged = learning_stage(recording, forecast=replace(FORECAST, history_s=0.0))
    view = await staged.ticks(3)
    assert recording.asked == []
    assert "HistoryShort" not in told(view)


async def test_other_buckets_begin_anew_with_a_history_of_their_own():
    recording = Recording()
    staged = learning_stage(recording)
    await until(staged, knows_a_day)
    wider = replace(FORECAST, bucket_s=120.0, horizons_s=(120.0, 360.0), half_lives_s=(120.0, 600.0))
    staged.world.policy = replace(staged.world.policy, forecast=wider)
    await staged.tick()
    view = await until(staged, knows_a_day)
    assert [step_s for _, _, step_s in recording.asked] == [60.0, 120.0]
    assert [s.horizon_s for s in view.plan.demand.standing] == [120.0, 360.0]


@pytest.mark.slow
async def test_a_model_is_trained_from_history_saved_and_named_in_what_follows(trained: dict[str, Any]):
    models = MemoryModels()
    jobs: list[tuple[str, tuple[int, ...]]] = []

    async def job(kind: str, arrays: Any, settings: ForecastSettings, **options: float) -> dict[str, Any]:
        jobs.append((kind, next(iter(arrays.values())).shape))
        return trained if kind == "train" else await here(kind, arrays, settings, **options)

    staged = learning_stage(Recording(), models, job=job)
    before = await staged.tick()
    assert before.plan.demand.model is None
    view = await until(staged, lambda v: v.plan.demand.model is not None)
    model = view.plan.demand.model
    assert model is not None
    assert dict(jobs)["train"][1] == 12
    assert model.model.version.startswith("gbm-120x12-")
    assert LearnedModel.from_text(models.texts["fleet/forecast-model"]).model.version == model.model.version
    view = await until(staged, lambda v: "model" in v.plan.demand.standing[0].band_loss, BUCKET_S)
    assert view.plan.demand.standing[0].band_serves.keys() == {"table", "model"}
    facts = " ".join(explain("tenant/t000", view.observation, view.plan, view.policy).facts)
    assert (
        f"the model {model.model.version} lost" in facts or f"The model {model.model.version} runs in shadow" in facts
    )
    shown = forecasting(view)
    assert shown["model"]["version"] == model.model.version
    assert shown["horizons"][0]["band_serves"].keys() == {"table", "model"}
    assert shown["learning"]["known_buckets"] >= 180
    json.dumps(shown, allow_nan=False)
    await until(staged, lambda v: sum(kind == "train" for kind, _ in jobs) == 2, BUCKET_S)
    assert {"train", "outlook"} == {kind for kind, _ in jobs}


@pytest.mark.slow
async def test_the_version_of_what_was_learnt_is_among_the_inputs(trained: dict[str, Any]):
    saved = MemoryModels({"fleet/forecast-model": learned(trained)})
    forecast = replace(FORECAST, history_s=0.0)
    with_model, without = (learning_stage(None, m, forecast=forecast) for m in (saved, MemoryModels()))
    first, second = await with_model.tick(), await without.tick()
    assert first.plan.demand.model is not None
    assert second.plan.demand.model is None
    assert first.plan.inputs_digest != second.plan.inputs_digest


def learned(trained: dict[str, Any], **changes: Any) -> str:
    made = LearnedModel(GlobalModel.from_json(trained["model"]), SETTINGS, 999_000.0, 120, 12)
    return json.dumps(json.loads(made.to_text()) | changes)


@pytest.mark.slow
async def test_a_model_of_a_newer_format_is_refused_with_a_sentence_and_a_new_one_is_trained(trained: dict[str, Any]):
    models = MemoryModels({"fleet/forecast-model": learned(trained, format=9)})

    async def job(kind: str, arrays: Any, settings: ForecastSettings, **options: float) -> dict[str, Any]:
        return trained if kind == "train" else {"outlooks": [None] * 9}

    staged = learning_stage(Recording(), models, job=job)
    view = await staged.tick()
    assert view.plan.demand.model is None
    refused = told(view)["ForecastModelRefused"]
    assert "has format 9, this release reads 1" in refused
    assert "a new one is trained" in refused
    view = await until(staged, lambda v: v.plan.demand.model is not None)
    assert "ForecastModelRefused" not in told(await staged.tick())


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 1}'])
async def test_a_damaged_model_is_refused_and_stops_nothing(text: str):
    view = await learning_stage(None, MemoryModels({"fleet/forecast-model": text})).tick()
    assert "ForecastModelRefused" in told(view)
    assert view.plan.effects


async def test_a_store_that_cannot_be_read_stops_nothing():
    view = await learning_stage(None, MemoryModels(failure=PermanentError("state.db is gone"))).tick()
    assert "state.db is gone" in told(view)["ForecastModelRefused"]


@pytest.mark.slow
async def test_a_model_for_other_settings_does_not_speak(trained: dict[str, Any]):
    models = MemoryModels({"fleet/forecast-model": learned(trained)})
    other = replace(FORECAST, half_lives_s=(60.0, 600.0), history_s=0.0)
    view = await learning_stage(None, models, forecast=other).tick()
    assert view.plan.demand.model is None


async def test_training_that_fails_is_a_condition_and_the_cheap_ones_serve():
    async def fails(kind: str, *_: Any, **__: Any) -> dict[str, Any]:
        raise JobError("its process ended with -9: no word")

    staged = learning_stage(Recording(), job=fails)
    view = await until(staged, lambda v: "ForecastTrainingFailed" in told(v))
    assert "its process ended with -9" in told(view)["ForecastTrainingFailed"]
    assert "it is tried again" in told(view)["ForecastTrainingFailed"]
    assert view.plan.demand.model is None
    assert view.plan.demand.forecast.known.all()


@pytest.mark.parametrize(
    ("parts", "forecast"),
    [({"lease": TimedLease(0.0)}, FORECAST), ({}, replace(FORECAST, learned=False))],
    ids=["another leads", "the policy wants none"],
)
async def test_nothing_is_trained_where_that_is_not_wanted(parts: dict[str, Any], forecast: Forecasting):
    async def never(kind: str, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError(f"{kind} was started")

    staged = learning_stage(Recording(), job=never, forecast=forecast, **parts)
    await until(staged, knows_a_day)
    view = await staged.ticks(3)
    assert view.learning is not None
    assert not view.learning.training


async def test_a_season_that_proved_itself_is_in_the_demand_of_scale_in():
    async def job(kind: str, arrays: Any, settings: ForecastSettings, **options: float) -> dict[str, Any]:
        if kind == "train":
            raise JobError("not now", expected=True)
        assert arrays["totals"].shape[0] == 192
        proven = {"p90": [50_000.0] * 48, "proven": True, "reason": "the season serves", "hour_s": DAY_S / 24}
        return {"outlooks": [proven] + [None] * (arrays["totals"].shape[1] - 1)}

    staged = learning_stage(Recording(), job=job)
    view = await until(staged, lambda v: bool(v.plan.demand.outlooks))
    outlook = view.plan.demand.outlooks["warm"]
    assert outlook.peak_tokens_per_s(view.plan.now_s, 600.0) == 50_000.0
    assert outlook.peak_tokens_per_s(view.plan.now_s + DAY_S, 600.0) is None, "an old outlook says nothing"
    assert replace(outlook, proven=False).peak_tokens_per_s(view.plan.now_s, 600.0) is None
    await staged.controller.close()


def test_the_recorder_keeps_the_largest_and_leaves_what_it_did_not_keep_unknown():
    ids = tuple(f"t{i}" for i in range(10))
    levels = np.array([5.0, 0.1, 7.0, 0.1, 3.0, 0.1, 0.1, 0.1, 0.1, 0.1])
    whole = replace(SETTINGS, max_tick_s=BUCKET_S)
    memory = observe(empty_memory(whole), 996_000.0, ids, np.full(10, NAN), whole)
    recorder = Recorder(most_series=3)
    for bucket in range(1, 7):
        rates = np.full(10, NAN) if bucket == 4 else levels * bucket
        memory = observe(memory, 996_000.0 + bucket * BUCKET_S, ids, rates, whole)
        recorder.follow(memory, whole, 4 * BUCKET_S)
    kept = recorder.history()
    assert set(kept.ids) == {"t0", "t2", "t4"}
    assert kept.end_s == 996_000.0 + 6 * BUCKET_S
    column = kept.rates[:, kept.ids.index("t2")]
    np.testing.assert_allclose(column, [21.0, NAN, 35.0, 42.0])
    assert recorder.known_buckets == 3


@pytest.mark.slow
async def test_a_child_process_says_the_same_as_this_one_and_ends():
    times_s = 996_000.0 + BUCKET_S * np.arange(1, 181)
    totals = rates_at(times_s, 2).sum(axis=1, keepdims=True)
    hourly = replace(SETTINGS, bucket_s=DAY_S / 24, horizons_s=(DAY_S / 24,), max_tick_s=DAY_S / 24)
    child = await run_job("outlook", {"totals": totals}, hourly, hours=3)
    assert child == await here("outlook", {"totals": totals}, hourly, hours=3)
    assert len(child["outlooks"][0]["p90"]) == 3
    with pytest.raises(JobError, match="its process ended with 1: KeyError: 'bake'") as broken:
        await run_job("bake", {"rates": np.ones((10, 2), np.float32)}, SETTINGS)
    assert not broken.value.expected


def test_too_little_history_is_an_answer_and_no_failure():
    told = done(packed("train", {"rates": np.ones((10, 2), np.float32)}, SETTINGS, {}))
    assert "a model needs 90, 1.5 days" in told["refused"]


@pytest.mark.slow
async def test_a_cancelled_job_leaves_no_process_behind():
    work = asyncio.create_task(run_job("train", {"rates": np.ones((240, 400), np.float32)}, SETTINGS))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
