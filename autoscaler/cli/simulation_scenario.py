"""What `simulate` was told, as a scenario: engines, traffic, bounds, and what fails when."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from autoscaler.cli.errors import UsageError
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.scalars import duration, seconds
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.strategies.failures import Failure, FailureError, Kind
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.traffic import Burst, GeneratorSettings

_SLOTS = 32
_MOST_REQUESTS = 1e9
_FLAGS = ("adapters", "rate_rps")  # settings of the generator that have a flag of their own
_DRAWN = "zipf_exponent"  # the one that a trace without adapters needs too


def scenario_of(arguments: argparse.Namespace, policy: FleetPolicy, trace: Path | None, start_s: float) -> Scenario:
    """The scenario; `trace`: a file from `start_s` on, None for generated traffic. Raises UsageError."""
    stated = policy.engine.limits
    slots = arguments.max_loras or stated.max_loras or _SLOTS
    host = arguments.max_cpu_loras or stated.max_cpu_loras or slots
    limits = EngineLimits(
        max_loras=slots, max_cpu_loras=max(slots, host), max_lora_rank=stated.max_lora_rank or 16,
        max_num_seqs=stated.max_num_seqs or 256,
    )  # fmt: skip
    length_s = arguments.hours * 3600.0
    if not 0 <= arguments.scrape_loss < 1:
        raise UsageError(f"--scrape-loss {arguments.scrape_loss:g} must be from 0 to below 1")
    if arguments.max_cpu_loras is not None and arguments.max_cpu_loras < slots:
        raise UsageError(f"--max-cpu-loras {arguments.max_cpu_loras} must be at least the adapter slots, {slots}")
    requests = length_s * arguments.rate * arguments.scale
    if trace is None and requests > _MOST_REQUESTS:
        raise UsageError(
            f"--hours {arguments.hours:g} at --rate {arguments.rate:g} are {requests:.3g} requests; at most "
            f"{_MOST_REQUESTS:.0e} are simulated"
        )
    usual = GeneratorSettings(adapters=arguments.adapters, rate_rps=arguments.rate, season_s=length_s, season_ratio=2.0)
    generator = generator_of(arguments.generate, usual, trace)
    traffic = Traffic(trace, arguments.lengths, start_s, arguments.scale, arguments.speed, generator=generator)
    warm = policy.groups.warm
    return Scenario(
        traffic, arguments.profile, limits, length_s, min(600.0, length_s / 6), arguments.replicas, warm.min_replicas,
        max(warm.max_replicas, arguments.replicas), arguments.startup, policy.slo.ttft_s, policy.slo.objective_ratio,
        scrape_loss_ratio=arguments.scrape_loss, scrape_delay_s=arguments.scrape_delay,
        failures=failures_of(arguments.fail, length_s), seed=arguments.seed,
    )  # fmt: skip


def failures_of(texts: Iterable[str], length_s: float) -> tuple[Failure, ...]:
    """Failures of `TIME:KIND[:FOR]`, by their times. Raises UsageError."""
    found = []
    for text in texts:
        at, _, rest = text.partition(":")
        kind, _, lasts = rest.partition(":")
        at_s, lasts_s = seconds(at), seconds(lasts) if lasts else 0.0
        if at_s is None or lasts_s is None or kind not in list(Kind):
            raise UsageError(
                f"--fail {text} is no failure: write TIME:KIND or TIME:KIND:FOR, such as 30m:kill or 1h:scrapes:10m; "
                f"kinds are {', '.join(Kind)}"
            )
        if at_s >= length_s:
            raise UsageError(f"--fail {text} is after the end, which is at {duration(length_s)}")
        try:
            found.append(Failure(at_s, Kind(kind), lasts_s))
        except FailureError as error:
            raise UsageError(f"--fail {text}: {error}") from error
    return tuple(sorted(found, key=lambda failure: failure.at_s))


def generator_of(words: Iterable[str], usual: GeneratorSettings, trace: Path | None) -> GeneratorSettings:
    """The usual settings with what `KEY=VALUE` words say. Raises UsageError."""
    known = {f.name.removesuffix("_s"): f for f in fields(GeneratorSettings) if f.name not in _FLAGS}
    told: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in known:
            raise UsageError(f"--generate {word}: write KEY=VALUE; keys are {', '.join(known)}")
        if trace is not None and key != _DRAWN:
            raise UsageError(
                f"--generate {word} is of generated traffic, and --trace is given; only {_DRAWN} goes with it"
            )
        name = known[key].name
        if name == "bursts":
            told[name] = (*told.get(name, ()), _burst(word, text))
        else:
            told[name] = _value(word, text, name, known[key].default)
    return replace(usual, **told)


def _value(word: str, text: str, name: str, default: object) -> float:
    assert default is not MISSING
    value = seconds(text) if name.endswith("_s") and text != "0" else _number(text)
    if value is None or (isinstance(default, int) and value != int(value)):
        wanted = (
            "a duration, such as 25m"
            if name.endswith("_s")
            else "a whole number"
            if isinstance(default, int)
            else "a number"
        )
        raise UsageError(f"--generate {word}: it must be {wanted}")
    return int(value) if isinstance(default, int) else value


def _burst(word: str, text: str) -> Burst:
    adapter, start, lasts, factor = (*text.split(":"), *4 * [""])[:4]
    times = seconds(start), seconds(lasts), _number(factor)
    if text.count(":") != 3 or not adapter.isdecimal() or None in times:
        raise UsageError(f"--generate {word}: write bursts=ADAPTER:START:FOR:FACTOR, such as bursts=5:30m:10m:5")
    return Burst(int(adapter), *(value or 0.0 for value in times))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
