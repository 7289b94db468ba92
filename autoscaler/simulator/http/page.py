"""The metrics page: vLLM's names, labels and buckets, with the values of the engine model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autoscaler.simulator.engine.layout import BLOCK_TOKENS
from autoscaler.simulator.engine.model import BASE_MODEL, Gauges
from autoscaler.simulator.http.adapters import Registry
from autoscaler.simulator.http.histograms import LOAD_SECONDS, Histogram
from autoscaler.simulator.http.live import LiveEngine

# vLLM never drops a label set of lora_requests_info; a long demo must not grow without end.
_INFO_SETS_KEPT = 1_000
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
_CACHED_SOURCES = ("device", "host", "p2p", "disk", "external_unspecified")
_UNUSED_COUNTERS = (
    "vllm:estimated_flops_per_gpu",
    "vllm:estimated_read_bytes_per_gpu",
    "vllm:estimated_write_bytes_per_gpu",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:external_prefix_cache_queries",
    "vllm:external_prefix_cache_hits",
    "vllm:mm_cache_queries",
    "vllm:mm_cache_hits",
    "vllm:prompt_tokens_cached",
)


class MetricsPage:
    """Writes one engine's page. It remembers which adapter lists it has shown, as vLLM does."""

    def __init__(self, base_model: str, started_at_s: float) -> None:
        self._labels = f'engine="0",model_name="{base_model}"'
        self._base_model = base_model
        self._created = started_at_s
        self._lists_shown: dict[str, float] = {}

    def text(self, live: LiveEngine, registry: Registry, now_unix_s: float) -> str:
        """The whole page."""
        gauges = live.model.gauges()
        lines = [
            *_family("process_start_time_seconds", "gauge", [("", self._created)]),
            *self._counters(gauges, live.observed.finished, live.observed.rejected),
            *self._gauges(gauges),
            *self._histograms(live.observed.histograms),
            *self._adapter_lists(live, registry, now_unix_s),
            *self._cache_info(live),
        ]
        if live.options.residency_metrics:
            lines += self._residency(live, registry)
        return "\n".join(lines) + "\n"

    def _counters(self, gauges: Gauges, finished: Mapping[str, int], rejected: int) -> Iterator[str]:
        own = self._labels
        for name in _UNUSED_COUNTERS:
            yield from self._counter(name, [(own, 0.0)])
        yield from self._counter("vllm:num_preemptions", [(own, gauges.preemptions)])
        yield from self._counter("vllm:prompt_tokens", [(own, gauges.prompt_tokens)])
        by_source = [(f'{own},source="{s}"', gauges.prompt_tokens if s == _SOURCES[0] else 0) for s in _SOURCES]
        yield from self._counter("vllm:prompt_tokens_by_source", by_source)
        yield from self._counter(
            "vllm:prompt_tokens_cached_by_source", [(f'{own},source="{s}"', 0) for s in _CACHED_SOURCES]
        )
        yield from self._counter("vllm:generation_tokens", [(own, gauges.generation_tokens)])
        by_reason = [
            (f'engine="0",finished_reason="{r}",model_name="{self._base_model}"', n) for r, n in finished.items()
        ]
        yield from self._counter("vllm:request_success", by_reason)
        refusals = {"max_num_queued_reqs": rejected, "max_num_queued_tokens": 0}
        by_limit = [(f'model_name="{self._base_model}",reason="{r}"', n) for r, n in refusals.items()]
        yield from self._counter("vllm:admission_rejections", by_limit)

    def _gauges(self, gauges: Gauges) -> Iterator[str]:
        own = self._labels
        yield from _family("vllm:num_requests_running", "gauge", [(own, gauges.running)])
        yield from _family("vllm:num_requests_waiting", "gauge", [(own, gauges.waiting)])
        waits = {"capacity": gauges.waiting - gauges.deferred, "deferred": gauges.deferred}
        by_reason = [(f'{own},reason="{reason}"', count) for reason, count in waits.items()]
        yield from _family("vllm:num_requests_waiting_by_reason", "gauge", by_reason)
        sleeping = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        by_state = [(f'{own},sleep_state="{state}"', value) for state, value in sleeping.items()]
        yield from _family("vllm:engine_sleep_state", "gauge", by_state)
        yield from _family("vllm:kv_cache_usage_perc", "gauge", [(own, gauges.kv_usage_ratio)])

    def _histograms(self, histograms: Mapping[str, Histogram]) -> Iterator[str]:
        for name, histogram in histograms.items():
            yield from self._histogram(name, histogram)

    def _histogram(self, name: str, histogram: Histogram) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        below = 0
        for edge, count in zip((*histogram.buckets, float("inf")), histogram.counts, strict=True):
            below += count
            yield f'{name}_bucket{{engine="0",le="{_edge(edge)}",model_name="{self._base_model}"}} {below:.1f}'
        yield f"{name}_count{{{self._labels}}} {histogram.count:.1f}"
        yield f"{name}_sum{{{self._labels}}} {histogram.sum!r}"
        yield from _family(f"{name}_created", "gauge", [(self._labels, self._created)])

    def _adapter_lists(self, live: LiveEngine, registry: Registry, now_unix_s: float) -> list[str]:
        numbers = dict.fromkeys(r.adapter for r in live.requests.values() if r.adapter != BASE_MODEL)
        names = ",".join(registry.name(number) for number in numbers)
        if names or live.model.gauges().steps:
            self._lists_shown[names] = now_unix_s
        if len(self._lists_shown) > _INFO_SETS_KEPT:
            del self._lists_shown[next(iter(self._lists_shown))]
        slots = live.options.limits.max_loras
        both = 'max_lora="{0}",running_lora_adapters="{1}",waiting_lora_adapters="{1}"'
        shown = [(both.format(slots, names), at_s) for names, at_s in self._lists_shown.items()]
        return list(_family("vllm:lora_requests_info", "gauge", shown))

    def _cache_info(self, live: LiveEngine) -> Iterator[str]:
        tokens = live.model.kv_tokens
        size = f'kv_cache_size_tokens="{tokens}",num_gpu_blocks="{tokens // BLOCK_TOKENS}"'
        labels = f'block_size="{BLOCK_TOKENS}",cache_dtype="auto",engine="0",gpu_memory_utilization="0.92",{size}'
        return _family("vllm:cache_config_info", "gauge", [(labels, 1)])

    def _residency(self, live: LiveEngine, registry: Registry) -> list[str]:
        gpu = set(live.model.resident_gpu())
        host = live.model.resident_host()
        base = self._labels
        levels = [(n, "gpu" if n in gpu else "cpu") for n in host]
        shown = [(f'adapter_name="{registry.name(n)}",{base},level="{level}",pinned="False"', 1) for n, level in levels]
        limits = live.options.limits
        return [
            *_family("vllm:lora_adapter_loaded", "gauge", shown),
            *_family("vllm:num_gpu_loaded_lora_adapters", "gauge", [(base, len(gpu))]),
            *_family("vllm:num_cpu_loaded_lora_adapters", "gauge", [(base, len(host))]),
            *_family("vllm:max_gpu_lora_adapters", "gauge", [(base, limits.max_loras)]),
            *self._histogram(LOAD_SECONDS, live.observed.loads),
        ]

    def _counter(self, name: str, samples: Sequence[tuple[str, float]]) -> Iterator[str]:
        yield from _family(f"{name}_total", "counter", samples)
        yield from _family(f"{name}_created", "gauge", [(labels, self._created) for labels, _ in samples])


def _family(name: str, kind: str, samples: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield f"{name}{{{labels}}} {float(value)!r}" if labels else f"{name} {float(value)!r}"


def _edge(edge: float) -> str:
    return "+Inf" if edge == float("inf") else repr(edge)
