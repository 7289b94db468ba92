"""Fit a profile to a user's own replicas, from what Prometheus has kept of them.

Production traffic rarely varies enough to price every term of a step anew. So a shipped profile gives the shape, and
the series say how much dearer or cheaper its four groups are here: the fixed part, what grows with the batch, prefill,
LoRA. A group that the series cannot tell apart stays near the shipped one, and the confidence says so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulator.engine.profile import EngineLimits, EngineProfile, LoraCost

GROUPS = ("fixed", "batch", "prefill", "lora")
LEAST_SAMPLES = 20
# The prior weighs as much as this many samples that say "as shipped" with a relative error of 10 %.
PRIOR_SAMPLES, PRIOR_ERROR = 10.0, 0.1
BLOCKS = 10


@dataclass(frozen=True, slots=True)
class ReplicaSeries:
    """Samples of one or more like replicas, arrays of one length; rates over the sampling window, NaN where unknown.

    `itl_s` is the mean time between tokens in the window, `adapters` the mean number of distinct adapters in a batch.
    """

    running: NDArray[np.float64]
    kv_usage_ratio: NDArray[np.float64]
    itl_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    requests_per_s: NDArray[np.float64]
    prompt_tokens_per_s: NDArray[np.float64]
    generation_tokens_per_s: NDArray[np.float64]
    adapters: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Confidence:
    """How far to trust a fit: `factor` is this fleet's price over the shipped one, by group, `+-` a standard error.

    `informed` is the share of a group's answer that comes from the samples (0: as shipped). The errors are mean
    absolute relative errors of the time between tokens; the held-out one on blocks of time that the fit has not seen.
    """

    samples: int
    dropped: int
    running_range: tuple[float, float]
    factor: dict[str, float]
    standard_error: dict[str, float]
    informed: dict[str, float]
    error: float
    held_out_error: float
    shipped_error: float
    ttft_floor_ratio: float | None


@dataclass(frozen=True, slots=True)
class SeriesFit:
    """A profile fitted to a user's replicas, and how far to trust it."""

    profile: EngineProfile
    confidence: Confidence


def fit_from_series(series: ReplicaSeries, shipped: EngineProfile, limits: EngineLimits, name: str) -> SeriesFit:
    """Scale the groups of `shipped` to what the replicas did; `name` names the new profile.

    Raises:
        ValueError: arrays of different lengths, or fewer than LEAST_SAMPLES samples with traffic.
    """
    lengths = {field.name: len(getattr(series, field.name)) for field in fields(series)}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the series differ in length: {lengths}")
    design, time_ms = _design(series, shipped, limits)
    good = np.isfinite(design).all(axis=1) & np.isfinite(time_ms) & (time_ms > 0) & (series.running >= 1)
    if good.sum() < LEAST_SAMPLES:
        raise ValueError(
            f"{int(good.sum())} of {len(good)} samples have traffic and all signals; "
            f"at least {LEAST_SAMPLES} are needed: take a longer range"
        )
    shares = design[good] / time_ms[good, None]
    factor, informed = _solve(shares)
    blocks = np.array_split(np.arange(len(shares)), BLOCKS)
    partial = np.array([_solve(np.delete(shares, block, axis=0))[0] for block in blocks])
    held_out = np.concatenate([shares[block] @ part - 1 for block, part in zip(blocks, partial, strict=True)])
    spread = np.sqrt((BLOCKS - 1) / BLOCKS * ((partial - partial.mean(axis=0)) ** 2).sum(axis=0))
    running = series.running[good]
    confidence = Confidence(
        samples=int(good.sum()),
        dropped=int((~good).sum()),
        running_range=(float(running.min()), float(running.max())),
        factor=_by_group(factor),
        standard_error=_by_group(spread),
        informed=_by_group(informed),
        error=float(np.abs(shares @ factor - 1).mean()),
        held_out_error=float(np.abs(held_out).mean()),
        shipped_error=float(np.abs(shares.sum(axis=1) - 1).mean()),
        ttft_floor_ratio=_ttft_floor(series, design @ factor, good),
    )
    provenance = {
        "source": f"{confidence.samples} samples of own replicas, scaled from {shipped.name} {shipped.version}"
    }
    profile = replace(_scaled(shipped, factor), name=name, version="1", provenance=provenance)
    return SeriesFit(profile, confidence)


