"""`calibrate`: read replicas' recorded past, fit a profile to it, say how far to trust it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler.cli.backtest import moment
from autoscaler.cli.backtest_recording import reached_prometheus, recorded_catalogue
from autoscaler.cli.errors import UsageError, check_writable
from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.cli.tables import table
from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.history import recorded_replicas
from autoscaler.connectors.metrics.presets import PRESETS
from autoscaler.connectors.metrics.prometheus import PrometheusSource, SourceSettings
from autoscaler.connectors.metrics.queries import Scope
from autoscaler.connectors.metrics.router_presets import ROUTERS
from autoscaler.domain.fleet import ReplicaSignals
from autoscaler.domain.observation import Catalogue, PairTraffic
from autoscaler.domain.signals import Fresh, value_or
from autoscaler.policy.model import FleetPolicy
from autoscaler.ports import Metrics
from autoscaler.simulator.calibration.series import ReplicaSeries, SeriesFit, fit_from_series
from autoscaler.simulator.engine.profile import (
    EngineLimits,
    EngineProfile,
    ProfileError,
    available_profiles,
    load_profile,
)

_USUAL_S = 6 * 3600.0
_MOST_MOMENTS = 720
_TOLD_EVERY_S = 2.0
_MEANS = {
    "fixed": "a step, however small",
    "batch": "each running request and its context",
    "prefill": "each prompt token and admission",
    "lora": "adapters in the batch",
}


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Samples of all replicas over the range.

    Attributes:
        series: one sample a replica and moment.
        replicas, moments: how many were read.
        max_loras, kv_tokens: as the engines show them; None where they do not, or differ.
        notes: what a reader must know, a sentence each.
    """

    series: ReplicaSeries
    replicas: int
    moments: int
    max_loras: int | None
    kv_tokens: int | None
    notes: tuple[str, ...]


