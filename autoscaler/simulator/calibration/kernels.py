"""Profiles without measured LoRA runs: kernel times, memory sizes, and LoRA kernels recent or as measured elsewhere.

Kernel times are fits of the measured kernel tables of NVIDIA aiconfigurator (Apache-2.0); 2 ms a step are added for CPU
and launches. They are physical estimates: orderings to trust, magnitudes to verify with `calibrate`.
"""

from __future__ import annotations

from dataclasses import fields, replace

from autoscaler.simulator.engine.profile import (
    EngineProfile,
    KvCost,
    LoadCost,
    LoraCost,
    StartupCost,
    StepCost,
)

CPU_MS = 2.0
# Recent LoRA kernels: a step with n distinct adapters takes 1.08 + .002 n of one without.
RECENT = LoraCost(factor=1.08, factor_per_adapter=0.002)
# GPU and model: decode (fixed, per sequence, per context token) ms; prefill (fixed, per token, per token squared) ms;
# tensor parallel size, GPU memory GB, model memory GB, KV bytes a token, hidden widths summed over adapted layers
# (LoRA parameters a rank, millions).
_TABLE = {
    ("llama-3.1-8b", "a100-80gb"): ((11.4, 0.0145, 8.40e-5), (6.6, 0.0506, 1.81e-6), 1, 80, 16.1, 131_072, 2.62),
    ("llama-3.1-8b", "h100-80gb"): ((5.98, 0.0097, 4.71e-5), (4.6, 0.0125, 1.25e-6), 1, 80, 16.1, 131_072, 2.62),
    ("llama-3.1-8b", "h200-141gb"): ((4.65, 0.0089, 3.24e-5), (3.0, 0.0143, 9.8e-7), 1, 141, 16.1, 131_072, 2.62),
    ("llama-3.1-70b", "h100-80gb-tp4"): ((14.5, 0.0402, 2.85e-5), (11.3, 0.0570, 0.0), 4, 80, 141.0, 327_680, 12.9),
    ("llama-3.1-70b", "h200-141gb-tp8"): ((7.49, 0.0327, 1.09e-5), (5.6, 0.0436, 0.0), 8, 141, 141.0, 327_680, 12.9),
}
MEMORY_SHARE, ACTIVATIONS_GB = 0.9, 4.0
# One adapter from host to GPU at 20 GB/s with 2 ms of handling; from disk at 1 GB/s with 20 ms.
HOST_GB_PER_S, HOST_MS, DISK_GB_PER_S, DISK_MS = 20.0, 2.0, 1.0, 20.0


def kernel_profiles(measured: LoraCost) -> list[EngineProfile]:
    """Every row of the kernel table with recent LoRA kernels, and with the `measured` ones of Llama-3.1-8B on an H100.

    The latter are scaled by how much longer a decode step takes than there: more layers, a slower GPU.
    """
    recent = [_profile(model, gpu) for model, gpu in _TABLE]
    reference = _TABLE["llama-3.1-8b", "h100-80gb"][0][0]
    scales = [row[0][0] / reference for row in _TABLE.values()]
    older = [
        profile.with_kernels(_scaled(measured, scale), "measured")
        for profile, scale in zip(recent, scales, strict=True)
    ]
    return recent + older


def _scaled(lora: LoraCost, scale: float) -> LoraCost:
    terms = {
        field.name: round(getattr(lora, field.name) * scale, 8) for field in fields(lora) if field.name.endswith("_ms")
    }
    return replace(lora, **terms)


def recent_kernels(profile: EngineProfile) -> EngineProfile:
    """A measured profile with recent LoRA kernels in place of its own: same GPU, same loads, same memory."""
    source = f"{profile.name}, LoRA factor 1.08 + 0.002 n of recent kernels in place of the measured overhead"
    return replace(profile.with_kernels(RECENT, "recent"), provenance={"source": source})


def _profile(model: str, gpu: str) -> EngineProfile:
    decode, prefill, parallel, memory_gb, weights_gb, kv_bytes, lora_millions = _TABLE[model, gpu]
    free_gb = parallel * (memory_gb * MEMORY_SHARE - ACTIVATIONS_GB) - weights_gb
    rank_bytes = lora_millions * 1e6 * 2
    return EngineProfile(
        name=f"{model}-{gpu}-recent",
        model=f"{model}-instruct",
        gpu=gpu,
        kernels="recent",
        version="1",
        step=StepCost(
            fixed_ms=decode[0] + CPU_MS,
            per_sequence_ms=decode[1],
            per_context_token_ms=decode[2],
            prefill_fixed_ms=0.0,
            per_prefill_token_ms=prefill[1],
            per_prefill_token_squared_ms=prefill[2],
            per_admission_ms=0.2,
        ),
        lora=RECENT,
        load=LoadCost(
            host_to_gpu_ms=HOST_MS + 16 * rank_bytes / HOST_GB_PER_S / 1e6,
            host_to_gpu_padded_ms=0.0,
            disk_to_host_ms=DISK_MS,
            disk_to_host_per_rank_ms=rank_bytes / DISK_GB_PER_S / 1e6,
        ),
        kv=KvCost(
            tokens=round(free_gb * 1e9 / kv_bytes),
            tokens_per_slot=0.0,
            tokens_per_slot_rank=round(rank_bytes / kv_bytes, 3),
            bytes_per_token=kv_bytes,
        ),
        startup=StartupCost(30.0, 20.0 * (weights_gb / 16.1) / parallel**0.5, 37.0, 45.0, 0.5),
        provenance={
            "source": "kernel tables of NVIDIA aiconfigurator (Apache-2.0); memory from sizes; no measured LoRA runs"
        },
    )
