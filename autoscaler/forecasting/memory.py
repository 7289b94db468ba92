"""Forecasting state: one frozen value of arrays over tenants, passed from tick to tick."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting.settings import ForecastSettings

MEMORY_VERSION = 1
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class ForecastMemory:
    """State of S series. Arrays are never written to once they are in a memory.

    Attributes:
        ids: series ids, in the order of every array.
        last_tick_s: time of the last tick, NaN before the first.
        bucket_start_s: start of the open bucket, NaN before the first tick.
        open_sum: [S] requests counted in the open bucket (rate times the seconds it covered).
        open_known_s: [S] seconds of the open bucket whose rate is known.
        live: [S] rate of the last known tick, requests/s; NaN = never seen.
        last: [S] mean rate of the last known closed bucket, requests/s; NaN = none yet.
        age_buckets: [S] known closed buckets.
        unknown_buckets: [S] closed buckets since the last known one.
        ewma: [K, S] uncorrected EWMA bank, requests/s.
        ewma_weight: [K, S] weight gathered by each EWMA, 0 to 1; ``ewma / ewma_weight`` is corrected for age.
        fast: [S] short EWMA of tick rates, the level that bursts are measured against.
        burst_score: [S] onset score, 1.0 = threshold.
    """

    ids: tuple[str, ...]
    last_tick_s: float
    bucket_start_s: float
    open_sum: Floats
    open_known_s: Floats
    live: Floats
    last: Floats
    age_buckets: Floats
    unknown_buckets: Floats
    ewma: Floats
    ewma_weight: Floats
    fast: Floats
    burst_score: Floats

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able mapping; arrays as base64 of little-endian bytes, so the round trip is exact."""
        out: dict[str, Any] = {"version": MEMORY_VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = {
                    "dtype": value.dtype.str,
                    "shape": list(value.shape),
                    "data": base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii"),
                }
            elif isinstance(value, float):
                value = value.hex()
            elif isinstance(value, tuple):
                value = list(value)
            out[field.name] = value
        return out

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
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = data[field.name]
            if isinstance(value, Mapping):
                raw = np.frombuffer(base64.b64decode(value["data"]), dtype=np.dtype(value["dtype"]))
                value = raw.reshape(value["shape"])
            elif isinstance(value, str):
                value = float.fromhex(value)
            elif isinstance(value, list):
                value = tuple(value)
            values[field.name] = value
        return cls(**values)


def empty_memory(settings: ForecastSettings) -> ForecastMemory:
    """Return the memory of a controller that has seen nothing."""
    zero = np.zeros(0, np.float32)
    bank = np.zeros((len(settings.half_lives_s), 0), np.float32)
    nan = float("nan")
    return ForecastMemory((), nan, nan, zero, zero, zero, zero, zero, zero, bank, bank, zero, zero)


_UNSEEN = {"live": np.nan, "last": np.nan}


def realign(memory: ForecastMemory, ids: Sequence[str]) -> ForecastMemory:
    """Return the memory over ``ids``: known series keep their state, new ones start unseen, the rest is dropped.

    Costs nothing when the ids are the same; otherwise one gather per array.
    """
    wanted = tuple(ids)
    if wanted == memory.ids:
        return memory
    if len(set(wanted)) != len(wanted):
        raise ValueError("series ids repeat; give each tenant once")
    position = {name: i for i, name in enumerate(memory.ids)}
    source = np.fromiter((position.get(name, -1) for name in wanted), np.int64, len(wanted))
    known = source >= 0
    values: dict[str, Any] = {}
    for field in fields(memory):
        value = getattr(memory, field.name)
        if isinstance(value, np.ndarray):
            fresh = np.full((*value.shape[:-1], len(wanted)), _UNSEEN.get(field.name, 0), value.dtype)
            fresh[..., known] = value[..., source[known]]
            value = fresh
        values[field.name] = value
    values["ids"] = wanted
    return ForecastMemory(**values)
