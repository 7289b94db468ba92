"""The global boosted model: one set of quantile trees for all of a fleet's larger tenants, trained on ratios.

`train` is a pure function of history, meant to run in a child process with one thread; `predict` runs at bucket ends.
The model is a challenger until it beats the pooled table on the last day's pinball loss (calibration.py) and sees no
tenant's size, so what it learnt of many serves one that is new.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.forecasting.features import ALPHAS, Cells, View, base_level, model_inputs, view_at_close
from autoscaler.forecasting.series import Floats, SeriesState, advance, empty_series, narrowed
from autoscaler.forecasting.settings import ForecastSettings
from autoscaler.forecasting.table import WEIGHT_POWER

Doubles = NDArray[np.float64]

MODEL_LEVELS = (0.5, 0.9)
MAX_ROWS = 30_000
"""Rows a model is trained on, evenly taken from the history: 2.5 s of one core per horizon and level."""
MIN_DAYS = 1.5
MOST_ALPHA = 0.5
"""A smoother base than the median alone would choose: the bands of tenants that come and go are 4 % better with it."""
_TREES = {
    "max_iter": 60, "learning_rate": 0.1, "max_leaf_nodes": 15, "min_samples_leaf": 40, "l2_regularization": 1.0,
    "max_bins": 63, "early_stopping": False,
}  # fmt: skip
_SILENCE = 0.02
"""Ratios are learnt as logarithms; silence is this ratio, and what is predicted below 1.5 times of it is silence."""
_CEILING = 50.0


class NotEnoughHistoryError(ValueError):
    """The history is too short or too silent to learn from; keep the cheap ladder and try again a day later."""


@dataclass(frozen=True, slots=True, eq=False)
class GlobalModel:
    """Quantile trees per horizon and level, as plain arrays: nothing is executed when one is loaded.

    Attributes:
        version: what the model was made from and with; appears in records.
        library: the scikit-learn version whose node layout ``trees`` has.
        horizons_s: horizons, as in the settings it was trained with.
        bucket_s: bucket length it was trained with.
        alphas: [H] share of the last value in its base level.
        baselines: [H][Q] constant that the trees add to.
        trees: [H][Q][trees] node arrays.
    """

    version: str
    library: str
    horizons_s: tuple[float, ...]
    bucket_s: float
    alphas: tuple[float, ...]
    baselines: tuple[tuple[float, ...], ...]
    trees: tuple[tuple[tuple[NDArray[np.void], ...], ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able mapping; node arrays as base64."""
        nodes = [[[base64.b64encode(t.tobytes()).decode("ascii") for t in q] for q in h] for h in self.trees]
        return {
            "version": self.version, "library": self.library, "horizons_s": list(self.horizons_s),
            "bucket_s": self.bucket_s, "alphas": list(self.alphas), "baselines": [list(b) for b in self.baselines],
            "trees": nodes,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GlobalModel":
        """Rebuild a model from `to_json`.

        Raises:
            ValueError: it was made with another scikit-learn; train anew.
        """
        import sklearn
        from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

        if data["library"] != sklearn.__version__:
            raise ValueError(
                f"the forecast model was made with scikit-learn {data['library']}, this is {sklearn.__version__}; "
                "train anew"
            )
        trees = tuple(
            tuple(tuple(np.frombuffer(base64.b64decode(t), PREDICTOR_RECORD_DTYPE) for t in q) for q in h)
            for h in data["trees"]
        )
        return cls(
            data["version"], data["library"], tuple(data["horizons_s"]), data["bucket_s"], tuple(data["alphas"]),
            tuple(tuple(b) for b in data["baselines"]), trees,
        )  # fmt: skip


def train(history_rps: ArrayLike, settings: ForecastSettings) -> GlobalModel:
    """Return a model of the history; the same history gives the same model.

    Args:
        history_rps: [T, S] mean rates per bucket, oldest first, requests/s; NaN = unknown.
        settings: room settings; ``bucket_s`` is the length of the history's rows.

    Raises:
        NotEnoughHistoryError: less than a day and a half, or almost nothing but silence.
    """
    import sklearn
    from sklearn.ensemble import HistGradientBoostingRegressor

    history = np.asarray(history_rps, np.float32)
    if len(history) < MIN_DAYS * settings.day_buckets:
        raise NotEnoughHistoryError(
            f"{len(history)} buckets of history; a model needs {MIN_DAYS * settings.day_buckets:.0f}, {MIN_DAYS:g} days"
        )
    samples = [_Samples(h) for h in settings.horizon_buckets]
    _collect(history, samples, settings)
    baselines, trees = [], []
    for sample in samples:
        inputs, target, weight = sample.stacked()
        fits = [
            HistGradientBoostingRegressor(loss="quantile", quantile=q, **_TREES).fit(
                inputs, target, sample_weight=weight
            )
            for q in MODEL_LEVELS
        ]
        baselines.append(tuple(float(f._baseline_prediction.item()) for f in fits))
        trees.append(tuple(tuple(step[0].nodes for step in f._predictors) for f in fits))
    return GlobalModel(
        version=f"gbm-{len(history)}x{history.shape[1]}-{_digest(history)}",
        library=sklearn.__version__,
        horizons_s=settings.horizons_s,
        bucket_s=settings.bucket_s,
        alphas=tuple(s.alpha for s in samples),
        baselines=tuple(baselines),
        trees=tuple(trees),
    )


def predict(
    model: GlobalModel, state: SeriesState, view: View, h: int, rows: Cells, settings: ForecastSettings
) -> Floats:
    """Return [2, R] ratios to the model's base at .5 and .9 for the series ``rows``; sorted, never negative.

    Raises:
        ValueError: the model was trained for other buckets or horizons.
    """
    from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

    if (model.bucket_s, model.horizons_s) != (settings.bucket_s, settings.horizons_s):
        raise ValueError(
            f"model {model.version} is for buckets of {model.bucket_s} s and horizons {model.horizons_s}, "
            f"the settings say {settings.bucket_s} s and {settings.horizons_s}; train anew"
        )
    part, part_view = narrowed(state, rows), narrowed(view, rows)
    base = base_level(part_view, model.alphas[h])
    inputs = model_inputs(part, part_view, base, settings.horizon_buckets[h], settings.day_buckets).astype(np.float64)
    no_categories = np.zeros((0, 8), np.uint32)
    no_map = np.zeros(inputs.shape[1], np.uint32)
    out = np.empty((len(MODEL_LEVELS), len(rows)))
    for q, baseline in enumerate(model.baselines[h]):
        out[q] = baseline
        for nodes in model.trees[h][q]:
            out[q] += TreePredictor(nodes, no_categories, no_categories).predict(inputs, no_categories, no_map, 1)
    ratios = np.where(out < np.log(1.5 * _SILENCE), 0.0, np.exp(out.clip(None, np.log(_CEILING))))
    return np.sort(ratios, axis=0).astype(np.float32)


def spoken_for(view: View, settings: ForecastSettings) -> Cells:
    """Return the series the model speaks for: the largest that were active within a day, in order of position."""
    able = (view.usual > 0) & (view.off_age < settings.day_buckets) & (view.age >= 3) & (view.unknown == 0)
    rows = np.flatnonzero(able)
    if len(rows) > settings.model_series:
        rate = view.bank[-1][rows]
        rows = np.sort(rows[np.argpartition(-rate, settings.model_series)[: settings.model_series]])
    return rows


class _Samples:
    """Training rows of one horizon, gathered while the history is replayed."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets
        self.alpha = 0.5
        self.inputs: list[Floats] = []
        self.base: list[Floats] = []
        self.actual: list[Floats] = []

    def stacked(self) -> tuple[Floats, Doubles, Doubles]:
        """Return inputs [N, F], log ratios [N], weights [N]."""
        base = np.concatenate(self.base) if self.base else np.zeros(0, np.float32)
        if len(base) < 500:
            raise NotEnoughHistoryError(
                f"{len(base)} usable rows of history; a model needs 500: too few active tenants"
            )
        ratio = np.concatenate(self.actual) / base.astype(np.float64)
        weight = (base / base.mean(dtype=np.float64)) ** WEIGHT_POWER
        return np.concatenate(self.inputs), np.log(ratio.clip(_SILENCE, _CEILING)), weight


def _collect(history: Floats, samples: list[_Samples], settings: ForecastSettings) -> None:
    """Replay the history and gather, at every moment, an even share of the tenants that the model would speak for."""
    first = settings.day_buckets // 2
    actuals = {s.buckets: _ahead(history, s.buckets) for s in samples}
    for sample in samples:
        sample.alpha = min(MOST_ALPHA, _best_alpha(history, actuals[sample.buckets], settings))
    usable = int((history[first:] > 0).any(axis=0).sum()) * (len(history) - first)
    stride = max(1, -(-usable // MAX_ROWS))
    state = empty_series(settings, history.shape[1])
    for t in range(len(history) - 1):
        state = advance(state, history[t], settings)
        if t < first or t + 1 > len(history) - min(s.buckets for s in samples):
            continue
        view = view_at_close(state, settings)
        rows = spoken_for(view, settings)
        rows = rows[(rows + t) % stride == 0]
        if not len(rows):
            continue
        part, part_view = narrowed(state, rows), narrowed(view, rows)
        for sample in samples:
            actual = actuals[sample.buckets][t][rows]
            ok = ~np.isnan(actual)
            base = base_level(part_view, sample.alpha)
            inputs = model_inputs(part, part_view, base, sample.buckets, settings.day_buckets)
            sample.inputs.append(inputs[ok])
            sample.base.append(base[ok])
            sample.actual.append(actual[ok])


def _ahead(history: Floats, buckets: int) -> Floats:
    """Return [T, S] the mean of the ``buckets`` rows after each row; NaN where one is unknown or past the end."""
    out = np.full_like(history, np.nan)
    if len(history) > buckets:
        windows = np.lib.stride_tricks.sliding_window_view(history[1:], buckets, axis=0)
        out[: len(windows)] = windows.mean(axis=-1, dtype=np.float64)
    return out


def _best_alpha(history: Floats, actual: Floats, settings: ForecastSettings) -> float:
    """Return the share of the last value that would have erred least on the history, against the fast EWMA."""
    keep = 0.5 ** (settings.bucket_s / settings.half_lives_s[0])
    fast = np.nan_to_num(history[0]).astype(np.float64)
    losses = np.zeros(len(ALPHAS))
    for row, next_rate in zip(history, actual, strict=True):
        fast = np.where(np.isnan(row), fast, keep * fast + (1 - keep) * row)
        ok = ~np.isnan(row) & ~np.isnan(next_rate)
        errors = [np.abs(next_rate - a * row - (1 - a) * fast)[ok] for a in ALPHAS]
        losses += [e.sum() for e in errors]
    return ALPHAS[int(losses.argmin())]


def _digest(history: Floats) -> str:
    """Return eight hexadecimal digits that name the history."""
    return hashlib.sha256(np.ascontiguousarray(history).tobytes()).hexdigest()[:8]