def run(arguments: argparse.Namespace) -> int:
    """Read, fit, write, report. Returns 0. Raises UsageError for input that cannot be used."""
    output = arguments.output or Path(f"{arguments.name}.json")
    check_writable(output)
    policy = read_policy(arguments.policy or shipped_policy("default"))
    end_s = time.time() if arguments.end is None else moment(arguments.end, "--end")
    start_s = end_s - _USUAL_S if arguments.start is None else moment(arguments.start, "--start")
    if not start_s < end_s:
        raise UsageError("--start must lie before --end")
    shapes = _shapes(arguments.profile)
    reached, router = reached_prometheus(arguments, arguments.prometheus)
    recorded = asyncio.run(_recorded(reached, router, policy, arguments.policy or Path(), start_s, end_s))
    limits = _limits(arguments, policy, recorded)
    fit = _best(recorded, limits, shapes, arguments.name)
    try:
        output.write_text(fit.profile.to_json(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from error
    print(json.dumps(_report(recorded, fit, output)) if arguments.json else _text(recorded, fit, output))
    return 0


async def _recorded(
    reached: PrometheusSettings, router: str, policy: FleetPolicy, file: Path, start_s: float, end_s: float
) -> Recorded:
    """Each replica's signals at moments one window apart, read as the controller reads them."""
    step_s = max(policy.signals.window_s, (end_s - start_s) / _MOST_MOMENTS)
    moments = np.arange(start_s + step_s, end_s + 1e-6, step_s)
    engine = PRESETS[policy.engine.preset]
    if not {"running", "itl_mean_s", "kv_usage_ratio"} <= set(engine.sources):
        raise UsageError(f"engine.preset {engine.name}: its engines do not show the time between tokens")
    catalogue, notes = await _catalogue(reached, router, policy, file, start_s, end_s)
    connection = PrometheusConnection(reached)
    try:
        settings = SourceSettings(
            engine, ROUTERS[router], policy.signals, frozenset({policy.base_model}), replay=True
        )  # fmt: skip
        source = PrometheusSource(settings, connection)
        scope = Scope(reached.matchers, policy.signals.matchers, reached.replica_labels, policy.signals.window_s)
        rows: list[tuple[float, ...]] = []
        shown: list[tuple[int, int]] = []
        seen: set[str] = set()
        told_s = time.monotonic()
        for done, at_s in enumerate(moments.tolist()):
            replicas = await recorded_replicas(connection, engine, scope, policy.signals.replica_label, at_s)
            if not isinstance(replicas, tuple):
                raise UsageError(f"history cannot be read: {replicas.why}")
            if replicas:
                metrics = await source.read(at_s, catalogue, replicas)
                distinct = _distinct(metrics, len(replicas))
                rows += [
                    _sample(metrics.replicas[replica.id], share)
                    for replica, share in zip(replicas, distinct, strict=True)
                ]
                shown += [(found.get("max_loras", 0), found.get("kv_tokens", 0)) for found in metrics.limits.values()]
                seen |= {replica.id for replica in replicas}
            if time.monotonic() - told_s > _TOLD_EVERY_S:
                told_s = time.monotonic()
                print(f"{done + 1} of {len(moments)} moments read", file=sys.stderr)
    finally:
        connection.close()
    if not rows:
        raise UsageError(
            f"{reached.url} holds no {engine.name} engine between these times; are engine.preset and signals.matchers "
            "those of your replicas?"
        )
    series = ReplicaSeries(*np.array(rows).T)
    if np.isnan(series.adapters).all():
        notes = (*notes, f"no router ({router}) says which adapters went where: LoRA stays as shipped")
    return Recorded(
        series, len(seen), len(moments), _one(slots for slots, _ in shown), _one(kv for _, kv in shown), notes
    )  # fmt: skip


async def _catalogue(
    reached: PrometheusSettings, router: str, policy: FleetPolicy, file: Path, start_s: float, end_s: float
) -> tuple[Catalogue, tuple[str, ...]]:
    """Whose requests are told apart; nobody's where no router is recorded."""
    try:
        return await recorded_catalogue(reached, router, policy, file, start_s, end_s)
    except UsageError as error:
        return Catalogue.of({}), (str(error),)


def _sample(signals: ReplicaSignals, distinct: float) -> tuple[float, ...]:
    """One row, in the order of `ReplicaSeries`."""
    wanted = (
        signals.running, signals.kv_usage_ratio, signals.itl_mean_s, signals.ttft_mean_s, signals.requests_per_s,
        signals.prompt_tokens_per_s, signals.generation_tokens_per_s,
    )  # fmt: skip
    return (*(value_or(signal, np.nan) for signal in wanted), distinct)


def _distinct(metrics: Metrics, replicas: int) -> list[float]:
    """Distinct adapters to expect in each replica's batch; NaN where no router tells.

    Each of `n` requests in flight belongs to adapter a with the probability p that a request to this replica does, so
    the batch has it with 1 - exp(-n p). vLLM's own list of running adapters counts waiting ones too.
    """
    pairs: PairTraffic = metrics.pairs
    found = [np.nan] * replicas
    for i, signals in enumerate(metrics.replicas.values()):
        rates = pairs.requests_per_s[pairs.replica == i]
        rates = rates[rates > 0]
        if len(rates) and isinstance(signals.running, Fresh):
            found[i] = float((1 - np.exp(-signals.running.value * rates / rates.sum())).sum())
    return found


def _one(values: Any) -> int | None:
    """The value that all have that have one."""
    known = {value for value in values if value}
    return known.pop() if len(known) == 1 else None


def _limits(arguments: argparse.Namespace, policy: FleetPolicy, recorded: Recorded) -> EngineLimits:
    stated = policy.engine.limits
    slots = arguments.max_loras or stated.max_loras or recorded.max_loras
    if slots is None:
        raise UsageError("the engines do not show their adapter slots, or differ in them: give --max-loras")
    rank = arguments.max_lora_rank or stated.max_lora_rank or 16
    try:
        return EngineLimits(max_loras=slots, max_lora_rank=rank, kv_cache_tokens=recorded.kv_tokens)
    except ProfileError as error:
        raise UsageError(str(error)) from error


def _shapes(profile: str | None) -> list[EngineProfile]:
    try:
        return [load_profile(p) for p in ([profile] if profile else available_profiles())]
    except ProfileError as error:
        raise UsageError(str(error)) from error


def _best(recorded: Recorded, limits: EngineLimits, shapes: Sequence[EngineProfile], name: str) -> SeriesFit:
    """The fit with the smallest error on time that it has not seen."""
    fits: list[SeriesFit] = []
    refused = ""
    for shape in shapes:
        try:
            fits.append(fit_from_series(recorded.series, _with_memory(shape, limits), limits, name))
        except (ProfileError, ValueError) as error:
            refused = str(error)
    if not fits:
        raise UsageError(refused)
    return min(fits, key=lambda fit: fit.confidence.held_out_error)


def _with_memory(shape: EngineProfile, limits: EngineLimits) -> EngineProfile:
    """The profile with the KV cache that the engines show, where they do."""
    if limits.kv_cache_tokens is None:
        return shape
    less = shape.kv_tokens(replace(limits, kv_cache_tokens=None)) - limits.kv_cache_tokens
    return replace(shape, kv=replace(shape.kv, tokens=shape.kv.tokens - less))


def _report(recorded: Recorded, fit: SeriesFit, output: Path) -> dict[str, Any]:
    return {
        "profile": fit.profile.name,
        "file": str(output),
        "source": fit.profile.provenance["source"],
        "replicas": recorded.replicas,
        "moments": recorded.moments,
        "max_loras": recorded.max_loras,
        "kv_tokens": recorded.kv_tokens,
        **asdict(fit.confidence),
        "notes": list(recorded.notes),
    }


def _text(recorded: Recorded, fit: SeriesFit, output: Path) -> str:
    sure = fit.confidence
    rows: Sequence[Sequence[object]] = [
        (
            group, meaning, f"{sure.factor[group]:.2f}", f"+-{sure.standard_error[group]:.2f}",
            f"{sure.informed[group]:.0%}",
        )
        for group, meaning in _MEANS.items()
    ]  # fmt: skip
    low, high = sure.running_range
    lines = [
        f"{sure.samples} samples of {recorded.replicas} replicas, {low:.0f} to {high:.0f} running requests; "
        f"{sure.dropped} without traffic or incomplete",
        "",
        table(("part", "what it costs", "x shipped", "error", "told by samples"), rows),
        "",
        f"time between tokens: {sure.held_out_error:.1%} off on time that the fit has not seen "
        f"({sure.shipped_error:.1%} as shipped)",
        *(f"note: {note}" for note in recorded.notes),
        f"written: {output} ({fit.profile.provenance['source']})",
        f"next: lora-autoscaler simulate --profile {output}",
    ]
    return "\n".join(lines)