def _design(
    series: ReplicaSeries, shipped: EngineProfile, limits: EngineLimits
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Milliseconds of a step by group as shipped, one row a sample; and the measured milliseconds between tokens."""
    step, lora, slots = shipped.step, shipped.lora, limits.max_loras
    running, itl_s = series.running, series.itl_s
    context = series.kv_usage_ratio * shipped.kv_tokens(limits)
    prompt, admitted = series.prompt_tokens_per_s * itl_s, series.requests_per_s * itl_s
    adapters = np.nan_to_num(series.adapters, nan=0.0)
    eager = (running + prompt > step.graph_tokens).astype(float)
    fixed = np.full(len(running), step.fixed_ms) + step.eager_ms * eager
    batch = step.per_sequence_ms * running + step.per_context_token_ms * context
    prefill = step.per_prefill_token_ms * prompt + step.per_admission_ms * admitted
    plain = fixed + batch + prefill
    extra = (lora.factor - 1 + lora.factor_per_adapter * adapters) * plain
    extra = extra + lora.fixed_ms + lora.per_slot_ms * slots
    extra = extra + (lora.per_adapter_ms + lora.per_adapter_slot_ms * slots) * adapters
    extra = extra + (lora.per_sequence_ms + lora.per_sequence_slot_ms * slots) * running
    extra = extra + (lora.per_prefill_token_ms + lora.per_prefill_token_slot_ms * slots) * prompt
    return np.stack([fixed, batch, prefill, extra * (adapters > 0)], axis=1), itl_s * 1e3


def _solve(shares: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Non-negative factors, robust to outliers and drawn to 1 by the prior; and the share that the samples informed."""
    from scipy.optimize import nnls

    weight = np.ones(len(shares))
    prior = np.diag(np.full(len(GROUPS), PRIOR_SAMPLES**0.5 * PRIOR_ERROR))
    factor = np.ones(len(GROUPS))
    for _ in range(10):
        design = np.concatenate([shares * weight[:, None], prior])
        factor, _ = nnls(design, np.concatenate([weight, prior.diagonal()]))
        residual = np.abs(shares @ factor - 1)
        scale = max(1e-3, 1.5 * float(np.median(residual)))
        weight = np.sqrt(np.minimum(1.0, scale / np.maximum(residual, 1e-12)))
    normal = (shares * weight[:, None]).T @ (shares * weight[:, None])
    unexplained = np.linalg.inv(normal + prior @ prior) @ (prior @ prior)
    return factor, np.clip(1 - np.diag(unexplained), 0.0, 1.0)


def _ttft_floor(series: ReplicaSeries, step_ms: NDArray[np.float64], good: NDArray[np.bool_]) -> float | None:
    """The best decile of first-token times over 1.5 fitted steps: far above 1 means time lost outside the engine."""
    known = good & np.isfinite(series.ttft_s) & (series.ttft_s > 0)
    if not known.any():
        return None
    return float(np.quantile(series.ttft_s[known] * 1e3 / (1.5 * step_ms[known]), 0.1))


def _by_group(values: NDArray[np.float64]) -> dict[str, float]:
    return {group: float(value) for group, value in zip(GROUPS, values, strict=True)}


def _scaled(shipped: EngineProfile, factor: NDArray[np.float64]) -> EngineProfile:
    fixed, batch, prefill, lora = (float(value) for value in factor)
    step = replace(
        shipped.step,
        fixed_ms=shipped.step.fixed_ms * fixed,
        eager_ms=shipped.step.eager_ms * fixed,
        per_sequence_ms=shipped.step.per_sequence_ms * batch,
        per_context_token_ms=shipped.step.per_context_token_ms * batch,
        per_prefill_token_ms=shipped.step.per_prefill_token_ms * prefill,
        per_admission_ms=shipped.step.per_admission_ms * prefill,
    )
    overhead = {field.name: getattr(shipped.lora, field.name) * lora for field in fields(LoraCost)}
    overhead["factor"] = 1 + (shipped.lora.factor - 1) * lora
    return replace(shipped, step=step, lora=LoraCost(**overhead))
