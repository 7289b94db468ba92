"""Whether the simulator and the demo's HTTP fleet agree: the demo's two phases, and the same requests simulated.

`python -m benchmarks.agreement [--duration 90] [--seed 1] [--json]`: the demo runs as people run it (its engines,
Envoy, controller, client), then its phases are played on the virtual clock with the same requests, engines, routes and
policy. Told are both, the ratio of tokens per second (wanted: within 10 %), and whether the phases' order of median
time to first token is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscaler.cli import parser
from autoscaler.cli.demo_options import DemoOptions, options_from
from autoscaler.cli.demo_report import WARM_UP_S
from autoscaler.cli.demo_scenarios import Phase, scenario
from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.ring.slots import slot_name
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.controlled import ControlledFleet
from autoscaler.simulator.fleet.scraping import ScrapeSettings
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.http.options import DEFAULT_PROFILE
from autoscaler.simulator.strategies.peers import rendezvous, round_robin, warm_as_routed
from autoscaler.simulator.strategies.run import Stage, fitted
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.traffic import Arrivals, GeneratorSettings, Trace

_SETTLE_S = 30.0  # as the demo lets what is in flight end


@dataclass(frozen=True)
class Sent(Traffic):
    """The requests of one of the demo's phases; names and their number are those of a generator of as many."""

    options: DemoOptions | None = None
    phase: str = ""

    def arrivals(self, trace: Trace, seconds: float, seed: int) -> Iterator[Arrivals]:
        """All of them, each time anew."""
        assert self.options is not None
        return next(p for p in scenario(self.options).phases if p.name == self.phase).arrivals


def main() -> int:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.agreement", description=__doc__)
    reader.add_argument("--duration", type=float, default=90.0, help="of the demo, in seconds")
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--json", action="store_true", help="only the JSON object")
    options = reader.parse_args()
    argv = ["demo", "--duration", f"{options.duration:g}", "--seed", str(options.seed), "--no-dashboard", "--json"]
    seen = _demo(argv)["phases"]
    phases = {}
    demo = options_from(parser().parse_args(argv))
    for phase in scenario(demo).phases:
        simulated = simulate(demo, phase)
        http = {key: seen[phase.name][key] for key in (*simulated, "event_loop_lag_p99_s")}
        ratio = simulated["tokens_per_s"] / http["tokens_per_s"]
        phases[phase.name] = {"http": http, "simulated": simulated, "tokens_per_s_ratio": ratio}
        if not options.json:
            print(phase.name, json.dumps(phases[phase.name]))
    orders = {kind: sorted(phases, key=lambda name: phases[name][kind]["ttft_p50_s"]) for kind in ("http", "simulated")}
    same = orders["http"] == orders["simulated"]
    worst = max(abs(p["tokens_per_s_ratio"] - 1) for p in phases.values())
    print(json.dumps({"phases": phases, "ttft_order_same": same, "worst_tokens_error": worst}))
    return 0


def _demo(argv: list[str]) -> dict[str, Any]:
    program = "import sys; from autoscaler.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", program, *argv], stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def simulate(demo: DemoOptions, phase: Phase) -> dict[str, float]:
    """One phase of the demo on the virtual clock: the same keys as the demo's figures."""
    told = scenario(demo)
    adapters, replicas = told.adapters, told.replicas
    policy = read_policy(shipped_policy("local"))
    stated = policy.engine.limits
    assert stated.max_loras is not None
    assert stated.max_cpu_loras is not None
    assert stated.max_num_seqs is not None
    limits = EngineLimits(stated.max_loras, stated.max_cpu_loras, max_num_seqs=stated.max_num_seqs)
    traffic = Sent(generator=GeneratorSettings(adapters=len(adapters), rate_rps=1.0), options=demo, phase=phase.name)
    setting = Scenario(
        traffic, DEFAULT_PROFILE, limits, phase.seconds + _SETTLE_S, WARM_UP_S, replicas, replicas - 1, replicas,
        startup_s=policy.scaling.startup_s, routers=1,
    )  # fmt: skip
    stage = Stage(setting)
    platform = stage.platform
    platform.resize("warm", replicas, now=True)
    if phase.managed:  # the sprayed phase left every name at every engine, and what is popular in memory
        warm_as_routed(platform, round_robin()(platform.serving(), stage.names), setting.popularity)
        for member in platform.serving():
            platform.engines.register(member.place, np.arange(len(adapters)))
    first = rendezvous(2, lambda i, member: slot_name(i)) if phase.managed else round_robin()
    platform.engines.route(first(platform.serving(), stage.names))
    loop = asyncio.new_event_loop()
    try:
        if phase.managed:
            scraping = ScrapeSettings(interval_s=2.0, window_s=policy.signals.window_s)
            fleet = ControlledFleet(platform, fitted(policy, setting), adapters, scraping, Level.ENVOY, loop, rank=16)
            platform.calendar.every(policy.tick_interval_s, policy.tick_interval_s, fleet.tick)
        stage.play()
    finally:
        loop.close()
    out = stage.recorder.outcome(phase.name, {}, moves=0, tier_changes=0, resizes=0)
    return {
        "requests": out.requests,
        "errors": out.errors,
        "ttft_p50_s": out.ttft_p50_s,
        "ttft_p99_s": out.ttft_p99_s,
        "adapter_loads_per_1000": out.adapter_loads_per_1000,
        "tokens_per_s": out.tokens_per_s * (setting.seconds - WARM_UP_S) / (phase.seconds - WARM_UP_S),
    }


if __name__ == "__main__":
    raise SystemExit(main())
