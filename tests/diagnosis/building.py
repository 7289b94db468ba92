"""Fleets whose trouble is known, told as observations: who sends what where, and how late answers are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoscaler.diagnosis import DiagnosisMemory, diagnose
from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import EngineLimits, Group, Replica, ReplicaSignals, ReplicaState, Tier
from autoscaler.domain.observation import Catalogue, Observation, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.model import FleetPolicy

NOW = 1_795_867_200.0
POLICY = FleetPolicy(name="fleet", base_model="base")
TOKENS = 500.0  # per request


def signals(**values: float | None) -> ReplicaSignals:
    """A calm engine with some signals changed; None leaves one out."""
    calm: dict[str, float | None] = {
        "running": 6.0, "waiting": 0.0, "deferred": 0.0, "kv_usage_ratio": 0.3, "ttft_mean_s": 0.1, "itl_mean_s": 0.012,
        "prompt_tokens_per_s": 600.0, "generation_tokens_per_s": 200.0, "requests_per_s": 2.0,
    }  # fmt: skip
    seen = {**calm, **values}
    return ReplicaSignals(**{k: Missing("not shown") if v is None else Fresh(v) for k, v in seen.items()})


def replica(number: int, seen: ReplicaSignals | None = None, slots: int = 8, group: str = "warm") -> Replica:
    """A READY replica."""
    limits = EngineLimits(max_loras=slots, max_cpu_loras=4 * slots, max_num_seqs=64)
    return Replica(
        f"{group}-{number:03d}", group, f"s{number:04d}", "h:1", ReplicaState.READY, limits=limits,
        signals=signals() if seen is None else seen,
    )  # fmt: skip


Pairs = Mapping[tuple[str, int], tuple[float, float]]
"""(tenant, replica number) -> (requests/s, mean TTFT in seconds)."""


def observation(replicas: tuple[Replica, ...], pairs: Pairs | None = None, now_s: float = NOW, window_s: float = 60.0):
    """One look at a fleet; each tenant has one adapter of its own name."""
    pairs = pairs or {}
    catalogue = Catalogue.of({t: (t, f"/a/{t}", "", 8) for t, _ in pairs})
    rates = np.zeros(len(catalogue.ids))
    for (tenant, _), (rate, _) in pairs.items():
        rates[catalogue.row[tenant]] += rate
    nan = np.full(rates.size, np.nan)
    keys = list(pairs)
    return Observation(
        now_s=now_s,
        catalogue=catalogue,
        traffic=Traffic(window_s, rates, rates * TOKENS * 0.75, rates * TOKENS * 0.25, rates * 0, nan, nan),
        replicas=replicas,
        groups={"warm": Group("warm", Tier.WARM, len(replicas))},
        pairs=PairTraffic(
            adapter=np.array([catalogue.row[t] for t, _ in keys], np.int64),
            replica=np.array([r for _, r in keys], np.int64),
            requests_per_s=np.array([pairs[k][0] for k in keys], np.float64),
            ttft_mean_s=np.array([pairs[k][1] for k in keys], np.float64),
            completion_tokens_per_s=np.array([pairs[k][0] * TOKENS * 0.25 for k in keys], np.float64),
        ),
    )


def once(*replicas: Replica, pairs: Pairs | None = None, told: FleetPolicy = POLICY) -> Diagnosis:
    """The diagnosis of one look."""
    return diagnose(observation(replicas, pairs), told, DiagnosisMemory(), NOW)[0]


@dataclass
class Incident:
    """A fleet of small owners, two a tenant, that lives: latency follows load, and one thing is wrong with it.

    Attributes:
        aggressor: a tenant whose bursts slow its owners, with seconds added per request/s; None in the others.
        slow_replica: times as slow as its peers.
        season: the whole fleet's load swings by this share.
    """

    rng: np.random.Generator
    replicas: int = 6
    tenants: int = 18
    aggressor_harm_s: float = 0.0
    slow_replica: tuple[int, float] | None = None
    season: float = 0.3
    noise: float = 0.15
    signals_of: Callable[[int, float, float], dict[str, Any]] | None = None
    owners: dict[str, tuple[int, int]] = field(init=False)
    memory: DiagnosisMemory = field(default_factory=DiagnosisMemory)
    now_s: float = NOW

    def __post_init__(self) -> None:
        names = [f"t{i:02d}" for i in range(self.tenants)] + ["loud"]
        self.owners = {t: tuple(self.rng.choice(self.replicas, 2, replace=False)) for t in names}
        self.rates = dict(zip(names, self.rng.uniform(0.3, 1.0, len(names)), strict=True))

    def tick(self, step_s: float = 15.0) -> Diagnosis:
        """Fifteen seconds later."""
        self.now_s += step_s
        swing = 1 + self.season * np.sin(self.now_s / 400.0)
        burst = 6.0 if (self.now_s // 150) % 2 else 0.5
        rates = {t: r * swing * self.rng.uniform(0.7, 1.3) for t, r in self.rates.items()}
        rates["loud"] = burst * self.rng.uniform(0.8, 1.2)
        load = np.zeros(self.replicas)
        loud = np.zeros(self.replicas)
        for tenant, owners in self.owners.items():
            for r in owners:
                load[r] += rates[tenant] / 2
                loud[r] += rates[tenant] / 2 if tenant == "loud" else 0.0
        base = 0.08 + 0.005 * load + self.aggressor_harm_s * loud
        if self.slow_replica is not None:
            base[self.slow_replica[0]] *= self.slow_replica[1]
        pairs = {
            (tenant, int(r)): (rate / 2, float(base[r] * self.rng.lognormal(0.0, self.noise)))
            for tenant, rate in rates.items()
            for r in self.owners[tenant]
        }
        seen = []
        for r in range(self.replicas):
            slow = self.slow_replica[1] if self.slow_replica is not None and self.slow_replica[0] == r else 1.0
            values: dict[str, Any] = {
                "ttft_mean_s": float(base[r] * self.rng.lognormal(0.0, self.noise)),
                "itl_mean_s": float(0.012 * slow * self.rng.lognormal(0.0, self.noise)),
                "prompt_tokens_per_s": float(load[r] * TOKENS * 0.75),
                "generation_tokens_per_s": float(load[r] * TOKENS * 0.25),
                "requests_per_s": float(load[r]),
                "running": float(load[r] * 3 * slow),
            }
            extra = {} if self.signals_of is None else self.signals_of(r, float(load[r]), self.now_s)
            seen.append(replica(r, signals(**{**values, **extra})))
        look = observation(tuple(seen), pairs, self.now_s)
        diagnosis, self.memory = diagnose(look, POLICY, self.memory, self.now_s)
        return diagnosis

    def lives(self, for_s: float, step_s: float = 15.0) -> Diagnosis:
        """So long; the diagnosis at the end."""
        for _ in range(int(for_s // step_s) - 1):
            self.tick(step_s)
        return self.tick(step_s)
