"""How well the engine model follows real servers: every measured run replayed for its hour, scored, cross-validated.

`python -m benchmarks.calibration --runs FILE [--sample N] [--jobs J] [--json]`, FILE with the columns of
real_server_runs.csv. Scenarios on which the shipped profiles were fitted are scored once more with a profile fitted
without them (the tables for that are looked for beside FILE); all others are unseen as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from autoscaler.simulator.calibration.fit import run_row, with_steps
from autoscaler.simulator.calibration.replay import Arrivals, replay
from autoscaler.simulator.calibration.runs import MeasuredRun, Outcome, read_runs, simulate
from autoscaler.simulator.calibration.score import score
from autoscaler.simulator.calibration.tables import step_rows
from autoscaler.simulator.engine.model import Engine
from autoscaler.simulator.engine.profile import (
    EngineLimits,
    EngineProfile,
    ProfileError,
    available_profiles,
    load_profile,
)

Key = tuple[str, str, int]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="table with the columns of real_server_runs.csv")
    parser.add_argument("--sample", type=int, help="only N runs, spread evenly over the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-cross-validation", action="store_true", help="half the time")
    parser.add_argument("--json", action="store_true", help="only the JSON object")
    options = parser.parse_args(arguments)
    try:
        report = measure(options.runs, options.sample, options.seed, options.jobs, not options.no_cross_validation)
    except (OSError, ValueError) as error:
        print(f"calibration: {error}", file=sys.stderr)
        return 2
    if not options.json:
        for name, figures in report["per_scenario"].items():
            print(name, json.dumps(figures))
    print(json.dumps(report))
    return 0


def measure(path: Path, sample: int | None, seed: int, jobs: int, cross_validation: bool) -> dict[str, Any]:
    """Replay, score and cross-validate; the object that `--json` prints."""
    runs, skipped = read_runs(path)
    profiles = {profile.model: profile for name in available_profiles() if _fitted(profile := load_profile(name))}
    runs, skipped = _usable(runs, skipped, profiles)
    if not runs:
        raise ValueError(f"{path} has no usable run: {dict(skipped)}")
    if sample is not None and sample < len(runs):
        runs = [runs[i] for i in np.linspace(0, len(runs) - 1, sample).round().astype(int)]
    started = time.perf_counter()
    outcomes, busy_s = _replay_all(runs, [profiles[run.model] for run in runs], seed, jobs)
    report = asdict(score(runs, outcomes))
    report["rows"] = report.pop("runs")
    report["skipped"] = dict(skipped)
    report["per_scenario"] = _per_scenario(runs, outcomes)
    report["cross_validated"] = (
        _cross_validate(path, runs, outcomes, profiles, seed, jobs) if cross_validation else None
    )
    report["simulated_s_per_wall_s"] = sum(outcome.horizon_s for outcome in outcomes) / busy_s
    report["replica_s_per_wall_s_at_batch_64"] = _speed_at_batch_64(profiles[runs[0].model])
    report["wall_s"] = time.perf_counter() - started
    report["jobs"] = jobs
    report["profiles"] = sorted(f"{profile.name} {profile.version}" for profile in profiles.values())
    report["per_run"] = [_run_figures(run, outcome) for run, outcome in zip(runs, outcomes, strict=True)]
    return report


def _fitted(profile: EngineProfile) -> bool:
    return "scenarios" in profile.provenance


def _usable(
    runs: list[MeasuredRun], skipped: Counter[str], profiles: dict[str, EngineProfile]
) -> tuple[list[MeasuredRun], Counter[str]]:
    """Drop what no profile can serve, and count why."""
    usable = []
    for run in runs:
        if run.model not in profiles:
            skipped[f"no profile of {run.model}"] += 1
            continue
        try:
            profiles[run.model].kv_tokens(EngineLimits(run.max_loras, run.max_cpu_loras, run.max_lora_rank))
        except ProfileError:
            skipped["the adapter slots leave no KV cache"] += 1
            continue
        usable.append(run)
    return usable, skipped


def _replay_all(
    runs: Sequence[MeasuredRun], profiles: Sequence[EngineProfile], seed: int, jobs: int
) -> tuple[list[Outcome], float]:
    """Outcomes in the order of `runs`, and the wall seconds that the workers spent on them."""
    work = (delayed(_replay_one)(run, profile, seed) for run, profile in zip(runs, profiles, strict=True))
    results = Parallel(n_jobs=jobs, batch_size=4)(work)
    return [outcome for outcome, _ in results], sum(seconds for _, seconds in results)


def _replay_one(run: MeasuredRun, profile: EngineProfile, seed: int) -> tuple[Outcome, float]:
    _warm_up(profile)
    started = time.perf_counter()
    outcome = simulate(run, profile, seed=seed)
    return outcome, time.perf_counter() - started


_WARM: list[bool] = []


def _warm_up(profile: EngineProfile) -> None:
    """Compile or load the machine code once a process, outside the clock."""
    if not _WARM:
        _drive(profile, rate=1.0, horizon_s=5.0)
        _WARM.append(True)


def _drive(profile: EngineProfile, rate: float, horizon_s: float) -> tuple[float, float]:
    """One engine of 32 adapters under Poisson arrivals: (mean batch, wall seconds)."""
    rng = np.random.default_rng(0)
    count = rng.poisson(rate * horizon_s)
    arrivals = Arrivals(
        np.sort(rng.uniform(0, horizon_s, count)),
        rng.integers(0, 32, count),
        rng.integers(20, 420, count),
        rng.integers(20, 380, count),
    )
    engine = Engine(profile, EngineLimits(32, 32, max_num_seqs=1024), 32)
    started = time.perf_counter()
    result = replay(engine, arrivals, horizon_s, 10_000)
    return result.running, time.perf_counter() - started


def _speed_at_batch_64(profile: EngineProfile) -> float:
    """Replica-seconds a wall second on one core, at the arrival rate that keeps 64 requests running."""
    rate = 2.0
    for _ in range(8):
        batch, _ = _drive(profile, rate, 300.0)
        rate *= (64 / batch) ** 0.5
    _, wall_s = _drive(profile, rate, 3600.0)
    return 3600.0 / wall_s


def _key(run: MeasuredRun) -> Key:
    return run.model, run.scenario, run.max_lora_rank


def _per_scenario(runs: Sequence[MeasuredRun], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    groups: dict[Key, list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        groups[_key(run)].append(i)
    return {
        f"{model} {scenario} rank {rank}": asdict(score([runs[i] for i in rows], [outcomes[i] for i in rows]))
        for (model, scenario, rank), rows in sorted(groups.items())
    }


def _cross_validate(
    path: Path,
    runs: Sequence[MeasuredRun],
    outcomes: Sequence[Outcome],
    profiles: dict[str, EngineProfile],
    seed: int,
    jobs: int,
) -> dict[str, Any]:
    """Score with each run simulated by a profile that has not seen its scenario."""
    known = {_key(run): [run.scenario, run.max_lora_rank] in _seen(profiles[run.model]) for run in runs}
    refitted: dict[Key, EngineProfile] = {}
    failed = ""
    for key in (key for key, seen in known.items() if seen):
        rows = [run_row(r, o) for r, o in zip(runs, outcomes, strict=True) if r.model == key[0] and _key(r) != key]
        try:
            refitted[key] = with_steps(profiles[key[0]], [*step_rows(path.parent, key[0]), *rows])
        except (OSError, ValueError) as error:
            failed = str(error)
    again = [i for i, run in enumerate(runs) if _key(run) in refitted]
    replayed, _ = _replay_all([runs[i] for i in again], [refitted[_key(runs[i])] for i in again], seed, jobs)
    held_out = [i for i, run in enumerate(runs) if _key(run) in refitted or not known[_key(run)]]
    best = dict(zip(again, replayed, strict=True))
    chosen = [best.get(i, outcomes[i]) for i in held_out]
    return {
        **asdict(score([runs[i] for i in held_out], chosen)),
        "method": "each scenario by a profile fitted without it",
        "refitted_scenarios": len(refitted),
        "unseen_scenarios": sum(not seen for seen in known.values()),
        "left_out": failed or None,
        "per_scenario": _per_scenario([runs[i] for i in held_out], chosen),
    }


def _seen(profile: EngineProfile) -> list[list[Any]]:
    return [list(scenario) for scenario in profile.provenance["scenarios"]]


def _run_figures(run: MeasuredRun, outcome: Outcome) -> dict[str, Any]:
    return {
        "model": run.model,
        "scenario": run.scenario,
        "max_loras": run.max_loras,
        "max_lora_rank": run.max_lora_rank,
        "adapters": len(run.rates),
        "offered_rps": round(float(run.rates.sum()), 4),
        "measured": {
            "tokens_per_s": run.tokens_per_s,
            "ttft_ms": run.ttft_ms,
            "itl_ms": run.itl_ms,
            "tpot_ms": run.tpot_ms,
            "running": run.running,
            "waiting": run.waiting,
        },
        "simulated": {name: _rounded(value) for name, value in asdict(outcome).items()},
    }


def _rounded(value: float) -> float | None:
    return round(value, 4) if np.isfinite(value) else None


if __name__ == "__main__":
    raise SystemExit(main())
