"""What one replica carries: stated, or learnt from what it was seen to carry; thrash and illness teach nothing."""

from dataclasses import replace

import pytest

from autoscaler.domain.diagnosis import Cause, Diagnosis, ReplicaFinding
from autoscaler.domain.fleet import ReplicaState
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.scaling import ScalingMemory, capacity_of
from autoscaler.scaling.batching import Level, carried
from autoscaler.scaling.capacity import learn
from autoscaler.scaling.memory import CapacityMemory, GroupMemory
from tests.scaling.building import NOON, policy, replicas, signals

TOLD = policy(capacity=None)


def learnt(seen, ticks: int = 5, diagnosis: Diagnosis | None = None, state=ReplicaState.READY) -> CapacityMemory:
    """Memory after some ticks of two replicas that look so."""
    memory = CapacityMemory()
    for tick in range(ticks):
        fleet = replicas(2, seen, state=state)
        memory = learn(memory, fleet, diagnosis or Diagnosis(), TOLD, NOON + 15.0 * tick)
    return memory


def of(memory: CapacityMemory, told=TOLD, group: str = "warm"):
    return capacity_of(ScalingMemory({"warm": GroupMemory(NOON, capacity=memory)}), told, group)


def test_near_its_kv_target_a_replica_says_what_it_would_carry_there():
    got = of(learnt(signals(kv=0.72, tokens=900.0)))
    assert (got.tokens_per_s.value, got.source) == (pytest.approx(1000.0), "measured")


def test_far_from_its_targets_it_only_says_what_it_carried():
    got = of(learnt(signals(kv=0.4, tokens=900.0)))
    assert got.tokens_per_s == Missing("no replica came near its targets yet")
    assert (got.proven_tokens_per_s, got.source) == (900.0, "proven")


def test_a_queue_says_what_it_carries_once_the_rates_cover_it():
    busy = signals(kv=0.3, waiting=9.0, tokens=1200.0)
    assert of(learnt(busy, ticks=4)).source == "unknown"
    assert of(learnt(busy, ticks=7)).tokens_per_s.value == pytest.approx(1200.0)


def test_three_ticks_make_a_measurement():
    assert of(learnt(signals(kv=0.72, tokens=900.0), ticks=2)).source == "proven"
    assert of(learnt(signals(kv=0.72, tokens=900.0), ticks=3)).source == "measured"


def test_a_change_of_mix_is_followed():
    memory = learnt(signals(kv=0.8, tokens=1000.0), ticks=20)
    for tick in range(40):
        memory = learn(memory, replicas(2, signals(kv=0.8, tokens=400.0)), Diagnosis(), TOLD, NOON + 1000 + 15.0 * tick)
    assert memory.tokens_per_s == pytest.approx(400.0, rel=0.03)


@pytest.mark.parametrize("cause", [Cause.THRASH, Cause.BAD_REPLICA, Cause.SLOW_ADAPTER_STORE])
def test_thrash_and_illness_teach_nothing(cause):
    found = Diagnosis(replicas={f"warm-00{i}": ReplicaFinding(f"warm-00{i}", "warm", cause) for i in range(2)})
    assert of(learnt(signals(kv=0.72, tokens=900.0), diagnosis=found)).source == "unknown"


def test_requests_that_wait_for_adapter_slots_are_no_sign_of_capacity():
    assert of(learnt(signals(kv=0.1, waiting=20, deferred=20, tokens=50.0), ticks=9)).source == "proven"


def test_replicas_that_do_not_serve_yet_teach_nothing():
    assert learnt(signals(kv=0.72), state=ReplicaState.STARTING).samples == 0


def test_unknown_rates_teach_nothing():
    assert of(learnt(signals(kv=0.8, tokens=None))).source == "unknown"


def test_what_was_proven_fades_by_half_in_twelve_hours():
    memory = learnt(signals(kv=0.2, tokens=800.0), ticks=1)
    memory = learn(memory, replicas(1, signals(kv=0.2, tokens=100.0)), Diagnosis(), TOLD, NOON + 43_200.0)
    assert memory.proven_tokens_per_s == pytest.approx(400.0)


def test_what_the_policy_states_wins():
    got = of(learnt(signals(kv=0.72, tokens=900.0)), policy(capacity=2500.0))
    assert (got.tokens_per_s, got.source) == (Fresh(2500.0), "policy")


def test_a_new_hot_group_is_taken_to_carry_what_warm_replicas_do():
    assert of(learnt(signals(kv=0.72, tokens=900.0)), group="hot-acme").tokens_per_s.value == pytest.approx(1000.0)


def test_the_same_moment_again_teaches_nothing():
    memory = learnt(signals(kv=0.72, tokens=900.0))
    assert learn(memory, replicas(2, signals(kv=0.8, tokens=1.0)), Diagnosis(), TOLD, memory.at_s) == memory


def test_a_fleet_that_never_served_knows_nothing():
    got = capacity_of(ScalingMemory(), TOLD, "warm")
    assert (got.tokens_per_s, got.source) == (Missing("no replica was seen to serve yet"), "unknown")


