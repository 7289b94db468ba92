"""How a simulated engine is started, and what can be made to go wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscaler.simulator.engine.profile import EngineLimits, EngineProfile, load_profile
from autoscaler.simulator.http.adapters import AdapterFiles, AdapterTable

DEFAULT_PROFILE = "llama-3.1-8b-h100-64gb-measured"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """One engine's command line.

    Attributes:
        profile, limits: what serving costs, and what fits.
        base_model: its served name.
        max_model_len: longest prompt plus answer, in tokens.
        files: which adapters exist on its disk, and their ranks.
        resolver: an unknown name is looked up in `files` and loaded at its first request; without it, it answers 404.
        runtime_updates: the adapter endpoints are there (else 404, as without VLLM_ALLOW_RUNTIME_LORA_UPDATING).
        stream_interval_tokens: tokens an event, after the first; vLLM's `--stream-interval`.
        force_usage: every stream ends with its usage, whether the client asked or not.
        max_queued_requests: more waiting ones are refused with 503; None never refuses.
        residency_metrics: show which adapters are in memory, as proposed for vLLM and not yet released.
        start_up_s: from start to the first answer.
        shutdown_timeout_s: on a stop, how long what is in flight may go on; 0 aborts it at once, as vLLM does.
        adapter_capacity: most adapters seen in the engine's life.
    """

    profile: EngineProfile = field(default_factory=lambda: load_profile(DEFAULT_PROFILE))
    limits: EngineLimits = field(default_factory=lambda: EngineLimits(max_loras=8, max_cpu_loras=32))
    base_model: str = "base"
    max_model_len: int = 16_384
    files: AdapterFiles = field(default_factory=AdapterTable)
    resolver: bool = False
    runtime_updates: bool = True
    stream_interval_tokens: int = 16
    force_usage: bool = False
    max_queued_requests: int | None = None
    residency_metrics: bool = False
    start_up_s: float = 0.0
    shutdown_timeout_s: float = 0.0
    adapter_capacity: int = 4_096


@dataclass(slots=True)
class Faults:
    """Failures on demand; change them while the engine runs.

    Attributes:
        hang_loads: adapter loads do not answer.
        load_status: adapter loads answer with this status instead.
        completion_status: completions answer with this status instead.
        models_status: `/v1/models` answers with this status instead.
        metrics_status: `/metrics` answers with this status instead.
    """

    hang_loads: bool = False
    load_status: int | None = None
    completion_status: int | None = None
    models_status: int | None = None
    metrics_status: int | None = None
