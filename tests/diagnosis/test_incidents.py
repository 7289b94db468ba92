"""Incidents whose cause is known: the right name is given, and nobody is accused on a quiet fleet."""

import json
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.diagnosis import DiagnosisMemory
from autoscaler.diagnosis.memory import Sums, added
from autoscaler.diagnosis.neighbours import effect, score
from autoscaler.diagnosis.residents import ResidentsMemory
from autoscaler.domain.diagnosis import Cause, Diagnosis, Effect
from tests.diagnosis.building import NOW, POLICY, Incident, observation, once, replica, signals
from tests.diagnosis.building import diagnose as look


def guilty(found: Diagnosis) -> set[str]:
    return {t for t, f in found.tenants.items() if f.aggressor >= POLICY.diagnosis.noisy_score_ratio}


def test_a_tenant_whose_bursts_slow_the_others_is_named_with_an_interval():
    incident = Incident(np.random.default_rng(4), aggressor_harm_s=0.4)
    found = incident.lives(1800)
    assert guilty(found) == {"loud"}
    seen = found.tenants["loud"]
    assert 0 < seen.effect.low_s < seen.effect.mean_s < seen.effect.high_s
    assert seen.effect.samples >= 6
    assert found.groups["warm"].cause is Cause.NOISY_NEIGHBOUR
    assert found.groups["warm"].message.startswith("loud: its activity on warm-00")
    assert "a group of its own" in found.groups["warm"].cure


def test_its_victims_are_named_worst_first_while_they_are_late():
    incident = Incident(np.random.default_rng(4), aggressor_harm_s=0.6)
    found = incident.lives(1800)
    while not found.tenants["loud"].others:
        found = incident.tick()
    hurt = [found.tenants[t] for t in found.tenants["loud"].others]
    assert [f.harm for f in hurt] == sorted((f.harm for f in hurt), reverse=True)
    assert all("loud" in f.others and f.victim >= 0.5 for f in hurt)


def test_the_same_bursts_without_harm_accuse_nobody():
    found = Incident(np.random.default_rng(4)).lives(1800)
    assert guilty(found) == set()
    assert found.groups["warm"].cause is Cause.NONE


def test_a_season_of_the_whole_fleet_accuses_nobody():
    assert guilty(Incident(np.random.default_rng(5), season=0.9, noise=0.5).lives(1800)) == set()


def test_nobody_is_accused_before_the_evidence_suffices_and_what_is_missing_is_said():
    found = Incident(np.random.default_rng(4), aggressor_harm_s=0.4).lives(240)
    assert guilty(found) == set()
    assert "more window" in found.tenants["loud"].effect.missing
    assert "no verdict" in found.tenants["loud"].terms[-1].message


def test_a_tenant_that_is_everywhere_leaves_nothing_to_compare_with():
    incident = Incident(np.random.default_rng(4), replicas=2, aggressor_harm_s=0.4)
    assert guilty(incident.lives(1800)) == set()


def test_a_slow_replica_is_named_and_its_tenants_are_not():
    found = Incident(np.random.default_rng(6), slow_replica=(2, 4.0)).lives(1200)
    assert found.replicas["warm-002"].cause is Cause.BAD_REPLICA
    assert guilty(found) == set()
    assert found.groups["warm"].cause is Cause.BAD_REPLICA
    assert found.groups["warm"].message.startswith("warm-002: its time per token is")


def test_a_replica_is_not_called_bad_before_the_window_is_over():
    found = Incident(np.random.default_rng(6), slow_replica=(2, 4.0)).lives(240)
    assert found.replicas["warm-002"].cause is not Cause.BAD_REPLICA


def test_of_two_replicas_nobody_can_say_which_is_odd():
    memory = DiagnosisMemory()
    for step in range(40):
        seen = observation((replica(0), replica(1, signals(itl_mean_s=0.1))), now_s=NOW + 15 * step)
        found, memory = look(seen, POLICY, memory, NOW + 15 * step)
    assert found.groups["warm"].cause is Cause.NONE


