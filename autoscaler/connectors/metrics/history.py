"""Recorded history, read in bounded pieces: what a forecast starts from, and what a policy is tried on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import numpy as np

from autoscaler.connectors.metrics.connection import Answer, PrometheusConnection
from autoscaler.connectors.metrics.presets import EnginePreset, series_names
from autoscaler.connectors.metrics.queries import Scope, adapter_rate_over, heard_over, newest_samples, own_rate_over
from autoscaler.connectors.metrics.router_presets import RouterPreset
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.observation import Catalogue, Floats
from autoscaler.domain.signals import Missing
from autoscaler.ports import HistoryPiece

# Prometheus refuses more than 11,000 points of one series; the values bound memory, at about 60 bytes each on the way.
MOST_POINTS = 10_000
MOST_VALUES = 2_000_000
# A server that refuses a piece as too large is asked for half of it, down to this many points.
FEWEST_POINTS = 8


async def request_history(
    connection: PrometheusConnection,
    router: RouterPreset,
    scope: Scope,
    catalogue: Catalogue,
    start_s: float,
    end_s: float,
    step_s: float,
    own: str = "",
) -> AsyncIterator[HistoryPiece]:
    """Mean request rates over each step, oldest first, in pieces that neither side chokes on.

    Args:
        connection: where it is recorded.
        router: names of the routers' series.
        scope: matchers; each rate covers one step, whatever its window.
        catalogue: whose adapters are wanted (A); others are left out.
        start_s, end_s: seconds since the Unix epoch, whole; points lie at `start_s + n * step_s`, both ends included.
        step_s: between points, whole seconds, at least two scrape intervals.
        own: a policy's own PromQL for an adapter's requests/s instead of the router's series; the adapter's label is
            the router's. Where it shows nothing at all, nothing is known.
    """
    rates = own_rate_over(own, scope, step_s) if own else adapter_rate_over(router, scope, step_s)
    heard = f"count({rates})" if own else heard_over(router, scope, step_s)
    points = int((end_s - start_s) // step_s) + 1
    size = max(FEWEST_POINTS, min(MOST_POINTS, MOST_VALUES // max(1, len(catalogue.ids))))
    at = 0
    while at < points:
        count = min(size, points - at)
        times_s = start_s + step_s * np.arange(at, at + count, dtype=np.float64)
        piece = await _piece(connection, heard, rates, router.adapter_label, catalogue, times_s, step_s)
        if piece.trouble and count > FEWEST_POINTS:
            size = max(FEWEST_POINTS, count // 2)
            continue
        yield piece
        at += count


async def recorded_replicas(
    connection: PrometheusConnection,
    engine: EnginePreset,
    scope: Scope,
    replica_label: str,
    at_s: float,
    group_of: Callable[[Mapping[str, str]], str] = lambda labels: "warm",
) -> tuple[Replica, ...] | Missing:
    """Replicas that had fresh series at a moment of recorded history, ascending by id; limits are not among them."""
    name = next(series_names(engine.sources["running"]))
    answer = await connection.query(newest_samples(name, scope), at_s)
    if isinstance(answer, Missing):
        return answer
    found: dict[str, Replica] = {}
    for row in answer.rows:
        labels = row["metric"]
        address = labels.get("instance", "")
        replica = labels.get(replica_label, address)
        found[replica] = Replica(replica, group_of(labels), None, address, ReplicaState.READY)
    return tuple(found[r] for r in sorted(found))


async def _piece(
    connection: PrometheusConnection,
    heard_query: str,
    rates_query: str,
    adapter_label: str,
    catalogue: Catalogue,
    times_s: Floats,
    step_s: float,
) -> HistoryPiece:
    unknown = np.full((len(times_s), len(catalogue.ids)), np.nan)
    span = (float(times_s[0]), float(times_s[-1]), step_s)
    heard = await connection.query_range(heard_query, *span)
    rates = await connection.query_range(rates_query, *span)
    for answer in (heard, rates):
        if isinstance(answer, Missing):
            return HistoryPiece(times_s, unknown, answer.why)
        if answer.partial:
            return HistoryPiece(times_s, unknown, f"partial answer: {answer.partial}")
    assert isinstance(heard, Answer)
    assert isinstance(rates, Answer)
    known = np.zeros(len(times_s), np.bool_)
    for row in heard.rows:
        known[_points(row["values"], times_s, step_s)] = True
    values = np.where(known[:, None], 0.0, unknown)
    for row in rates.rows:
        column = catalogue.row.get(row["metric"].get(adapter_label, ""))
        if column is not None:
            values[_points(row["values"], times_s, step_s), column] = [float(v) for _, v in row["values"]]
    return HistoryPiece(times_s, values)


def _points(samples: list[tuple[float, str]], times_s: Floats, step_s: float) -> list[int]:
    return [round((at_s - float(times_s[0])) / step_s) for at_s, _ in samples]
