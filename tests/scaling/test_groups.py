"""Cold pools that sleep, hot groups that come and go, shortages of adapter slots, and what an operator must know."""

from dataclasses import replace

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Group, ReplicaState, Tier
from autoscaler.policy.groups import ColdGroup, HotGroups
from autoscaler.policy.words import SlotShortage
from autoscaler.scaling import GroupDemand, ScaleView, ScalingMemory
from autoscaler.scaling.memory import GroupMemory
from tests.scaling.building import NOON, SILENT, demand, plan_of, policy, replicas, settled, signals, warm

IDLE = signals(kv=0.0, running=0.0, tokens=0.0)
WITH_COLD = policy(cold=ColdGroup(max_replicas=3))


def cold(current: int, wanted: GroupDemand, seen=None, *, idle_for: float | None = None, told=WITH_COLD, changes=()):
    """The decision for a cold pool that has been idle for some seconds."""
    since = None if idle_for is None else NOON - idle_for
    memory = ScalingMemory({"cold": GroupMemory(NOON - 7200.0, current=current, idle_since_s=since)}, changes)
    view = ScaleView(
        {"cold": Group("cold", Tier.COLD, current)}, replicas(current, seen or IDLE, group="cold"), {"cold": wanted}
    )
    return plan_of(view, told, memory).decisions["cold"]


def test_a_cold_pool_without_requests_for_long_goes_to_zero():
    got = cold(1, demand(400.0, requests=0.0), idle_for=900.0)
    assert (got.desired, got.reason) == (0, Reason.IDLE)


def test_a_cold_pool_stays_while_its_last_request_is_recent():
    got = cold(1, demand(0.0, requests=0.0), idle_for=899.0)
    assert (got.desired, got.reason) == (1, Reason.IN_BAND)


def test_a_cold_pool_stays_where_nobody_knows_whether_there_are_requests():
    got = cold(1, demand(None, requests=None), idle_for=None)
    assert got.desired == 1


def test_the_first_request_wakes_a_sleeping_pool_even_with_the_hours_changes_spent():
    spent = tuple(NOON - i for i in range(1, 61))
    got = cold(0, demand(None, requests=0.02), changes=spent)
    assert (got.desired, got.reason) == (1, Reason.FIRST_REQUEST)


def test_a_sleeping_pool_sleeps_on_where_nothing_is_known():
    got = cold(0, demand(None, requests=None))
    assert got.desired == 0


def test_a_cold_pool_is_filled_to_half_of_what_it_carries():
    got = cold(1, demand(1200.0), signals(tokens=900.0))
    assert (got.desired, got.reason) == (3, Reason.FORECAST_DEMAND)
    assert "1200 tokens/s (upper band) over 1000 a replica at 0.50" in got.trail[-1].message


def test_a_cold_pool_that_the_policy_has_and_nobody_made_is_decided_too():
    plan = plan_of(ScaleView({}, (), {"cold": demand(0.0, requests=3.0)}), WITH_COLD, ScalingMemory())
    assert plan.decisions["cold"].desired == 1


def test_a_group_that_the_policy_does_not_have_is_left_alone():
    plan = plan_of(ScaleView({"cold": Group("cold", Tier.COLD, 2)}, ()), policy(), ScalingMemory())
    assert plan.decisions == {}


HOT = Group("hot-acme", Tier.HOT, 2, "acme")


def test_a_new_hot_group_gets_its_minimum_at_once():
    view = ScaleView({}, (), {"hot-acme": demand(None)}, hot_tenants={"hot-acme": "acme"})
    got = plan_of(view, policy(hot=HotGroups(min_replicas=2)), ScalingMemory()).decisions["hot-acme"]
    assert (got.current, got.desired, got.reason, got.tenant) == (0, 2, Reason.GROUP_FOR_TENANT, "acme")


def test_a_hot_group_scales_like_any_other():
    busy = replicas(2, signals(waiting=10), group="hot-acme")
    view = ScaleView({"hot-acme": HOT}, busy, {"hot-acme": demand(500.0)}, hot_tenants={"hot-acme": "acme"})
    got = plan_of(view, policy(), settled(2, group="hot-acme")).decisions["hot-acme"]
    assert (got.desired, got.reason) == (4, Reason.SATURATION)


def test_an_idle_hot_group_keeps_its_minimum():
    view = ScaleView(
        {"hot-acme": HOT}, replicas(2, IDLE, group="hot-acme"), {"hot-acme": demand(0.0, requests=0.0)},
        hot_tenants={"hot-acme": "acme"},
    )  # fmt: skip
    got = plan_of(view, policy(), settled(2, group="hot-acme")).decisions["hot-acme"]
    assert (got.recommended, got.desired, got.reason) == (1, 1, Reason.IDLE)


