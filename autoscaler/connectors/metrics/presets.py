"""The catalogue of engine signals: which series, under old and new names, a signal of `ReplicaSignals` is made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias


class Over(StrEnum):
    """How the parts of one process (its engines) become one number."""

    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class Gauge:
    """The newest sample. `names`: aliases, newest first; `where`: labels that a series must have."""

    names: tuple[str, ...]
    over: Over = Over.SUM
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GaugeRatio:
    """One gauge over another, such as tokens in use over tokens that fit."""

    part: str
    whole: str


@dataclass(frozen=True, slots=True)
class CounterRate:
    """Growth per second."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistogramMean:
    """Growth of `_sum` over growth of `_count`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistogramQuantile:
    """A quantile of the observations of the window, linear within a bucket as PromQL has it."""

    names: tuple[str, ...]
    quantile: float


@dataclass(frozen=True, slots=True)
class HistogramBeyond:
    """Share of the window's observations beyond a limit, linear within the bucket that it lies in."""

    names: tuple[str, ...]
    limit: float


Source: TypeAlias = Gauge | GaugeRatio | CounterRate | HistogramMean | HistogramQuantile | HistogramBeyond


@dataclass(frozen=True, slots=True)
class EnginePreset:
    """What one kind of engine shows.

    Attributes:
        name: as the policy says it.
        sources: field of `ReplicaSignals` -> where it comes from; an absent field is one that the engine does not show.
        limits: field of `EngineLimits` -> (metric, label): the value of the label, or of the series where it is empty.
        resident: the series whose `adapter_name` label lists adapters in memory; empty where there is none.
    """

    name: str
    sources: Mapping[str, Source]
    limits: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    resident: str = ""

    def timed(self, target_s: float) -> EnginePreset:
        """The same, with the share of first tokens that come after `target_s`, where there is a histogram of them."""
        first = self.sources.get("ttft_p99_s")
        if not isinstance(first, HistogramQuantile):
            return self
        return replace(self, sources={**self.sources, "late_ratio": HistogramBeyond(first.names, target_s)})

    def metric_names(self) -> tuple[str, ...]:
        """Every series name that a scrape of this engine is read for, histogram parts spelt out, ascending."""
        names = {name for source in self.sources.values() for name in series_names(source)}
        names |= {metric for alternatives in self.limits.values() for metric, _ in alternatives}
        if self.resident:
            names.add(self.resident)
        return tuple(sorted(names))


def series_names(source: Source) -> Iterator[str]:
    """The series that a source reads, aliases included."""
    match source:
        case GaugeRatio(part, whole):
            yield from (part, whole)
        case HistogramMean(names):
            yield from (name + suffix for name in names for suffix in ("_sum", "_count"))
        case HistogramQuantile(names) | HistogramBeyond(names):
            yield from (name + suffix for name in names for suffix in ("_bucket", "_count"))
        case Gauge(names=names) | CounterRate(names=names):
            yield from names


# `engine` (vLLM) and `dp_rank` (SGLang) are parts of one process; a counter's reason is a part of the whole.
PART_LABELS = ("engine", "dp_rank", "engine_type", "finished_reason", "reason")
# Every rank of one engine reports the same queue: copies, not parts.
COPY_LABELS = ("tp_rank", "pp_rank", "moe_ep_rank")


def _vllm(name: str, *older: str) -> tuple[str, ...]:
    return tuple(f"vllm:{n}" for n in (name, *older))


