"""Residency as it is modelled: an LRU of host memory, filled by loads and use."""

from dataclasses import replace

from autoscaler.connectors.engines.residency import ModelledResidency
from autoscaler.domain.fleet import EngineLimits, Replica, ReplicaState

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
