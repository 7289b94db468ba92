"""A tenant with two owners is its own control: what the second experiment adds to the first."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoscaler.diagnosis import DiagnosisMemory
from autoscaler.diagnosis.beside import Beside
from autoscaler.diagnosis.neighbours import judged
from autoscaler.diagnosis.pairs import table
from autoscaler.domain.diagnosis import Diagnosis, Effect
from tests.diagnosis.building import NOW, POLICY, TOKENS, Incident, diagnose, observation, replica

LOUD_HERE = {
    ("loud", 0): (4.0, 0.5), ("a", 0): (1.0, 1.4), ("a", 1): (3.0, 0.2), ("b", 0): (1.0, 0.9), ("c", 1): (1.0, 0.1),
}  # fmt: skip


def beside(pairs):
    seen = observation(tuple(replica(i) for i in range(3)), pairs)
    return Beside(table(seen, POLICY), 3, len(seen.catalogue.tenants)), seen.catalogue.tenant_row


def test_only_tenants_that_also_are_elsewhere_are_compared_by_the_smaller_of_both_rates():
    found, row = beside(LOUD_HERE)
    others, weight, later_s = found.later_s(row["loud"], 0, {0})
    assert others.tolist() == [row["a"]]
    assert weight.tolist() == [1.0]
    assert later_s == pytest.approx([1.2])


def test_an_owner_that_the_aggressor_touches_too_is_no_control():
    found, row = beside({**LOUD_HERE, ("loud", 1): (0.1, 0.5)})
    others, _, _ = found.later_s(row["loud"], 0, {0, 1})
    assert others.size == 0


def test_latencies_that_nobody_knows_are_left_out():
    found, row = beside({**LOUD_HERE, ("a", 1): (3.0, math.nan)})
    assert found.later_s(row["loud"], 0, {0})[0].size == 0


def test_shares_of_the_batch_and_of_its_kv_cache_follow_rate_duration_and_length():
    found, row = beside(LOUD_HERE)
    held = found.held(row["loud"], 0)
    itl_s, completion = 0.012, TOKENS * 0.25
    running = {t: r * (ttft + completion * itl_s) for (t, at), (r, ttft) in LOUD_HERE.items() if at == 0}
    assert held["batch"] == pytest.approx(running["loud"] / sum(running.values()))
    assert held["kv"] == pytest.approx(held["batch"]), "all requests are of one length here"


def test_without_a_time_per_token_the_shares_are_not_guessed():
    found, row = beside({("loud", 0): (4.0, math.nan), ("a", 0): (1.0, 0.2)})
    assert found.held(row["loud"], 0) == {}


SURE, NO_HARM, VAGUE = Effect(1.0, 0.9, 1.1, 20), Effect(0.05, 0.0, 0.1, 20), Effect(0.9, 0.1, 1.7, 20)
NOTHING = Effect(samples=2, missing="4 more windows beside other tenants")


@pytest.mark.parametrize(
    ("replicas", "owners", "says"),
    [
        (VAGUE, SURE, SURE),
        (SURE, VAGUE, SURE),
        (SURE, NOTHING, SURE),
        (NOTHING, SURE, SURE),
        (NOTHING, NOTHING, NOTHING),
    ],
)
def test_the_more_precise_experiment_speaks(replicas: Effect, owners: Effect, says: Effect):
    assert judged(replicas, owners, POLICY.slo.ttft_s) == says


def test_an_experiment_that_rules_the_harm_out_stops_the_verdict():
    found = judged(SURE, Effect(0.0, -0.2, 0.2, 20), POLICY.slo.ttft_s)
    assert found.missing == "the two comparisons contradict each other"
    assert judged(SURE, NO_HARM, POLICY.slo.ttft_s) == NO_HARM, "the more precise one says that there is none"


def guilty(found: Diagnosis) -> set[str]:
    return {t for t, f in found.tenants.items() if f.aggressor >= POLICY.diagnosis.noisy_score_ratio}


def life(slow_with_the_bursts: bool) -> Diagnosis:
    """Tenants beside the loud one are late during its bursts: on both owners (their prompts are long then), or here."""
    rng, memory, found = np.random.default_rng(3), DiagnosisMemory(), Diagnosis()
    fleet = tuple(replica(i) for i in range(4))
    for step in range(100):
        now_s = NOW + 15.0 * step
        burst = bool((now_s // 150) % 2)
        late_s = 1.2 if burst else 0.1
        there_s = late_s if slow_with_the_bursts else 0.1
        pairs = {("loud", 0): (6.0 if burst else 0.5, 0.1)}
        for name in "abcd":
            pairs[name, 0] = (rng.uniform(0.5, 1.0), late_s * rng.lognormal(0, 0.1))
            pairs[name, 1] = (rng.uniform(0.5, 1.0), there_s * rng.lognormal(0, 0.1))
        for name, at in (("e", 2), ("f", 2), ("g", 3), ("h", 3), ("e", 3), ("g", 2)):
            pairs[name, at] = (rng.uniform(2.0, 4.0), 0.1 * rng.lognormal(0, 0.1))
        found, memory = diagnose(observation(fleet, pairs, now_s), POLICY, memory, now_s)
    return found


def test_tenants_that_are_slow_on_both_of_their_owners_are_nobody_s_victims():
    found = life(slow_with_the_bursts=True)
    assert guilty(found) == set()
    assert "contradict" in found.tenants["loud"].effect.missing
    assert found.tenants["loud"].terms[-1].message == "no verdict: the two comparisons contradict each other"


def test_tenants_that_are_slow_beside_it_only_are_its_victims():
    found = life(slow_with_the_bursts=False)
    assert guilty(found) == {"loud"}
    said = [term.message for term in found.tenants["loud"].terms]
    assert any(m.startswith("against the same tenants on their other owners: 1") for m in said)
    assert any("of the requests that run there at once" in m for m in said)


def test_each_victim_s_own_seconds_are_told():
    incident = Incident(np.random.default_rng(4), aggressor_harm_s=0.6)
    found = incident.lives(1800)
    while not found.tenants["loud"].others:
        found = incident.tick()
    loud = found.tenants["loud"]
    assert len(loud.added_s) == len(loud.others)
    known = [s for s in loud.added_s if not math.isnan(s)]
    assert known
    assert min(known) > 0.3, "its bursts of three requests/s on each owner add 1.8 s; noise is a sixth"
