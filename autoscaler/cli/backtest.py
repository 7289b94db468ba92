"""`backtest`: read what was recorded, replay it, say how it went."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from autoscaler.cli.backtest_page import page
from autoscaler.cli.backtest_recording import (
    Recording,
    from_file,
    from_prometheus,
    given_router,
    reached_prometheus,
    with_capacity,
)
from autoscaler.cli.backtest_replay import Replay, replay
from autoscaler.cli.errors import UsageError, check_writable, refuse_unused
from autoscaler.cli.policies import read_policy
from autoscaler.cli.tables import table
from autoscaler.policy.model import FleetPolicy

_TOLD_EVERY_S = 2.0


def run(arguments: argparse.Namespace) -> int:
    """Replay and report. Returns 0. Raises UsageError for input that cannot be used."""
    check_writable(arguments.output, arguments.html)
    policy = with_capacity(read_policy(arguments.policy), arguments.capacity)
    recording = _recording(arguments, policy)
    replayed = replay(recording, policy, _Progress())
    report = report_of(recording, replayed, policy)
    try:
        if arguments.output is not None:
            arguments.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if arguments.html is not None:
            arguments.html.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror or error}") from error
    print(json.dumps(report) if arguments.json else _text(report))
    return 0


def moment(text: str, argument: str) -> float:
    """Seconds since the Unix epoch of an RFC 3339 time, or a plain number of them. Raises UsageError."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{argument} {text!r} is no time; write 2026-05-01T00:00:00Z, or seconds") from error
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _recording(arguments: argparse.Namespace, policy: FleetPolicy) -> Recording:
    start_s, end_s = (
        None if text is None else moment(text, name)
        for text, name in ((arguments.start, "--start"), (arguments.end, "--end"))
    )
    if arguments.rates is not None:
        refuse_unused("with --rates", **{"--settings": arguments.settings, "--router": given_router(arguments)})
        return from_file(arguments.rates, policy, start_s, end_s)
    end_s = time.time() if end_s is None else end_s
    if start_s is None or not start_s < end_s:
        raise UsageError("--prometheus needs --start, before --end")
    reached, router = reached_prometheus(arguments, arguments.prometheus)
    return asyncio.run(from_prometheus(reached, router, policy, arguments.policy, start_s, end_s))


def report_of(recording: Recording, replayed: Replay, policy: FleetPolicy) -> dict[str, Any]:
    """Everything as one JSON object; unknown numbers are null."""
    judged = recording.requests_per_s[recording.judged_from :]
    assert replayed.last is not None
    demand, _ = replayed.last
    days = len(judged) * recording.bucket_s / policy.forecast.day_s
    return {
        "fleet": policy.name,
        "start_s": float(recording.ends_s[recording.judged_from] - recording.bucket_s),
        "end_s": float(recording.ends_s[-1]),
        "bucket_s": recording.bucket_s,
        "learnt_buckets": recording.judged_from,
        "judged_buckets": len(judged),
        "adapters": len(recording.catalogue.ids),
        "tenants": len(recording.catalogue.tenants),
        "unknown_ratio": float(np.isnan(judged).mean()),
        "methods": replayed.scores.methods(),
        "calibration": replayed.scores.calibration(),
        "coverage_by_day": replayed.scores.coverage_by_day(),
        "serving": [
            {"horizon_s": s.horizon_s, "median": _clean(s.median_serves), "bands": _clean(s.band_serves)}
            for s in demand.standing
        ],
        "models": replayed.trained,
        "fleet_rate": _fleet_rate(replayed),
        "tiers": _tiers(recording, replayed, policy, days),
        "scale": _scale(recording, replayed, policy),
        "notes": [*recording.notes, *_notes(policy)],
    }


def _clean(values: Any) -> dict[str, float | None]:
    return {name: _number(v) for name, v in values.items()}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _fleet_rate(replayed: Replay) -> dict[str, Any]:
    columns = {"actual_rps": replayed.actual, "mean_rps": replayed.mean, "p90_rps": replayed.upper}
    return {"ends_s": replayed.ends_s, **{n: [_number(v) for v in column] for n, column in columns.items()}}


