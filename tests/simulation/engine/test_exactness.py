"""Jumping over steps is a matter of speed: what it says is bit for bit what one step at a time says."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.simulator.engine.model import BASE_MODEL, Engine, RequestRefusedError
from autoscaler.simulator.engine.profile import EngineLimits
from tests.simulation.engine.builders import in_flight_balance, profile


@dataclass(frozen=True)
class Call:
    gap_ms: float
    what: str
    adapter: int
    prompt: int
    output: int


calls = st.lists(
    st.builds(
        Call,
        gap_ms=st.sampled_from([0.0, 0.5, 3.0, 10.0, 47.0, 400.0]),
        what=st.sampled_from(["submit"] * 8 + ["abort", "load", "pin", "unpin", "unload", "advance"]),
        adapter=st.integers(BASE_MODEL, 5),
        prompt=st.integers(1, 150),
        output=st.integers(1, 60),
    ),
    min_size=1,
    max_size=40,
)
limits = st.builds(
    lambda slots, host, seats, budget, blocks: EngineLimits(
        slots, slots + host, 16, seats, budget, kv_cache_tokens=16 * blocks
    ),
    slots=st.integers(1, 4),
    host=st.integers(0, 3),
    seats=st.integers(1, 12),
    budget=st.integers(1, 100),
    blocks=st.integers(8, 60),
)


def play(script: list[Call], limits: EngineLimits, *, jumping: bool) -> tuple[np.ndarray, Engine]:  # type: ignore[type-arg]
    costs = profile(per_sequence_ms=0.37, per_context_token_ms=0.0113, per_prefill_token_ms=0.041, eager_ms=3.0)
    one = Engine(costs, limits, 6, jumping=jumping)
    events, now, submitted = [], 0.0, 0
    for call in script:
        now += call.gap_ms / 1e3
        adapter = max(call.adapter, 0)
        try:
            if call.what == "submit":
                submitted += 1
                one.submit(now, submitted, call.adapter, call.prompt, call.output)
            elif call.what == "abort":
                one.abort(now, call.output)
            elif call.what == "load":
                one.load(now, adapter)
            elif call.what == "unload":
                one.unload(now, adapter)
            elif call.what == "advance":
                events.append(one.advance(now))
            else:
                one.pin(now, adapter, call.what == "pin")
        except RequestRefusedError:
            continue
        assert in_flight_balance(one) == 0
    events.append(one.advance(now + 3600.0))
    return np.concatenate(events), one


@settings(max_examples=300, deadline=None)
@given(calls, limits)
def test_jumping_equals_stepping(script: list[Call], limits: EngineLimits) -> None:
    jumped, fast = play(script, limits, jumping=True)
    stepped, slow = play(script, limits, jumping=False)
    assert jumped.tolist() == stepped.tolist()
    assert fast.gauges() == slow.gauges()
    assert fast.resident_gpu() == slow.resident_gpu()
    assert fast.resident_host() == slow.resident_host()


@settings(max_examples=200, deadline=None)
@given(calls, limits)
def test_nothing_is_lost_and_everything_is_given_back(script: list[Call], limits: EngineLimits) -> None:
    events, one = play(script, limits, jumping=True)
    gauges = one.gauges()
    assert (gauges.running, gauges.waiting, gauges.kv_usage_ratio, gauges.distinct_adapters) == (0, 0, 0.0, 0)
    assert gauges.submitted == gauges.finished + gauges.aborted
    assert (np.diff(events["time_s"]) >= 0).all()
    assert len(one.resident_gpu()) <= limits.max_loras
    assert set(one.resident_gpu()) <= set(one.resident_host())
    assert len(one.resident_host()) <= limits.max_cpu_loras


@settings(max_examples=100, deadline=None)
@given(calls, limits)
def test_looking_between_the_calls_changes_nothing(script: list[Call], limits: EngineLimits) -> None:
    quiet = [replace(call, gap_ms=call.gap_ms + 0.2) for call in script if call.what != "advance"]
    watched = []
    for call in quiet:
        watched += [Call(0.1, "advance", 0, 1, 1), replace(call, gap_ms=call.gap_ms - 0.1)]
    at = [np.round(play(calls, limits, jumping=True)[0]["time_s"], 9).tolist() for calls in (quiet, watched)]
    assert at[0] == at[1]


def test_the_same_calls_give_the_same_answers() -> None:
    rng = np.random.default_rng(0)
    script = [Call(5.0, "submit", int(rng.integers(-1, 6)), 40, 30) for _ in range(200)]
    limits = EngineLimits(2, 3, 16, 8, 64, kv_cache_tokens=800)
    first, one = play(script, limits, jumping=True)
    second, two = play(script, limits, jumping=True)
    assert first.tobytes() == second.tobytes()
    assert one.gauges() == two.gauges()
