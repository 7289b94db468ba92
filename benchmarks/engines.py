"""How many requests a second the simulated engines, and the router before them, carry on this machine.

    python -m benchmarks.engines --seconds 60 [--trace FILE [--lengths FILE]] [--json]

So that nobody reads a saturated test bench as a saturated fleet. Client and engines share one process, as in the demo;
Envoy has its own. The rate is raised until the process's event loop is late by more than 50 ms (99th percentile) or a
request fails; what was carried last counts. Requests have the lengths of a trace, else 400 tokens in and 120 out.
"""

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from autoscaler.connectors.envoy import EnvoyFilePublisher, EnvoyProcess, EnvoySettings
from autoscaler.ring.codec import encode
from autoscaler.ring.snapshot import Choice, Member, RingSnapshot
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.http import AdapterTable, EngineOptions, Pump, SimulatedEngine
from autoscaler.simulator.traffic import Arrivals, GeneratedTrace, GeneratorSettings, LoadGenerator, Trace, open_trace

LAG_LIMIT_S = 0.05
GROWTH = 1.5
FIRST_RPS = 20.0
STEPS = 12
NAMES = tuple(f"adapter-{i:04d}" for i in range(64))


def main() -> None:
    arguments = _arguments()
    result = asyncio.run(measure(arguments.seconds, arguments.replicas, _sample(arguments), arguments.port_base))
    for path in ("engines", "router"):
        print(
            f"{path:8} {result[path]['requests_per_s']:8.1f} requests/s  {result[path]['tokens_per_s']:9.0f} tokens/s"
        )
    if arguments.json:
        print(json.dumps(result))


async def measure(seconds: float, replicas: int, lengths: Arrivals, port_base: int) -> dict[str, Any]:
    """Half of the time straight to the engines, half through Envoy."""
    pump = Pump()
    options = EngineOptions(
        limits=EngineLimits(max_loras=len(NAMES), max_num_seqs=512),
        files=AdapterTable({f"/adapters/{name}": 16 for name in NAMES}),
        resolver=True,
    )
    async with AsyncExitStack() as stack:
        engines = [SimulatedEngine(options, pump) for _ in range(replicas)]
        for engine in engines:
            await engine.start()
            stack.push_async_callback(engine.crash)
        settings = EnvoySettings(Path(tempfile.mkdtemp(prefix="bench-")), port_base, port_base + 1)
        publisher = EnvoyFilePublisher(settings)
        publisher.prepare()
        envoy = EnvoyProcess(settings)
        await envoy.start()
        stack.push_async_callback(envoy.stop)
        members = tuple(Member(f"r{i}", e.address, slot=f"s{i:04d}") for i, e in enumerate(engines))
        ring = RingSnapshot("bench", 1, "2026-11-29T12:00:00Z", 2, members, choice=Choice.LEAST, warm=NAMES)
        await publisher.publish(1, encode(ring))
        await asyncio.sleep(0.5)
        urls = {"engines": [engine.url for engine in engines], "router": [settings.url]}
        found = {path: await _climb(of_path, lengths, pump, seconds / 2 / STEPS) for path, of_path in urls.items()}
    return {
        **found,
        "requests_per_s": found["router"]["requests_per_s"],
        "replicas": replicas,
        "cores": os.cpu_count(),
        "load_average_before": os.getloadavg()[0],
        "mean_prompt_tokens": float(lengths.prompt_tokens.mean()),
        "mean_output_tokens": float(lengths.output_tokens.mean()),
    }


async def _climb(urls: list[str], lengths: Arrivals, pump: Pump, step_s: float) -> dict[str, Any]:
    """Raise the rate step by step, without a pause between them, until something gives."""
    loads = [LoadGenerator(url, NAMES) for url in urls]
    running = [
        asyncio.create_task(load.run(_rising(lengths, 1 / len(urls), step_s, seed), drain_s=0.0))
        for seed, load in enumerate(loads)
    ]
    carried: dict[str, Any] = {"requests_per_s": 0.0, "tokens_per_s": 0.0}
    steps: list[dict[str, Any]] = []
    while len(steps) < STEPS:
        seen = await _step(loads, pump, step_s)
        steps.append(seen)
        if seen["event_loop_lag_p99_s"] > LAG_LIMIT_S or seen["errors"]:
            break
        carried = seen
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return {**carried, "steps": steps}


async def _step(loads: list[LoadGenerator], pump: Pump, step_s: float) -> dict[str, Any]:
    """What is sent, ends and costs in the next seconds."""
    pump.lag.clear()
    began_s, cpu_s, sent = perf_counter(), process_time(), sum(load.sent for load in loads)
    await asyncio.sleep(step_s)
    wall_s = perf_counter() - began_s
    results = [load.take() for load in loads]
    sent = sum(load.sent for load in loads) - sent
    ttft_s = np.concatenate([result.ttft_s for result in results])
    return {
        "requests_per_s": sent / wall_s,
        "tokens_per_s": sum(int(result.output_tokens.sum()) for result in results) / wall_s,
        "ttft_p50_s": float(np.nanmedian(ttft_s)) if len(ttft_s) else None,
        "errors": sum(result.errors for result in results),
        "event_loop_lag_p99_s": pump.lag.p99_s(),
        "cpu_s_per_request": (process_time() - cpu_s) / max(1, sent),
    }


def _rising(lengths: Arrivals, share: float, step_s: float, seed: int) -> Iterator[Arrivals]:
    """Poisson arrivals of one of several clients, each step at a higher rate."""
    rng = np.random.default_rng(seed)
    for step in range(STEPS + 1):
        count = int(rng.poisson(FIRST_RPS * GROWTH**step * share * step_s))
        rows = rng.integers(0, len(lengths), count)
        time_s = (step + np.sort(rng.random(count))) * step_s
        adapter = rng.integers(0, len(NAMES), count)
        yield Arrivals(time_s, adapter, lengths.prompt_tokens[rows], lengths.output_tokens[rows])


def _sample(arguments: argparse.Namespace) -> Arrivals:
    """Some thousands of requests, for their lengths."""
    trace: Trace = GeneratedTrace(GeneratorSettings(adapters=64, rate_rps=200.0), duration_s=60.0)
    if arguments.trace:
        trace = open_trace(arguments.trace, lengths=arguments.lengths)
    return _joined(islice(trace.chunks(), 6))


def _joined(chunks: Iterator[Arrivals]) -> Arrivals:
    columns = zip(*((c.time_s, c.adapter, c.prompt_tokens, c.output_tokens) for c in chunks), strict=True)
    return Arrivals(*(np.concatenate(column) for column in columns))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time under load, both ways together")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--trace", type=Path, help="take the lengths from this trace")
    parser.add_argument("--lengths", type=Path, help="token lengths that belong to a trace of rates")
    parser.add_argument("--port-base", type=int, default=19_400, help="two ports for Envoy")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