def test_a_hot_group_that_nobody_needs_goes_and_is_named():
    view = ScaleView({"hot-acme": HOT}, replicas(2, SILENT, group="hot-acme"))
    plan = plan_of(view, policy(), settled(2, group="hot-acme"))
    got = plan.decisions["hot-acme"]
    assert (got.desired, got.reason) == (0, Reason.GROUP_NOT_NEEDED)
    assert plan.remove == {"hot-acme"}


def test_a_hot_group_goes_although_the_policy_has_no_hot_groups_any_more():
    told = replace(policy(), groups=replace(policy().groups, hot=None))
    plan = plan_of(ScaleView({"hot-acme": HOT}, ()), told, settled(2, group="hot-acme"))
    assert plan.decisions["hot-acme"].desired == 0


def test_a_paused_hot_group_that_nobody_needs_stays():
    view = ScaleView({"hot-acme": replace(HOT, foreign_actor="kubectl")}, ())
    plan = plan_of(view, policy(), settled(2, group="hot-acme"))
    assert plan.decisions["hot-acme"].reason is Reason.FOREIGN_ACTOR
    assert plan.remove == frozenset()


SHORT = {"unplaced_adapters": 30, "wanted_adapters": 58}  # four replicas of 8 slots filled to .9 hold 7 each


def test_short_adapter_slots_alone_never_grow_a_group():
    got = warm(4, replicas(4, signals(kv=0.7)), demand(2500.0), view=SHORT)
    assert (got.desired, got.reason) == (4, Reason.IN_BAND)


def test_short_adapter_slots_grow_a_group_where_the_policy_says_so():
    told = policy(on_adapter_slot_shortage=SlotShortage.GROW)
    got = warm(4, replicas(4, signals(kv=0.7)), demand(2500.0), told=told, view=SHORT)
    assert (got.recommended, got.desired, got.reason) == (9, 8, Reason.STEP_LIMIT)
    assert got.trail[0].reason is Reason.ADAPTER_SLOTS_SHORT


def test_what_was_grown_for_adapter_slots_is_kept_while_they_are_needed():
    told = policy(on_adapter_slot_shortage=SlotShortage.GROW)
    low = replicas(9, signals(kv=0.05, tokens=50.0))
    kept = warm(9, low, demand(500.0), told=told, view={"wanted_adapters": 58})
    assert (kept.desired, kept.reason) == (9, Reason.ADAPTER_SLOTS_SHORT)
    assert "58 adapters need 9 replicas of 7 adapter slots" in kept.trail[-1].message
    assert warm(9, low, demand(500.0), told=told, view={"wanted_adapters": 50}).desired == 8
    assert warm(9, low, demand(500.0), view={"wanted_adapters": 58}).desired == 8


def conditions_of(view: ScaleView, memory=None) -> dict[str, str]:
    plan = plan_of(view, policy(), memory or ScalingMemory())
    return {c.name: c.message for c in plan.conditions}


def test_short_adapter_slots_say_what_would_cure_them():
    view = ScaleView({"warm": Group("warm", Tier.WARM, 4)}, replicas(4), {"warm": demand()}, **SHORT)
    assert conditions_of(view)["AdapterSlotsShort"] == (
        "30 adapters with demand have no adapter slot on 4 replicas of 7 each; "
        "9 replicas, or 17 adapter slots in each, would hold all 58"
    )


def test_another_actor_is_a_condition_while_it_is_seen():
    held = ScaleView({"warm": Group("warm", Tier.WARM, 4, foreign_actor="keda")}, replicas(4), {"warm": demand()})
    free = replace(held, groups={"warm": Group("warm", Tier.WARM, 4)})
    assert conditions_of(held)["ForeignActor/warm"].startswith("keda changed the replicas of warm to 4; scaling holds")
    assert conditions_of(free) == {}


def test_stuck_replicas_are_a_condition():
    seen = replicas(4) + replicas(1, SILENT, state=ReplicaState.PENDING, first=4)
    view = ScaleView({"warm": Group("warm", Tier.WARM, 5)}, seen, {"warm": demand()})
    memory = settled(5, pending_since_s=NOON - 900.0)
    assert "replicas of warm not ready after 900 s: 1" in conditions_of(view, memory)["ReplicasStuck/warm"]
    assert conditions_of(view, settled(5, pending_since_s=NOON - 899.0)) == {}


def test_a_rate_next_to_nothing_tells_no_length_of_requests():
    assert demand(10.0, requests=1e-300, seen=10.0).tokens_per_request == 0.0
    assert demand(10.0, requests=2.0, seen=10.0).tokens_per_request == 5.0
