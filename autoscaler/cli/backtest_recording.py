"""What a backtest replays: rates and tokens per bucket, from a Prometheus or from a file."""

from __future__ import annotations

import argparse
import csv
import gzip
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoscaler.cli.errors import UsageError, read_bytes
from autoscaler.cli.policies import catalogue_path
from autoscaler.cli.run import read_settings
from autoscaler.cli.settings import Prometheus
from autoscaler.cli.sources import prometheus_settings, recorded_rates
from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings, selector
from autoscaler.connectors.metrics.router_presets import ROUTERS
from autoscaler.domain.observation import Catalogue, Floats
from autoscaler.domain.signals import Missing
from autoscaler.policy.catalogue import catalogue_of, catalogue_of_seen, parse_catalogue
from autoscaler.policy.model import FleetPolicy

MOST_VALUES = 60_000_000
"""Rates that are held at once: 0.5 GB."""
_COLUMNS = ("client_id", "window_start_s", "rate_rps")


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Columns per adapter and rows per bucket.

    Attributes:
        catalogue: whose they are (A).
        bucket_s: length of a bucket.
        ends_s: end of each bucket, ascending (P).
        requests_per_s, tokens_per_s: float64 (P, A); NaN = unknown.
        judged_from: the first row whose forecasts are judged; those before are learnt from.
        notes: what a reader must know, a sentence each.
    """

    catalogue: Catalogue
    bucket_s: float
    ends_s: Floats
    requests_per_s: Floats
    tokens_per_s: Floats
    judged_from: int
    notes: tuple[str, ...]


def given_router(arguments: argparse.Namespace) -> str | None:
    """The router that `--router` names, None where it is the usual one."""
    return None if arguments.router == "envoy" else str(arguments.router)


def reached_prometheus(arguments: argparse.Namespace, url: str) -> tuple[PrometheusSettings, str]:
    """How a Prometheus is reached with what `--settings` says of it, and whose names the routers' series have.

    Raises UsageError for a router that is not known.
    """
    settings = read_settings(arguments.settings)
    told = settings.metrics.prometheus
    router = settings.metrics.router.value if told is not None and given_router(arguments) is None else arguments.router
    if router not in ROUTERS:
        raise UsageError(f"there is no router preset {router!r}; choose one of {', '.join(ROUTERS)}")
    reached = prometheus_settings(settings, told or Prometheus(url=url))
    return replace(reached, url=url), router


async def from_prometheus(
    reached: PrometheusSettings, router: str, policy: FleetPolicy, file: Path, start_s: float, end_s: float
) -> Recording:
    """Read it in bounded pieces. Raises UsageError where nothing can be read."""
    bucket_s = policy.forecast.bucket_s
    first_s = (start_s - policy.forecast.history_s) // bucket_s * bucket_s + bucket_s
    last_s = end_s // bucket_s * bucket_s
    catalogue, notes = await recorded_catalogue(reached, router, policy, file, first_s, last_s)
    points = round((last_s - first_s) / bucket_s) + 1
    if points < 2 or points * len(catalogue.ids) > MOST_VALUES:
        raise UsageError(
            f"{points} buckets of {len(catalogue.ids)} adapters are "
            + ("too few to replay" if points < 2 else f"more than {MOST_VALUES}")
            + "; choose another --start and --end, or another forecast.bucket"
        )
    span = (first_s, last_s, bucket_s)
    times_s, requests = await read_span(reached, router, policy, catalogue, span)
    if np.isnan(requests).all():
        raise UsageError(f"{reached.url} holds no request of a router between these times; is --router {router} right?")
    preset = ROUTERS[router]
    tokens = np.full_like(requests, np.nan)
    if preset.prompt_tokens and preset.completion_tokens:
        parts = [
            (await read_span(reached, router, policy, catalogue, span, counter))[1]
            for counter in (preset.prompt_tokens, preset.completion_tokens)
        ]
        tokens = np.where((parts[0] + parts[1] > 0) | (requests == 0), parts[0] + parts[1], np.nan)
    if np.isnan(tokens[requests > 0]).all():
        notes = (*notes, "no tokens are recorded: each request counts as 500")
    return Recording(catalogue, bucket_s, times_s, requests, tokens, round((start_s - first_s) / bucket_s) + 1, notes)


async def read_span(
    reached: PrometheusSettings,
    router: str,
    policy: FleetPolicy,
    catalogue: Catalogue,
    span_s: tuple[float, float, float],
    counter: str = "",
) -> tuple[Floats, Floats]:
    """Ends of steps (P), and rates over them (P, A), NaN where unknown: requests/s, or of another counter.

    Raises UsageError where requests cannot be read.
    """
    pieces = [piece async for piece in recorded_rates(reached, router, policy, catalogue, span_s, counter)]
    troubles = sorted({piece.trouble for piece in pieces if piece.trouble})
    if troubles and not counter:
        raise UsageError(f"history cannot be read: {'; '.join(troubles)}")
    return np.concatenate([p.times_s for p in pieces]), np.concatenate([p.requests_per_s for p in pieces])


async def recorded_catalogue(
    reached: PrometheusSettings, router: str, policy: FleetPolicy, file: Path, start_s: float, end_s: float
) -> tuple[Catalogue, tuple[str, ...]]:
    """The policy's own catalogue, else the names that routers counted, and what to say of it. Raises UsageError."""
    own = _own_catalogue(policy, file)
    if own is not None:
        return own, ()
    preset = ROUTERS[router]
    told = policy.signals.adapter_label
    label = preset.adapter_label if told == type(policy.signals)().adapter_label else told
    series = selector(preset.requests, reached.matchers, policy.signals.matchers)
    connection = PrometheusConnection(reached)
    try:
        found = await connection.query(f"group by ({label}) (last_over_time({series}[{end_s - start_s:.0f}s]))", end_s)
    finally:
        connection.close()
    if isinstance(found, Missing):
        raise UsageError(f"history cannot be read: {found.why}")
    names = {row["metric"].get(label, "") for row in found.rows} - {"", preset.unknown_name}
    if not names:
        raise UsageError(f"{reached.url} holds no {preset.requests} between these times; is --router {router} right?")
    catalogue, errors = catalogue_of_seen(dict.fromkeys(names, "recorded"), policy)
    return catalogue, (
        f"the policy has no list of adapters: the {len(catalogue.ids)} that routers counted are taken",
        *(e.message for e in errors),
    )


