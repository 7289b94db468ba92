"""The demo's figures, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscaler.domain.decisions import DecisionRecord
from autoscaler.simulator.traffic.load import LoadResults

WARM_UP_S = 10.0
"""Of each phase, before it counts."""


@dataclass(slots=True)
class Tally:
    """What is gathered while a phase runs.

    Attributes:
        results: batches as the client took them.
        replicas: samples of how many served.
        loads_from, loads_to: adapter loads after the warm-up and at the end.
        lag_s: samples of event loop lag (99th percentile).
        ended_s: when the phase was interrupted, seconds since it began; None where it was not.
        in_flight: requests that had no whole answer then. They are none of `results`, and no errors.
    """

    results: list[LoadResults]
    replicas: list[int]
    lag_s: list[float]
    loads_from: int | None = None
    loads_to: int = 0
    ended_s: float | None = None
    in_flight: int = 0

    @classmethod
    def empty(cls) -> Tally:
        """Nothing yet."""
        return cls([], [], [])


def phase_figures(tally: Tally, seconds: float) -> dict[str, Any]:
    """One phase as contracts have it, after its warm-up; `seconds` are those that it should last."""
    seconds = seconds if tally.ended_s is None else min(tally.ended_s, seconds)
    sent, ttft, tokens, status = (_column(tally, name) for name in ("sent_s", "ttft_s", "output_tokens", "status"))
    counted = sent >= WARM_UP_S
    ok = ttft[counted & ~np.isnan(ttft)]
    requests = int(counted.sum())
    loads = tally.loads_to - (tally.loads_from or 0)
    return {
        "seconds": seconds,
        "replicas_mean": float(np.mean(tally.replicas)) if tally.replicas else 0.0,
        "requests": requests,
        "errors": int((status[counted] != 200).sum()),
        "ttft_p50_s": _quantile(ok, 0.5),
        "ttft_p99_s": _quantile(ok, 0.99),
        "adapter_loads_per_1000": 1000.0 * loads / requests if requests else None,
        "tokens_per_s": float(tokens[counted].sum()) / max(seconds - WARM_UP_S, 1e-9),
        "event_loop_lag_p99_s": max(tally.lag_s, default=0.0),
        "interrupted": tally.ended_s is not None,
        "warm_up_requests": len(sent) - requests,
        "in_flight": tally.in_flight,
    }


def phase_sentence(name: str, f: Mapping[str, Any]) -> str:
    """One phase's figures for people; one that was interrupted says so, and what had been sent."""
    cut = f"interrupted after {f['seconds']:.0f} s with {f['in_flight']} requests in flight"
    if f["interrupted"] and not f["requests"]:
        return (
            f"{name:<12} {cut}; the first {WARM_UP_S:.0f} s of a phase, in which {f['warm_up_requests']} requests "
            "ended, do not count"
        )
    p50, p99 = (f"{f[k]:.2f} s" if f[k] is not None else "-" for k in ("ttft_p50_s", "ttft_p99_s"))
    loads = "-" if f["adapter_loads_per_1000"] is None else f"{f['adapter_loads_per_1000']:.0f}"
    return (
        f"{name:<12} {f['requests']} requests, {f['errors']} errors, TTFT p50 {p50}, p99 {p99}, "
        f"{loads} adapter loads per 1,000 requests, {f['replicas_mean']:.1f} replicas"
        + (f"; {cut}" if f["interrupted"] else "")
    )


def burst_figures(tally: Tally, adapter: int, name: str, burst: tuple[float, float]) -> dict[str, Any]:
    """The other tenants' p99 before and during the burst."""
    sent, who, ttft = (_column(tally, name_) for name_ in ("sent_s", "adapter", "ttft_s"))
    others = (who != adapter) & ~np.isnan(ttft)
    before = others & (sent >= WARM_UP_S) & (sent < burst[0])
    during = others & (sent >= burst[0]) & (sent < burst[1])
    return {
        "adapter": name,
        "others_ttft_p99_before_s": _quantile(ttft[before], 0.99),
        "others_ttft_p99_during_s": _quantile(ttft[during], 0.99),
    }


def tier_changes(records: Iterable[DecisionRecord], began_s: float) -> list[dict[str, Any]]:
    """Every change of a tier."""
    return [
        {
            "tenant": r.subject.removeprefix("tenant/"), "from": r.before, "to": r.after, "reason": r.reason.value,
            "at_s": r.at_s - began_s,
        }
        for r in records if r.step == "tiers"
    ]  # fmt: skip


def scale_events(records: Iterable[DecisionRecord], began_s: float) -> list[dict[str, Any]]:
    """Every change of a group's wanted replicas."""
    return [
        {
            "group": r.subject.removeprefix("group/"), "from": int(r.before), "to": int(r.after),
            "reason": r.reason.value, "at_s": r.at_s - began_s,
        }
        for r in records if r.step == "scale" and r.before != r.after
    ]  # fmt: skip


def _column(tally: Tally, name: str) -> Any:
    return np.concatenate([getattr(batch, name) for batch in tally.results]) if tally.results else np.zeros(0)


def _quantile(values: Any, quantile: float) -> float | None:
    return float(np.quantile(values, quantile)) if len(values) else None
