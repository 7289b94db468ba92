"""The engine model as an object: a passive state machine on a virtual clock in seconds.

It never sleeps and never looks at a clock: the caller says what time it is. `Engine` wraps one engine; compiled fleet
code works on the same arrays (`layout.empty_state`, `configure`, and the functions of `kernel`) with many engines in
one state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.simulator.engine import kernel
from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.layout import NONE, PS_PER_S, EngineState, empty_state, with_more_rows
from autoscaler.simulator.engine.profile import EngineLimits, EngineProfile, ProfileError
from autoscaler.simulator.engine.residency import forget, set_pin

BASE_MODEL = NONE
EVENT_DTYPE = np.dtype([("time_s", "f8"), ("request_id", "i8"), ("kind", "i4"), ("value", "i8")])
FIRST_TOKEN, FINISHED, PREEMPTED, LOADED = a.FIRST_TOKEN, a.FINISHED, a.PREEMPTED, a.LOADED


class RequestRefusedError(ValueError):
    """A request that the engine could never serve, as vLLM's 400."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """What an engine's metrics page would show: gauges of this moment, then counters since the start.

    `set_changes` counts how often an adapter joined or left the set of those in the batch.
    """

    running: int
    waiting: int
    deferred: int
    kv_usage_ratio: float
    distinct_adapters: int
    submitted: int
    finished: int
    aborted: int
    preemptions: int
    gpu_loads: int
    disk_loads: int
    gpu_evictions: int
    host_evictions: int
    prompt_tokens: int
    generation_tokens: int
    steps: int
    set_changes: int
    busy_s: float
    load_s: float


def configure(
    state: EngineState, e: int, profile: EngineProfile, limits: EngineLimits, ranks: Mapping[int, int]
) -> None:
    """Write limits and costs of engine `e` into a state, once and before its first request.

    Adapters that are not in `ranks` have rank `limits.max_lora_rank`.

    Raises:
        ProfileError: the slots leave no KV cache, or an adapter's rank is above `max_lora_rank`.
    """
    number, real, ms, slots = state.number[e], state.real[e], PS_PER_S / 1e3, limits.max_loras
    number[a.MAX_SEQS], number[a.BUDGET] = limits.max_num_seqs, limits.max_num_batched_tokens
    number[a.SLOTS], number[a.HOST_SLOTS] = slots, limits.max_cpu_loras
    number[a.BLOCKS] = number[a.FREE_BLOCKS] = profile.kv_tokens(limits) // a.BLOCK_TOKENS
    step, lora = profile.step, profile.lora
    real[a.C_FIXED], real[a.C_SEQUENCE] = step.fixed_ms * ms, step.per_sequence_ms * ms
    real[a.C_CONTEXT] = step.per_context_token_ms * ms
    real[a.C_PREFILL], real[a.C_PREFILL_TOKEN] = step.prefill_fixed_ms * ms, step.per_prefill_token_ms * ms
    real[a.C_PREFILL_SQUARE], real[a.C_ADMIT] = step.per_prefill_token_squared_ms * ms, step.per_admission_ms * ms
    real[a.C_WAITING], real[a.C_EAGER] = step.per_waiting_request_ms * ms, step.eager_ms * ms
    real[a.C_GRAPH_TOKENS] = step.graph_tokens
    real[a.C_FACTOR], real[a.C_FACTOR_ADAPTER] = lora.factor, lora.factor_per_adapter
    real[a.C_LORA] = (lora.fixed_ms + lora.per_slot_ms * slots) * ms
    real[a.C_LORA_ADAPTER] = (lora.per_adapter_ms + lora.per_adapter_slot_ms * slots) * ms
    real[a.C_LORA_SEQUENCE] = (lora.per_sequence_ms + lora.per_sequence_slot_ms * slots) * ms
    real[a.C_LORA_PREFILL_TOKEN] = (lora.per_prefill_token_ms + lora.per_prefill_token_slot_ms * slots) * ms
    books = state.adapter[e]
    books[:, a.A_FIRST_LOAD] = round(profile.load.first_load_ms * ms)
    for adapter, rank in [(slice(None), limits.max_lora_rank), *ranks.items()]:
        if rank > limits.max_lora_rank:
            raise ProfileError(f"adapter {adapter} has rank {rank}: raise max_lora_rank, now {limits.max_lora_rank}")
        books[adapter, a.A_GPU_LOAD] = round(profile.host_to_gpu_s(rank, limits.max_lora_rank) * PS_PER_S)
        books[adapter, a.A_DISK_LOAD] = round(profile.disk_to_host_s(rank) * PS_PER_S)


class Engine:
    """One serving process: continuous batching, KV blocks, adapter slots, two adapter caches.

    Calls must come in the order of their times. Adapters are integers 0..`adapters` - 1, `BASE_MODEL` (-1) is the base
    model; `ranks` gives the ranks of those that differ from `limits.max_lora_rank` (their disk loads are cheaper).
    """

    def __init__(
        self,
        profile: EngineProfile,
        limits: EngineLimits,
        adapters: int,
        *,
        ranks: Mapping[int, int] | None = None,
        jumping: bool = True,
    ) -> None:
        self.profile, self.limits = profile, limits
        self.state = empty_state(
            1, adapters, limits.max_num_seqs, limits.max_loras, limits.max_cpu_loras, requests=1024
        )
        configure(self.state, 0, profile, limits, ranks or {})
        self.state.number[0, a.JUMPING] = int(jumping)
        self._number = self.state.number[0]
        self._now_ps = 0
        self._drained: list[NDArray[np.int64]] = []

    def submit(self, now_s: float, request_id: int, adapter: int, prompt_tokens: int, output_tokens: int) -> None:
        """Queue one request; it joins the batch at the first step that begins at or after `now_s`.

        Raises:
            RequestRefusedError: no tokens, an adapter out of range, or more tokens than the KV cache holds.
        """
        if prompt_tokens < 1 or output_tokens < 1:
            raise RequestRefusedError(
                f"request {request_id}: {prompt_tokens} prompt and {output_tokens} output tokens; each must be >= 1"
            )
        self._check(adapter, BASE_MODEL)
        now = self._at(now_s)
        while (
            row := kernel.submit(self.state, 0, now, request_id, adapter, prompt_tokens, output_tokens)
        ) == kernel.FULL:
            self._make_room()
        if row == kernel.TOO_LONG:
            raise RequestRefusedError(
                f"request {request_id} needs {prompt_tokens + output_tokens} tokens of KV cache, "
                f"the engine has {self.kv_tokens}"
            )

    def advance(self, until_s: float) -> NDArray[Any]:
        """Run to `until_s` and return what happened since the last call, in order of time (EVENT_DTYPE).

        `value` is the number of tokens handed out so far, or for LOADED the adapter (and `request_id` -1).
        """
        now = self._at(until_s)
        while not kernel.advance(self.state, 0, now, True):
            self._drain()
        self._drain()
        rows = self._drained[0] if len(self._drained) == 1 else np.concatenate(self._drained)
        self._drained = []
        events = np.empty(len(rows), EVENT_DTYPE)
        events["time_s"] = rows[:, a.E_TIME] / PS_PER_S
        events["request_id"], events["kind"], events["value"] = (
            rows[:, a.E_REQUEST],
            rows[:, a.E_KIND],
            rows[:, a.E_VALUE],
        )
        return events

    def next_event_s(self) -> float | None:
        """When something next happens by itself (the step in flight ends), or None when idle: sleep until then."""
        at = kernel.next_event(self.state, 0)
        return None if at == NONE else float(at / PS_PER_S)

    def abort(self, now_s: float, request_id: int) -> bool:
        """Drop a request (the client went away); False if it is not here (finished, or never was)."""
        now = self._at(now_s)
        while not kernel.advance(self.state, 0, now, False):
            self._drain()
        request = self.state.request
        rows = np.flatnonzero((request[:, a.R_ID] == request_id) & (request[:, a.R_STATE] != 0))
        return len(rows) > 0 and bool(kernel.abort(self.state, 0, now, int(rows[0])))

    def load(self, now_s: float, adapter: int) -> None:
        """Ask for an adapter in host and GPU memory; it is read before the next step, LOADED tells when it is there."""
        self._check(adapter)
        now = self._at(now_s)
        while not kernel.request_load(self.state, 0, now, adapter):
            self._drain()
            if self._number[a.PENDING_LOADS] == a.LOAD_QUEUE:
                raise RequestRefusedError(
                    f"{a.LOAD_QUEUE} adapter loads are queued: wait for LOADED before asking for more"
                )

    def unload(self, now_s: float, adapter: int) -> bool:
        """Free an idle adapter's memory; False if it is in the batch or pinned."""
        self._check(adapter)
        self._run_before(now_s)
        return bool(forget(self.state, 0, adapter))

    def pin(self, now_s: float, adapter: int, pinned: bool = True) -> None:
        """Exempt an adapter from eviction (or no longer); at least one adapter slot stays unpinned.

        Raises:
            RequestRefusedError: all adapter slots but one are pinned already.
        """
        self._check(adapter)
        self._run_before(now_s)
        others = int(self.state.adapter[0, :, a.A_PINNED].sum() - self.state.adapter[0, adapter, a.A_PINNED])
        if pinned and others + 1 >= self.limits.max_loras:
            raise RequestRefusedError(
                f"{others} adapters are pinned and max_loras is {self.limits.max_loras}: one slot must stay free"
            )
        set_pin(self.state, 0, adapter, pinned)

    def leave_in_store(self, adapter: int) -> None:
        """An adapter's files are not on local disk yet: its next load also pays the way from the object store."""
        self._check(adapter)
        load = self.profile.load
        self.state.adapter[0, adapter, a.A_FIRST_LOAD] = round(
            (load.store_to_disk_ms + load.first_load_ms) * PS_PER_S / 1e3
        )

    def resident_gpu(self) -> list[int]:
        """Adapters that hold a GPU slot, least recently used first."""
        return self._by_age(self.state.lists[0, a.GPU, : self._number[a.GPU_RESIDENT]])

    def resident_host(self) -> list[int]:
        """Adapters in host memory, least recently used first; includes those on the GPU."""
        return self._by_age(self.state.lists[0, a.HOST, : self._number[a.HOST_RESIDENT]])

    def running_progress(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(request ids, tokens handed out so far) of the running requests: what a streaming server sends."""
        batch = self.state.batch[0, : self._number[a.RUNNING]]
        request = self.state.request[batch[:, a.B_ROW]]
        return request[:, a.R_ID], request[:, a.R_OUTPUT] - batch[:, a.B_LEFT]

    @property
    def kv_tokens(self) -> int:
        """KV cache capacity in tokens, whole blocks."""
        return int(self._number[a.BLOCKS]) * a.BLOCK_TOKENS

    def gauges(self) -> Gauges:
        """Gauges and counters of this moment."""
        n, books = self._number, self.state.adapter[0]
        slots_full = n[a.DISTINCT] + n[a.PINNED_IDLE] >= n[a.SLOTS]
        inactive = (books[:-1, a.A_ACTIVE] == NONE) & ((books[:-1, a.A_PINNED] == 0) | (books[:-1, a.A_GPU] == NONE))
        return Gauges(
            running=int(n[a.RUNNING]),
            waiting=int(n[a.WAITING]),
            deferred=int(books[:-1, a.A_WAITING][inactive].sum()) if slots_full and n[a.WAITING] else 0,
            kv_usage_ratio=float((n[a.BLOCKS] - n[a.FREE_BLOCKS]) / n[a.BLOCKS]),
            distinct_adapters=int(n[a.DISTINCT]),
            submitted=int(n[a.SUBMITTED]),
            finished=int(n[a.FINISHED_COUNT]),
            aborted=int(n[a.ABORTED_COUNT]),
            preemptions=int(n[a.PREEMPTIONS]),
            gpu_loads=int(n[a.GPU_LOADS]),
            disk_loads=int(n[a.DISK_LOADS]),
            gpu_evictions=int(n[a.GPU_EVICTIONS]),
            host_evictions=int(n[a.HOST_EVICTIONS]),
            prompt_tokens=int(n[a.PROMPT_TOKENS]),
            generation_tokens=int(n[a.GENERATED_TOKENS]),
            steps=int(n[a.STEPS]),
            set_changes=int(n[a.SET_CHANGES]),
            busy_s=float(n[a.BUSY] / PS_PER_S),
            load_s=float(n[a.LOAD_TIME] / PS_PER_S),
        )

    def integrals(self) -> dict[str, float]:
        """Time integrals since the start, in seconds: divide a difference by its span for the mean of the gauge."""
        totals = self.state.real[0]
        waiting = (
            totals[a.WAITING_S] + self._number[a.WAITING] * max(0, self._now_ps - self._number[a.SINCE]) / PS_PER_S
        )
        return {
            "running": float(totals[a.RUNNING_S]),
            "waiting": float(waiting),
            "kv_usage_ratio": float(totals[a.KV_S]),
            "distinct_adapters": float(totals[a.DISTINCT_S]),
        }

    def adopt(self, state: EngineState, now_s: float) -> None:
        """Go on from a state that compiled code has brought to `now_s`."""
        self.state, self._number = state, state.number[0]
        self._at(now_s)

    def _at(self, now_s: float) -> int:
        now = round(now_s * PS_PER_S)
        if now < self._now_ps:
            raise ValueError(f"time went back: {now_s} s after {self._now_ps / PS_PER_S} s; call in order of time")
        self._now_ps = now
        return now

    def _check(self, adapter: int, least: int = 0) -> None:
        known = self.state.adapter.shape[1] - 1
        if not least <= adapter < known:
            raise RequestRefusedError(f"adapter {adapter} is not among 0..{known - 1}")

    def _run_before(self, now_s: float) -> None:
        now = self._at(now_s)
        while not kernel.advance(self.state, 0, now, False):
            self._drain()

    def _by_age(self, resident: NDArray[np.int64]) -> list[int]:
        return sorted(
            (int(adapter) for adapter in resident), key=lambda adapter: self.state.adapter[0, adapter, a.A_STAMP]
        )

    def _drain(self) -> None:
        self._drained.append(self.state.event[0, : self._number[a.EVENTS]].copy())
        self._number[a.EVENTS] = 0

    def _make_room(self) -> None:
        """Twice the request rows if they are all taken; and an empty event buffer."""
        self._drain()
        if self.state.request[0, a.FREE_ROWS] == 0:
            self.state = with_more_rows(self.state, len(self.state.request))