def _own_catalogue(policy: FleetPolicy, file: Path) -> Catalogue | None:
    path = catalogue_path(file, policy)
    if path is not None:
        parsed = parse_catalogue(read_bytes(path, "the policy's catalogue file"), str(path), policy)
        if not isinstance(parsed, Catalogue):
            raise UsageError("; ".join(map(str, parsed)))
        return parsed
    return catalogue_of(policy.adapters.list, policy) if policy.adapters.list else None


def from_file(path: Path, policy: FleetPolicy, start_s: float | None, end_s: float | None) -> Recording:
    """Rates of clients; each is one adapter and one tenant. Raises UsageError for what is no such file."""
    rows = _rows(path)
    names = sorted({name for name, _, _ in rows})
    starts = np.array([at for _, at, _ in rows])
    distinct = np.unique(starts)
    window_s = float(np.diff(distinct).min()) if len(distinct) > 1 else policy.forecast.bucket_s
    each = policy.forecast.bucket_s / window_s
    if abs(each - round(each)) > 1e-6 or each < 1:
        raise UsageError(
            f"{path}: windows of {window_s:g} s do not fit into buckets of {policy.forecast.bucket_s:g} s; choose a "
            "forecast.bucket that is a multiple of the file's window"
        )
    place = {name: i for i, name in enumerate(names)}
    windows = np.round((starts - distinct[0]) / window_s).astype(np.int64)
    buckets = (int(windows.max()) + 1) // round(each)
    table = np.full((buckets * round(each), len(names)), np.nan)
    for (name, _, rate), window in zip(rows, windows.tolist(), strict=True):
        if window < len(table):
            table[window, place[name]] = rate
    rates = np.asarray(table.reshape(buckets, round(each), len(names)).mean(axis=1), np.float64)
    ends_s = float(distinct[0]) + policy.forecast.bucket_s * np.arange(1, buckets + 1, dtype=np.float64)
    kept = ends_s <= (ends_s[-1] if end_s is None else end_s)
    judged = buckets // 2 if start_s is None else int(np.searchsorted(ends_s, start_s, "right"))
    if not 0 < judged < int(kept.sum()):
        raise UsageError(
            f"{path} has {buckets} buckets, from {distinct[0]:.0f} s to {ends_s[-1]:.0f} s: some must lie "
            "before --start to be learnt from, and some between --start and --end to be judged"
        )
    tokens = np.full_like(rates, np.nan)
    catalogue = Catalogue.of({name: (name, "recorded", "", 0) for name in names})
    notes = ("the file has no tokens: each request counts as 500",)
    return Recording(
        catalogue, policy.forecast.bucket_s, ends_s[kept], rates[kept], tokens[kept], judged, notes
    )  # fmt: skip


def _rows(path: Path) -> list[tuple[str, float, float]]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            table = csv.DictReader(lines)
            absent = [name for name in _COLUMNS if name not in (table.fieldnames or ())]
            if absent:
                raise UsageError(
                    f"{path}: its first line has no {', '.join(absent)}; it must name {', '.join(_COLUMNS)}"
                )
            rows = [_row(f"{path}:{table.line_num}", row) for row in table]
    except (OSError, EOFError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV: {error}") from error
    if not rows:
        raise UsageError(f"{path}: no line with a rate")
    return rows


def _row(where: str, row: Mapping[str, str | None]) -> tuple[str, float, float]:
    """One line's client, time and rate; an empty rate is unknown. Raises UsageError that names the line."""
    at, rate = row["window_start_s"] or "", row["rate_rps"] or ""
    try:
        at_s, rate_rps = float(at), float(rate) if rate else math.nan
    except ValueError:
        at_s = rate_rps = math.inf
    if not math.isfinite(at_s) or not (math.isnan(rate_rps) or 0 <= rate_rps < math.inf):
        raise UsageError(
            f"{where}: window_start_s {at!r} must be seconds, and rate_rps {rate!r} requests/s, at least 0 or empty"
        )
    return f"client-{row['client_id']}", at_s, rate_rps


def with_capacity(policy: FleetPolicy, tokens_per_s: float | None) -> FleetPolicy:
    """The policy with a stated capacity, where it has none and one is given."""
    if tokens_per_s is None or policy.scaling.capacity_tokens_per_s is not None:
        return policy
    return replace(policy, scaling=replace(policy.scaling, capacity_tokens_per_s=tokens_per_s))