VLLM = EnginePreset(
    "vllm",
    {
        "running": Gauge(_vllm("num_requests_running")),
        "waiting": Gauge(_vllm("num_requests_waiting")),
        "deferred": Gauge(_vllm("num_requests_waiting_by_reason"), where={"reason": "deferred"}),
        "kv_usage_ratio": Gauge(_vllm("kv_cache_usage_perc", "gpu_cache_usage_perc"), Over.MEAN),
        "ttft_mean_s": HistogramMean(_vllm("time_to_first_token_seconds")),
        "ttft_p99_s": HistogramQuantile(_vllm("time_to_first_token_seconds"), 0.99),
        "queue_time_mean_s": HistogramMean(_vllm("request_queue_time_seconds")),
        "itl_mean_s": HistogramMean(_vllm("inter_token_latency_seconds", "time_per_output_token_seconds")),
        "prompt_tokens_per_s": CounterRate(_vllm("prompt_tokens_total")),
        "generation_tokens_per_s": CounterRate(_vllm("generation_tokens_total")),
        "requests_per_s": CounterRate(_vllm("request_success_total")),
        "preemptions_per_s": CounterRate(_vllm("num_preemptions_total")),
        "adapter_loads_per_s": CounterRate(_vllm("lora_adapter_load_seconds_count")),
        "adapter_load_mean_s": HistogramMean(_vllm("lora_adapter_load_seconds")),
    },
    limits={
        "max_loras": (("vllm:max_gpu_lora_adapters", ""), ("vllm:lora_requests_info", "max_lora")),
        "kv_tokens": (("vllm:cache_config_info", "kv_cache_size_tokens"),),
    },
    resident="vllm:lora_adapter_loaded",
)

SGLANG = EnginePreset(
    "sglang",
    {
        "running": Gauge(("sglang:num_running_reqs",)),
        "waiting": Gauge(("sglang:num_queue_reqs",)),
        "kv_usage_ratio": Gauge(("sglang:token_usage",), Over.MEAN),
        "ttft_mean_s": HistogramMean(("sglang:time_to_first_token_seconds",)),
        "ttft_p99_s": HistogramQuantile(("sglang:time_to_first_token_seconds",), 0.99),
        "queue_time_mean_s": HistogramMean(("sglang:queue_time_seconds",)),
        "itl_mean_s": HistogramMean(("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")),
        "prompt_tokens_per_s": CounterRate(("sglang:prompt_tokens_total",)),
        "generation_tokens_per_s": CounterRate(("sglang:generation_tokens_total",)),
        "requests_per_s": CounterRate(("sglang:num_requests_total",)),
        # `num_retracted_reqs` is the gauge of one step; only the counter can be a rate.
        "preemptions_per_s": CounterRate(("sglang:num_retracted_requests_total",)),
    },
    limits={
        "max_loras": (("sglang:lora_pool_slots_total", ""),),
        "kv_tokens": (("sglang:max_total_num_tokens", ""),),
    },
)

TENSORRT_LLM = EnginePreset(
    "tensorrt-llm",
    {
        "running": Gauge(("trtllm_num_requests_running",)),
        "waiting": Gauge(("trtllm_num_requests_waiting",)),
        "kv_usage_ratio": Gauge(("trtllm_kv_cache_utilization",), Over.MEAN),
        "ttft_mean_s": HistogramMean(("trtllm_time_to_first_token_seconds",)),
        "ttft_p99_s": HistogramQuantile(("trtllm_time_to_first_token_seconds",), 0.99),
    },
)

TGI = EnginePreset(
    "tgi",
    {
        "running": Gauge(("tgi_batch_current_size",)),
        "waiting": Gauge(("tgi_queue_size",)),
        "kv_usage_ratio": GaugeRatio("tgi_batch_current_max_tokens", "tgi_batch_max_total_tokens"),
    },
)

# `lorax_batch_current_max_tokens` is a count of tokens, and LoRAX shows no whole to divide it by.
LORAX = EnginePreset(
    "lorax",
    {
        "running": Gauge(("lorax_batch_current_size",)),
        "waiting": Gauge(("lorax_queue_length",)),
    },
)

CUSTOM = EnginePreset("custom", {})

PRESETS: Mapping[str, EnginePreset] = {p.name: p for p in (VLLM, SGLANG, TENSORRT_LLM, TGI, LORAX, CUSTOM)}
