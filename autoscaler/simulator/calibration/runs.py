"""Measured runs of real servers: read their table, replay one through the engine model, compare.

A row says which adapters were offered at which rates, and what came out in an hour. Only what was put in may enter the
simulation: rates, counts, slots, rank, offered load, and the mean lengths that follow from the token totals.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulator.calibration.lengths import sample_lengths
from autoscaler.simulator.calibration.replay import Arrivals, replay
from autoscaler.simulator.engine.model import Engine
from autoscaler.simulator.engine.profile import EngineLimits, EngineProfile

# The client opened one connection a request; the runs saturate at 25,000-27,400 in flight (28,232 local ports).
CLIENT_CONNECTIONS = 26_500
# vLLM 0.8.5 as it was started for the runs.
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 2048, 2048
OVERLOADED_WAITING = 5.0
# The runs were watched: /metrics every 2.04 s. Each new set of adapters in a batch leaves one more series of
# vllm:lora_requests_info for ever, and a page with s series holds the server's event loop for s x SERIES_S; tokens
# made meanwhile reach the client as one chunk. So gaps look longer (up to 18 %) than tokens per second say.
SCRAPE_INTERVAL_S, SERIES_S = 2.04, 2.0e-5


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One row: what was offered, and what was measured (milliseconds as the table has them)."""

    model: str
    scenario: str
    max_loras: int
    max_cpu_loras: int
    max_lora_rank: int
    rates: NDArray[np.float64]
    ranks: NDArray[np.int64]
    duration_s: float
    mean_prompt: float
    mean_output: float
    tokens_per_s: float
    ttft_ms: float
    itl_ms: float
    tpot_ms: float
    running: float
    waiting: float

    @property
    def overloaded(self) -> bool:
        """More than OVERLOADED_WAITING requests wait on average."""
        return self.waiting > OVERLOADED_WAITING


@dataclass(frozen=True, slots=True)
class Outcome:
    """The same figures of a simulated run: `tpot_ms` is the engine's mean gap, `itl_ms` what the client sees of it."""

    tokens_per_s: float
    ttft_ms: float
    itl_ms: float
    tpot_ms: float
    running: float
    waiting: float
    kv_usage_ratio: float
    distinct_adapters: float
    load_ratio: float
    preemptions: int
    horizon_s: float

    @property
    def overloaded(self) -> bool:
        """More than OVERLOADED_WAITING requests wait on average."""
        return self.waiting > OVERLOADED_WAITING


def read_runs(path: Path) -> tuple[list[MeasuredRun], Counter[str]]:
    """The usable rows of a table with the columns of real_server_runs.csv, and why the others were skipped.

    Raises:
        ValueError: a column is missing.
    """
    runs: list[MeasuredRun] = []
    skipped: Counter[str] = Counter()
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        needed = {"model", "scenario", "max_loras_gpu", "max_lora_rank", "adapter_rates", "adapter_counts", "completed"}
        if missing := needed - set(reader.fieldnames or ()):
            raise ValueError(
                f"{path}: column {sorted(missing)[0]!r} is missing; see the columns of real_server_runs.csv"
            )
        for row in reader:
            run = _parse(row)
            if isinstance(run, str):
                skipped[run] += 1
            else:
                runs.append(run)
    return runs, skipped


def _parse(row: dict[str, str]) -> MeasuredRun | str:
    """A run, or the reason why the row cannot be used."""

    def number(column: str) -> float:
        return float(row[column])

    try:
        completed = number("completed")
        if completed < 1:
            return "nothing completed"
        rates = np.repeat(
            [float(rate) for rate in row["adapter_rates"].split(";")],
            [int(count) for count in row["adapter_counts"].split(";")],
        )
        run = MeasuredRun(
            model=row["model"],
            scenario=row["scenario"],
            max_loras=int(number("max_loras_gpu")),
            max_cpu_loras=max(int(number("n_adapters_cpu")), int(number("max_loras_gpu"))),
            max_lora_rank=int(number("max_lora_rank")),
            rates=rates,
            ranks=_ranks(row["scenario"], rates, int(number("max_lora_rank"))),
            duration_s=number("duration_s"),
            mean_prompt=number("total_in_tok") / completed,
            mean_output=number("total_out_tok") / completed,
            tokens_per_s=number("out_tok_per_s"),
            ttft_ms=number("ttft_mean_ms"),
            itl_ms=number("itl_mean_ms"),
            tpot_ms=number("tpot_mean_ms"),
            running=number("mean_num_running"),
            waiting=number("mean_num_waiting"),
        )
    except (ValueError, KeyError):
        return "a value is missing or not a number"
    values = (run.tokens_per_s, run.ttft_ms, run.itl_ms, run.waiting, run.duration_s, run.mean_prompt, run.mean_output)
    if not all(math.isfinite(value) for value in values) or run.duration_s <= 0 or run.itl_ms <= 0:
        return "a value is missing or not a number"
    return run


