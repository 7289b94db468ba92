"""The race: our policy and its controller against the peers, each at its best setting, on the same simulated fleet.

    python -m benchmarks.fleet [--adapters N] [--host slots|128|all] [--kernels recent|measured] [--hours H] [--quick]
    python -m benchmarks.fleet --rates FILE --lengths FILE --hours H [--start S] [--scale K]
    python -m benchmarks.fleet --matrix FILE|all [--rates FILE] --results FILE

Figures, per strategy: GPU-hours on demand that doubles and falls, at each one's cheapest setting that keeps 99 % of
first tokens within 1 s (the first seed finds it, all judge it); the load at which a fixed fleet saturates (the knee),
as a share of what the bound carries; p99 and adapter loads between round-robin's knee and ours; what a fivefold burst
of one adapter does to the others. `--matrix`: a row of a Markdown table a regime, without fixed fleets; a file names a
regime a line, by these flags. `--results FILE` keeps every run, so that a stopped race goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.search import Results
from benchmarks import fleet_matrix
from benchmarks.fleet_cases import NAMES, Maker, Regime, Size, replica_seconds_per_cpu_s, shipped
from benchmarks.fleet_fixed import Fixed
from benchmarks.fleet_race import BOUND, OURS, Race
from benchmarks.fleet_runs import Runs, mean

_QUICK = Size(replicas=4, seconds=1800.0, slots=(64,), seeds=2, static_s=120.0, steps=4)
_REDUCED = Size(replicas=6, seconds=2400.0, slots=(64,), seeds=3)
_MATRIX = Size(replicas=6, seconds=2400.0, slots=(32, 64, 128, 256), seeds=5)
_FULL = Size(replicas=16, seconds=7200.0, slots=(32, 64, 128), seeds=6)
_LOAD = 0.75  # of what the bound carries on the fixed fleet: who scales then has about as many replicas on average
_PROFILED = 0.9  # of what the bound carries a replica: what the peer that profiles beforehand finds


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.matrix:
        result = _matrix(arguments)
    else:
        result = _one(arguments, Runs(Results(arguments.results), arguments.jobs))
        print(table(result))
    if arguments.json:
        print(json.dumps(result))


def _matrix(arguments: argparse.Namespace) -> dict[str, Any]:
    """Regime after regime, each row printed when it is known."""
    lines = list(fleet_matrix.lines(arguments.matrix, arguments.rates, arguments.lengths, arguments.start))
    runs = Runs(Results(arguments.results), arguments.jobs, len(lines))
    own = vars(_parser().parse_args([]))
    asked = {k: v for k, v in vars(arguments).items() if k not in ("rates", "lengths", "start", "hours", "scale")}
    print(fleet_matrix.HEAD, flush=True)
    rows = []
    for line in lines:
        rows.append(_scaled(_parser().parse_args(shlex.split(line), argparse.Namespace(**{**own, **asked})), runs))
        print(fleet_matrix.row(rows[-1]), flush=True)
        runs.end_regime()
    return {"rows": rows}


def _scaled(arguments: argparse.Namespace, runs: Runs) -> dict[str, Any]:
    maker, rate_rps, _ = _made(arguments, runs)
    return {"name": maker.regime.name, "rate_rps": rate_rps, **Race(maker, rate_rps, runs).run()}


def _one(arguments: argparse.Namespace, runs: Runs) -> dict[str, Any]:
    """All figures of one regime; with `--fixed` those of fixed fleets only."""
    maker, rate_rps, ideal_rps = _made(arguments, runs)
    regime = maker.regime
    out: dict[str, Any] = {
        "name": regime.name, "adapters": regime.count, "host": regime.host, "kernels": regime.kernels,
        "level": str(maker.level), "ideal_rps": ideal_rps, "rate_rps": rate_rps,
        "scale": rate_rps / regime.mix.rate_rps, "replica_s_per_cpu_s": replica_seconds_per_cpu_s(),
    }  # fmt: skip
    out |= Fixed(maker, runs).figures(ideal_rps)
    if arguments.fixed:
        return out
    raced = Race(maker, rate_rps, runs).run()
    strategies = raced["strategies"] | _alone(maker, rate_rps, runs)
    ours = strategies[OURS]["gpu_hours"]
    best, bound = (raced["ratios"][f"{OURS} / {other}"] for other in (raced["best_peer"], BOUND))
    return out | raced | {
        "strategies": strategies,
        "tuned": {name: told["settings"] for name, told in raced["strategies"].items()},
        "at_equal_slo": {name: told["gpu_hours"] / ours for name, told in strategies.items()},
        "vs_best_peer": best[0], "vs_best_peer_ci95": best[1:], "vs_oracle": bound[0],
        "ready_before_miss_ratio": _ready(maker, rate_rps, strategies),
    }  # fmt: skip


def _made(arguments: argparse.Namespace, runs: Runs) -> tuple[Maker, float, float]:
    """The regime's maker, capacity profiled on its own mix; requests/s to race at; and what the bound carries."""
    regime = Regime(
        arguments.adapters, arguments.host, arguments.kernels, _size(arguments), arguments.rates, arguments.lengths,
        arguments.start,
    )  # fmt: skip
    maker = Maker(regime, shipped(), Level(arguments.routers), 1.0)
    ideal_rps = Fixed(maker, runs).ideal_rps()
    each_rps = ideal_rps / regime.size.replicas
    rate_rps = _LOAD * ideal_rps
    if arguments.scale:
        rate_rps = arguments.scale * regime.mix.rate_rps
        size = replace(regime.size, replicas=max(2, round(rate_rps / (_LOAD * each_rps))))
        regime, ideal_rps = replace(regime, size=size), each_rps * size.replicas
    capacity = float(f"{_PROFILED * each_rps * regime.mix.tokens:.4g}")
    return Maker(regime, maker.policy, maker.level, capacity), float(f"{rate_rps:.4g}"), ideal_rps


