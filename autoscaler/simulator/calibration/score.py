"""How far the engine model is off measured runs: throughput, inter-token time, order of first-token times, overload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulator.calibration.runs import MeasuredRun, Outcome

# Pairs of runs whose measured mean times to first token differ by less than this factor have no order to get right.
CLEAR_DIFFERENCE = 1.2


@dataclass(frozen=True, slots=True)
class Score:
    """Mean absolute relative errors and rates of right answers over some runs; None where no run could tell."""

    runs: int
    throughput_mape: float | None
    throughput_mape_not_overloaded: float | None
    itl_mape: float | None
    tpot_mape: float | None
    ttft_order_accuracy: float | None
    overload_precision: float | None
    overload_recall: float | None


def score(runs: Sequence[MeasuredRun], outcomes: Sequence[Outcome]) -> Score:
    """Compare each run with its simulation; a simulation without a single gap between tokens counts as wholly wrong."""
    throughput = np.array([abs(o.tokens_per_s / r.tokens_per_s - 1) for r, o in zip(runs, outcomes, strict=True)])
    itl = np.array([_relative(o.itl_ms, r.itl_ms) for r, o in zip(runs, outcomes, strict=True)])
    tpot = np.array([_relative(o.tpot_ms, r.tpot_ms) for r, o in zip(runs, outcomes, strict=True)])
    overloaded = np.array([run.overloaded for run in runs], dtype=bool)
    told = np.array([outcome.overloaded for outcome in outcomes], dtype=bool)
    return Score(
        runs=len(runs),
        throughput_mape=_mean(throughput),
        throughput_mape_not_overloaded=_mean(throughput[~overloaded]),
        itl_mape=_mean(itl),
        tpot_mape=_mean(tpot[np.isfinite(tpot)]),
        ttft_order_accuracy=_order(runs, outcomes),
        overload_precision=_mean(overloaded[told]),
        overload_recall=_mean(told[overloaded]),
    )


def _relative(simulated: float, measured: float) -> float:
    if not (math.isfinite(measured) and measured > 0):
        return math.nan
    return abs(simulated / measured - 1) if math.isfinite(simulated) else 1.0


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _order(runs: Sequence[MeasuredRun], outcomes: Sequence[Outcome]) -> float | None:
    """The share of clearly different pairs that the simulation puts in the measured order."""
    measured = np.array([run.ttft_ms for run in runs])
    simulated = np.array([o.ttft_ms if math.isfinite(o.ttft_ms) else math.inf for o in outcomes])
    clear = measured[:, None] > CLEAR_DIFFERENCE * measured[None, :]
    return _mean((simulated[:, None] > simulated[None, :])[clear])