def _ranks(scenario: str, rates: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """`rate_0.4-0.05_size_8-16` says that adapters offered .4 requests/s have rank 8; else all have `most`."""
    ranks = np.full(len(rates), most)
    if match := re.fullmatch(r"rate_([\d.-]+)_size_([\d-]+)", scenario):
        for rate, rank in zip(match[1].split("-"), match[2].split("-"), strict=False):
            ranks[np.isclose(rates, float(rate))] = min(int(rank), most)
    return ranks


def arrivals_of(run: MeasuredRun, horizon_s: float, seed: int) -> Arrivals:
    """Poisson arrivals of each adapter at its own rate for `horizon_s`, with lengths of the run's means."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(run.rates * horizon_s)
    time_s = rng.uniform(0.0, horizon_s, counts.sum())
    order = np.argsort(time_s)
    adapter = np.repeat(np.arange(len(counts)), counts)[order].astype(np.int64)
    prompt, output = sample_lengths(rng, len(order), run.mean_prompt, run.mean_output)
    return Arrivals(time_s[order], adapter, prompt, output)


def client_gap_s(gap_s: float, series: float) -> float:
    """The mean gap between chunks of a client, where tokens come every `gap_s` and the page grows to `series` series.

    A scrape holds the stream for 0 to `stall` seconds over the run; of each stall all tokens but one are merged away.
    """
    stall = series * SERIES_S
    merged_s = (stall - gap_s) ** 2 / (2 * stall) if stall > gap_s else 0.0
    return gap_s / (1 - min(0.5, merged_s / SCRAPE_INTERVAL_S))


def simulate(run: MeasuredRun, profile: EngineProfile, *, seed: int = 0, horizon_s: float | None = None) -> Outcome:
    """Replay a run for its own duration, or for `horizon_s`.

    Raises:
        ProfileError: the run's adapter slots leave no KV cache on the profile's GPU.
    """
    horizon = horizon_s or run.duration_s
    limits = EngineLimits(run.max_loras, run.max_cpu_loras, run.max_lora_rank, MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS)
    engine = Engine(profile, limits, len(run.rates), ranks=dict(enumerate(run.ranks.tolist())))
    arrivals = arrivals_of(run, horizon, seed)
    result = replay(engine, arrivals, horizon, CLIENT_CONNECTIONS)
    done = ~np.isnan(result.finished_s)
    first, last, tokens = result.first_token_s[done], result.finished_s[done], arrivals.output_tokens[done]
    gaps = int(tokens.sum()) - len(tokens)
    gap_s = float((last - first).sum() / gaps) if gaps else math.nan
    series = result.gauges.set_changes * run.duration_s / horizon
    return Outcome(
        tokens_per_s=float(tokens.sum()) / horizon,
        ttft_ms=float((first - arrivals.time_s[done]).mean() * 1e3) if done.any() else math.nan,
        itl_ms=client_gap_s(gap_s, series) * 1e3,
        tpot_ms=gap_s * 1e3,
        running=result.running,
        waiting=result.waiting,
        kv_usage_ratio=result.kv_usage_ratio,
        distinct_adapters=result.distinct_adapters,
        load_ratio=result.gauges.load_s / horizon,
        preemptions=result.gauges.preemptions,
        horizon_s=horizon,
    )
