"""What learning costs the loop: the forecast step with a served model, and ticks while a child process trains.

    python -m benchmarks.learning --tenants 100000 --replicas 512 [--json]

The model is trained on a week of rates of 4,096 made-up tenants that come and go; it is put in service for every rate
group. Steps that close a bucket and steps that do not are timed. Then whole ticks run alone, and while a child process
trains on that week. One thread in this process, as pinned by the environment.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
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
        for name in ("forecast_cpu_s", "bucket_end_forecast_cpu_s", "tick_s", "tick_while_training_s"):
            print(f"  {name:<26} {result[name]:.3f} (highest {result[f'{name[:-2]}_max_s']:.3f})")
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
    """Medians and the highest: forecast steps in CPU seconds of their thread, whole ticks in seconds that passed."""
    world = _World(1.0 / np.arange(1, tenants + 1), replicas)
    settings = settings_of(world.policy)
    rates = week_of_rates(_BUCKETS, series)
    small = await run_job("train", {"rates": rates[:300, :200]}, settings)
    learned = Learned(LearnedModel(GlobalModel.from_json(small["model"]), settings, 0.0, 300, 200))
    memory: DemandMemory | None = None
    within: list[float] = []
    ends: list[float] = []
    for i in range(_FILLED_BUCKETS + 2 * ticks):
        end = i < _FILLED_BUCKETS or i % 2 == 1
        world._now_s += settings.bucket_s if end else 0.0
        seen = world.observe()
        started = time.thread_time()
        _, memory = foresee(seen, memory, world.policy)
        took_s = time.thread_time() - started
        memory = _served_by_model(replace(memory, learned=learned))
        if i >= _FILLED_BUCKETS:
            (ends if end else within).append(took_s)
    print(f"forecast step: {median(within):.3f} s, at a bucket's end {median(ends):.3f} s of CPU", file=sys.stderr)
    world.memory = replace(world.memory, demand=memory)
    for _ in range(3):  # loads answer, the ring is published: from here on the fleet is in its stride
        await _tick(world)
    alone = [await _tick(world) for _ in range(ticks)]
    job = asyncio.create_task(_trained(rates, settings))
    await asyncio.sleep(2.0)  # the child has started and reads its job
    beside = []
    while not job.done():
        beside.append(await _tick(world))
    training_s = await job
    assert memory is not None
    figures = {
        "forecast_cpu": within, "bucket_end_forecast_cpu": ends, "tick": alone, "tick_while_training": beside,
    }  # fmt: skip
    return {
        "tenants": tenants,
        "modelled_tenants": int((~np.isnan(memory.forecast.modelled.ratios[0, 0])).sum()),
        **{f"{name}_s": median(values) for name, values in figures.items()},
        **{f"{name}_max_s": max(values) for name, values in figures.items()},
        "ticks_while_training": len(beside),
        "training_s": training_s,
        "training_series": series,
        "training_rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
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


def _served_by_model(memory: DemandMemory) -> DemandMemory:
    """The model serves bands and medians of every rate group, whatever its record says."""
    calibration = memory.forecast.calibration
    serving = np.full_like(calibration.serving, MODEL)
    return replace(memory, forecast=replace(memory.forecast, calibration=replace(calibration, serving=serving)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=100_000)
    parser.add_argument("--replicas", type=int, default=512)
    parser.add_argument("--ticks", type=int, default=20, help="of each kind")
    parser.add_argument("--series", type=int, default=_SERIES, help="tenants in the history that the child trains on")
    parser.add_argument("--json", action="store_true", help="one JSON object only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