def test_two_loads_far_from_the_targets_tell_what_the_largest_batch_would_carry():
    """8 and 24 running carry 1,600 and 3,000 tokens/s, so a token takes 3.5 ms and .19 ms for each running request."""
    memory = CapacityMemory()
    for tick in range(80):
        running, tokens = ((8.0, 1600.0), (24.0, 3000.0))[tick % 2]
        seen = replicas(2, signals(kv=0.01 * running, running=running, tokens=tokens))
        memory = learn(memory, seen, Diagnosis(), TOLD, NOON + 15.0 * tick)
    got = of(memory)
    assert (got.source, memory.most_running) == ("fitted", 64.0)
    assert 3700.0 < got.tokens_per_s.value < 64 / (0.0035 + 64 * 0.00019)


def test_what_loads_told_once_holds_while_they_are_alike():
    memory = CapacityMemory()
    for tick in range(160):
        running, tokens = ((8.0, 1600.0), (24.0, 3000.0))[tick % 2 if tick < 80 else 1]
        memory = learn(
            memory, replicas(2, signals(kv=0.01 * running, running=running, tokens=tokens)), Diagnosis(), TOLD,
            NOON + (15.0 * tick if tick < 80 else 86_400.0 + 15.0 * tick),
        )  # fmt: skip
    assert carried(memory.levels, memory.most_running) is None, "the smaller load is forgotten after a day"
    assert of(memory).source == "fitted"


def test_what_is_measured_at_the_targets_bounds_what_smaller_batches_promise():
    memory = learnt(signals(kv=0.3, waiting=9.0, running=30.0, tokens=2000.0), ticks=9)
    levels = (Level(42, 40.0, 8.0, 1600.0), Level(46, 40.0, 24.0, 3000.0))
    memory = replace(memory, levels=levels, fitted_tokens_per_s=carried(levels, 64))
    assert of(memory).tokens_per_s.value == pytest.approx(2000.0)
    grown = replace(memory, replicas=9)
    assert of(grown).source == "fitted", "nine replicas have other adapters than the two had"


def served(
    memory: CapacityMemory, tokens: float, late: float, ticks: int, from_s: float, count: int = 2
) -> CapacityMemory:
    for tick in range(ticks):
        seen = signals(kv=0.1, running=tokens / 100.0, tokens=tokens, late_ratio=late)
        memory = learn(memory, replicas(count, seen), Diagnosis(), TOLD, from_s + 15.0 * tick)
    return memory


def test_capacity_ends_where_first_tokens_are_late():
    """10 ms a token whatever the batch: 64 running would carry 6,400, but at 2,000 one in ten is late already."""
    memory = served(CapacityMemory(), 1000.0, 0.001, 40, NOON)
    assert of(memory).source != "in time"
    memory = served(memory, 2000.0, 0.1, 40, NOON + 600.0)
    got = of(memory)
    assert got.source == "in time"
    assert 1000.0 < got.tokens_per_s.value < 2000.0


def test_what_was_in_time_may_be_filled_though_the_batches_promised_less():
    memory = served(served(CapacityMemory(), 1000.0, 0.001, 40, NOON), 2000.0, 0.001, 40, NOON + 600.0)
    got = of(replace(memory, fitted_tokens_per_s=1500.0))
    assert (got.source, got.tokens_per_s.value) == ("in time", pytest.approx(2000.0))


def test_lateness_right_after_a_change_of_size_is_of_adapters_that_load():
    memory = served(CapacityMemory(), 1000.0, 0.001, 40, NOON)
    memory = served(memory, 1000.0, 0.9, 6, NOON + 600.0, count=3)
    (level,) = memory.levels
    assert level.late_ratio == pytest.approx(0.001)


def test_a_replica_counts_by_its_requests_among_the_late():
    """9 requests/s with 1 % late and 1 with 11 %: 2 % of ten."""
    few, many = (
        signals(kv=0.1, running=10.0, requests_per_s=requests, late_ratio=late)
        for requests, late in ((1.0, 0.11), (9.0, 0.01))
    )
    both = [replace(r, signals=s) for r, s in zip(replicas(2, few), (few, many), strict=True)]
    memory = CapacityMemory()
    for tick in range(12):
        memory = learn(memory, both, Diagnosis(), TOLD, NOON + 15.0 * tick)
    assert [level.late_ratio for level in memory.levels] == [pytest.approx(0.02)]


def test_an_engine_that_shows_no_histogram_is_not_bounded_by_lateness():
    memory = CapacityMemory()
    for tick in range(80):
        seen = signals(kv=0.1, running=10.0, tokens=1000.0 if tick < 40 else 2000.0)
        memory = learn(memory, replicas(2, seen), Diagnosis(), TOLD, NOON + 15.0 * tick)
    assert {level.late_ticks for level in memory.levels} == {0.0}
    assert of(memory).source != "in time"


def test_thrash_says_nothing_of_the_load_that_is_in_time():
    thrash = Diagnosis(replicas={r.id: ReplicaFinding(r.id, "warm", Cause.THRASH) for r in replicas(2, signals())})
    memory = CapacityMemory()
    for tick in range(20):
        seen = signals(kv=0.1, running=10.0, tokens=1000.0, late_ratio=0.9)
        memory = learn(memory, replicas(2, seen), thrash, TOLD, NOON + 15.0 * tick)
    assert [level.late_ticks for level in memory.levels] == [0.0]


def test_a_stated_capacity_is_not_argued_with():
    memory = served(served(CapacityMemory(), 1000.0, 0.001, 40, NOON), 2000.0, 0.1, 40, NOON + 600.0)
    assert of(memory, policy(capacity=2500.0)).source == "policy"
