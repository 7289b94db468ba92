"""A bound: a fleet that knows the future and may change at no cost.

Minute by minute it goes back and tries again until it has the fewest replicas that keep the SLO in that minute. They
appear at once; adapters are everywhere without a load; one router sees all requests in flight. Adapter slots, kernels
and the time to serve remain, so it is what scaling and placement could reach at best, not what engines could.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Table
from autoscaler.simulator.fleet.engines import Saved
from autoscaler.simulator.fleet.platform import Due
from autoscaler.simulator.strategies.outcome import Outcome, Sampled
from autoscaler.simulator.strategies.run import Progress, Stage
from autoscaler.simulator.strategies.scenario import Scenario

_SPAN_S, _PARTS = 60.0, 4
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
    stage = Stage(replace(scenario, routers=1, replicas=scenario.most, failures=()), loads_are_free=True)
    stage.platform.resize("oracle", scenario.most, now=True)
    count = scenario.replicas
    used: list[tuple[float, int]] = []
    at_s, resizes = 0.0, 0
    while at_s < scenario.seconds:
        end_s = min(at_s + _SPAN_S, scenario.seconds)
        before, count = count, _Minute(stage, build, scenario, end_s).fewest(count)
        resizes += int(before != count)
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


class _Minute:
    """One span, tried with several counts of replicas from the same state; the fewest good one's run is what stays."""

    def __init__(self, stage: Stage, build: Build, scenario: Scenario, end_s: float) -> None:
        self._stage, self._build, self._scenario, self._end_s = stage, build, scenario, end_s
        self._engines, self._stream = stage.engines, stage.stream
        self._began_s = stage.engines.now_s
        self._arrived: int | None = None

    def fewest(self, count: int) -> int:
        """The fewest replicas that keep the SLO until the end, searched from `count`; the stage is there with them."""
        least, most = self._scenario.least, self._scenario.most
        self._engines.try_from_now()
        if least == most:
            self._play(count)
            return count
        self._stream.mark()
        self._before = self._engines.save()
        self._due, self._sampled = self._stage.platform.calendar.save(), self._stage.recorder.save()
        if self._good(count):
            while count > least:
                best = self._here()
                if not self._good(count - 1):
                    self._go(*best)
                    break
                count -= 1
        else:
            while count < most:
                count += 1
                if self._good(count):
                    break
            else:
                self._back()
                self._play(count)
        return count

    def _good(self, count: int) -> bool:
        """Play the span with so many, from its beginning; given up once it cannot keep the SLO any more."""
        if self._arrived is not None:
            self._back()
        before = int(self._engines.fleet.total[b.ARRIVED])
        self._engines.route(self._build(range(count)))
        for part in range(1, _PARTS + 1):
            self._stage.platform.run(self._began_s + (self._end_s - self._began_s) * part / _PARTS)
            total = self._engines.fleet.total
            late = int(total[b.T_FIRST] - total[b.T_IN_TARGET])
            if self._arrived is not None and self._arrived - late < self._wanted(self._arrived):
                return False
        arrived = int(total[b.ARRIVED]) - before
        self._arrived = arrived
        return arrived == 0 or int(total[b.T_IN_TARGET]) >= self._wanted(arrived)

    def _wanted(self, arrived: int) -> float:
        """First tokens in time that the objective asks for, less those of the last ones, still on time at the end."""
        last = min(60.0, self._scenario.target_ttft_s) * arrived / _SPAN_S
        return self._scenario.objective_ratio * arrived - last

    def _play(self, count: int) -> None:
        self._engines.route(self._build(range(count)))
        self._stage.platform.run(self._end_s)

    def _here(self) -> tuple[Saved, tuple[int, int], Due, Sampled]:
        stage = self._stage
        return self._engines.hold(), self._stream.place, stage.platform.calendar.save(), stage.recorder.save()

    def _go(self, engines: Saved, place: tuple[int, int], due: Due, sampled: Sampled) -> None:
        self._engines.resume(engines)
        self._stream.go(place)
        self._stage.platform.calendar.restore(due)
        self._stage.recorder.restore(sampled)

    def _back(self) -> None:
        """Everything to the beginning of the span."""
        self._engines.restore(self._before)
        self._stream.rewind()
        self._stage.platform.calendar.restore(self._due)
        self._stage.recorder.restore(self._sampled)
        self._sampled = self._stage.recorder.save()