def _size(arguments: argparse.Namespace) -> Size:
    usual = _MATRIX if arguments.matrix else _REDUCED
    size = _QUICK if arguments.quick else _FULL if arguments.full else usual
    if arguments.hours:
        size = replace(size, seconds=arguments.hours * 3600.0)
    return replace(
        size,
        replicas=arguments.replicas or size.replicas,
        seeds=arguments.seeds or size.seeds,
        slots=tuple(arguments.slots or size.slots),
    )


def _alone(maker: Maker, rate_rps: float, runs: Runs) -> dict[str, Any]:
    """One deployment per tenant: simulated where that is possible, else its least cost."""
    regime, name = maker.regime, "group-per-tenant"
    if regime.count > 300:
        hours = regime.count * regime.size.seconds / 3600.0
        return {name: {"gpu_hours": hours, "slo_attainment": math.nan, "note": "at least one replica each"}}
    return {name: mean(runs.play([maker.job(regime.changing(rate_rps, 1, 0), name, maker.usual(name))]))}


def _ready(maker: Maker, rate_rps: float, strategies: dict[str, Any]) -> float:
    """Of the minutes in which the bound needed more replicas than ever before in this season: ours in time."""
    timelines = []
    for name in (OURS, BOUND):
        settings = dict(strategies[name]["settings"])
        scenario = maker.regime.changing(rate_rps, settings.pop("max_loras"), 0)
        timelines.append(maker.job(scenario, name, settings).run().timeline)
    ours, bound = timelines
    if ours is None or bound is None:
        return math.nan
    rises, met, highest = 0, 0, 0
    for need, late_s, at_s in zip(bound.ready, ours.ttft_p99_s, bound.at_s, strict=True):
        if at_s > 600 and need > highest > 0:
            rises += 1
            met += int(not late_s > 1.0)
        highest = max(highest, need)
    return met / rises if rises else math.nan


def table(result: dict[str, Any]) -> str:
    """What people read of one regime."""
    lines = [
        f"{result['name']}, routers {result['level']}; a fixed fleet's bound carries {result['ideal_rps']:.0f} "
        f"requests/s; with scaling {result['rate_rps']:.1f}, a scale of {result['scale']:.3g}",
        f"{'':30}{'GPU-h':>8}{'of ours':>8}{'SLO':>8}{'p99 s':>9}{'loads/1k':>9}{'knee':>6}{'between: p99':>13}"
        f"{'loads/1k':>9}{'burst':>7}",
    ]
    equal: dict[str, float] = result.get("at_equal_slo", {})
    for name in dict.fromkeys((*result.get("strategies", ()), *NAMES)):
        told, knee = result.get("strategies", {}).get(name, {}), result["knee"].get(name, math.nan)
        between = result["between_knees"].get(name, {"ttft_p99_s": math.nan, "adapter_loads_per_1000": math.nan})
        if told or name in result["knee"]:
            lines.append(
                f"{name:30}{told.get('gpu_hours', math.nan):8.2f}{equal.get(name, math.nan):8.2f}"
                f"{told.get('slo_attainment', math.nan):8.2%}{told.get('ttft_p99_s', math.nan):9.3f}"
                f"{told.get('adapter_loads_per_1000', math.nan):9.0f}{knee:6.2f}{between['ttft_p99_s']:13.3f}"
                f"{between['adapter_loads_per_1000']:9.0f}{result['burst'].get(name, math.nan):7.2f}"
            )
    if "ratios" not in result:
        return "\n".join(lines)
    for name, (middle, low, high) in result["ratios"].items():
        lines.append(f"{name}: {middle:.3f} ({low:.3f} to {high:.3f})")
    lines.append(f"in time for a rise: {result['ready_before_miss_ratio']:.0%}; {result['seeds']} seeds")
    return "\n".join([*lines, fleet_matrix.HEAD, fleet_matrix.row(result)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--matrix", metavar="FILE|all", help="many regimes: a file of one line of flags each, or all")
    parser.add_argument("--rates", type=Path, help="ServeGen client rates, one adapter a client (CSV, also .gz)")
    parser.add_argument("--lengths", type=Path, help="token lengths of --rates (default: the file beside it)")
    parser.add_argument("--start", type=float, default=691_200.0, metavar="S", help="where in --rates (default: day 9)")
    parser.add_argument("--hours", type=float, help="of demand")
    parser.add_argument(
        "--scale", type=float, metavar="K", help="share of --rates (default: a mean fleet of --replicas)"
    )
    parser.add_argument("--replicas", type=int, metavar="N", help="about the mean fleet")
    parser.add_argument("--adapters", type=int, default=1000, help="of our own generator (default: 1000)")
    parser.add_argument("--host", choices=["slots", "128", "all"], default="128", help="adapters in host memory")
    parser.add_argument("--kernels", choices=["recent", "measured"], default="recent")
    parser.add_argument("--routers", choices=[str(level) for level in Level], default="envoy", help="of ours")
    parser.add_argument("--slots", type=int, nargs="+", metavar="N", help="adapter slots to try")
    parser.add_argument("--seeds", type=int, help="the first one tunes, all are told")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (default: 2)")
    parser.add_argument("--results", type=Path, help="file of finished runs: a stopped race goes on")
    parser.add_argument("--fixed", action="store_true", help="fixed fleets only: knees, between them, burst")
    parser.add_argument("--quick", action="store_true", help="small: 5 minutes on one core")
    parser.add_argument("--full", action="store_true", help="16 replicas, 2 hours, 3 numbers of adapter slots, 6 seeds")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser


if __name__ == "__main__":
    main()
