"""What holds for every observation: scores within bounds, no accusation from one look, order and absence do no harm."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.diagnosis import DiagnosisMemory, diagnose
from autoscaler.domain.fleet import ReplicaSignals
from autoscaler.domain.observation import Observation, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Missing, Signal
from tests.diagnosis.building import NOW, POLICY, observation, replica

GONE = Missing("no series")


def signal(most: float) -> st.SearchStrategy[Signal]:
    return st.one_of(st.just(GONE), st.floats(0, most, allow_nan=False).map(Fresh))


SEEN = st.builds(
    ReplicaSignals,
    running=signal(64), waiting=signal(200), deferred=signal(200), kv_usage_ratio=signal(1), ttft_mean_s=signal(60),
    itl_mean_s=signal(1), prompt_tokens_per_s=signal(5000), generation_tokens_per_s=signal(2000),
    requests_per_s=signal(50), adapter_loads_per_s=signal(20), adapter_load_mean_s=signal(5),
)  # fmt: skip
RATE = st.one_of(st.floats(0, 50), st.just(math.nan))
LATE = st.one_of(st.floats(0, 100), st.just(math.nan))


@st.composite
def looks(draw: st.DrawFn) -> Observation:
    fleet = tuple(replica(i, draw(SEEN)) for i in range(draw(st.integers(0, 5))))
    keys = st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, max(len(fleet) - 1, 0)))
    pairs = draw(st.dictionaries(keys, st.tuples(RATE, LATE), max_size=10 if fleet else 0))
    return observation(fleet, pairs)


@settings(max_examples=30, deadline=None)
@given(looks())
def test_scores_are_within_their_bounds_and_every_ready_replica_has_a_finding(look):
    found, _ = diagnose(look, POLICY, DiagnosisMemory(), NOW)
    assert set(found.replicas) == {r.id for r in look.replicas}
    for finding in (*found.replicas.values(), *found.groups.values()):
        assert 0 <= finding.thrash <= 1
        assert finding.saturation >= 0
        assert finding.harm >= 0
        assert math.isfinite(finding.harm)
        assert all(math.isfinite(term.value) for term in finding.terms)


@settings(max_examples=30, deadline=None)
@given(looks())
def test_one_look_accuses_nobody(look):
    found, _ = diagnose(look, POLICY, DiagnosisMemory(), NOW)
    assert all(f.aggressor == 0 and f.victim == 0 for f in found.tenants.values())


@settings(max_examples=25, deadline=None)
@given(looks(), st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(look, random):
    order = list(range(look.pairs.adapter.size))
    random.shuffle(order)
    rows = np.array(order, np.int64)
    pairs = look.pairs
    mixed = PairTraffic(
        pairs.adapter[rows], pairs.replica[rows], pairs.requests_per_s[rows], pairs.ttft_mean_s[rows],
        pairs.completion_tokens_per_s[rows],
    )  # fmt: skip
    one, _ = diagnose(look, POLICY, DiagnosisMemory(), NOW)
    two, _ = diagnose(replace(look, pairs=mixed), POLICY, DiagnosisMemory(), NOW)
    assert {n: f.cause for n, f in one.replicas.items()} == {n: f.cause for n, f in two.replicas.items()}
    assert set(one.tenants) == set(two.tenants)


@settings(max_examples=25, deadline=None)
@given(looks())
def test_without_routers_replicas_are_still_judged(look):
    blind = replace(look, pairs=PairTraffic.none(), traffic=Traffic.unknown(len(look.catalogue.ids)))
    found, memory = diagnose(blind, POLICY, DiagnosisMemory(), NOW)
    assert set(found.replicas) == {r.id for r in look.replicas}
    assert found.tenants == {}
    assert memory.sums == {}


@settings(max_examples=25, deadline=None)
@given(looks())
def test_looking_again_at_the_same_moment_says_the_same(look):
    one, memory = diagnose(look, POLICY, DiagnosisMemory(), NOW)
    two, again = diagnose(look, POLICY, memory, NOW)
    assert (two.groups, two.replicas) == (one.groups, one.replicas)
    assert again.sums == memory.sums
