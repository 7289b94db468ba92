"""One decision of a large fleet: `plan()` from forecast to placement, warm and cold, with its parts and its memory.

    python -m benchmarks.tick --tenants 100000 --replicas 512 [--rates FILE] [--json]

Every tenant has one adapter; loads are Zipf 1 (or a file's mean rates) and wander by a fifth from tick to tick, so that
each warm tick observes, forecasts, diagnoses, tiers, scales and places anew. One thread, as pinned by the environment.
"""

import argparse
import json
import resource
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from autoscaler.domain.decisions import AssignSlot, LoadAdapter, PublishRing
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaSignals, ReplicaState, Router, Tier
from autoscaler.domain.observation import Catalogue, Observation, Traffic
from autoscaler.domain.signals import Fresh
from autoscaler.planner import FleetPlan, PlannerMemory, plan
from autoscaler.policy.groups import Engine, Groups, HotGroups, StatedLimits, WarmGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Mode
from benchmarks.rates import read_rates

_WARM_TICKS = 7
_TICK_S = 15.0
_WANDER = 0.2
_STEPS = {
    "foresee": "forecast", "diagnose": "diagnose", "decide_tiers": "tiers", "decide_scale": "scale",
    "plan_ring": "ring",
}  # fmt: skip


def main() -> None:
    arguments = _arguments()
    weights = 1.0 / np.arange(1, arguments.tenants + 1)
    if arguments.rates:
        _, table = read_rates(arguments.rates)
        weights = np.resize(table.mean(axis=1), arguments.tenants)
    result = measure(weights, arguments.replicas)
    print(f"{arguments.tenants:,} tenants, {arguments.replicas} replicas")
    print(f"  warm tick {result['tick_s']:.3f} s (median of {_WARM_TICKS}), cold {result['cold_tick_s']:.3f} s")
    print("  " + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in result["steps_s"].items()))
    print(f"  peak memory {result['peak_rss_bytes'] / 2**20:,.0f} MiB")
    if arguments.json:
        print(json.dumps(result))


def measure(weights: Any, replicas: int) -> dict[str, Any]:
    """Ticks of one fleet; times in seconds."""
    world = _World(weights, replicas)
    steps = _timed_steps()
    started = perf_counter()
    world.tick()
    cold_s = perf_counter() - started
    for _ in range(2):  # loads answer, the ring is published: from here on the fleet is in its stride
        world.tick()
    steps.clear()
    ticks = []
    for _ in range(_WARM_TICKS):
        seen = world.observe()
        started = perf_counter()
        decided, world.memory = plan(seen, world.memory, world.policy)
        ticks.append(perf_counter() - started)
        world.follow(decided)
    return {
        "tenants": len(weights),
        "replicas": replicas,
        "tick_s": median(ticks),
        "cold_tick_s": cold_s,
        "steps_s": {name: median(seconds) for name, seconds in steps.items()},
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _timed_steps() -> dict[str, list[float]]:
    """Times each step of `plan()` from outside: the decision itself reads no clock."""
    module = sys.modules["autoscaler.planner.plan"]
    spent: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            started = perf_counter()
            result = step(*args, **kwargs)
            spent[name].append(perf_counter() - started)
            return result

        return run

    for function, name in _STEPS.items():
        setattr(module, function, timed(name, getattr(module, function)))
    return spent


class _World:
    """A fleet whose loads wander and whose effects are done by the next tick."""

    def __init__(self, weights: Any, replicas: int) -> None:
        count = len(weights)
        self._rng = np.random.default_rng(0)
        self._weights = weights / weights.sum() * replicas  # requests/s: one a replica
        names = {f"tenant-{i:06d}": (f"tenant-{i:06d}", f"/adapters/{i}", "", 16) for i in range(count)}
        self._catalogue = Catalogue.of(names)
        host = max(4 * count // replicas, 64)
        self.policy = FleetPolicy(
            name="bench", base_model="base", mode=Mode.ENFORCE,
            engine=Engine(limits=StatedLimits(max_loras=64, max_cpu_loras=host), resolver=True),
            groups=Groups(warm=WarmGroup(min_replicas=2, max_replicas=2 * replicas), hot=HotGroups()),
        )  # fmt: skip
        self.policy = replace(self.policy, budget=replace(self.policy.budget, max_replicas_total=2 * replicas))
        limits = EngineLimits(max_loras=64, max_cpu_loras=host, max_lora_rank=16, max_num_seqs=256)
        signals = ReplicaSignals(
            running=Fresh(8.0), waiting=Fresh(0.0), deferred=Fresh(0.0), kv_usage_ratio=Fresh(0.3),
            ttft_mean_s=Fresh(0.1), ttft_p99_s=Fresh(0.3), queue_time_mean_s=Fresh(0.0), itl_mean_s=Fresh(0.02),
            prompt_tokens_per_s=Fresh(250.0), generation_tokens_per_s=Fresh(250.0), requests_per_s=Fresh(1.0),
        )  # fmt: skip
        self._replicas = [
            Replica(
                f"warm-{i:04d}", "warm", None, f"10.0.{i // 250}.{i % 250}:8000", ReplicaState.READY, limits=limits,
                signals=signals, registered=frozenset(), in_flight=Fresh(8.0),
            )
            for i in range(replicas)
        ]  # fmt: skip
        self._registered: list[set[str]] = [set() for _ in self._replicas]
        self._ring: tuple[int, bytes] | None = None
        self._now_s = 1_800_000_000.0
        self.memory = PlannerMemory()

    def observe(self) -> Observation:
        """The next tick's observation."""
        self._now_s += _TICK_S
        count = len(self._weights)
        rate = self._weights * np.exp(_WANDER * self._rng.standard_normal(count))
        zero = np.zeros(count)
        base = Fresh(0.0)
        traffic = Traffic(
            60.0, rate, rate * 250, rate * 250, zero, np.full(count, 0.1), np.full(count, 0.3), base, base, base
        )
        epoch = self._ring[0] if self._ring else 0
        return Observation(
            now_s=self._now_s,
            catalogue=self._catalogue,
            traffic=traffic,
            replicas=tuple(self._replicas),
            groups={"warm": Group("warm", Tier.WARM, len(self._replicas))},
            routers=(Router("envoy", epoch, 0.0),),
            freshness=dict.fromkeys(("traffic", "engines", "replicas", "publisher"), Fresh(0.0)),
            ring_epoch=epoch,
            ring_body=self._ring[1] if self._ring else None,
        )

    def follow(self, decided: FleetPlan) -> None:
        """Do slots, loads and publications."""
        index = {r.id: i for i, r in enumerate(self._replicas)}
        touched = set()
        for effect in decided.effects:
            if isinstance(effect, AssignSlot):
                i = index[effect.replica]
                self._replicas[i] = replace(self._replicas[i], slot=effect.slot)
            elif isinstance(effect, LoadAdapter):
                self._registered[index[effect.replica]].add(effect.adapter)
                touched.add(index[effect.replica])
            elif isinstance(effect, PublishRing):
                self._ring = (effect.epoch, effect.body)
        for i in touched:
            self._replicas[i] = replace(self._replicas[i], registered=frozenset(self._registered[i]))

    def tick(self) -> None:
        """Observe, decide, follow."""
        decided, self.memory = plan(self.observe(), self.memory, self.policy)
        self.follow(decided)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=100_000)
    parser.add_argument("--replicas", type=int, default=512)
    parser.add_argument("--rates", type=Path, help="rates per client (CSV, also .gz): their means instead of Zipf 1")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    return parser.parse_args()


if __name__ == "__main__":
    main()
