"""Whether capacity is there before it is missed: rises that a day repeats, and bursts that nothing foretold.

`python -m benchmarks.rises [--seeds 4] [--days 3] [--json]`: the controller at the wheel of a simulated fleet. A "day"
of two hours with its rise to three times the night's load, and replicas that take a minute to start: of a real day the
share that a start takes is half as large, so this is the harder case. The first day is learnt from; each later
rise counts as met where 99 % of its first tokens came within a second. A burst is an unforeseen step of all adapters
to 2.5 times their load; told are the ticks until the controller asked for more, and how many of them came after the
first scrape of the burst could be read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.controlled import ControlledFleet
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.scraping import ScrapeSettings
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.run import fitted, on_an_older_ring
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.traffic import Burst, GeneratorSettings

DAY_S, START_S, ADAPTERS, RATE_RPS = 7_200.0, 60.0, 200, 45.0
_WANTED, _RATIO, _BURST = 0.99, 3.0, 2.5


@dataclass(slots=True)
class Watched:
    """What was noted as a fleet ran: (time, arrived, in time) at the marks, (time, desired of warm) a tick."""

    marks: list[tuple[float, int, int]]
    desired: list[tuple[float, int]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rises", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    options = parser.parse_args()
    rises = [rise for seed in range(options.seeds) for rise in _rises(seed, options.days, quiet=options.json)]
    bursts = [_burst(seed, quiet=options.json) for seed in range(options.seeds)]
    known = [r for r in rises if r["day"] > 0]
    report: dict[str, Any] = {
        "rises": rises,
        "bursts": bursts,
        "rises_met_ratio": float(np.mean([r["in_time"] >= _WANTED for r in known])) if known else None,
        "first_day_met_ratio": float(np.mean([r["in_time"] >= _WANTED for r in rises if r["day"] == 0])),
        "bursts_within_two_ticks_ratio": float(
            np.mean([found["ticks_that_see_it"] is not None and found["ticks_that_see_it"] <= 2 for found in bursts])
        ),
    }
    print(json.dumps(report))
    return 0


def compressed() -> FleetPolicy:
    """The shipped policy with a day of two hours, and all that is told in parts of a day made shorter with it."""
    policy = read_policy(shipped_policy("default"))
    forecast = replace(
        policy.forecast, day_s=DAY_S, bucket_s=60.0, horizons_s=(120.0, 360.0, 720.0), horizon_s=120.0,
        half_lives_s=(60.0, 120.0, 600.0, 1800.0, DAY_S), history_s=0.0,
    )  # fmt: skip
    return replace(policy, forecast=forecast, budget=replace(policy.budget, max_changes_per_hour=600))


def _scenario(generator: GeneratorSettings, seconds: float, replicas: int, seed: int) -> Scenario:
    return Scenario(
        Traffic(generator=generator), limits=EngineLimits(64, 128), seconds=seconds, warmup_s=60.0, replicas=replicas,
        least=2, most=24, startup_s=START_S, seed=seed,
    )  # fmt: skip


def _run(scenario: Scenario, marks_s: list[float]) -> Watched:
    """The controller's own fleet through one scenario."""
    stage, watched = on_an_older_ring(scenario), Watched([], [])
    platform = stage.platform
    total = platform.engines.fleet.total

    def mark() -> None:
        watched.marks.append((platform.now_s, int(total[b.M_ARRIVED]), int(total[b.M_IN_TARGET])))

    loop = asyncio.new_event_loop()
    try:
        fleet = ControlledFleet(
            platform, fitted(compressed(), scenario), stage.names, stage.scraping, Level.ENVOY, loop
        )  # fmt: skip

        def tick() -> None:
            fleet.tick()
            assert fleet.latest is not None
            watched.desired.append((platform.now_s, fleet.latest.plan.scale.decisions["warm"].desired))

        platform.calendar.every(fleet.policy.tick_interval_s, fleet.policy.tick_interval_s, tick)
        for at_s in marks_s:
            platform.calendar.at(at_s, mark)
        stage.play()
        fleet.close()
    finally:
        loop.close()
    return watched


def _rises(seed: int, days: int, *, quiet: bool) -> list[dict[str, Any]]:
    """Each day's rise, from its lowest load to its highest."""
    generator = GeneratorSettings(adapters=ADAPTERS, rate_rps=RATE_RPS, season_s=DAY_S, season_ratio=_RATIO)
    marks_s = [at for day in range(days) for at in (day * DAY_S + 60.0, (day + 0.5) * DAY_S)]
    watched = _run(_scenario(generator, days * DAY_S, 3, seed), marks_s)
    out = []
    for day, (low, high) in enumerate(zip(watched.marks[::2], watched.marks[1::2], strict=True)):
        desired = [n for at_s, n in watched.desired if low[0] <= at_s <= high[0]]
        rise = {
            "seed": seed, "day": day, "in_time": min(1.0, (high[2] - low[2]) / max(1, high[1] - low[1])),
            "replicas": [desired[0], max(desired)],
        }  # fmt: skip
        out.append(rise)
        if not quiet:
            print("rise", json.dumps(rise), flush=True)
    return out


def _burst(seed: int, *, quiet: bool) -> dict[str, Any]:
    """A step of all adapters at once."""
    at_s, length_s = 1_800.0, 600.0
    bursts = tuple(Burst(i, at_s, length_s, _BURST) for i in range(ADAPTERS))
    generator = GeneratorSettings(adapters=ADAPTERS, rate_rps=0.6 * RATE_RPS, bursts=bursts)
    watched = _run(_scenario(generator, at_s + length_s, 4, seed), [at_s, at_s + length_s])
    before = [n for t, n in watched.desired if t <= at_s][-1]
    after = [(t, n) for t, n in watched.desired if t > at_s]
    readable_s = at_s + ScrapeSettings().interval_s + ScrapeSettings().delay_s
    ticks = next((i + 1 for i, (_, n) in enumerate(after) if n > before), None)
    blind = sum(t < readable_s for t, _ in after)
    seeing = None if ticks is None else ticks - blind
    (_, arrived, fine), (_, arrived_then, fine_then) = watched.marks
    found = {
        "seed": seed, "ticks": ticks, "ticks_that_see_it": seeing, "replicas": [before, max(n for _, n in after)],
        "in_time": (fine_then - fine) / max(1, arrived_then - arrived),
    }  # fmt: skip
    if not quiet:
        print("burst", json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
