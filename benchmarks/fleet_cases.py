"""What `benchmarks.fleet` puts every strategy before: regimes, loads, bursts; and how its jobs are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import process_time

from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Overflow
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.fleet.tables import Level, least_requests
from autoscaler.simulator.strategies.catalogue import Settings, strategies
from autoscaler.simulator.strategies.peers import POOL
from autoscaler.simulator.strategies.run import Stage
from autoscaler.simulator.strategies.scenario import Mix, Scenario, Traffic
from autoscaler.simulator.strategies.search import Job
from autoscaler.simulator.traffic import Burst, GeneratorSettings

PROFILE = "llama-3.1-8b-h100-64gb"
NAMES = (
    "ours", "round-robin-hpa", "least-request-hpa", "bounded-hash-active-requests", "rendezvous-predictive",
    "affinity-saturation", "group-per-tenant", "oracle",
)  # fmt: skip
BURST_FACTOR, BURST_LOAD = 5.0, 0.65
BURSTING = 5
"""The sixth adapter: 2 to 3 % of the requests, so that the fleet itself could carry the burst."""
WARMUP_S = 600.0
_STATIC_WARMUP_S, _STATIC_S = 120.0, 300.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated.

    Attributes:
        replicas: of the fixed fleets, and at the start of the others, which are about as large on average.
        seconds: of changing traffic, one season of it; the warm-up comes on top.
        slots: adapter slots that are tried.
        seeds: of which the first tunes and all judge.
    """

    replicas: int
    seconds: float
    slots: tuple[int, ...]
    seeds: int
    static_s: float = _STATIC_S
    steps: int = 5


