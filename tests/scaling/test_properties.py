"""What holds for every fleet: bounds, doubt, order, monotony, idempotence, memory."""

import json
from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.decisions import Reason
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.fleet import Group, PauseMode, Replica, ReplicaSignals, ReplicaState, Tier
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.groups import ColdGroup, HotGroups
from autoscaler.policy.words import SlotShortage
from autoscaler.scaling import GroupDemand, ScaleView, ScalingMemory, decide_scale
from autoscaler.scaling.batching import Level
from autoscaler.scaling.memory import CapacityMemory, GroupMemory
from autoscaler.scaling.trend import LoadMemory, Sayer
from tests.scaling.building import LIMITS, NOON, found, policy

GONE = Missing("no series")
READY_STATES = st.sampled_from([ReplicaState.READY] * 6 + list(ReplicaState))


def signal(most: float) -> st.SearchStrategy[Signal]:
    return st.one_of(st.just(GONE), st.floats(0, most, allow_nan=False).map(Fresh))


SEEN = st.builds(
    ReplicaSignals,
    running=signal(64),
    waiting=signal(100),
    deferred=signal(100),
    kv_usage_ratio=signal(1),
    ttft_mean_s=signal(30),
    queue_time_mean_s=signal(30),
    prompt_tokens_per_s=signal(3000),
    generation_tokens_per_s=signal(3000),
    requests_per_s=signal(30),
)
DEMAND = st.builds(GroupDemand, signal(20_000), signal(20_000), signal(50), seen_tokens_per_s=signal(20_000))
LOAD = st.builds(
    lambda loads, in_flight, peaks, said, losses, scored: LoadMemory(
        tuple((NOON - 15.0 * (len(loads) - i), load) for i, load in enumerate(loads)),
        tuple((NOON - 15.0 * (len(in_flight) - i), n) for i, n in enumerate(in_flight)),
        tuple((NOON - 300.0 * (len(peaks) - i), load) for i, load in enumerate(peaks)),
        tuple((NOON + 15.0 * (i - 2), *row) for i, row in enumerate(said)), losses, scored,
    ),
    st.lists(st.floats(0, 20_000), max_size=12),
    st.lists(st.floats(0, 900), max_size=5),
    st.lists(st.floats(0, 20_000), max_size=6),
    st.lists(st.tuples(*(st.floats(0, 20_000) for _ in Sayer)), max_size=5),
    st.tuples(*(st.floats(0, 5000) for _ in Sayer)),
    st.floats(0, 90),
)  # fmt: skip
LEVELS = st.lists(
    st.builds(Level, st.integers(20, 60), st.floats(0.2, 40), st.floats(1, 64), st.floats(1, 5000)), max_size=4,
    unique_by=lambda level: level.octave,
).map(lambda levels: tuple(sorted(levels, key=lambda level: level.octave)))  # fmt: skip
HEARD = st.builds(
    ReplicaSignals,
    running=st.floats(1, 64).map(Fresh),
    waiting=st.floats(0, 100).map(Fresh),
    deferred=st.just(Fresh(0.0)),
    kv_usage_ratio=st.floats(0, 1).map(Fresh),
    prompt_tokens_per_s=st.floats(0, 3000).map(Fresh),
    generation_tokens_per_s=st.floats(0, 3000).map(Fresh),
)


def fleet(seen: list[ReplicaSignals], states: list[ReplicaState] | None = None, group: str = "warm"):
    states = states or [ReplicaState.READY] * len(seen)
    return tuple(
        Replica(f"{group}-{i:03d}", group, f"s{i:04d}", "", state, limits=LIMITS, signals=s)
        for i, (s, state) in enumerate(zip(seen, states, strict=True))
    )


