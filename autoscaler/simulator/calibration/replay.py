"""One engine under an open stream of requests: arrivals in, first and last token times out. Compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulator.engine import kernel
from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import compiled
from autoscaler.simulator.engine.layout import PS_PER_S, EngineState, with_more_rows
from autoscaler.simulator.engine.model import Engine, Gauges


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order of time; arrays of one length: seconds, adapter (-1 the base model), tokens in, tokens out."""

    time_s: NDArray[np.float64]
    adapter: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of each request (NaN: not yet, or refused), and the engine's means over the horizon."""

    first_token_s: NDArray[np.float64]
    finished_s: NDArray[np.float64]
    refused: int
    gauges: Gauges
    running: float
    waiting: float
    kv_usage_ratio: float
    distinct_adapters: float


def replay(engine: Engine, arrivals: Arrivals, horizon_s: float, most_in_flight: int) -> Replay:
    """Send `arrivals` to a fresh engine until `horizon_s`; beyond `most_in_flight` the client's connection is refused.

    Raises:
        AssertionError: arrivals are not finished + in flight + refused: the model has lost a request.
    """
    count = len(arrivals.time_s)
    times = np.full((count, 2), -1, np.int64)
    state = with_more_rows(engine.state, min(count, most_in_flight))
    columns = (arrivals.adapter, arrivals.prompt_tokens, arrivals.output_tokens)
    at = np.round(arrivals.time_s * PS_PER_S).astype(np.int64)
    refused = _drive(state, at, *columns, times, round(horizon_s * PS_PER_S), most_in_flight)
    engine.adopt(state, horizon_s)
    gauges, totals = engine.gauges(), engine.integrals()
    assert count == gauges.finished + gauges.running + gauges.waiting + refused, "the engine lost a request"
    seconds = np.where(times < 0, np.nan, times / PS_PER_S)
    means = {name: total / horizon_s for name, total in totals.items()}
    return Replay(seconds[:, 0], seconds[:, 1], refused, gauges, **means)


@compiled
def _drive(  # type: ignore[no-untyped-def]
    s: EngineState, at, adapter, prompt, output, times, horizon: int, most_in_flight: int
) -> int:
    refused = 0
    for i in range(len(at)):
        in_flight = s.number[0, a.SUBMITTED] - s.number[0, a.FINISHED_COUNT]
        if in_flight >= most_in_flight:
            while not kernel.advance(s, 0, at[i], False):
                _collect(s, times)
            in_flight = s.number[0, a.SUBMITTED] - s.number[0, a.FINISHED_COUNT]
        if in_flight >= most_in_flight:
            refused += 1
            continue
        row = kernel.submit(s, 0, at[i], i, adapter[i], prompt[i], output[i])
        while row == kernel.FULL:
            _collect(s, times)
            row = kernel.submit(s, 0, at[i], i, adapter[i], prompt[i], output[i])
        if row == kernel.TOO_LONG:
            refused += 1
    while not kernel.advance(s, 0, horizon, True):
        _collect(s, times)
    _collect(s, times)
    return refused


@compiled
def _collect(s: EngineState, times) -> None:  # type: ignore[no-untyped-def]
    for j in range(s.number[0, a.EVENTS]):
        kind = s.event[0, j, a.E_KIND]
        if kind == a.FIRST_TOKEN:
            times[s.event[0, j, a.E_REQUEST], 0] = s.event[0, j, a.E_TIME]
        elif kind == a.FINISHED:
            times[s.event[0, j, a.E_REQUEST], 1] = s.event[0, j, a.E_TIME]
    s.number[0, a.EVENTS] = 0
