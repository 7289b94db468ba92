"""One setting of the comparison: traffic, engines, bounds, and what is measured. Values only: it can be sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from autoscaler.simulator.engine.profile import EngineLimits, EngineProfile, load_profile
from autoscaler.simulator.fleet.core.layout import Ints
from autoscaler.simulator.strategies.failures import Failure
from autoscaler.simulator.traffic import (
    Arrivals,
    GeneratedTrace,
    GeneratorSettings,
    Trace,
    open_trace,
    sampled,
    shaped,
    steady,
)

_POPULARITY_FROM = 50_000  # requests from which the order of popularity is taken


@dataclass(frozen=True, slots=True)
class Traffic:
    """Where requests come from: a file (its slice, thinned and sped up), or the generator where there is none.

    Attributes:
        steady_rps: above 0, Poisson arrivals at this rate instead, of the mix of the `span_s` from `start_s` on.
    """

    file: Path | None = None
    lengths: Path | None = None
    start_s: float = 0.0
    scale: float = 1.0
    speed: float = 1.0
    steady_rps: float = 0.0
    span_s: float = 0.0
    generator: GeneratorSettings = field(default_factory=GeneratorSettings)

    def open(self, seed: int) -> Trace:
        """The trace, drawn by `seed`."""
        if self.file is None:
            return GeneratedTrace(self.generator, seed)
        return open_trace(
            self.file, lengths=self.lengths, adapters=self.generator.adapters,
            zipf_exponent=self.generator.zipf_exponent, seed=seed,
        )  # fmt: skip

    def arrivals(self, trace: Trace, seconds: float, seed: int) -> Iterator[Arrivals]:
        """`seconds` of it."""
        if self.steady_rps > 0:
            return steady(
                trace, start_s=self.start_s, span_s=self.span_s, rate_rps=self.steady_rps, duration_s=seconds, seed=seed
            )
        return shaped(
            trace, start_s=self.start_s, duration_s=seconds * self.speed, scale=self.scale, speed=self.speed, seed=seed
        )

    def mix(self, seconds: float, seed: int) -> Mix:
        """What `seconds` of it, as they are in the file or from the generator, ask for; neither thinned nor sped up."""
        trace = self.open(seed)
        found = sampled(trace, start_s=self.start_s, span_s=seconds)
        requests = sum(map(len, shaped(trace, start_s=self.start_s, duration_s=seconds)))
        return Mix(requests / seconds, float(found.prompt_tokens.mean()), float(found.output_tokens.mean()))


@dataclass(frozen=True, slots=True)
class Mix:
    """Mean requests/s of a slice, and mean tokens of its prompts and answers."""

    rate_rps: float
    prompt_tokens: float
    output_tokens: float

    @property
    def tokens(self) -> float:
        """Of both, per request."""
        return self.prompt_tokens + self.output_tokens

    def rough_rps(self, profile: EngineProfile) -> float:
        """Requests/s that one busy replica serves, by the profile's step costs at a batch of 48: a first guess."""
        step, lora, batch = profile.step, profile.lora, 48.0
        decode_ms = step.fixed_ms + lora.fixed_ms + step.per_sequence_ms * batch + 0.5 * lora.per_adapter_ms * batch
        prefill_ms = self.prompt_tokens * step.per_prefill_token_ms + step.per_admission_ms
        return 1e3 / ((self.output_tokens * decode_ms / batch + prefill_ms) * lora.factor)


@dataclass(frozen=True)
class Scenario:
    """What every strategy is put before.

    Attributes:
        profile: name or file of the engines' profile.
        limits: of every engine.
        seconds: of traffic; the first `warmup_s` are not measured.
        replicas: at the start. `least`, `most`: bounds for whoever scales; equal ones mean that nobody does.
        startup_s: from the request for a replica until it serves; None: as the profile says, compile cache warm.
        target_ttft_s, objective_ratio: the SLO.
        routers: each sees only what it has in flight itself.
        scrape_loss_ratio: of scrapes, target by target; `scrape_delay_s`: until one can be read.
        failures: what goes wrong, and when; the bound alone is spared.
        watched: adapters that are left out of the latency between marks (those that burst).
        marks_s: times; the others' p99 is told for each span between two of them.
    """

    traffic: Traffic
    profile: str = "llama-3.1-8b-h100-64gb-recent"
    limits: EngineLimits = field(default_factory=lambda: EngineLimits(64, 128))
    seconds: float = 3600.0
    warmup_s: float = 600.0
    replicas: int = 16
    least: int = 1
    most: int = 48
    startup_s: float | None = None
    target_ttft_s: float = 1.0
    objective_ratio: float = 0.99
    routers: int = 2
    scrape_loss_ratio: float = 0.0
    scrape_delay_s: float = 1.0
    failures: tuple[Failure, ...] = ()
    watched: tuple[int, ...] = ()
    marks_s: tuple[float, ...] = ()
    seed: int = 0

    @cached_property
    def engine_profile(self) -> EngineProfile:
        """The profile, read."""
        return load_profile(self.profile)

    @property
    def start_takes_s(self) -> float:
        """Seconds until a new replica serves."""
        if self.startup_s is not None:
            return self.startup_s
        return self.engine_profile.startup.total_s(self.limits.max_loras, compiled=True)

    @cached_property
    def trace(self) -> Trace:
        """The trace of this seed."""
        return self.traffic.open(self.seed)

    @cached_property
    def popularity(self) -> Ints:
        """Adapters, the most asked for first, by the first requests of the slice."""
        counts = np.zeros(len(self.trace.adapters), np.int64)
        seen = 0
        for chunk in self.traffic.arrivals(self.trace, self.seconds, self.seed):
            counts += np.bincount(chunk.adapter, minlength=len(counts))
            seen += len(chunk)
            if seen >= _POPULARITY_FROM:
                break
        return np.argsort(-counts, kind="stable")

    def static(self, replicas: int) -> Scenario:
        """The same with a fixed number of replicas."""
        return replace(self, replicas=replicas, least=replicas, most=replicas)