@st.composite
def views(draw: st.DrawFn) -> ScaleView:
    count = draw(st.integers(0, 12))
    seen = draw(st.lists(SEEN, min_size=count, max_size=count))
    states = draw(st.lists(READY_STATES, min_size=count, max_size=count))
    warm = Group(
        "warm",
        Tier.WARM,
        draw(st.integers(0, 20)),
        pause=draw(st.sampled_from([PauseMode.NONE] * 4 + list(PauseMode))),
        foreign_actor=draw(st.sampled_from(["", "", "", "kubectl"])),
        blocked=draw(st.sampled_from(["", "", "", "over quota"])),
    )
    hot = Group("hot-acme", Tier.HOT, draw(st.integers(0, 5)), "acme")
    cold = Group("cold", Tier.COLD, draw(st.integers(0, 3)))
    wanted = draw(st.booleans())
    cause = draw(st.sampled_from(Cause))
    return ScaleView(
        groups={"warm": warm, "hot-acme": hot, "cold": cold},
        replicas=fleet(seen, states),
        demand={name: draw(DEMAND) for name in ("warm", "hot-acme", "cold")},
        diagnosis=found(cause),
        hot_tenants={"hot-acme": "acme", "hot-new": "new"} if wanted else {},
        asked=frozenset({"hot-acme"} if draw(st.booleans()) else ()),
        unplaced_adapters=draw(st.integers(0, 50)),
        wanted_adapters=draw(st.integers(0, 150)),
        churn_left=draw(st.booleans()),
    )


@st.composite
def memories(draw: st.DrawFn) -> ScalingMemory:
    times = st.one_of(st.none(), st.floats(NOON - 5000, NOON))
    groups = {
        name: GroupMemory(
            first_seen_s=draw(st.floats(NOON - 5000, NOON)),
            needs=tuple(sorted(draw(st.lists(st.tuples(st.floats(NOON - 400, NOON), st.integers(0, 20)), max_size=4)))),
            pending_since_s=draw(times),
            idle_since_s=draw(times),
            contradicted_since_s=draw(times),
            current=draw(st.integers(0, 20)),
            capacity=CapacityMemory(
                draw(st.floats(0, 5000)),
                draw(st.integers(0, 9)),
                draw(st.floats(0, 5000)),
                levels=draw(LEVELS),
                most_running=draw(st.floats(1, 64)),
                replicas=draw(st.integers(0, 9)),
            ),
            desired=draw(st.one_of(st.none(), st.integers(0, 20))),
            load=draw(LOAD),
        )
        for name in draw(st.lists(st.sampled_from(["warm", "cold", "hot-acme"]), unique=True))
    }
    return ScalingMemory(groups, tuple(NOON - i for i in range(draw(st.sampled_from([0, 0, 0, 29, 30, 60])))))


TOLD = [
    policy(warm={"min_replicas": 2}, cold=ColdGroup(max_replicas=3), hot=HotGroups(max_replicas=3), total=18),
    policy(capacity=None, cold=ColdGroup(), on_adapter_slot_shortage=SlotShortage.GROW),
]


@settings(max_examples=30, deadline=None)
@given(views(), memories(), st.sampled_from(TOLD))
def test_what_is_desired_is_within_its_bounds_or_held_for_a_named_reason(view, memory, told):
    plan, _ = decide_scale(view, told, memory, NOON)
    hands_off = (Reason.PAUSED, Reason.BLOCKED, Reason.FOREIGN_ACTOR)
    total = sum(d.desired for d in plan.decisions.values())
    held = any(d.reason in hands_off for d in plan.decisions.values())
    assert held or total <= max(told.budget.max_replicas_total, sum(d.current for d in plan.decisions.values()))
    for name, decision in plan.decisions.items():
        assert decision.desired >= 0
        assert int(decision.trail[-1].value) == decision.desired
        assert int(decision.trail[0].value) == decision.recommended
        if decision.reason in hands_off:
            assert decision.desired == decision.current
        elif name == "warm" and decision.reason is not Reason.BUDGET:
            assert told.groups.warm.min_replicas <= decision.desired <= told.groups.warm.max_replicas


@settings(max_examples=30, deadline=None)
@given(views(), memories(), st.sampled_from(TOLD))
def test_the_same_input_gives_the_same_plan_and_order_does_not_matter(view, memory, told):
    plan, after = decide_scale(view, told, memory, NOON)
    mixed = replace(
        view, replicas=view.replicas[::-1], groups=dict(reversed(view.groups.items())),
        demand=dict(reversed(view.demand.items())),
    )  # fmt: skip
    assert decide_scale(mixed, told, memory, NOON) == (plan, after)


@settings(max_examples=30, deadline=None)
@given(views(), memories(), st.sampled_from(TOLD))
def test_deciding_again_at_the_same_moment_changes_nothing(view, memory, told):
    plan, after = decide_scale(view, told, memory, NOON)
    again, later = decide_scale(view, told, after, NOON)
    assert {n: d.desired for n, d in again.decisions.items()} == {n: d.desired for n, d in plan.decisions.items()}
    assert later == after