def test_one_replica_that_queues_while_its_peers_idle_is_a_routers_doing():
    full = signals(waiting=12, prompt_tokens_per_s=3000.0, generation_tokens_per_s=900.0, kv_usage_ratio=0.7)
    memory = DiagnosisMemory()
    for step in range(22):
        seen = observation((replica(0, full), replica(1), replica(2), replica(3)), now_s=NOW + 15 * step)
        found, memory = look(seen, POLICY, memory, NOW + 15 * step)
    assert found.replicas["warm-000"].cause is Cause.ROUTER_IMBALANCE
    assert found.groups["warm"].cause is Cause.ROUTER_IMBALANCE
    assert "its peers 800 and do not" in found.groups["warm"].message


def linear(rng: np.random.Generator, slope: float, windows: int, other: float = 0.0, noise: float = 0.05) -> Sums:
    """Windows of y = slope x + other z + noise."""
    sums = Sums()
    for _ in range(windows):
        x, z = rng.uniform(0, 1000), rng.uniform(1000, 2000)
        sums = added(sums, 1.0, x, z, slope * x + other * z + rng.normal(0, noise))
    return sums


def test_the_effect_is_what_the_activity_adds_whatever_the_others_add():
    rng = np.random.default_rng(1)
    sums = linear(rng, 0.001, 60, other=0.002)
    found = effect(sums)
    spread = 2 * (sums.xx / sums.n - (sums.x / sums.n) ** 2) ** 0.5
    assert found.mean_s == pytest.approx(0.001 * spread, rel=0.1)
    assert found.low_s < 0.001 * spread < found.high_s


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        sums = linear(rng, 0.0, 15, noise=0.2)
        found = effect(sums)
        hits += found.low_s <= 0.0 <= found.high_s
    assert 0.92 <= hits / 400 <= 0.99


@pytest.mark.parametrize(
    ("sums", "missing"),
    [
        (Sums(), "more window"),
        (linear(np.random.default_rng(3), 0.001, 5), "more window"),
        (Sums(n=10, x=1000, z=1000, y=1, xx=100_000, zz=100_000, xz=100_000, yy=1), "did not vary"),
    ],
    ids=["nothing", "too few", "constant"],
)
def test_no_effect_below_the_evidence(sums, missing):
    found = effect(sums)
    assert missing in found.missing
    assert (found.low_s, found.high_s) == (float("-inf"), float("inf"))
    assert score(found, 1.0) == 0.0


def test_activity_that_moves_with_the_others_cannot_be_told_apart():
    sums = Sums()
    for x in range(20):
        sums = added(sums, 1.0, 100.0 * x, 200.0 * x, 0.1 * x)
    assert "cannot be told apart" in effect(sums).missing


def test_a_score_is_cautious():
    assert score(Effect(0.6, 0.5, 0.7, 20), 1.0) == pytest.approx(0.8)
    assert score(Effect(0.6, 0.1, 1.1, 20), 1.0) == 0.0


def test_memory_survives_json_and_the_same_moment_adds_nothing():
    incident = Incident(np.random.default_rng(4), aggressor_harm_s=0.4)
    incident.lives(300)
    memory = incident.memory
    kept = replace(memory, residents=ResidentsMemory())  # a look at now is not saved
    assert DiagnosisMemory.from_json(json.loads(json.dumps(memory.to_json()))) == kept
    seen = observation((replica(0),), {("a", 0): (1.0, 0.1)}, memory.last_tick_s)
    assert look(seen, POLICY, memory, memory.last_tick_s)[1].sums == memory.sums


@pytest.mark.parametrize("damage", [{"version": 1}, {"sums": [[1]]}, {"odd_since_s": None}, {"last_tick_s": 3}])
def test_a_damaged_memory_is_refused_with_a_remedy(damage):
    with pytest.raises(ValueError, match="start with an empty one"):
        DiagnosisMemory.from_json({**DiagnosisMemory().to_json(), **damage})


def test_the_order_of_pairs_does_not_matter():
    pairs = {(f"t{i}", i % 3): (1.0 + i, 0.1 * i) for i in range(9)}
    fleet = (replica(0), replica(1), replica(2))
    assert once(*fleet, pairs=pairs) == once(*fleet, pairs=dict(reversed(pairs.items())))


def test_unknown_rates_and_latencies_are_left_out():
    nan = float("nan")
    found = once(replica(0), pairs={("a", 0): (nan, 5.0), ("b", 0): (1.0, nan), ("c", 0): (2.0, 1.5)})
    assert found.replicas["warm-000"].harm == pytest.approx(1.0)
