"""A bound: a fleet that knows the future and may change at no cost.

Minute by minute it goes back and tries again until it has the fewest replicas that keep the SLO in that minute. They
appear at once; adapters are everywhere without a load; one router sees all requests in flight. Adapter slots, kernels
and the time to serve remain, so it is what scaling and placement could reach at best, not what engines could.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autoscaler.simulator.engine.layout import PS_PER_S
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Table
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.run import Progress, Stage
from autoscaler.simulator.strategies.scenario import Scenario

_SPAN_S = 60.0
_BOUND_PERCENT = 125
_POINTS = 256
Build = Callable[[Sequence[int]], Table]


def run_oracle(
    scenario: Scenario, name: str, settings: dict[str, Any], progress: Progress = lambda share: None
) -> Outcome:
    """The better of two ways to route: least requests, and bounded hashing where few adapters a batch are cheaper."""
    adapters = scenario.trace.adapters

    def hashed(pool: Sequence[int]) -> Table:
        return tables.hash_ring(pool, [f"r{p}" for p in pool], adapters, _BOUND_PERCENT, _POINTS)

    def least(pool: Sequence[int]) -> Table:
        return tables.least_requests(pool, len(adapters), 0)

    wanted: str = settings.get("routing", "")
    ways: dict[str, Build] = {"hashed": hashed, "least": least}
    runs = [
        _run(scenario, name, {**settings, "routing": key}, build, progress)
        for key, build in ways.items()
        if wanted in ("", key)
    ]
    good = [run for run in runs if run.slo_attainment >= scenario.objective_ratio]
    return min(good, key=lambda run: run.gpu_hours) if good else max(runs, key=lambda run: run.slo_attainment)


def _run(scenario: Scenario, name: str, settings: dict[str, Any], build: Build, progress: Progress) -> Outcome:
    stage = Stage(replace(scenario, routers=1, replicas=scenario.most), loads_are_free=True)
    platform, engines = stage.platform, stage.engines
    platform.resize("oracle", scenario.most, now=True)
    count = scenario.replicas
    used: list[tuple[float, int]] = []
    at_s, resizes = 0.0, 0
    while at_s < scenario.seconds:
        end_s = min(at_s + _SPAN_S, scenario.seconds)
        if scenario.least < scenario.most:
            before, count = count, _fewest(stage, build, scenario, count, end_s)
            resizes += int(before != count)
        engines.route(build(range(count)))
        platform.run(end_s)
        used.append((end_s - at_s if at_s >= scenario.warmup_s else 0.0, count))
        at_s = end_s
        progress(at_s / scenario.seconds)
    hours = sum(seconds * replicas for seconds, replicas in used) / 3600.0
    outcome = stage.recorder.outcome(name, settings, moves=0, tier_changes=0, resizes=resizes)
    measured_s = scenario.seconds - scenario.warmup_s
    timeline = outcome.timeline
    if timeline is not None:
        counts = [used[min(int((at - 1e-6) // _SPAN_S), len(used) - 1)][1] for at in timeline.at_s]
        timeline.ready, timeline.replicas = counts, list(counts)
    return replace(outcome, gpu_hours=hours, replicas_mean=hours * 3600.0 / measured_s)


def _fewest(stage: Stage, build: Build, scenario: Scenario, count: int, end_s: float) -> int:
    """The fewest replicas that keep the SLO until `end_s`; the state is put back."""
    saved = stage.engines.save()
    stage.stream.mark()

    def good(replicas: int) -> bool:
        stage.engines.restore(saved)
        stage.stream.rewind()
        stage.engines.measure_from(saved.now / PS_PER_S)
        stage.engines.route(build(range(replicas)))
        stage.engines.run(stage.stream, end_s)
        total, before = stage.engines.fleet.total, saved.fleet.total
        arrived = int(total[b.M_ARRIVED] - before[b.M_ARRIVED])
        in_time = int(total[b.M_IN_TARGET] - before[b.M_IN_TARGET])
        last = min(60.0, scenario.target_ttft_s) * arrived / max(_SPAN_S, 1e-9)  # still on time at the end
        return arrived == 0 or in_time + last >= scenario.objective_ratio * arrived

    found = count
    if good(found):
        while found > scenario.least and good(found - 1):
            found -= 1
    else:
        while found < scenario.most and not good(found := found + 1):
            pass
    stage.engines.restore(saved)
    stage.stream.rewind()
    return found
