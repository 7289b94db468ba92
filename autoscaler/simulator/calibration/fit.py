"""Fit the step costs of a profile to measured mean step times, and assemble profiles with their provenance.

The mean time between two tokens is linear in what a step does on average: requests decoding, their context, prompt
tokens, admissions, adapter slots, distinct adapters, the queue that the scheduler walks past. Non-negative least
squares of the relative error gives each a price. What the row does not say (distinct adapters, time lost in loads)
comes from replaying it through the model with the prices found so far; two rounds suffice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.simulator.calibration.lengths import PROMPT_SIGMA
from autoscaler.simulator.calibration.runs import MeasuredRun, Outcome
from autoscaler.simulator.calibration.tables import GRAPH_TOKENS, StepRow
from autoscaler.simulator.engine.profile import EngineProfile, LoraCost, StepCost

# KV tokens that a running request of the measured runs holds on average (kv use x capacity / running, 134 healthy runs:
# 362), less half a block.
CONTEXT_PER_REQUEST = 354.0


def run_row(run: MeasuredRun, outcome: Outcome | None) -> StepRow:
    """What a run's average step did. TPOT is per request and free of what the client's own stalls add to gaps."""
    requests_per_s = run.tokens_per_s / run.mean_output
    running = run.tokens_per_s * run.tpot_ms / 1e3
    admissions = requests_per_s * run.tpot_ms / 1e3
    prefill = admissions * run.mean_prompt
    share = run.rates / run.rates.sum()
    adapters = min(float(run.max_loras), float((1 - np.exp(-running * share)).sum()))
    return StepRow(
        step_ms=run.tpot_ms,
        running=running,
        context_tokens=running * CONTEXT_PER_REQUEST,
        prefill_tokens=prefill,
        admissions=admissions,
        slots=run.max_loras,
        adapters=outcome.distinct_adapters if outcome and run.overloaded else adapters,
        eager=1.0 if running + prefill > GRAPH_TOKENS else min(1.0, admissions) * _longer(GRAPH_TOKENS - running, run),
        waiting=run.waiting,
        load_ratio=outcome.load_ratio if outcome else 0.0,
    )


def _longer(tokens: float, run: MeasuredRun) -> float:
    """The share of prompts with more than `tokens` tokens."""
    median = run.mean_prompt * math.exp(-(PROMPT_SIGMA**2) / 2)
    return 0.5 * math.erfc(math.log(max(tokens, 1.0) / median) / PROMPT_SIGMA / math.sqrt(2))


def fit_steps(rows: Sequence[StepRow]) -> tuple[StepCost, LoraCost, float]:
    """Prices of a step in milliseconds, and the mean absolute relative error over `rows`.

    Raises:
        ValueError: fewer rows than prices.
    """
    from scipy.optimize import nnls

    design = np.array([_terms(row) for row in rows])
    if design.shape[0] < design.shape[1]:
        raise ValueError(f"{design.shape[0]} measurements cannot fix {design.shape[1]} prices; give more runs")
    time = np.array([row.step_ms * (1 - row.load_ratio) for row in rows])
    prices, _ = nnls(design / time[:, None], np.ones(len(rows)))
    error = float(np.abs(design @ prices / time - 1).mean())
    fixed, sequence, context, prefill, admission, waiting, eager, *lora = (round(float(p), 8) for p in prices)
    step = StepCost(
        fixed_ms=fixed,
        per_sequence_ms=sequence,
        per_context_token_ms=context,
        prefill_fixed_ms=0.0,
        per_prefill_token_ms=prefill,
        per_admission_ms=admission,
        per_waiting_request_ms=waiting,
        eager_ms=eager,
        graph_tokens=float(GRAPH_TOKENS),
    )
    lora_fixed, slot, adapter, sequence_slot, prefill_slot = lora
    overhead = LoraCost(
        fixed_ms=lora_fixed,
        per_slot_ms=slot,
        per_adapter_ms=adapter,
        per_sequence_slot_ms=sequence_slot,
        per_prefill_token_slot_ms=prefill_slot,
    )
    return step, overhead, error


def _terms(row: StepRow) -> list[float]:
    with_lora = float(row.adapters > 0)
    return [
        1.0,
        row.running,
        row.context_tokens,
        row.prefill_tokens,
        row.admissions,
        row.waiting,
        row.eager,
        with_lora,
        with_lora * row.slots,
        row.adapters,
        row.running * row.slots,
        row.prefill_tokens * row.slots,
    ]


def with_steps(profile: EngineProfile, rows: Sequence[StepRow]) -> EngineProfile:
    """The profile with step and LoRA costs fitted to `rows`."""
    step, lora, _ = fit_steps(rows)
    return replace(profile, step=step, lora=lora)