def _tiers(recording: Recording, replayed: Replay, policy: FleetPolicy, days: float) -> dict[str, Any]:
    first_s = replayed.ends_s[0]
    by_day: dict[int, set[str]] = {d: set() for d in range(math.ceil(days))}
    for change in replayed.changes:
        by_day.setdefault(int((change["at_s"] - first_s) // policy.forecast.day_s), set()).add(change["tenant"])
    tenants = max(len(recording.catalogue.tenants), 1)
    changed = [len(by_day[d]) / tenants for d in sorted(by_day)]
    return {
        "changes": replayed.changes,
        "tenants_changed_per_day_ratio": changed,
        "churn_per_day_ratio": float(np.mean(changed)) if changed else None,
        "counts": replayed.tiers,
        "largest": {"tenants": list(replayed.shown), "tiers": replayed.shown_tiers},
    }


def _scale(recording: Recording, replayed: Replay, policy: FleetPolicy) -> dict[str, Any] | None:
    """Replica-hours, and the share of buckets in which more came than a group's replicas carry."""
    capacity = policy.scaling.capacity_tokens_per_s
    if capacity is None or not replayed.groups:
        return None
    hours = recording.bucket_s / 3600.0
    names = list(dict.fromkeys(n for row in replayed.groups for n in row))
    groups: dict[str, Any] = {}
    for name in names:
        replicas = [row.get(name, (0, 0.0))[0] for row in replayed.groups]
        came = [row.get(name, (0, 0.0))[1] for row in replayed.groups]
        short = [t > n * capacity for n, t in zip(replicas, came, strict=True)]
        changes = sum(a != b for a, b in pairwise(replicas))
        groups[name] = {
            "replica_hours": sum(replicas) * hours, "short_buckets_ratio": sum(short) / len(short),
            "changes": changes, "replicas": replicas, "tokens_per_s": came,
        }  # fmt: skip
    return {"capacity_tokens_per_s": capacity, "groups": groups}


def _notes(policy: FleetPolicy) -> list[str]:
    notes = [
        "one tick a bucket: what counts ticks takes longer here than at the policy's tickInterval, and bursts within a "
        "bucket are not seen",
        "engines are taken to be calm, so replica counts follow demand alone; queues, KV use and SLOs are not replayed",
    ]
    if policy.scaling.capacity_tokens_per_s is None:
        notes.append(
            "a replica's capacity is not known: no tenant is called hot by load and no count is decided; state "
            "scaling.capacity, or give --capacity"
        )
    return notes


class _Progress:
    """A line on standard error now and then."""

    def __init__(self) -> None:
        self._told_s = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        if time.monotonic() - self._told_s >= _TOLD_EVERY_S:
            self._told_s = time.monotonic()
            print(f"{done} of {of} buckets", file=sys.stderr, flush=True)


def _text(report: dict[str, Any]) -> str:
    rows = []
    for horizon, pools in report["methods"]["served"].items():
        for pool, s in pools.items():
            peer = report["methods"]["last_value"][horizon][pool]
            cells = (s["wape"], peer["wape"], s["pinball90"], s["coverage90"], s["provisioned_ratio"])
            rows.append((f"{float(horizon) / 60:g} min", pool, *("-" if c is None else f"{c:.3f}" for c in cells)))
    tiers, scale = report["tiers"], report["scale"]
    lines = [
        f"{report['fleet']}: {report['judged_buckets']} buckets of {report['bucket_s']:g} s judged after "
        f"{report['learnt_buckets']} learnt from; {report['tenants']} tenants, {report['unknown_ratio']:.1%} unknown",
        "",
        table(("HORIZON", "POOL", "WAPE", "LAST VALUE'S", "PINBALL .9", "IN BAND", "BAND/VOLUME"), rows),
        "",
        f"Tiers: {len(tiers['changes'])} changes; {tiers['churn_per_day_ratio'] or 0:.1%} of tenants change in a day",
    ]
    if scale is not None:
        lines += [
            f"{name}: {g['replica_hours']:.0f} replica-hours, {g['changes']} changes, short in "
            f"{g['short_buckets_ratio']:.2%} of buckets"
            for name, g in scale["groups"].items()
        ]
    return "\n".join([*lines, "", *(f"Note: {note}" for note in report["notes"])])
