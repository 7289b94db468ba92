"""Recorded history into memory: what a controller would remember had it run all along."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from autoscaler.domain.observation import Catalogue, Floats
from autoscaler.forecasting import ForecastMemory, ForecastSettings, GlobalModel, empty_memory, observe
from autoscaler.planner.demand import by_tenant


def begun(settings: ForecastSettings, catalogue: Catalogue, start_s: float) -> ForecastMemory:
    """The memory of one who starts to look at `start_s`, a bucket's start, and has seen nothing."""
    return observe(
        empty_memory(settings), start_s, catalogue.tenants, [float("nan")] * len(catalogue.tenants), settings
    )


def replayed(
    memory: ForecastMemory,
    catalogue: Catalogue,
    times_s: Iterable[float],
    requests_per_s: Iterable[Floats],
    settings: ForecastSettings,
    model: GlobalModel | None = None,
) -> ForecastMemory:
    """The memory after one whole bucket for each row.

    Args:
        memory: as of the first bucket's start.
        catalogue: its adapters are the rows' columns (A).
        times_s: the ends of the buckets, ascending, `bucket_s` apart.
        requests_per_s: mean rates per adapter (A) over each bucket; NaN = unknown, which stays unknown.
        settings: of the policy; here a rate covers a bucket, not a tick.
        model: the one that speaks at the buckets' ends, None = none.
    """
    whole = replace(settings, max_tick_s=settings.bucket_s)
    for at_s, row in zip(times_s, requests_per_s, strict=True):
        memory = observe(memory, at_s, catalogue.tenants, by_tenant(catalogue, row), whole, model)
    return memory


def joined(recorded: ForecastMemory, live: ForecastMemory, settings: ForecastSettings) -> ForecastMemory:
    """Recorded history followed by what was seen meanwhile: live buckets closed since, and the open one as it is.

    Both lie on the same grid of buckets. `recorded` ends at a bucket's end; where that is after the live memory's, or
    so long before that the live one has forgotten what came between, these buckets stay unknown.
    """
    if not live.bucket_start_s >= recorded.bucket_start_s:
        return recorded
    whole = replace(settings, max_tick_s=settings.bucket_s)
    between = round((live.bucket_start_s - recorded.bucket_start_s) / settings.bucket_s)
    seen = live.series.day[len(live.series.day) - min(between, len(live.series.day)) :]
    for back, row in zip(range(len(seen) - 1, -1, -1), seen, strict=True):
        end_s = live.bucket_start_s - back * settings.bucket_s
        recorded = observe(recorded, end_s, live.ids, row, whole)
    unknown = [float("nan")] * len(live.ids)
    both = observe(recorded, live.bucket_start_s, live.ids, unknown, whole)
    return replace(
        both,
        last_tick_s=live.last_tick_s,
        open_sum=live.open_sum,
        open_known_s=live.open_known_s,
        live=np.where(np.isnan(live.live), both.live, live.live),
        ticks=live.ticks,
        tick_s=live.tick_s,
    )
