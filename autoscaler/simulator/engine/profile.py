"""What serving costs on one GPU with one model: the numbers behind the engine model, read from versioned JSON files.

A profile is a set of functions, not a table per run: step time by batch, context, prefill, adapter slots and distinct
adapters; load times by rank; KV capacity and start-up time by slots and rank. They are fitted by
`python -m autoscaler.simulator.calibration`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

SCHEMA = 1
Kernels = Literal["measured", "recent"]


class ProfileError(ValueError):
    """A profile file or engine limits that cannot be used; the message names the field, the value and the remedy."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Milliseconds of one step without LoRA; the sum of all terms.

    `eager_ms` is added where a step has more than `graph_tokens` tokens, the largest captured CUDA graph.
    `per_waiting_request_ms` is the price of a queue: the scheduler and its statistics walk it in every step.
    """

    fixed_ms: float
    per_sequence_ms: float
    per_context_token_ms: float
    prefill_fixed_ms: float
    per_prefill_token_ms: float
    per_prefill_token_squared_ms: float = 0.0
    per_admission_ms: float = 0.0
    per_waiting_request_ms: float = 0.0
    eager_ms: float = 0.0
    graph_tokens: float = 512.0


@dataclass(frozen=True, slots=True)
class LoraCost:
    """What a step costs more when at least one adapter is in the batch.

    The step without LoRA is multiplied by `factor + factor_per_adapter * n`; then come the additive terms, of which
    those named `_slot` are per adapter slot of the engine (`max_loras`), used or not: kernels are launched over all
    slots.
    """

    factor: float = 1.0
    factor_per_adapter: float = 0.0
    fixed_ms: float = 0.0
    per_slot_ms: float = 0.0
    per_adapter_ms: float = 0.0
    per_adapter_slot_ms: float = 0.0
    per_sequence_ms: float = 0.0
    per_sequence_slot_ms: float = 0.0
    per_prefill_token_ms: float = 0.0
    per_prefill_token_slot_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadCost:
    """Milliseconds to bring one adapter nearer. The way to the GPU hardly depends on the rank, the way from disk does.

    `host_to_gpu_padded_ms` comes on top where the adapter's rank is below the engine's `max_lora_rank`, `first_load_ms`
    at the first load of an adapter in a process, `store_to_disk_ms` where its files are not on the local disk.
    """

    host_to_gpu_ms: float
    host_to_gpu_padded_ms: float
    disk_to_host_ms: float
    disk_to_host_per_rank_ms: float
    first_load_ms: float = 0.0
    store_to_disk_ms: float = 2200.0


@dataclass(frozen=True, slots=True)
class KvCost:
    """KV cache: tokens without LoRA, and what each adapter slot takes away (slots are padded to `max_lora_rank`)."""

    tokens: float
    tokens_per_slot: float
    tokens_per_slot_rank: float
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class StartupCost:
    """Seconds from process start to the first answer, by phase; graph capture grows with the adapter slots."""

    process_s: float
    weights_s: float
    compile_s: float
    graph_capture_s: float
    graph_capture_per_slot_s: float

    def total_s(self, max_loras: int, *, compiled: bool = False) -> float:
        """Seconds of a start with `max_loras` adapter slots; `compiled`: the compile cache is warm."""
        capture = self.graph_capture_s + self.graph_capture_per_slot_s * max_loras
        return self.process_s + self.weights_s + capture + (0.0 if compiled else self.compile_s)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How one engine is started: vLLM's own options of the same names."""

    max_loras: int
    max_cpu_loras: int = 0
    max_lora_rank: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    kv_cache_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse what vLLM refuses; `max_cpu_loras` 0 means the engine's default, `max_loras`."""
        if self.max_cpu_loras == 0:
            object.__setattr__(self, "max_cpu_loras", self.max_loras)
        for name in ("max_loras", "max_lora_rank", "max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) < 1:
                raise ProfileError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if self.max_cpu_loras < self.max_loras:
            raise ProfileError(
                f"max_cpu_loras is {self.max_cpu_loras}, max_loras {self.max_loras}: "
                "the host cache must hold the adapter slots"
            )


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One GPU with one model: named, versioned, with the source of its numbers."""

    name: str
    model: str
    gpu: str
    kernels: Kernels
    version: str
    step: StepCost
    lora: LoraCost
    load: LoadCost
    kv: KvCost
    startup: StartupCost
    provenance: Mapping[str, Any]

    def kv_tokens(self, limits: EngineLimits) -> int:
        """KV cache capacity in tokens under `limits`.

        Raises:
            ProfileError: the adapter slots leave no memory for the KV cache.
        """
        if limits.kv_cache_tokens is not None:
            return limits.kv_cache_tokens
        per_slot = self.kv.tokens_per_slot + self.kv.tokens_per_slot_rank * limits.max_lora_rank
        tokens = math.floor(self.kv.tokens - per_slot * limits.max_loras)
        if tokens < 16:
            raise ProfileError(
                f"{limits.max_loras} adapter slots of rank {limits.max_lora_rank} leave {tokens} tokens of KV cache "
                f"on {self.name}: "
                f"lower max_loras below {math.floor((self.kv.tokens - 16) / per_slot)}"
            )
        return tokens

    def host_to_gpu_s(self, rank: int, max_lora_rank: int) -> float:
        """Seconds to copy one adapter of `rank` from host memory to its slot, which is padded to `max_lora_rank`."""
        padding = self.load.host_to_gpu_padded_ms if rank < max_lora_rank else 0.0
        return (self.load.host_to_gpu_ms + padding) / 1e3

    def disk_to_host_s(self, rank: int) -> float:
        """Seconds to read one adapter of `rank` from disk into host memory."""
        return (self.load.disk_to_host_ms + self.load.disk_to_host_per_rank_ms * rank) / 1e3

    def to_json(self) -> str:
        """The profile as its file's text."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2, sort_keys=False) + "\n"

    def with_kernels(self, lora: LoraCost, kernels: Kernels) -> EngineProfile:
        """The same GPU and model with other LoRA kernels."""
        return replace(self, lora=lora, kernels=kernels, name=f"{self.name.removesuffix(self.kernels)}{kernels}")


def parse_profile(text: str, where: str = "profile") -> EngineProfile:
    """Read a profile from the text of its file.

    Raises:
        ProfileError: not JSON, another schema, an unknown, missing or non-finite field; the message names `where`.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProfileError(f"{where}: not JSON ({error})") from None
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise ProfileError(f"{where}: schema must be {SCHEMA}")
    parts = {"step": StepCost, "lora": LoraCost, "load": LoadCost, "kv": KvCost, "startup": StartupCost}
    for key, kind in parts.items():
        data[key] = _build(kind, data.get(key), f"{where}: {key}")
        bad = [f.name for f in fields(kind) if not math.isfinite(getattr(data[key], f.name))]
        if bad:
            raise ProfileError(f"{where}: {key}.{bad[0]} is not a finite number")
    profile: EngineProfile = _build(EngineProfile, data, where)
    return profile


def _build(kind: Any, data: object, where: str) -> Any:
    if not isinstance(data, dict):
        raise ProfileError(f"{where}: an object is needed, found {data!r}")
    known = {f.name for f in fields(kind)}
    if unknown := sorted(set(data) - known):
        raise ProfileError(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
    try:
        return kind(**data)
    except TypeError as error:
        raise ProfileError(f"{where}: {error}") from None


def available_profiles() -> list[str]:
    """Names of the profiles that ship with the package."""
    folder = resources.files("autoscaler.simulator") / "profiles"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_profile(name_or_path: str | Path) -> EngineProfile:
    """A shipped profile by name (`llama-3.1-8b-h100-64gb-measured`), or any profile by the path of its file.

    Raises:
        ProfileError: no such profile, or an unusable one.
    """
    path = Path(name_or_path)
    if path.suffix == ".json":
        try:
            return parse_profile(path.read_text(), str(path))
        except OSError as error:
            raise ProfileError(f"{path}: {error.strerror}") from None
    if str(name_or_path) not in (names := available_profiles()):
        raise ProfileError(
            f"no profile {str(name_or_path)!r}; there are {', '.join(names)}, or give the path of a .json file"
        )
    text = (resources.files("autoscaler.simulator") / "profiles" / f"{name_or_path}.json").read_text()
    return parse_profile(text, str(name_or_path))
