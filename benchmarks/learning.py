"""What learning costs the loop: the forecast step with a served model, and ticks while a child process trains.

    python -m benchmarks.learning --tenants 100000 --replicas 512 [--json]

The model is trained on a week of rates of 4,096 made-up tenants that come and go; it is put in service for every rate
group. Ticks 15 s apart do not close a bucket, every tenth here does: both are timed. Then the same ticks run while a
child process trains on that week. One thread in this process, as pinned by the environment.
"""

import argparse
import asyncio
import json
import os
import resource
import time
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from autoscaler.controller.jobs import JobError, run_job
from autoscaler.forecasting import GlobalModel
from autoscaler.forecasting.calibration import MODEL
from autoscaler.planner import Learned, LearnedModel, plan
from autoscaler.planner.demand import DemandMemory, foresee
from autoscaler.planner.learned import settings_of
from benchmarks.tick import _World

_FILLED_BUCKETS = 12
_BUCKETS, _SERIES = 1008, 4096


def main() -> None:
    arguments = _arguments()
    result = asyncio.run(measure(arguments.tenants, arguments.replicas, arguments.ticks, arguments.series))
    if not arguments.json:
        print(f"{arguments.tenants:,} tenants, {result['modelled_tenants']:,} of them served by the model")
        for name in ("tick_forecast_s", "bucket_end_forecast_s", "tick_s", "tick_while_training_s"):
            print(f"  {name:<26} {result[name]:.3f} (highest {result[name.replace('_s', '_max_s', 1)]:.3f})")
        print(f"  training: {result['training_s']:.0f} s, {result['training_rss_bytes'] / 2**20:,.0f} MiB at most")
    print(json.dumps(result))


def week_of_rates(buckets: int, series: int) -> Any:
    """Rates [T, S] in requests/s: lognormal levels, an hour or two on and off, rough while on."""
    rng = np.random.default_rng(11)
    level = np.exp(rng.normal(-1.0, 1.5, series))
    on, rows = rng.random(series) < 0.5, []
    for _ in range(buckets):
        on = np.where(on, rng.random(series) > 0.1, rng.random(series) < 0.1)
        rows.append(np.where(on, level * np.exp(rng.normal(0, 0.2, series)), 0.0))
    return np.asarray(rows, np.float32)


async def measure(tenants: int, replicas: int, ticks: int, series: int) -> dict[str, Any]:
    """Seconds of each, medians and the highest."""
    world = _World(1.0 / np.arange(1, tenants + 1), replicas)
    settings = settings_of(world.policy)
    rates = week_of_rates(_BUCKETS, series)
    small = await run_job("train", {"rates": rates[:300, :200]}, settings)
    learned = Learned(LearnedModel(GlobalModel.from_json(small["model"]), settings, 0.0, 300, 200))
    for _ in range(_FILLED_BUCKETS):
        _move(world, settings.bucket_s)
        world.tick()
        world.memory = replace(world.memory, demand=replace(_demand(world), learned=learned))
    _put_in_service(world)
    calm: list[float] = []
    ends: list[float] = []
    for i in range(ticks):
        end = i % 10 == 9
        _move(world, settings.bucket_s if end else 0.0)
        seen = world.observe()
        started = time.perf_counter()
        foresee(seen, world.memory.demand, world.policy)
        (ends if end else calm).append(time.perf_counter() - started)
        world.tick()
        _put_in_service(world)
    alone = [await _tick(world) for _ in range(ticks)]
    job = asyncio.create_task(_trained(rates, settings))
    await asyncio.sleep(2.0)  # the child has started and reads its job
    beside = []
    while not job.done():
        beside.append(await _tick(world))
    training_s = await job
    modelled = int((~np.isnan(_demand(world).forecast.modelled.ratios[0, 0])).sum())
    figures = {
        "tick_forecast": calm, "bucket_end_forecast": ends, "tick": alone, "tick_while_training": beside,
    }  # fmt: skip
    return {
        "tenants": tenants,
        "modelled_tenants": modelled,
        **{f"{name}_s": median(values) for name, values in figures.items()},
        **{f"{name}_max_s": max(values) for name, values in figures.items()},
        "ticks_while_training": len(beside),
        "training_s": training_s,
        "training_series": series,
        "training_rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "cores": len(os.sched_getaffinity(0)),
    }


async def _tick(world: _World) -> float:
    """One decision, in a thread as the loop does it."""
    seen = world.observe()
    started = time.perf_counter()
    decided, world.memory = await asyncio.to_thread(plan, seen, world.memory, world.policy)
    took_s = time.perf_counter() - started
    world.follow(decided)
    return took_s


async def _trained(rates: Any, settings: Any) -> float:
    started = time.perf_counter()
    try:
        await run_job("train", {"rates": rates}, settings)
    except JobError as error:
        raise SystemExit(f"training failed: {error}") from None
    return time.perf_counter() - started


def _move(world: _World, seconds: float) -> None:
    world._now_s += seconds


def _put_in_service(world: _World) -> None:
    """The model serves bands and medians of every rate group, whatever its record says."""
    demand = _demand(world)
    forecast = demand.forecast
    serving = np.full_like(forecast.calibration.serving, MODEL)
    forecast = replace(forecast, calibration=replace(forecast.calibration, serving=serving))
    world.memory = replace(world.memory, demand=replace(demand, forecast=forecast))


def _demand(world: _World) -> DemandMemory:
    assert world.memory.demand is not None
    return world.memory.demand


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=100_000)
    parser.add_argument("--replicas", type=int, default=512)
    parser.add_argument("--ticks", type=int, default=30, help="of each kind")
    parser.add_argument("--series", type=int, default=_SERIES, help="tenants in the history that the child trains on")
    parser.add_argument("--json", action="store_true", help="one JSON object only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
