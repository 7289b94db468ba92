"""What holds for every set of tenants: order, doubt, monotony, idempotence, memory, and sentences for every reason."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.decisions import Reason
from autoscaler.domain.diagnosis import Cause, Diagnosis, GroupFinding, TenantFinding
from autoscaler.domain.fleet import Override, Tier
from autoscaler.domain.signals import UNSEEN, Fresh
from autoscaler.policy.groups import ColdGroup, HotGroups
from autoscaler.policy.words import Trigger
from autoscaler.tiering import TieringMemory, TierPlan, TierView, decide_tiers
from autoscaler.tiering.explain import _SENTENCES
from autoscaler.tiering.plan import REASONS
from tests.tiering.building import CAPACITY, HOUR, NOW, policy

REACHABLE = {
    Reason.FORECAST_HOT, Reason.BURST_ONSET, Reason.SLO_MISSED, Reason.NOISY_NEIGHBOUR, Reason.ISOLATION_ASKED,
    Reason.OVERRIDE, Reason.OVERRIDE_EXPIRED, Reason.QUIET, Reason.WOKE_UP, Reason.ADAPTER_SLOT_BUDGET,
    Reason.HOT_GROUPS_FULL, Reason.GROUP_TOO_SMALL, Reason.DWELL, Reason.UNLOADABLE, Reason.NEW_TENANT, Reason.IN_BAND,
}  # fmt: skip
TOKENS = st.one_of(
    st.just(0.0), st.floats(0, 3), st.floats(0, 50_000), st.sampled_from([float("nan"), float("inf"), -1.0])
)
COUNT = 6


@st.composite
def views(draw: st.DrawFn) -> TierView:
    ids = tuple(f"t{i}" for i in range(COUNT))

    def column(of: st.SearchStrategy, dtype: type) -> np.ndarray:
        return np.array(draw(st.lists(of, min_size=COUNT, max_size=COUNT)), dtype)

    forecast = st.one_of(st.just(0.0), st.floats(0, 50_000))
    flags = st.sampled_from([False, False, True])
    guilty = draw(st.sampled_from(ids))
    return TierView(
        ids=ids,
        rate_tokens_per_s=column(TOKENS, np.float64),
        mean_tokens_per_s=column(forecast, np.float64),
        upper_tokens_per_s=column(forecast, np.float64),
        known=column(st.sampled_from([True, True, False]), np.bool_),
        burst=column(flags, np.bool_),
        slo_missed=column(flags, np.bool_),
        adapters=column(st.integers(0, 5), np.int64),
        loadable=column(st.sampled_from([True] * 5 + [False]), np.bool_),
        capacity_tokens_per_s=draw(st.sampled_from([UNSEEN, Fresh(CAPACITY)])),
        ring_adapters=draw(st.one_of(st.none(), st.integers(0, 15))),
        diagnosis=Diagnosis({"warm": GroupFinding("warm", Cause.NONE)}, {}, {guilty: TenantFinding(guilty, 0.6)}),
        overrides=tuple(
            Override(t, draw(st.sampled_from(Tier)), "why", "alice", NOW, NOW + draw(st.floats(-HOUR, HOUR)))
            for t in draw(st.lists(st.sampled_from(ids), unique=True, max_size=2))
        ),
        later_upper_tokens_per_s=column(forecast, np.float64) if draw(st.booleans()) else None,
    )


@st.composite
def memories(draw: st.DrawFn, view: TierView) -> TieringMemory:
    _, known = decide_tiers(view, policy(), TieringMemory(), NOW - 9 * HOUR)

    def column(of: st.SearchStrategy, dtype: type) -> np.ndarray:
        return np.array(draw(st.lists(of, min_size=COUNT, max_size=COUNT)), dtype)

    return replace(
        known,
        tier=column(st.integers(-1, 2), np.int8),
        since_s=column(st.floats(NOW - 9 * HOUR, NOW), np.float64),
        quiet_since_s=column(st.one_of(st.just(np.inf), st.floats(NOW - 9 * HOUR, NOW)), np.float64),
        quiet_ticks=column(st.integers(0, 20), np.uint16),
        missed_ticks=column(st.integers(0, 20), np.uint16),
        wrong=column(st.integers(0, 5), np.uint8),
    )


CASES = views().flatmap(lambda view: st.tuples(st.just(view), memories(view)))
TOLD = [
    policy(promote_on=tuple(Trigger), dedicated=["t1"], pins={"t2": Tier.COLD}),
    policy(hot=HotGroups(max_groups=1), cold=ColdGroup()),
]


def same(one: TierPlan, two: TierPlan) -> bool:
    return [one.explain(t) for t in one.ids] == [two.explain(t) for t in one.ids]


@settings(max_examples=25, deadline=None)
@given(CASES, st.sampled_from(TOLD), st.permutations(range(COUNT)))
def test_the_order_of_tenants_does_not_matter(case, told, order):
    view, memory = case
    rows = np.array(order)
    mixed = TierView(
        ids=tuple(view.ids[i] for i in order),
        **{
            name: getattr(view, name)[rows]
            for name in (
                "rate_tokens_per_s", "mean_tokens_per_s", "upper_tokens_per_s", "known", "burst", "slo_missed",
                "adapters", "loadable",
            )
        },
        capacity_tokens_per_s=view.capacity_tokens_per_s, ring_adapters=view.ring_adapters, diagnosis=view.diagnosis,
        overrides=view.overrides[::-1],
        later_upper_tokens_per_s=None if view.later_upper_tokens_per_s is None else view.later_upper_tokens_per_s[rows],
    )  # fmt: skip
    one, after = decide_tiers(view, told, memory, NOW)
    two, mixed_after = decide_tiers(mixed, told, memory, NOW)
    assert same(one, two)
    assert np.array_equal(mixed_after.since_s, after.since_s[rows])


@settings(max_examples=25, deadline=None)
@given(CASES, st.sampled_from(TOLD))
def test_every_tenant_has_a_tier_a_reason_of_this_room_and_a_sentence(case, told):
    view, memory = case
    plan, after = decide_tiers(view, told, memory, NOW)
    for tenant in plan.ids:
        got = plan.explain(tenant)
        assert got.reason in REACHABLE
        assert got.trail[-1].reason is got.reason
        assert got.trail[-1].value == got.after.value == plan.tier(tenant).value
        assert all(step.message and not re.search(r"\b(nan|inf)\b", step.message) for step in got.trail)
    assert sum(plan.counts().values()) == COUNT
    assert np.isfinite(after.since_s).all()


@settings(max_examples=25, deadline=None)
@given(CASES, st.sampled_from(TOLD))
def test_hot_groups_and_adapter_slots_hold_always(case, told):
    view, memory = case
    plan, _ = decide_tiers(view, told, memory, NOW)
    assert plan.counts()[Tier.HOT] <= told.groups.hot.max_groups
    if view.ring_adapters is not None and told.groups.cold is not None:
        forced = plan.of(Tier.HOT) | np.isin(
            plan.reason, [REASONS.index(Reason.OVERRIDE), REASONS.index(Reason.ISOLATION_ASKED)]
        )
        rest = plan.of(Tier.WARM) & ~forced
        room = max(0, view.ring_adapters - int(view.adapters[forced & ~plan.of(Tier.COLD)].sum()))
        assert int(view.adapters[rest].sum()) <= room


@settings(max_examples=25, deadline=None)
@given(CASES, st.sampled_from(TOLD))
def test_deciding_again_at_the_same_moment_changes_nothing(case, told):
    view, memory = case
    plan, after = decide_tiers(view, told, memory, NOW)
    again, later = decide_tiers(view, told, after, NOW)
    assert np.array_equal(again.after, plan.after)
    assert np.array_equal(later.quiet_ticks, after.quiet_ticks)
    assert again.changed == ()


@settings(max_examples=25, deadline=None)
@given(CASES, st.sampled_from(TOLD))
def test_memory_survives_json_and_the_next_tick_is_the_same(case, told):
    view, memory = case
    _, after = decide_tiers(view, told, memory, NOW)
    read = TieringMemory.from_json(json.loads(json.dumps(after.to_json())))
    one, _ = decide_tiers(view, told, after, NOW + 15)
    two, _ = decide_tiers(view, told, read, NOW + 15)
    assert same(one, two)


@settings(max_examples=25, deadline=None)
@given(CASES, st.integers(0, COUNT - 1), st.floats(1, 50))
def test_more_load_never_means_a_lower_tier(case, row, factor):
    view, memory = case
    view = replace(view, ring_adapters=None, overrides=())
    told = policy(hot=HotGroups(max_groups=COUNT, max_replicas=10_000), total=100_000)
    more = {
        name: np.where(np.arange(COUNT) == row, getattr(view, name) * factor, getattr(view, name))
        for name in ("rate_tokens_per_s", "mean_tokens_per_s", "upper_tokens_per_s")
    }
    before, _ = decide_tiers(view, told, memory, NOW)
    after, _ = decide_tiers(replace(view, **more), told, memory, NOW)
    assert after.after[row] >= before.after[row]


@settings(max_examples=25, deadline=None)
@given(CASES, st.sampled_from([1 / 16, 0.5, 8.0, 1024.0]))
def test_a_fleet_k_times_as_busy_on_replicas_k_times_as_strong_has_the_same_tiers(case, k):
    view, memory = case
    view = replace(view, capacity_tokens_per_s=Fresh(CAPACITY))
    busy = replace(view, capacity_tokens_per_s=Fresh(k * CAPACITY), **{
        name: None if getattr(view, name) is None else k * getattr(view, name)
        for name in ("rate_tokens_per_s", "mean_tokens_per_s", "upper_tokens_per_s", "later_upper_tokens_per_s")
    })  # fmt: skip
    one, _ = decide_tiers(view, policy(), memory, NOW)
    two, _ = decide_tiers(busy, policy(cold_threshold_tokens_per_s=k * 1.0), memory, NOW)
    assert np.array_equal(one.after, two.after)
    assert np.array_equal(one.reason, two.reason)


@settings(max_examples=25, deadline=None)
@given(CASES)
def test_who_goes_up_by_load_is_better_off_by_a_number_and_who_comes_down_is_not_worse_off(case):
    view, memory = case
    plan, _ = decide_tiers(replace(view, overrides=()), policy(hot=HotGroups(max_groups=COUNT)), memory, NOW)
    for got in map(plan.explain, plan.ids):
        if got.after is Tier.HOT and got.reason in (Reason.FORECAST_HOT, Reason.BURST_ONSET):
            worth = re.search(r"HOT is better than WARM by ([0-9.]+) replicas", got.trail[-1].message)
            assert worth is not None
            assert float(worth[1]) >= 0.5
        if got.before is Tier.HOT and got.reason is Reason.QUIET:
            assert "HOT is worse than WARM by" in got.trail[-1].message


@settings(max_examples=25, deadline=None)
@given(CASES)
def test_doubt_demotes_nobody(case):
    """Where no rate is heard, no forecast known and slots unknown, nobody that can be loaded goes down."""
    view, memory = case
    learnt = np.full(COUNT, REASONS.index(Reason.FORECAST_HOT), np.int16)  # nobody asked: that would end at once
    memory = replace(memory, displaced={}, reason=learnt)
    blind = TierView.blank(view.ids)
    plan, _ = decide_tiers(blind, policy(hot=HotGroups(max_groups=COUNT)), memory, NOW)
    assert (plan.after >= plan.before).all()


def test_every_reason_of_this_room_has_a_sentence():
    assert set(_SENTENCES) == REACHABLE


def test_twenty_thousand_tenants_fit_half_a_mebibyte_however_long_their_ids_are():
    rng = np.random.default_rng(1)
    ids = tuple(f"{'tenant-with-a-long-name-' * 5}{i}" for i in range(20_000))
    view = replace(
        TierView.blank(ids), upper_tokens_per_s=rng.exponential(5.0, 20_000),
        rate_tokens_per_s=rng.exponential(5.0, 20_000), known=np.ones(20_000, np.bool_),
    )  # fmt: skip
    _, memory = decide_tiers(view, policy(), TieringMemory(), NOW)
    memory = replace(memory, since_s=NOW - rng.integers(0, 30 * 86_400, 20_000) // 15 * 15.0)
    memory = replace(memory, quiet_since_s=np.where(rng.random(20_000) < 0.5, memory.since_s + 15.0, np.inf))
    assert len(json.dumps(memory.to_json())) < 512 * 1024


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 99},
        {"columns": {}},
        {"columns": None},
        {"last_tick_s": None},
        {"displaced": {"t": [1]}},
    ],
)
def test_a_damaged_memory_is_refused_with_a_remedy(damage):
    _, memory = decide_tiers(TierView.blank(("a", "b")), policy(), TieringMemory(), NOW)
    with pytest.raises(ValueError, match="start with an empty one"):
        TieringMemory.from_json({**memory.to_json(), **damage})


def test_columns_of_different_lengths_are_refused_at_the_door():
    with pytest.raises(ValueError, match=r"mean_tokens_per_s has shape \(3,\), expected \(2,\)"):
        replace(TierView.blank(("a", "b")), mean_tokens_per_s=np.zeros(3))


def test_tenants_that_go_are_forgotten_and_come_back_as_new():
    told = policy()
    _, memory = decide_tiers(TierView.blank(("a", "b")), told, TieringMemory(), NOW)
    _, memory = decide_tiers(TierView.blank(("b", "c")), told, memory, NOW + 15)
    plan, _ = decide_tiers(TierView.blank(("a", "b", "c")), told, memory, NOW + 30)
    assert [plan.explain(t).before for t in plan.ids] == [None, Tier.WARM, Tier.WARM]
