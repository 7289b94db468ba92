"""`python -m autoscaler.simulator.calibration --data DIR [--output DIR] [--jobs J]`: fit the measured profiles anew.

DIR holds the tables of GPULLMAdapterOptimization (real_server_runs.csv and its neighbours); one JSON file a model is
written, with digests of the tables it came from, and the profiles of the kernel table. `--kernels-only` writes those
alone, which needs no data.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from autoscaler.simulator.calibration import tables
from autoscaler.simulator.calibration.fit import fit_steps, run_row, with_steps
from autoscaler.simulator.calibration.kernels import kernel_profiles, recent_kernels
from autoscaler.simulator.calibration.runs import MeasuredRun, Outcome, read_runs, simulate
from autoscaler.simulator.engine.profile import EngineProfile, LoraCost, StepCost, load_profile

VERSION = "1"
SOURCE = (
    "github.com/FerranAgulloLopez/GPULLMAdapterOptimization (Apache-2.0; arXiv 2508.08343): vLLM 0.8.5, one H100-64GB"
)
FILES = (
    "real_server_runs.csv",
    "adapter_load_times.csv",
    "kv_capacity_and_startup.csv",
    "base_latency_no_lora.csv",
    "lora_step_overhead.csv",
)
ROUNDS = 2
# Long enough for the adapter caches to settle; the fit needs means of a run, not its queue at the end of an hour.
FIT_HORIZON_S = 1200.0
GPU = "h100-64gb"
REFERENCE = f"llama-3.1-8b-{GPU}-measured"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the profile files; 0, or 2 when a table is missing or unusable."""
    parser = argparse.ArgumentParser(prog="python -m autoscaler.simulator.calibration", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the measured tables")
    parser.add_argument("--kernels-only", action="store_true", help="only the profiles of the kernel table")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "profiles")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if not options.kernels_only and options.data is None:
        parser.error("--data is needed, or --kernels-only")
    try:
        fitted = (
            []
            if options.kernels_only
            else [fit_model(options.data, model, options.jobs) for model in tables.KV_BYTES_PER_TOKEN]
        )
        reference = fitted[0] if fitted else load_profile(REFERENCE)
        profiles = [*fitted, *map(recent_kernels, fitted), *kernel_profiles(reference.lora)]
        for profile in profiles:
            path = options.output / f"{profile.name}.json"
            path.write_text(profile.to_json())
            print(path)
    except (OSError, ValueError) as error:
        print(f"calibration: {error}", file=sys.stderr)
        return 2
    return 0


def fit_model(folder: Path, model: str, jobs: int) -> EngineProfile:
    """The profile of one model: its tables, then step prices, ROUNDS times on the runs replayed with the last ones."""
    runs = [run for run in read_runs(folder / "real_server_runs.csv")[0] if run.model == model]
    profile = EngineProfile(
        name=f"{model.removesuffix('-instruct')}-{GPU}-measured",
        model=model,
        gpu=GPU,
        kernels="measured",
        version=VERSION,
        step=StepCost(0, 0, 0, 0, 0),
        lora=LoraCost(),
        load=tables.fit_load(folder, model),
        kv=tables.fit_kv(folder, model),
        startup=tables.fit_startup(folder, model),
        provenance={},
    )
    measured = tables.step_rows(folder, model)
    rows = [*measured, *(run_row(run, None) for run in runs)]
    profile = with_steps(profile, rows)
    for _ in range(ROUNDS):
        rows = [*measured, *_replayed_rows(runs, profile, jobs)]
        profile = with_steps(profile, rows)
    return _with_provenance(profile, folder, runs, len(rows), fit_steps(rows)[2])


def _replayed_rows(runs: Sequence[MeasuredRun], profile: EngineProfile, jobs: int) -> list[tables.StepRow]:
    """Rows of the runs on whose overload the replay agrees: of the others it cannot say what their batches held."""
    work = (delayed(simulate)(run, profile, horizon_s=FIT_HORIZON_S) for run in runs)
    outcomes: list[Outcome] = Parallel(n_jobs=jobs, batch_size=4)(work)
    pairs = zip(runs, outcomes, strict=True)
    return [run_row(run, outcome) for run, outcome in pairs if run.overloaded == outcome.overloaded]


def _with_provenance(
    profile: EngineProfile, folder: Path, runs: Sequence[MeasuredRun], rows: int, error: float
) -> EngineProfile:
    provenance: dict[str, Any] = {
        "source": SOURCE,
        "command": "python -m autoscaler.simulator.calibration --data DIR",
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES},
        "step_rows": rows,
        "step_mean_absolute_relative_error": round(error, 4),
        "scenarios": sorted({(run.scenario, run.max_lora_rank) for run in runs}),
        "engine": "vLLM 0.8.5 (V1), --max-num-seqs 2048, 2048 batched tokens, no prefix cache",
    }
    return replace(profile, provenance=provenance)


if __name__ == "__main__":
    raise SystemExit(main())
