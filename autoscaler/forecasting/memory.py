"""Forecasting state: one frozen value of arrays over tenants, passed from tick to tick."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

import numpy as np

from autoscaler.forecasting.calibration import Calibration, empty_calibration
from autoscaler.forecasting.issuing import Modelled
from autoscaler.forecasting.series import Floats, SeriesState, empty_series
from autoscaler.forecasting.settings import ForecastSettings

MEMORY_VERSION = 4


@dataclass(frozen=True, slots=True, eq=False)
class ForecastMemory:
    """State of S series and what was learnt of all of them. Arrays are never written to once they are in a memory.

    Attributes:
        ids: series ids, in the order of every array.
        last_tick_s: time of the last tick, NaN before the first.
        bucket_start_s: start of the open bucket, NaN before the first tick.
        open_sum: [S] requests counted in the open bucket (rate times the seconds it covered).
        open_known_s: [S] seconds of the open bucket whose rate is known.
        live: [S] rate of the last known tick, requests/s; NaN = never seen.
        ticks: [2, S] rates of the last two ticks, newest first; NaN = unknown.
        scatter: [2, S] decayed sums over ticks: half the squared difference of two successive counts of requests, and
            their mean. The quotient is the variance of a count over its mean: 1 for Poisson, 50 where requests come in
            clumps.
        tick_s: length of the last tick.
        expected: [S] upper band (.95) of the shortest horizon at the last bucket's end, what an onset must pass; NaN =
            no bucket closed yet.
        series: state at bucket ends.
        pending: per horizon, the forecasts [P, S] issued at the last bucket ends and not yet come true, oldest first.
        calibration: what those that came true have taught.
        modelled: what the boosted model said at the last bucket's end.
    """

    ids: tuple[str, ...]
    last_tick_s: float
    bucket_start_s: float
    open_sum: Floats
    open_known_s: Floats
    live: Floats
    ticks: Floats
    scatter: Floats
    tick_s: float
    expected: Floats
    series: SeriesState
    pending: tuple[tuple[Floats, ...], ...]
    calibration: Calibration
    modelled: Modelled

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able mapping; arrays as base64 of little-endian bytes, so the round trip is exact."""
        return {"version": MEMORY_VERSION, **_encoded(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ForecastMemory":
        """Rebuild a memory from `to_json`.

        Raises:
            ValueError: the version is another one; the caller starts from an empty memory.
        """
        if data.get("version") != MEMORY_VERSION:
            raise ValueError(
                f"forecast memory has version {data.get('version')!r}, this release reads {MEMORY_VERSION}; "
                "start with an empty one"
            )
        memory = _decoded(cls, data)
        assert isinstance(memory, ForecastMemory)
        return memory


def empty_memory(settings: ForecastSettings) -> ForecastMemory:
    """Return the memory of a controller that has seen nothing."""
    zero, nan, horizons = np.zeros(0, np.float32), float("nan"), len(settings.horizons_s)
    return ForecastMemory(
        ids=(), last_tick_s=nan, bucket_start_s=nan, open_sum=zero, open_known_s=zero, live=zero,
        ticks=np.zeros((2, 0), np.float32), scatter=np.zeros((2, 0), np.float32), tick_s=nan, expected=zero,
        series=empty_series(settings), pending=((),) * horizons, calibration=empty_calibration(settings),
        modelled=Modelled("", (0.0,) * horizons, np.zeros((horizons, 2, 0), np.float32)),
    )  # fmt: skip


_UNSEEN_NAN = {"live", "ticks", "expected", "day", "pending", "ratios"}
_BY_SERIES = {"open_sum", "open_known_s", "scatter", *_UNSEEN_NAN, *(f.name for f in fields(SeriesState))}


def realign(memory: ForecastMemory, ids: Sequence[str]) -> ForecastMemory:
    """Return the memory over ``ids``: known series keep their state, new ones start unseen, the rest is dropped.

    Costs nothing when the ids are the same; otherwise one gather per row.

    Raises:
        ValueError: an id is given twice.
    """
    wanted = ids if isinstance(ids, tuple) else tuple(ids)
    if wanted is memory.ids or wanted == memory.ids:
        return memory
    if len(set(wanted)) != len(wanted):
        raise ValueError("series ids repeat; give each tenant once")
    position = {name: i for i, name in enumerate(memory.ids)}
    source = np.fromiter((position.get(name, -1) for name in wanted), np.int64, len(wanted))
    moved: ForecastMemory = _gathered(memory, source, ids=wanted)
    return moved


def _gathered(value: Any, source: np.ndarray[Any, np.dtype[np.int64]], **changed: Any) -> Any:
    """Return the dataclass with every per-series array gathered by ``source``; -1 = a new series."""
    known = source >= 0

    def gather(name: str, old: Any) -> Any:
        if isinstance(old, tuple):
            return tuple(gather(name, item) for item in old)
        if is_dataclass(old):
            return _gathered(old, source)
        if not isinstance(old, np.ndarray) or name not in _BY_SERIES:
            return old
        fresh = np.full((*old.shape[:-1], len(source)), np.nan if name in _UNSEEN_NAN else 0, old.dtype)
        fresh[..., known] = old[..., source[known]]
        return fresh

    new = {f.name: gather(f.name, getattr(value, f.name)) for f in fields(value)}
    return type(value)(**{**new, **changed})


def _encoded(value: Any) -> Any:
    if is_dataclass(value):
        return {f.name: _encoded(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<")))
        text = base64.b64encode(little.tobytes()).decode("ascii")
        return {"dtype": little.dtype.str, "shape": list(value.shape), "data": text}
    if isinstance(value, float):
        return {"float": value.hex()}
    return [_encoded(item) for item in value] if isinstance(value, tuple) else value


def _decoded(kind: Any, value: Any) -> Any:
    if isinstance(value, Mapping) and "data" in value:
        raw = np.frombuffer(base64.b64decode(value["data"]), np.dtype(value["dtype"]))
        return raw.reshape(value["shape"]).astype(raw.dtype.newbyteorder("="))
    if isinstance(value, Mapping) and "float" in value:
        return float.fromhex(value["float"])
    if isinstance(value, Mapping):
        hints = get_type_hints(kind)
        return kind(**{f.name: _decoded(hints[f.name], value[f.name]) for f in fields(kind)})
    return tuple(_decoded(None, item) for item in value) if isinstance(value, list) else value
