"""Every signal that a policy may state is one that decisions are made from, and the other way round."""

from dataclasses import fields

from autoscaler.domain.fleet import ReplicaSignals
from autoscaler.domain.observation import Traffic
from autoscaler.policy.words import ADAPTER_SIGNALS, REPLICA_SIGNALS, SignalName


def test_signals_are_the_domains_fields_one_to_one() -> None:
    assert sorted(REPLICA_SIGNALS.values()) == sorted(f.name for f in fields(ReplicaSignals))
    columns = [f.name for f in fields(Traffic) if f.name != "window_s" and not f.name.startswith(("base_", "unknown_"))]
    assert sorted(ADAPTER_SIGNALS.values()) == sorted(columns)
    assert {*REPLICA_SIGNALS, *ADAPTER_SIGNALS, SignalName.RESIDENT} == set(SignalName)
