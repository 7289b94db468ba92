"""What happens in the demo, and when: traffic over the phases of each scenario."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autoscaler.cli.demo_options import DemoOptions
from autoscaler.cli.errors import UsageError, check_readable
from autoscaler.simulator.traffic.arrivals import Arrivals, Trace, TraceError, shaped
from autoscaler.simulator.traffic.generated import Burst, GeneratedTrace, GeneratorSettings
from autoscaler.simulator.traffic.requests import open_trace

ADAPTERS = 50
RATE_RPS = 44.0
"""What eight engines of 8 adapter slots cannot carry sprayed, and carry where each sees 7 adapters."""

CARRIED_RPS = 90.0
"""What client, Envoy and engines carry together on two cores with room to spare (`python -m benchmarks.engines`)."""

CARRIED_TOKENS_PER_S = 12_000.0
"""Generated tokens that eight of the demo's engines carry with room to spare; `thrash` asks for as many."""

QUIET = 49
"""The adapter that falls silent once the fleet is managed, so that a demotion is seen."""

RISE_ADAPTERS = 24
BURST_ADAPTER = 3
SPRAYED_SHARE = 1 / 3
"""Of the duration, before the controller takes over."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the demo.

    Attributes:
        name: `round-robin` or `managed`.
        managed: whether the controller acts.
        arrivals: what is sent, times from the phase's start.
        burst: (from, to) in the phase's seconds, where one adapter bursts.
    """

    name: str
    seconds: float
    managed: bool
    arrivals: Iterator[Arrivals]
    burst: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Names of the adapters by index, replicas at the start, and the phases."""

    adapters: tuple[str, ...]
    replicas: int
    phases: tuple[Phase, ...]
    burst_adapter: str = ""


def scenario(options: DemoOptions) -> Scenario:
    """The scenario that was asked for. Raises UsageError for a trace that cannot be read."""
    sprayed_s = options.duration_s * SPRAYED_SHARE
    managed_s = options.duration_s - sprayed_s
    if options.trace is not None:
        return _replayed(options, sprayed_s, managed_s)
    if options.scenario == "burst":
        return _burst(options, sprayed_s / 2, options.duration_s - sprayed_s / 2)
    if options.scenario == "rise":
        return _rise(options, sprayed_s / 2, options.duration_s - sprayed_s / 2)
    sprayed = GeneratedTrace(_settings(RATE_RPS), options.seed)
    managed = GeneratedTrace(_settings(RATE_RPS), options.seed + 1)
    return Scenario(
        _names(ADAPTERS), 8,
        (
            Phase("round-robin", sprayed_s, False, shaped(sprayed, duration_s=sprayed_s)),
            Phase("managed", managed_s, True, _without(shaped(managed, duration_s=managed_s), QUIET)),
        ),
    )  # fmt: skip


def _burst(options: DemoOptions, sprayed_s: float, managed_s: float) -> Scenario:
    begin_s, length_s = managed_s * 0.5, managed_s * 0.3
    rate = RATE_RPS * 0.65
    burst = Burst(BURST_ADAPTER, begin_s, length_s, 5.0)
    sprayed = GeneratedTrace(_settings(rate), options.seed)
    managed = GeneratedTrace(_settings(rate, (burst,)), options.seed + 1)
    return Scenario(
        _names(ADAPTERS), 8,
        (
            Phase("round-robin", sprayed_s, False, shaped(sprayed, duration_s=sprayed_s)),
            Phase(
                "managed", managed_s, True, shaped(managed, duration_s=managed_s), (begin_s, begin_s + length_s)
            ),
        ),
        _names(ADAPTERS)[BURST_ADAPTER],
    )  # fmt: skip


def _rise(options: DemoOptions, sprayed_s: float, managed_s: float) -> Scenario:
    """Demand that triples and comes back, of adapters that fit the smallest fleet: replicas are what is short."""
    low, high = RATE_RPS * 0.3, RATE_RPS
    rise_s, fall_s = managed_s * 0.15, managed_s * 0.5
    before, over, after = (
        shaped(GeneratedTrace(_settings(rate, adapters=RISE_ADAPTERS), options.seed + i), duration_s=seconds)
        for i, (rate, seconds) in enumerate(((low, rise_s), (high, fall_s - rise_s), (low, managed_s - fall_s)))
    )
    sprayed = GeneratedTrace(_settings(low, adapters=RISE_ADAPTERS), options.seed + 9)
    return Scenario(
        _names(RISE_ADAPTERS), 4,
        (
            Phase("round-robin", sprayed_s, False, shaped(sprayed, duration_s=sprayed_s)),
            Phase("managed", managed_s, True, _joined((before, 0.0), (over, rise_s), (after, fall_s))),
        ),
    )  # fmt: skip


def _replayed(options: DemoOptions, sprayed_s: float, managed_s: float) -> Scenario:
    """Real arrivals and lengths, thinned to what this machine carries unless told otherwise.

    Both phases replay the trace from the same moment, so that the same requests are compared.
    """
    assert options.trace is not None
    check_readable(**{"--trace": options.trace, "--lengths": options.lengths})
    try:
        trace = open_trace(options.trace, lengths=options.lengths, adapters=ADAPTERS, seed=options.seed)
        scale = options.scale or _scale(trace, options, managed_s)
        first, second = (
            shaped(trace, start_s=options.start_s, duration_s=s * options.speed, scale=scale, speed=options.speed)
            for s in (sprayed_s, managed_s)
        )
    except TraceError as error:
        raise UsageError(str(error)) from error
    phases = (Phase("round-robin", sprayed_s, False, first), Phase("managed", managed_s, True, second))
    return Scenario(tuple(trace.adapters), 8, phases)


def _scale(trace: Trace, options: DemoOptions, seconds: float) -> float:
    """The share of the slice's requests that this machine carries."""
    count, tokens = 0, 0
    for chunk in shaped(trace, start_s=options.start_s, duration_s=seconds * options.speed):
        count, tokens = count + len(chunk), tokens + int(chunk.output_tokens.sum())
    if not count:
        raise TraceError(
            f"{options.trace} has no request between {options.start_s:g} s and {seconds * options.speed:g} s on"
        )
    return min(CARRIED_RPS * seconds / count, CARRIED_TOKENS_PER_S * seconds / max(tokens, 1), 1.0)


def _settings(rate_rps: float, bursts: tuple[Burst, ...] = (), adapters: int = ADAPTERS) -> GeneratorSettings:
    return GeneratorSettings(
        adapters=adapters, rate_rps=rate_rps, zipf_exponent=0.8, bursts=bursts, prompt_tokens=250, output_tokens=220,
        tokens_spread=0.3, window_s=2.0,
    )  # fmt: skip


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"tenant-{i:02d}" for i in range(count))


def _without(chunks: Iterator[Arrivals], adapter: int) -> Iterator[Arrivals]:
    for chunk in chunks:
        kept = chunk.take(np.asarray(chunk.adapter != adapter))
        if len(kept):
            yield kept


def _joined(*parts: tuple[Iterator[Arrivals], float]) -> Iterator[Arrivals]:
    """Traces one after the other, each from its own start."""
    for chunks, start_s in parts:
        for chunk in chunks:
            yield Arrivals(chunk.time_s + start_s, chunk.adapter, chunk.prompt_tokens, chunk.output_tokens)
