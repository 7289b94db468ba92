"""What a simulated engine has observed of its requests, as histograms with vLLM's own buckets."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoscaler.simulator.http.live import Request

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_ITL_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_LATENCY_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
_LATENCY_EDGES_S = (*_LATENCY_S, 960.0, 1920.0, 7680.0)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
_LOAD_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

BUCKETS: dict[str, tuple[float, ...]] = {
    "vllm:request_prompt_tokens": _TOKENS,
    "vllm:request_generation_tokens": _TOKENS,
    "vllm:iteration_tokens_total": tuple(float(2**i) for i in (0, *range(3, 15))),
    "vllm:request_max_num_generation_tokens": _TOKENS,
    "vllm:request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "vllm:request_params_max_tokens": _TOKENS,
    "vllm:time_to_first_token_seconds": (*_TTFT_S, 160.0, 640.0, 2560.0),
    "vllm:inter_token_latency_seconds": _ITL_S,
    "vllm:request_time_per_output_token_seconds": _ITL_S,
    "vllm:e2e_request_latency_seconds": _LATENCY_EDGES_S,
    "vllm:request_queue_time_seconds": _LATENCY_EDGES_S,
    "vllm:request_inference_time_seconds": _LATENCY_EDGES_S,
    "vllm:request_prefill_time_seconds": _LATENCY_EDGES_S,
    "vllm:request_decode_time_seconds": _LATENCY_EDGES_S,
    "vllm:request_num_preemptions": (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
    "vllm:request_prefill_kv_computed_tokens": _TOKENS,
}
LOAD_SECONDS = "vllm:lora_adapter_load_seconds"
"""Only shown with `residency_metrics`."""


class Histogram:
    """Counts by bucket (not cumulated; the last is +Inf), with sum and count."""

    __slots__ = ("buckets", "count", "counts", "sum")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """`times` observations of one value."""
        self.counts[bisect_left(self.buckets, value)] += times
        self.sum += value * times
        self.count += times


class Observations:
    """All histograms of one engine, and its requests by how they ended."""

    def __init__(self) -> None:
        self.histograms = {name: Histogram(buckets) for name, buckets in BUCKETS.items()}
        self.loads = Histogram(_LOAD_S)
        self.finished = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.rejected = 0

    def first_token(self, ttft_s: float) -> None:
        """A request's first token is there."""
        self.histograms["vllm:time_to_first_token_seconds"].observe(ttft_s)

    def iterations(self, steps: int, tokens: int) -> None:
        """`steps` steps computed `tokens` tokens together."""
        self.histograms["vllm:iteration_tokens_total"].observe(tokens / steps, steps)

    def finish(self, request: Request, at_s: float) -> None:
        """A request has all its tokens at `at_s`. The model knows one mean for all gaps between its tokens."""
        self.finished["length"] += 1
        decode_s = at_s - request.first_token_s
        gaps = request.output_tokens - 1
        values = {
            "request_prompt_tokens": request.prompt_tokens,
            "request_generation_tokens": request.output_tokens,
            "request_max_num_generation_tokens": request.output_tokens,
            "request_params_n": 1,
            "request_params_max_tokens": request.output_tokens,
            "request_time_per_output_token_seconds": decode_s / gaps if gaps else 0.0,
            "e2e_request_latency_seconds": at_s - request.submitted_s,
            "request_queue_time_seconds": request.admitted_s - request.submitted_s,
            "request_inference_time_seconds": at_s - request.admitted_s,
            "request_prefill_time_seconds": request.first_token_s - request.admitted_s,
            "request_decode_time_seconds": decode_s,
            "request_num_preemptions": request.preemptions,
            "request_prefill_kv_computed_tokens": request.prompt_tokens,
        }
        for name, value in values.items():
            self.histograms[f"vllm:{name}"].observe(max(0.0, value))
        if gaps:
            self.histograms["vllm:inter_token_latency_seconds"].observe(decode_s / gaps, gaps)
