"""Two hundred random incidents whose cause is known: each is named with precision and recall, and nobody is accused on
quiet fleets. Owners, loads, seasons, noise, sizes and the size of the harm differ in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoscaler.domain.diagnosis import Cause
from tests.diagnosis.building import POLICY, Incident

pytestmark = pytest.mark.slow  # a minute: 240 lives of fifty looks

EACH, QUIET = 29, 40
STEP_S, LIFE_S = 30.0, 1500.0
Values = dict[str, Any]


def fleet(rng: np.random.Generator, **kind: Any) -> Incident:
    return Incident(
        rng, replicas=int(rng.integers(5, 9)), tenants=int(rng.integers(15, 36)), season=float(rng.uniform(0.0, 0.5)),
        noise=float(rng.uniform(0.1, 0.2)), **kind,
    )  # fmt: skip


def none(rng: np.random.Generator) -> Incident:
    return fleet(rng)


def noisy(rng: np.random.Generator) -> Incident:
    return fleet(rng, aggressor_harm_s=float(rng.uniform(0.3, 0.8)))


def bad_replica(rng: np.random.Generator) -> Incident:
    return fleet(rng, slow_replica=(int(rng.integers(0, 5)), float(rng.uniform(2.8, 6.0))))


def on_all(values: Callable[[float], Values]) -> Callable[[int, float, float], Values]:
    return lambda number, load, now_s: values(load)


def on_one(values: Callable[[float], Values]) -> Callable[[int, float, float], Values]:
    return lambda number, load, now_s: values(load) if number == 0 else {}


def thrash(rng: np.random.Generator) -> Incident:
    share, kv = float(rng.uniform(0.6, 0.95)), float(rng.uniform(0.02, 0.4))
    where = on_one if rng.uniform() < 0.3 else on_all

    def values(load: float) -> Values:
        waiting = 3.0 + 4.0 * load
        return {"waiting": waiting, "deferred": share * waiting, "kv_usage_ratio": kv}

    return fleet(rng, signals_of=where(values))


def saturation(rng: np.random.Generator) -> Incident:
    kv, queue = float(rng.uniform(0.6, 0.97)), float(rng.uniform(4.0, 12.0))
    return fleet(rng, signals_of=on_all(lambda load: {"waiting": queue + 2 * load, "kv_usage_ratio": kv}))


def router_imbalance(rng: np.random.Generator) -> Incident:
    times = float(rng.uniform(3.0, 6.0))

    def values(load: float) -> Values:
        tokens = {"prompt_tokens_per_s": 3000.0 * times, "generation_tokens_per_s": 1000.0 * times}
        return tokens | {"waiting": 8.0 * times, "kv_usage_ratio": 0.7, "running": 10.0 * times}

    return fleet(rng, signals_of=on_one(values))


def slow_adapter_store(rng: np.random.Generator) -> Incident:
    load_s, rate = float(rng.uniform(0.6, 2.0)), float(rng.uniform(0.2, 0.5))
    values: Values = {"adapter_load_mean_s": load_s, "adapter_loads_per_s": rate, "ttft_mean_s": 1.2 + load_s}
    return fleet(rng, signals_of=(on_one if rng.uniform() < 0.5 else on_all)(lambda load: values))


KINDS = {
    Cause.NONE: none, Cause.NOISY_NEIGHBOUR: noisy, Cause.BAD_REPLICA: bad_replica, Cause.THRASH: thrash,
    Cause.SATURATION: saturation, Cause.ROUTER_IMBALANCE: router_imbalance,
    Cause.SLOW_ADAPTER_STORE: slow_adapter_store,
}  # fmt: skip


def test_each_cause_of_two_hundred_incidents_is_named_with_precision_and_recall_of_nine_tenths():
    named = [
        (cause, make(np.random.default_rng(1000 * row + seed)).lives(LIFE_S, STEP_S).groups["warm"].cause)
        for row, (cause, make) in enumerate(KINDS.items())
        for seed in range(EACH)
    ]
    assert len(named) >= 200
    for cause in KINDS:
        said = [true for true, got in named if got is cause]
        right = said.count(cause)
        wrong = [(str(true), str(got)) for true, got in named if (true is cause) != (got is cause)]
        assert right / EACH >= 0.9, f"recall of {cause} is {right / EACH:.2f}: {wrong}"
        assert right / len(said) >= 0.9, f"precision of {cause} is {right / len(said):.2f}: {wrong}"


def test_nobody_is_accused_on_quiet_fleets_at_any_look():
    for seed in range(QUIET):
        life = fleet(np.random.default_rng(50_000 + seed))
        for _ in range(int(LIFE_S // STEP_S)):
            found = life.tick(STEP_S)
            accused = {t for t, f in found.tenants.items() if f.aggressor >= POLICY.diagnosis.noisy_score_ratio}
            assert accused == set(), (seed, life.now_s)
