"""Small fleets whose times are easy to reckon with: 10 ms a step, one token a step."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.core.layout import Table
from autoscaler.simulator.fleet.engines import EngineFleet, FleetShape
from autoscaler.simulator.fleet.stream import ArrivalStream
from autoscaler.simulator.traffic import Arrivals
from tests.simulation.engine.builders import profile

LIMITS = EngineLimits(max_loras=2, max_cpu_loras=4, max_num_seqs=8, max_num_batched_tokens=64)


def fleet(
    engines: int, adapters: int = 6, *, limits: EngineLimits = LIMITS, seed: int = 0, costs: Any = None, **shape: Any
) -> EngineFleet:
    """A fleet with so many engines started, and room for two more."""
    made = EngineFleet(costs or profile(), limits, FleetShape(engines + 2, adapters, **shape), seed)
    for _ in range(engines):
        made.start(limits)
    return made


def arrivals(times_s: Sequence[float], adapter: Any = 0, prompt: Any = 1, output: Any = 5) -> Arrivals:
    """Requests; scalars hold for all."""
    count = len(times_s)

    def column(value: Any) -> Any:
        return np.broadcast_to(np.asarray(value, np.int64), count).copy()

    return Arrivals(np.asarray(times_s, np.float64), column(adapter), column(prompt), column(output))


def poisson(rate_rps: float, count: int, seed: int, *, adapters: int = 6, output: int = 5) -> Arrivals:
    """Poisson arrivals for uniformly drawn adapters."""
    rng = np.random.default_rng(seed)
    times_s = np.cumsum(rng.exponential(1 / rate_rps, count))
    return arrivals(times_s.tolist(), rng.integers(0, adapters, count), rng.integers(1, 20, count), output)


def play(one: EngineFleet, table: Table, requests: Arrivals, until_s: float) -> EngineFleet:
    """Run a fleet to the end with one table."""
    one.route(table)
    one.run(ArrivalStream([requests]), until_s)
    return one