@dataclass(frozen=True)
class Regime:
    """Adapters, host cache, kernels; and a file's traffic in place of the generator's."""

    adapters: int
    host: str
    kernels: str
    size: Size
    file: Path | None = None
    lengths: Path | None = None
    start_s: float = 0.0

    @property
    def name(self) -> str:
        """What a row of the table begins with."""
        clients = (
            f"{self.adapters:,}" if self.file is None else f"{self.file.name.split('.')[0]} from {self.start_s:g} s"
        )
        return f"{clients}, {self.host}, {self.kernels}"

    @cached_property
    def count(self) -> int:
        """Of adapters: the file's clients, or the generator's."""
        return len(self._traffic(1.0).open(0).adapters)

    @property
    def profile(self) -> str:
        """The engines'."""
        return f"{PROFILE}-{self.kernels}"

    @property
    def middle_slots(self) -> int:
        """The number of adapter slots that is tried first."""
        return self.size.slots[(len(self.size.slots) - 1) // 2]

    @cached_property
    def mix(self) -> Mix:
        """What the slice asks for, a file's before it is thinned."""
        return self._traffic(1.0).mix(self.size.seconds + WARMUP_S, 0)

    def limits(self, slots: int) -> EngineLimits:
        """One engine's limits with so many adapter slots."""
        host = {"slots": slots, "128": max(128, slots), "all": max(self.count, slots)}[self.host]
        return EngineLimits(max_loras=slots, max_cpu_loras=host)

    def changing(self, rate_rps: float, slots: int, seed: int) -> Scenario:
        """Demand for whoever scales: a file's slice, or one that doubles and falls again; `rate_rps` on average.

        Each seed draws other arrivals, also of a file's rates.
        """
        traffic = self._traffic(rate_rps)
        if self.file is not None:
            traffic = replace(traffic, scale=float(f"{rate_rps / self.mix.rate_rps:.4g}"))
        return Scenario(
            traffic, self.profile, self.limits(slots), self.size.seconds + WARMUP_S, WARMUP_S, self.size.replicas, 2,
            4 * self.size.replicas, seed=seed,
        )  # fmt: skip

    def fixed(self, rate_rps: float, slots: int, seed: int) -> Scenario:
        """Steady demand on a fixed fleet; of a file's mix where there is one."""
        traffic = Traffic(generator=self._generator(rate_rps))
        if self.file is not None:
            span_s = self.size.seconds + WARMUP_S
            traffic = replace(self._traffic(rate_rps), steady_rps=rate_rps, span_s=span_s)
        return Scenario(
            traffic,
            self.profile,
            self.limits(slots),
            _STATIC_WARMUP_S + self.size.static_s,
            _STATIC_WARMUP_S,
            seed=seed,
        ).static(self.size.replicas)

    def burst(self, rate_rps: float, slots: int, seed: int, adapter: int = BURSTING) -> Scenario:
        """Steady demand of the generator, and one adapter at five times its rate for the last half."""
        calm = replace(self, file=None).fixed(rate_rps, slots, seed)
        half_s = self.size.static_s / 2
        begin_s = _STATIC_WARMUP_S + half_s
        generator = replace(calm.traffic.generator, bursts=(Burst(adapter, begin_s, half_s, BURST_FACTOR),))
        marks_s = (_STATIC_WARMUP_S, begin_s, begin_s + half_s)
        return replace(calm, traffic=Traffic(generator=generator), watched=(adapter,), marks_s=marks_s)

    def _generator(self, rate_rps: float) -> GeneratorSettings:
        return GeneratorSettings(adapters=self.adapters, rate_rps=rate_rps)

    def _traffic(self, rate_rps: float) -> Traffic:
        if self.file is not None:
            return Traffic(self.file, self.lengths, self.start_s)
        season = replace(self._generator(rate_rps), season_s=self.size.seconds + WARMUP_S, season_ratio=2.0)
        return Traffic(generator=season)


@dataclass(frozen=True)
class Maker:
    """Makes jobs of one regime."""

    regime: Regime
    policy: FleetPolicy
    level: Level
    capacity_tokens_per_s: float

    def job(self, scenario: Scenario, name: str, settings: Settings) -> Job:
        """A job before this regime's policy and capacity."""
        return Job(scenario, name, settings, self.policy, self.capacity_tokens_per_s, self.level)

    def ladders(self, name: str, rate_rps: float, seed: int, slots: int) -> list[list[Job]]:
        """Every ladder of a strategy with so many adapter slots; rungs that come to the same count of replicas once."""
        known = strategies(self.policy, self.capacity_tokens_per_s, self.level)[name]
        scenario = self.regime.changing(rate_rps, slots, seed)
        return [[self.job(scenario, name, s) for s in _distinct(ladder, scenario.replicas)] for ladder in known.ladders]

    def across(self, best: Job) -> tuple[tuple[Job, ...], int | None]:
        """A ladder across that of the best job, and where to begin; none where there is nothing to cross."""
        known = strategies(self.policy, self.capacity_tokens_per_s, self.level)[best.strategy]
        ladder, first = known.crossed(best.settings)
        begin = None if first is None else ladder[first]
        distinct = _distinct(ladder, best.scenario.replicas)
        jobs = tuple(self.job(best.scenario, best.strategy, settings) for settings in distinct)
        return jobs, distinct.index(begin) if begin in distinct else None

    def usual(self, name: str) -> Settings:
        """A setting for fixed fleets, where only routing matters."""
        return strategies(self.policy, self.capacity_tokens_per_s, self.level)[name].usual


def _distinct(ladder: Sequence[Settings], replicas: int) -> list[Settings]:
    told = [{**s, "least": round(s.get("least", 0.0) * replicas)} for s in ladder]
    return [s for i, s in enumerate(ladder) if told[i] not in told[:i]]


def replica_seconds_per_cpu_s(replicas: int = 8, seconds: float = 300.0) -> float:
    """Simulated replica-seconds per second of one core, at about 64 running requests a replica; compiled before."""
    generator = GeneratorSettings(adapters=64, rate_rps=7.0 * replicas, output_tokens=200.0)
    scenario = Scenario(
        Traffic(generator=generator), f"{PROFILE}-recent", EngineLimits(64, 64), seconds, 60.0
    ).static(replicas)  # fmt: skip
    spent_s = []
    for _ in range(2):
        stage = Stage(scenario)
        stage.platform.resize(POOL, replicas, now=True)
        stage.engines.route(least_requests(list(range(replicas)), 64, 0))
        began_s = process_time()
        stage.play()
        spent_s.append(process_time() - began_s)
    return replicas * seconds / min(spent_s)


def shipped() -> FleetPolicy:
    """The shipped default policy, with engines that resolve adapters by themselves."""
    policy = read_policy(shipped_policy("default"))
    return replace(
        policy,
        engine=replace(policy.engine, resolver=True),
        ring=replace(policy.ring, overflow=Overflow.ANY),
        forecast=replace(policy.forecast, learned=False),
    )
