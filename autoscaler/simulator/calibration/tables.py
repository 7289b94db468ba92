"""The measured tables beside the runs: load times, KV capacity, start-up times, step times without and with LoRA.

Least squares of each table for the parts of a profile that do not depend on the runs, at all ranks that were measured
(8, 16, 32), so that runs at a rank without measurements of their own follow.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulator.engine.profile import KvCost, LoadCost, StartupCost

# Widths of one KV token: layers x 2 (key, value) x KV heads x head size x 2 bytes.
KV_BYTES_PER_TOKEN = {"llama-3.1-8b-instruct": 131_072, "qwen-2.5-7b-instruct": 57_344}


GRAPH_TOKENS = 512
# A table's mean batch is below the batch it was set to, while it fills and drains: from .8 x 512 most steps are eager.
EAGER_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class StepRow:
    """One measured mean step time with the loads under which it was measured (means over the steps)."""

    step_ms: float
    running: float
    context_tokens: float
    prefill_tokens: float
    admissions: float
    slots: int
    adapters: float
    eager: float = 0.0
    waiting: float = 0.0
    load_ratio: float = 0.0


def _rows(path: Path, model: str) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from (row for row in csv.DictReader(file) if row["model"] == model)


def fit_load(folder: Path, model: str) -> LoadCost:
    """Medians of adapter_load_times.csv: disk by rank, GPU by whether the adapter fills the padded slot."""
    rows = list(_rows(folder / "adapter_load_times.csv", model))
    rank = np.array([float(row["adapter_rank"]) for row in rows])
    padded = np.array([row["adapter_rank"] != row["max_lora_rank"] for row in rows])
    gpu = np.array([float(row["cpu_to_gpu_ms_mean"]) for row in rows])
    disk = np.array([float(row["disk_to_cpu_ms_median"]) for row in rows])
    slope, offset = np.polyfit(rank, disk, 1)
    return LoadCost(
        host_to_gpu_ms=round(float(gpu[~padded].mean()), 3),
        host_to_gpu_padded_ms=round(float(gpu[padded].mean() - gpu[~padded].mean()), 3),
        disk_to_host_ms=round(float(offset), 3),
        disk_to_host_per_rank_ms=round(float(slope), 4),
        first_load_ms=_first_load_ms(folder),
    )


def _first_load_ms(folder: Path) -> float:
    """What the first load of a process takes longer than later ones, median over both models and all ranks.

    It is a matter of files and tokenizers, not of the model; single ones scatter from 0 to 760 ms.
    """
    rows = [row for model in KV_BYTES_PER_TOKEN for row in _rows(folder / "adapter_load_times.csv", model)]
    extra = [float(row["disk_to_cpu_ms_first"]) - float(row["disk_to_cpu_ms_median"]) for row in rows]
    return round(float(np.median(extra)), 1)


def fit_kv(folder: Path, model: str) -> KvCost:
    """Capacity of kv_capacity_and_startup.csv as tokens - slots x (per slot + per slot and rank x rank)."""
    rows = [row for row in _rows(folder / "kv_capacity_and_startup.csv", model) if row["kv_cache_tokens"]]
    slots = _column(rows, "max_loras")
    design = np.stack([np.ones(len(rows)), -slots, -slots * _column(rows, "max_lora_rank")], axis=1)
    (tokens, per_slot, per_rank), *_ = np.linalg.lstsq(design, _column(rows, "kv_cache_tokens"), rcond=None)
    return KvCost(round(float(tokens)), round(float(per_slot), 2), round(float(per_rank), 3), KV_BYTES_PER_TOKEN[model])


def fit_startup(folder: Path, model: str) -> StartupCost:
    """Start-up phases of kv_capacity_and_startup.csv; graph capture is linear in the adapter slots (3.4 s each)."""
    rows = [row for row in _rows(folder / "kv_capacity_and_startup.csv", model) if row["init_engine_s"]]
    compiled, capture = _column(rows, "torch_compile_s"), _column(rows, "graph_capture_s")
    per_slot, offset = np.polyfit(_column(rows, "max_loras"), capture, 1)
    rest = _column(rows, "init_engine_s") - compiled - capture
    return StartupCost(
        process_s=round(float(np.median(rest)), 1),
        weights_s=round(float(np.median(_column(rows, "model_load_s"))), 1),
        compile_s=round(float(np.median(compiled)), 1),
        graph_capture_s=round(float(offset), 1),
        graph_capture_per_slot_s=round(float(per_slot), 3),
    )


def step_rows(folder: Path, model: str) -> list[StepRow]:
    """Steps without LoRA (base_latency_no_lora.csv) and with 300 slots and 1-300 adapters (lora_step_overhead.csv)."""
    rows = []
    capacity = fit_kv(folder, model).tokens
    for row in _rows(folder / "base_latency_no_lora.csv", model):
        if row["kind"] == "output":
            most, prompts, output = float(row["set_batch"]), float(row["num_prompts"]), float(row["out_len"])
            prompt, step_ms = float(row["total_in"]) / prompts, float(row["mean_tpot_ms"])
            if most * (prompt + output) > capacity:
                continue  # such a batch outgrows the KV cache: its time contains preemptions
            rows.append(_step_row(step_ms, prompts / float(row["duration_s"]), prompt, output, most, 0, 0))
    for row in _rows(folder / "lora_step_overhead.csv", model):
        if row["sub"] == "overhead_small":
            most, slots, output, adapters = _overhead_run(row["dir"])
            rps = float(row["num_prompts"]) / float(row["duration_s"])
            rows.append(_step_row(float(row["mean_itl_ms"]), rps, 5.0, output, most, slots, adapters))
    return rows


def _step_row(
    step_ms: float, rps: float, prompt: float, output: float, most: float, slots: int, adapters: int
) -> StepRow:
    running = min(rps * output * step_ms / 1e3, most)
    admissions = rps * step_ms / 1e3
    distinct = adapters * (1 - (1 - 1 / adapters) ** running) if adapters else 0.0
    context = running * (prompt + output / 2)
    eager = float(running > EAGER_SHARE * GRAPH_TOKENS)
    return StepRow(step_ms, running, context, admissions * prompt, admissions, slots, distinct, eager)


def _overhead_run(name: str) -> tuple[float, int, float, int]:
    """`_220_300_8__1_100_128`: batch 220, 300 slots, rank 8; prompt 1 (5 tokens), output 100, 128 adapters."""
    server, client = name.strip("_").split("__")
    batch, slots = server.split("_")[:2]
    _, output, adapters = client.split("_")
    return float(batch), int(slots), float(output), int(adapters)


def _column(rows: list[dict[str, str]], name: str) -> NDArray[np.float64]:
    return np.array([float(row[name]) for row in rows])
