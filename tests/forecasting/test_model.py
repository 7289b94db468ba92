"""The boosted model and who serves: ratios that see no size, exact storage, shadow before service."""

import json
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.forecasting import (
    ForecastMethod,
    GlobalModel,
    NotEnoughHistoryError,
    explain_series,
    forecast,
    observe,
    train,
)
from tests.forecasting.replay import COARSE, bucketed, flapping, started, ticked

SHORT = replace(COARSE, horizons_s=(600.0, 1800.0))
pytestmark = pytest.mark.slow  # trains real trees

IDS = tuple(f"t{i}" for i in range(12))


@pytest.fixture(scope="module")
def history():
    return flapping(432, len(IDS))


@pytest.fixture(scope="module")
def model(history):
    return train(history[:288], SHORT)


def shadowed(history, model):
    memory = bucketed(started(IDS, SHORT), [])
    return ticked(memory, history, SHORT, SHORT.bucket_s, model)


def test_a_model_comes_back_from_json_and_says_the_same(history, model):
    back = GlobalModel.from_json(json.loads(json.dumps(model.to_json())))
    first, second = (shadowed(history[:50], m).modelled.ratios for m in (model, back))
    assert first.tobytes() == second.tobytes()
    assert np.isfinite(first).any()


def test_a_model_of_another_library_version_is_refused_with_the_remedy(model):
    with pytest.raises(ValueError, match=r"scikit-learn 0\.1.*train anew"):
        GlobalModel.from_json(model.to_json() | {"library": "0.1"})


def test_a_model_of_other_buckets_is_refused(history, model):
    with pytest.raises(ValueError, match="train anew"):
        shadowed(history[:2], replace(model, bucket_s=300.0))


def test_what_the_trees_say_is_what_scikit_learn_says(history):
    """Node arrays are read back through the library's own predictor; its public class must agree."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    rng = np.random.default_rng(3)
    inputs, target = rng.normal(size=(2000, 4)), rng.normal(size=2000)
    inputs[::7, 2] = np.nan
    fitted = HistGradientBoostingRegressor(loss="quantile", quantile=0.9, max_iter=10).fit(inputs, target)
    said = np.full(2000, float(fitted._baseline_prediction.item()))
    for step in fitted._predictors:
        blank, no_map = np.zeros((0, 8), np.uint32), np.zeros(4, np.uint32)
        said += TreePredictor(step[0].nodes, blank, blank).predict(inputs, blank, no_map, 1)
    np.testing.assert_allclose(said, fitted.predict(inputs), rtol=1e-12)


def test_the_same_history_gives_the_same_model_whatever_its_unit(history, model):
    again = train(history[:288], SHORT)
    assert again.to_json() == model.to_json()
    louder = train(history[:288] * 1024, SHORT)
    assert louder.alphas == model.alphas
    quiet, loud = shadowed(history[:60], model).modelled, shadowed(history[:60] * 1024, louder).modelled
    np.testing.assert_allclose(loud.ratios, quiet.ratios, rtol=2e-3)


def test_too_little_history_is_said_so():
    with pytest.raises(NotEnoughHistoryError, match=r"a model needs 216, 1\.5 days"):
        train(np.ones((100, 3)), SHORT)
    with pytest.raises(NotEnoughHistoryError, match="too few active tenants"):
        train(np.zeros((300, 3)), SHORT)


def test_a_model_serves_only_after_it_was_better_in_shadow(history, model):
    memory = started(IDS, SHORT)
    memory = observe(memory, memory.last_tick_s + 600, IDS, history[0], SHORT, model)
    assert not (forecast(memory, [600.0], memory.last_tick_s, SHORT).method == ForecastMethod.MODEL).any()
    memory = shadowed(history, model)
    loss = memory.calibration.loss[:, :, 1]
    serving = memory.calibration.serving[:, :, 1] == 2
    assert (loss[..., 2] <= loss[..., 1] * 1.006)[serving].all()


def test_a_model_that_is_wrong_never_serves(history, model):
    absurd = replace(model, baselines=tuple(tuple(b + 3 for b in h) for h in model.baselines))
    memory = shadowed(history[:200], absurd)
    made = forecast(memory, [600.0, 1800.0], memory.last_tick_s, SHORT)
    assert not (made.method == ForecastMethod.MODEL).any()
    plain = shadowed(history[:200], None)
    unmodelled = forecast(plain, [600.0, 1800.0], plain.last_tick_s, SHORT)
    np.testing.assert_allclose(made.p90, unmodelled.p90, rtol=1e-6)


def test_without_a_model_everything_is_the_tables(history):
    memory = shadowed(history[:30], None)
    assert set(forecast(memory, [600.0], memory.last_tick_s, SHORT).method) == {ForecastMethod.TABLE}
    told = explain_series(memory, "t3", 700.0, memory.last_tick_s, SHORT)
    assert told.horizon_s == 600.0
    assert "by table" in told.sentence
    assert told.terms["p50"] <= told.terms["p90"] <= told.terms["p95"]


def test_an_explanation_of_a_stranger_names_it(history):
    with pytest.raises(KeyError, match="nobody"):
        explain_series(shadowed(history[:3], None), "nobody", 600.0, 0.0, SHORT)
