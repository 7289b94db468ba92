"""The catalogue of router series: who counts requests, tokens and time to first byte, under which names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RouterPreset:
    """Names of one kind of router. Empty where it shows no such series.

    Attributes:
        name: as settings say it.
        requests, prompt_tokens, completion_tokens: counters (a histogram's `_sum` is one).
        errors: counter of requests that failed.
        ttft_sum, ttft_count: counters of time to the first byte of the answer, and of the answers that it was taken of.
        ttft_buckets: the histogram's buckets.
        ttft_unit_s: seconds in one unit of time to first byte.
        adapter_label, upstream_label: labels with the adapter and the replica's `host:port`.
        unknown_name: what stands in `adapter_label` for names that the router does not let become series.
        in_flight, in_flight_label: gauge of open requests, and its label with the replica's `host:port`.
    """

    name: str
    requests: str
    prompt_tokens: str = ""
    completion_tokens: str = ""
    errors: str = ""
    ttft_sum: str = ""
    ttft_count: str = ""
    ttft_buckets: str = ""
    ttft_unit_s: float = 1.0
    adapter_label: str = "adapter"
    upstream_label: str = ""
    unknown_name: str = ""
    in_flight: str = ""
    in_flight_label: str = ""

    def counters(self) -> tuple[str, ...]:
        """Requests, errors, prompt and completion tokens, sum and count of time to first byte; empty: not shown."""
        return (
            self.requests,
            self.errors,
            self.prompt_tokens,
            self.completion_tokens,
            self.ttft_sum,
            self.ttft_count,
        )


ENVOY = RouterPreset(
    "envoy",
    requests="envoy_llm_requests",
    prompt_tokens="envoy_llm_prompt_tokens",
    completion_tokens="envoy_llm_completion_tokens",
    errors="envoy_llm_errors",
    ttft_sum="envoy_llm_stream_ttft_ms",
    ttft_count="envoy_llm_streams",
    ttft_buckets="envoy_llm_ttft_ms_bucket",
    ttft_unit_s=0.001,
    upstream_label="upstream",
    unknown_name="(unknown)",
    in_flight="envoy_cluster_endpoint_rq_active",
    in_flight_label="envoy_endpoint_address",
)


def _endpoint_picker(name: str, prefix: str) -> RouterPreset:
    return RouterPreset(
        name,
        requests=f"{prefix}_request_total",
        prompt_tokens=f"{prefix}_input_tokens_sum",
        completion_tokens=f"{prefix}_output_tokens_sum",
        errors=f"{prefix}_request_error_total",
        ttft_sum=f"{prefix}_request_ttft_seconds_sum",
        ttft_count=f"{prefix}_request_ttft_seconds_count",
        ttft_buckets=f"{prefix}_request_ttft_seconds_bucket",
        adapter_label="target_model_name",
    )


LLM_D = _endpoint_picker("llm-d", "llm_d_epp")
GIE_OBJECTIVE = _endpoint_picker("gie-objective", "inference_objective")
GIE_EXTENSION = _endpoint_picker("gie-extension", "inference_extension")
GIE_MODEL = _endpoint_picker("gie-model", "inference_model")

ROUTERS: Mapping[str, RouterPreset] = {p.name: p for p in (ENVOY, LLM_D, GIE_OBJECTIVE, GIE_EXTENSION, GIE_MODEL)}