@settings(max_examples=30, deadline=None)
@given(views(), memories(), st.sampled_from(TOLD))
def test_memory_survives_json(view, memory, told):
    _, after = decide_scale(view, told, memory, NOON)
    assert ScalingMemory.from_json(json.loads(json.dumps(after.to_json()))) == after


WATCHED = ScalingMemory({"warm": GroupMemory(NOON - 3600.0, current=6)})
NAMES = [f.name for f in fields(ReplicaSignals)]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(HEARD, min_size=6, max_size=6),
    st.floats(0, 8000),
    st.sets(st.tuples(st.integers(0, 5), st.sampled_from(NAMES))),
    st.booleans(),
    st.sampled_from(TOLD),
)
def test_doubt_never_shrinks(seen, tokens, lost, router_lost, told):
    """Taking any signals away never lowers what is desired below what both the whole picture and the present ask."""
    wanted = GroupDemand(Fresh(tokens), Fresh(tokens), Fresh(5.0))
    group = {"warm": Group("warm", Tier.WARM, 6)}
    whole, _ = decide_scale(ScaleView(group, fleet(seen), {"warm": wanted}, found(Cause.NONE)), told, WATCHED, NOON)
    doubtful = [
        replace(s, **{name: GONE for row, name in lost if row == i and name != "deferred"}) for i, s in enumerate(seen)
    ]
    less = GroupDemand() if router_lost else wanted
    held, _ = decide_scale(ScaleView(group, fleet(doubtful), {"warm": less}, found(Cause.NONE)), told, WATCHED, NOON)
    assert held.decisions["warm"].desired >= min(whole.decisions["warm"].desired, 6)
    if router_lost or any(name in ("waiting", "kv_usage_ratio") for _, name in lost):
        assert held.decisions["warm"].desired >= 6


@settings(max_examples=30, deadline=None)
@given(
    st.lists(HEARD, min_size=5, max_size=5),
    st.floats(0, 8000),
    st.floats(1, 3),
    st.floats(1, 3),
    st.floats(1, 3),
    st.sampled_from(TOLD),
)
def test_more_load_never_means_fewer_replicas(seen, tokens, queue, kv, more, told):
    def desired(signals: list[ReplicaSignals], tokens_per_s: float) -> tuple[int, int]:
        wanted = GroupDemand(Fresh(tokens_per_s), Fresh(tokens_per_s), Fresh(5.0))
        view = ScaleView({"warm": Group("warm", Tier.WARM, 5)}, fleet(signals), {"warm": wanted}, found(Cause.NONE))
        decision = decide_scale(view, told, WATCHED, NOON)[0].decisions["warm"]
        return decision.recommended, decision.desired

    heavier = [
        replace(
            s,
            waiting=Fresh(s.waiting.value * queue),
            kv_usage_ratio=Fresh(min(1.0, s.kv_usage_ratio.value * kv)),
            generation_tokens_per_s=Fresh(s.generation_tokens_per_s.value * more),
        )
        for s in seen
    ]
    before, after = desired(seen, tokens), desired(heavier, tokens * more)
    if told.scaling.capacity_tokens_per_s is not None:  # else the load itself teaches that a replica carries more
        assert after >= before
    assert after[1] >= min(before[1], 5)


REACHABLE = {
    Reason.SATURATION, Reason.FORECAST_DEMAND, Reason.HEADROOM, Reason.WITHIN_TOLERANCE, Reason.THRASH_NOT_SATURATION,
    Reason.SIGNALS_MISSING, Reason.SIGNALS_CONTRADICT, Reason.STABILISING, Reason.STEP_LIMIT, Reason.BOUNDS,
    Reason.SCHEDULE, Reason.BUDGET, Reason.CHURN_BUDGET, Reason.PENDING_REPLICAS, Reason.PAUSED, Reason.BLOCKED,
    Reason.FOREIGN_ACTOR, Reason.FIRST_REQUEST, Reason.IDLE, Reason.GROUP_FOR_TENANT, Reason.GROUP_NOT_NEEDED,
    Reason.ADAPTER_SLOTS_SHORT, Reason.IN_BAND,
}  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(views(), memories(), st.sampled_from(TOLD))
def test_no_other_reason_is_ever_given(view, memory, told):
    plan, _ = decide_scale(view, told, memory, NOON)
    assert {step.reason for d in plan.decisions.values() for step in d.trail} <= REACHABLE
