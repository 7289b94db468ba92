"""Residency as it is modelled: an LRU of host memory, filled by loads and use."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.connectors.engines.residency import ModelledResidency, WithModelledResidency
from autoscaler.domain.fleet import EngineLimits, LoadLedger, Replica, ReplicaState
from autoscaler.domain.observation import Catalogue, PairTraffic, Traffic
from autoscaler.ports import Metrics

ALL = frozenset("abcdef")
REPLICA = Replica(
    "r1", "warm", None, "x:1", ReplicaState.READY, limits=EngineLimits(2, 3), registered=ALL, started_at_s=1.0
)


def test_registered_is_not_resident() -> None:
    model = ModelledResidency()
    assert model.observe(REPLICA, ["a", "b"], [], 1.0) == {"a", "b"}


def test_the_least_recently_used_goes_first() -> None:
    model = ModelledResidency()
    model.observe(REPLICA, ["a", "b", "c"], [], 1.0)
    model.observe(REPLICA, ["a", "b", "c"], ["a"], 2.0)
    assert model.observe(REPLICA, ["a", "b", "c", "d"], ["c"], 3.0) == {"a", "c", "d"}


def test_an_evicted_adapter_comes_back_by_use_and_not_by_having_been_loaded_once() -> None:
    model = ModelledResidency()
    model.observe(REPLICA, ["a"], [], 1.0)
    assert model.observe(REPLICA, ["a", "b", "c", "d"], [], 2.0) == {"b", "c", "d"}
    assert model.observe(REPLICA, ["a", "b", "c", "d"], [], 3.0) == {"b", "c", "d"}
    assert "a" in model.observe(REPLICA, ["a", "b", "c", "d"], ["a"], 4.0)


def test_a_new_process_is_empty_and_an_unregistered_adapter_is_gone() -> None:
    model = ModelledResidency()
    model.observe(REPLICA, ["a", "b"], [], 1.0)
    assert model.observe(replace(REPLICA, registered=frozenset("a")), ["a"], [], 2.0) == {"a"}
    assert model.observe(replace(REPLICA, started_at_s=9.0), [], [], 3.0) == frozenset()


class Seen:
    """A source that always reads the same."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        return self.metrics


async def test_modelled_residency_is_added_where_the_engine_shows_none() -> None:
    catalogue = Catalogue.of({a: (a, "", "", 0) for a in "abc"})
    one = np.ones(1)
    pairs = PairTraffic(np.array([1]), np.array([0]), one, one, one)
    metrics = Metrics(
        {}, Traffic.unknown(3), pairs, {}, {}, resident={"r2": frozenset("c")}, limits={"r1": {"max_loras": 2}}
    )
    ledger = LoadLedger(loaded={"r1": {"a": "1"}, "r2": {"a": "1"}})
    source = WithModelledResidency(Seen(metrics), lambda: ledger, lambda r, seen: EngineLimits(seen["max_loras"], 4))
    replicas = [REPLICA, replace(REPLICA, id="r2")]
    metrics.limits["r2"] = {"max_loras": 1}
    seen = await source.read(1.0, catalogue, replicas)
    assert seen.resident == {"r1": frozenset("ab"), "r2": frozenset("c")}
