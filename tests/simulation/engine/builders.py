"""Small engines whose step times are easy to reckon with."""

from typing import Any

import numpy as np

from autoscaler.simulator.engine.model import Engine
from autoscaler.simulator.engine.profile import (
    EngineLimits,
    EngineProfile,
    KvCost,
    LoadCost,
    LoraCost,
    StartupCost,
    StepCost,
)

STEP_S = 0.010
GPU_LOAD_S, DISK_LOAD_S = 0.005, 0.050


def profile(**step: float) -> EngineProfile:
    """10 ms a step, nothing else; 5 ms to the GPU, 50 ms from disk."""
    return EngineProfile(
        name="test",
        model="test",
        gpu="test",
        kernels="measured",
        version="1",
        step=StepCost(**{"fixed_ms": 10.0, **dict.fromkeys(_FREE, 0.0), **step}),
        lora=LoraCost(),
        load=LoadCost(5.0, 0.0, 50.0, 0.0),
        kv=KvCost(1_000_000, 0.0, 0.0, 1),
        startup=StartupCost(1.0, 2.0, 3.0, 4.0, 0.5),
        provenance={},
    )


_FREE = ("per_sequence_ms", "per_context_token_ms", "prefill_fixed_ms", "per_prefill_token_ms")


def engine(adapters: int = 4, *, costs: EngineProfile | None = None, jumping: bool = True, **limits: Any) -> Engine:
    """An engine with 2 adapter slots and 4 host places, unless told otherwise."""
    chosen = {"max_loras": 2, "max_cpu_loras": 4, "max_num_seqs": 8, "max_num_batched_tokens": 64, **limits}
    return Engine(costs or profile(), EngineLimits(**chosen), adapters, jumping=jumping)


def told(events: np.ndarray, kind: int) -> list[tuple[int, float]]:  # type: ignore[type-arg]
    """(request id, seconds to the microsecond) of all events of one kind, in order."""
    return [(int(e["request_id"]), round(float(e["time_s"]), 6)) for e in events if e["kind"] == kind]


def in_flight_balance(one: Engine) -> int:
    """Submitted minus what became of them: zero unless a request was lost."""
    g = one.gauges()
    return g.submitted - g.finished - g.aborted - g.running - g.waiting
