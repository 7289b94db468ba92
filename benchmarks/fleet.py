"""The race: our policy and its controller against the peers, each at its best setting, on the same simulated fleet.

    python -m benchmarks.fleet [--adapters N] [--host slots|128|all] [--kernels recent|measured] [--quick] [--json]
    python -m benchmarks.fleet --rates FILE --lengths FILE --hours H --scale K [--start S]

Figures, per strategy: GPU-hours on demand that doubles and falls, at each one's cheapest setting that keeps 99 % of
first tokens within 1 s (the first seed finds it, the others judge it); the load at which a fixed fleet saturates (the
knee), as a share of what the bound carries; p99 and adapter loads between round-robin's knee and ours; what a fivefold
burst of one adapter does to the others. `--results FILE` keeps every run, so that a stopped race goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.search import Figures, Job, Results, best, climb, keeps_slo, run_jobs
from benchmarks.fleet_cases import BURST_LOAD, NAMES, Maker, Regime, Size, replica_seconds_per_cpu_s, shipped

_TOKENS_PER_REQUEST = (400 + 120) * math.exp(0.25)  # of the generator: two log-normal factors of sigma .5
_QUICK = Size(replicas=4, seconds=1800.0, slots=(64,), seeds=2, static_s=120.0, steps=4)
_REDUCED = Size(replicas=8, seconds=3600.0, slots=(64,), seeds=3)
_FULL = Size(replicas=16, seconds=7200.0, slots=(32, 64, 128), seeds=6)
_T95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
_SCALED = [name for name in NAMES if name not in ("group-per-tenant", "oracle")]
_ROUTED = [name for name in NAMES if name != "group-per-tenant"]


class Race:
    """One regime, from the bound's capacity to the table."""

    def __init__(self, regime: Regime, level: Level, results: Results, jobs: int) -> None:
        self._regime, self._results, self._jobs = regime, results, jobs
        self._maker = Maker(regime, shipped(), level, 1.0)
        self._began_s, self._done = time.monotonic(), 0

    def run(self, *, scaled: bool = True) -> dict[str, Any]:
        """All figures; without `scaled` those of fixed fleets only."""
        size = self._regime.size
        slots = size.slots[len(size.slots) // 2]
        rough = 14.0 * size.replicas if self._regime.kernels == "recent" else 8.0 * size.replicas
        ideal_rps = self._knee("oracle", slots, rough)
        self._maker = Maker(
            self._regime, self._maker.policy, self._maker.level,
            0.9 * ideal_rps * _TOKENS_PER_REQUEST / size.replicas,
        )  # fmt: skip
        knees = {name: self._knee(name, slots, ideal_rps) / ideal_rps for name in _ROUTED}
        out: dict[str, Any] = {
            "adapters": self._regime.adapters, "host": self._regime.host, "kernels": self._regime.kernels,
            "level": str(self._maker.level), "ideal_rps": ideal_rps,
            "replica_s_per_cpu_s": replica_seconds_per_cpu_s(), "knee": knees,
        }  # fmt: skip
        out |= self._between(knees, ideal_rps, slots)
        out["burst"] = self._burst(ideal_rps, slots)
        return out | self._scaled(ideal_rps) if scaled else out

    def _knee(self, name: str, slots: int, ideal_rps: float) -> float:
        """Highest steady load, requests/s, at which the fixed fleet keeps the SLO; by bisection of its share."""
        low, high = 0.02, 1.5
        for _ in range(self._regime.size.steps):
            middle = (low + high) / 2
            job = self._static(name, middle * ideal_rps, slots)
            self._play([job])
            low, high = (middle, high) if keeps_slo(job, self._results) else (low, middle)
        return low * ideal_rps

    def _static(self, name: str, rate_rps: float, slots: int) -> Job:
        return self._maker.job(self._regime.fixed(rate_rps, slots, 0), name, self._maker.usual(name))

    def _between(self, knees: dict[str, float], ideal_rps: float, slots: int) -> dict[str, Any]:
        low, high = knees["round-robin-hpa"], knees["ours"]
        load = (low + high) / 2 if high > low else high
        jobs = {name: self._static(name, load * ideal_rps, slots) for name in _ROUTED}
        self._play(list(jobs.values()))
        rows = {}
        for name, job in jobs.items():
            figures = self._figures(job)
            rows[name] = {"load": load, **{k: figures[k] for k in ("ttft_p99_s", "adapter_loads_per_1000")}}
        return {"between_knees": rows}

    def _burst(self, ideal_rps: float, slots: int) -> dict[str, float]:
        """p99 of the others during the burst over before."""
        scenario = self._regime.burst(BURST_LOAD * ideal_rps, slots, 0)
        jobs = {name: self._maker.job(scenario, name, self._maker.usual(name)) for name in _ROUTED}
        self._play(list(jobs.values()))
        extra = {name: self._figures(job)["extra"] for name, job in jobs.items()}
        return {n: e["others_ttft_p99_1_s"] / e["others_ttft_p99_0_s"] for n, e in extra.items()}

    def _scaled(self, ideal_rps: float) -> dict[str, Any]:
        """Everybody at its cheapest setting that keeps the SLO, then judged on seeds that did not tune it."""
        rate_rps, seeds = 0.6 * ideal_rps, range(self._regime.size.seeds)
        chosen: dict[str, Job] = {}
        frontier: dict[str, list[Any]] = {}
        for name in [*_SCALED, "oracle"]:
            tried = climb(self._maker.ladders(name, rate_rps, 0), self._results, self._jobs, self._told)
            chosen[name] = best(tried, self._results)
            frontier[name] = [self._point(job) for job in {job.key: job for job in tried}.values()]
        judged = {name: [self._at_seed(job, rate_rps, seed) for seed in seeds] for name, job in chosen.items()}
        self._play([job for jobs in judged.values() for job in jobs])
        rows = {name: [self._figures(job) for job in jobs] for name, jobs in judged.items()}
        means = {name: _mean(figures) for name, figures in rows.items()}
        alone = self._alone(rate_rps)
        if alone is not None:
            means["group-per-tenant"] = alone
        within = [n for n in _SCALED if n != "ours" and means[n]["slo_attainment"] >= 0.99]
        peer = min(within or [n for n in _SCALED if n != "ours"], key=lambda n: means[n]["gpu_hours"])
        ratios = [a["gpu_hours"] / b["gpu_hours"] for a, b in zip(rows["ours"], rows[peer], strict=True)]
        return {
            "strategies": means,
            "tuned": {n: {"max_loras": j.scenario.limits.max_loras, **j.settings} for n, j in chosen.items()},
            "at_equal_slo": {n: m["gpu_hours"] / means["ours"]["gpu_hours"] for n, m in means.items()},
            "frontier": frontier,
            "best_peer": peer,
            "vs_best_peer": float(np.mean(ratios)),
            "vs_best_peer_ci95": _interval(ratios),
            "vs_oracle": means["ours"]["gpu_hours"] / means["oracle"]["gpu_hours"],
            "ready_before_miss_ratio": self._ready(chosen, rate_rps),
            "seeds": len(seeds),
        }

    def _at_seed(self, job: Job, rate_rps: float, seed: int) -> Job:
        scenario = self._regime.changing(rate_rps, job.scenario.limits.max_loras, seed)
        return self._maker.job(scenario, job.strategy, job.settings)

    def _alone(self, rate_rps: float) -> dict[str, Any] | None:
        """One deployment per tenant: simulated where that is possible, else its least cost."""
        hours = self._regime.adapters * self._regime.size.seconds / 3600.0
        scenario = self._regime.changing(rate_rps, 1, 0)
        if self._regime.adapters > 300:
            return {"gpu_hours": hours, "slo_attainment": float("nan"), "note": "at least one replica each"}
        job = self._maker.job(scenario, "group-per-tenant", self._maker.usual("group-per-tenant"))
        self._play([job])
        return _mean([self._figures(job)])

    def _ready(self, chosen: dict[str, Job], rate_rps: float) -> float:
        """Of the minutes in which the bound needed more replicas than ever before in this season: ours in time."""
        ours, bound = (self._at_seed(chosen[name], rate_rps, 0).run().timeline for name in ("ours", "oracle"))
        if ours is None or bound is None:
            return float("nan")
        rises, met, highest = 0, 0, 0
        for need, late_s, at_s in zip(bound.ready, ours.ttft_p99_s, bound.at_s, strict=True):
            if at_s > 600 and need > highest > 0:
                rises += 1
                met += int(not late_s > 1.0)
            highest = max(highest, need)
        return met / rises if rises else float("nan")

    def _point(self, job: Job) -> dict[str, Any]:
        figures = self._figures(job)
        told = {k: figures[k] for k in ("gpu_hours", "ttft_p99_s", "slo_attainment")}
        return {**told, "settings": {"max_loras": job.scenario.limits.max_loras, **job.settings}}

    def _figures(self, job: Job) -> Figures:
        found = self._results.get(job)
        assert found is not None
        return found

    def _play(self, jobs: list[Job]) -> None:
        run_jobs(jobs, self._results, self._jobs, self._told)

    def _told(self, job: Job, figures: Figures) -> None:
        self._done += 1
        spent_s = time.monotonic() - self._began_s
        print(
            f"  {self._done:4} {spent_s:6.0f} s {job.strategy:<30} {figures['gpu_hours']:7.2f} GPU-h "
            f"p99 {figures['ttft_p99_s']:8.3f} s  {figures['slo_attainment']:7.2%}  "
            f"{job.scenario.traffic.generator.rate_rps:6.1f}/s {job.settings}",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _mean(rows: list[Figures]) -> dict[str, Any]:
    keys = (
        "gpu_hours", "ttft_p50_s", "ttft_p99_s", "slo_attainment", "adapter_loads_per_1000", "moves", "tier_changes",
        "requests", "errors",
    )  # fmt: skip
    return {key: float(np.mean([row[key] for row in rows])) for key in keys}


def _interval(values: list[float]) -> list[float]:
    """95 % interval of the mean by Student's t."""
    if len(values) < 2:
        return [float("nan")] * 2
    half = _T95.get(len(values) - 1, 1.96) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return [float(np.mean(values)) - half, float(np.mean(values)) + half]


def table(result: dict[str, Any]) -> str:
    """What people read."""
    lines = [
        f"{result['adapters']} adapters, host cache {result['host']}, {result['kernels']} kernels, routers "
        f"{result['level']}; a fixed fleet's bound carries {result['ideal_rps']:.0f} requests/s",
        f"{'':30}{'GPU-h':>8}{'of ours':>8}{'SLO':>8}{'p99 s':>9}{'loads/1k':>9}{'knee':>6}{'between: p99':>13}"
        f"{'loads/1k':>9}{'burst':>7}",
    ]
    equal: dict[str, float] = result.get("at_equal_slo", {})
    for name in NAMES:
        mean, knee = result.get("strategies", {}).get(name, {}), result["knee"].get(name, math.nan)
        between = result["between_knees"].get(name, {"ttft_p99_s": math.nan, "adapter_loads_per_1000": math.nan})
        if mean or name in result["knee"]:
            lines.append(
                f"{name:30}{mean.get('gpu_hours', math.nan):8.2f}{equal.get(name, math.nan):8.2f}"
                f"{mean.get('slo_attainment', math.nan):8.2%}{mean.get('ttft_p99_s', math.nan):9.3f}"
                f"{mean.get('adapter_loads_per_1000', math.nan):9.0f}{knee:6.2f}{between['ttft_p99_s']:13.3f}"
                f"{between['adapter_loads_per_1000']:9.0f}{result['burst'].get(name, math.nan):7.2f}"
            )
    if "vs_best_peer" not in result:
        return "\n".join(lines)
    low, high = result["vs_best_peer_ci95"]
    lines.append(
        f"ours / {result['best_peer']}: {result['vs_best_peer']:.3f} ({low:.3f} to {high:.3f}, {result['seeds']} "
        f"seeds); ours / oracle: {result['vs_oracle']:.3f}; in time for a rise: {result['ready_before_miss_ratio']:.0%}"
    )
    return "\n".join(lines)


def main() -> None:
    arguments = _arguments()
    size = _QUICK if arguments.quick else _FULL if arguments.full else _REDUCED
    if arguments.seeds:
        size = Size(size.replicas, size.seconds, size.slots, arguments.seeds, size.static_s, size.steps)
    if arguments.hours:
        size = Size(size.replicas, arguments.hours * 3600.0, size.slots, size.seeds, size.static_s, size.steps)
    regime = Regime(
        arguments.adapters, arguments.host, arguments.kernels, size, arguments.rates, arguments.lengths,
        arguments.start, arguments.scale,
    )  # fmt: skip
    race = Race(regime, Level(arguments.routers), Results(arguments.results), arguments.jobs)
    result = race.run(scaled=not arguments.fixed)
    print(table(result))
    if arguments.json:
        print(json.dumps(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", type=Path, help="ServeGen client rates, one adapter a client (CSV, also .gz)")
    parser.add_argument("--lengths", type=Path, help="token lengths of --rates (default: the file beside it)")
    parser.add_argument("--start", type=float, default=0.0, metavar="S", help="where in --rates to begin")
    parser.add_argument("--hours", type=float, help="of demand")
    parser.add_argument("--scale", type=float, default=1.0, metavar="K", help="share of the requests of --rates")
    parser.add_argument("--adapters", type=int, default=1000, help="of our own generator (default: 1000)")
    parser.add_argument("--host", choices=["slots", "128", "all"], default="128", help="adapters in host memory")
    parser.add_argument("--kernels", choices=["recent", "measured"], default="recent")
    parser.add_argument("--routers", choices=[str(level) for level in Level], default="envoy", help="of ours")
    parser.add_argument("--seeds", type=int, help="the first one tunes, all are told")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default: 2)")
    parser.add_argument("--results", type=Path, help="file of finished runs: a stopped race goes on")
    parser.add_argument("--fixed", action="store_true", help="fixed fleets only: knees, between them, burst")
    parser.add_argument("--quick", action="store_true", help="small: 5 minutes on one core")
    parser.add_argument("--full", action="store_true", help="16 replicas, 2 hours, 3 numbers of adapter slots, 6 seeds")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args()


if __name__ == "__main__":
    main()
