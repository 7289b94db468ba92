"""Hot groups and adapter slots are bounded; who is asked for, then who is worth most, stays."""

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Tier
from autoscaler.policy.groups import ColdGroup, HotGroups
from tests.tiering.building import Fleet, load, override, policy


def tiers(plan) -> dict[str, str]:
    return {t: plan.tier(t).value for t in plan.ids}


def test_hot_groups_are_bounded_and_the_most_valuable_get_them():
    tenants = {"a": load(13_000.0), "b": load(15_000.0), "c": load(14_000.0)}
    plan = Fleet(policy(hot=HotGroups(max_groups=2))).tick(tenants)
    assert tiers(plan) == {"a": "warm", "b": "hot", "c": "hot"}
    assert plan.explain("a").reason is Reason.HOT_GROUPS_FULL
    assert [step.reason for step in plan.explain("a").trail] == [Reason.FORECAST_HOT, Reason.HOT_GROUPS_FULL]


def test_who_is_asked_for_goes_before_who_is_loud():
    told = policy(hot=HotGroups(max_groups=1), dedicated=["quiet"])
    plan = Fleet(told).tick({"loud": load(50_000.0), "quiet": {}})
    assert tiers(plan) == {"loud": "warm", "quiet": "hot"}


def test_two_tenants_of_like_load_do_not_push_each_other_out():
    fleet = Fleet(policy(hot=HotGroups(max_groups=1)))
    fleet.tick({"a": load(14_000.0), "b": load(13_000.0)})
    for swing in (1.2, 1.4, 1.0):
        assert tiers(fleet.tick({"a": load(13_000.0), "b": load(13_000.0 * swing)})) == {"a": "hot", "b": "warm"}
    louder = {"a": load(13_000.0), "b": load(13_000.0 * 1.6)}
    assert tiers(fleet.tick(louder)) == {"a": "hot", "b": "warm"}, "a group is kept for its dwell"
    assert tiers(fleet.tick(louder, 7200.0)) == {"a": "warm", "b": "hot"}


def test_the_total_bounds_hot_groups_beside_the_warm_and_cold_minimum():
    told = policy(
        total=8, warm_min=5, cold=ColdGroup(min_replicas=1), hot=HotGroups(min_replicas=2), dedicated=["a", "b"]
    )
    plan = Fleet(told).tick({"a": load(20_000.0), "b": load(20_001.0)})
    assert tiers(plan) == {"a": "warm", "b": "hot"}
    assert plan.explain("a").reason is Reason.HOT_GROUPS_FULL


def test_load_alone_makes_no_group_that_is_smaller_than_its_tenant_needs():
    whale = {"a": load(30_000.0)}
    plan = Fleet(policy(hot=HotGroups(max_replicas=8))).tick(whale)
    assert tiers(plan) == {"a": "warm"}
    got = plan.explain("a")
    assert [step.reason for step in got.trail] == [Reason.FORECAST_HOT, Reason.GROUP_TOO_SMALL]
    assert "it needs 10.31 replicas, and its group may have 8" in got.trail[-1].message
    assert tiers(Fleet(policy(hot=HotGroups(max_replicas=11))).tick(whale)) == {"a": "hot"}
    assert tiers(Fleet(policy(hot=HotGroups(max_replicas=8), dedicated=["a"])).tick(whale)) == {"a": "hot"}


def test_a_group_by_load_has_to_fit_beside_what_the_others_need():
    tenants = {"a": load(14_000.0), "b": load(12_800.0), "c": load(9_000.0)}
    assert tiers(Fleet(policy(total=14)).tick(tenants)) == {"a": "hot", "b": "hot", "c": "warm"}
    plan = Fleet(policy(total=12)).tick(tenants)
    assert tiers(plan) == {"a": "hot", "b": "warm", "c": "warm"}, "3 on the ring and 5 in a group leave 4 for 4.4"
    assert plan.explain("b").reason is Reason.GROUP_TOO_SMALL


def test_who_is_inside_stays_until_the_mean_itself_does_not_fit():
    fleet = Fleet(policy(hot=HotGroups(max_replicas=5)))
    assert tiers(fleet.tick({"a": load(14_000.0)})) == {"a": "hot"}, "15,400 of 16,000"
    assert tiers(fleet.tick({"a": load(15_500.0)})) == {"a": "hot"}, "a band of 17,050 is doubt"
    assert tiers(fleet.tick({"a": load(16_100.0)})) == {"a": "warm"}
    assert tiers(fleet.tick({"a": load(15_500.0)})) == {"a": "warm"}


def test_a_promise_for_which_there_is_no_group_is_a_condition():
    told = policy(hot=HotGroups(max_groups=1), dedicated=["a", "b"])
    plan = Fleet(told).tick({"a": load(10.0), "b": load(20.0)})
    (condition,) = plan.conditions
    assert (condition.name, condition.message) == (
        "HotGroupsFull", "a: HOT was asked for, but there may be only 1 hot groups",
    )  # fmt: skip


def test_the_least_valuable_gives_way_where_adapter_slots_are_short():
    tenants = {f"t{i}": load(10.0 + i) for i in range(5)}
    plan = Fleet(policy(cold=ColdGroup()), slots=4).tick(tenants)
    assert tiers(plan)["t0"] == "cold"
    got = plan.explain("t0")
    assert (got.reason, plan.unplaced_adapters) == (Reason.ADAPTER_SLOT_BUDGET, 1)
    assert "the ring's 4 adapter slots are taken by tenants worth more than its 10 tokens/s per adapter" in (
        got.trail[-1].message
    )


def test_without_a_cold_group_nobody_leaves_the_ring_for_want_of_slots_and_the_shortage_is_told():
    tenants = {f"t{i}": load(10.0 + i) for i in range(5)}
    fleet = Fleet()
    for slots in (1, 4, 2, 5):
        seen = max(slots, fleet.memory.slots or 0)  # fewer count after ring.slotGrace
        plan = fleet.tick(tenants, 900.0, slots=slots)
        assert plan.counts()[Tier.COLD] == 0
        assert plan.changed == ()
        assert (plan.unplaced_adapters, plan.wanted_adapters) == (5 - seen, 5)


def test_a_hot_tenant_counts_on_the_ring_too():
    """Fifty adapters, one of them isolated, on seven replicas of 8 slots filled to .9: 49 fit, one is demoted."""
    tenants = {f"t{i:02d}": load(10.0 + i) for i in range(50)}
    plan = Fleet(policy(dedicated=["t30"], cold=ColdGroup()), slots=49).tick(tenants)
    assert plan.counts() == {Tier.COLD: 1, Tier.WARM: 48, Tier.HOT: 1}
    assert tiers(plan)["t00"] == "cold"


def test_value_is_per_adapter():
    tenants = {"many": load(30.0, adapters=3), "one": load(11.0), "other": load(11.0)}
    assert tiers(Fleet(policy(cold=ColdGroup()), slots=3).tick(tenants)) == {
        "many": "cold",
        "one": "warm",
        "other": "warm",
    }


def test_a_tenant_that_is_too_large_lets_smaller_ones_in():
    tenants = {"a": load(100.0), "many": load(90.0, adapters=9), "z": load(1.0)}
    assert tiers(Fleet(policy(cold=ColdGroup()), slots=5).tick(tenants)) == {"a": "warm", "many": "cold", "z": "warm"}


def test_who_is_asked_for_stays_although_nothing_fits_and_that_is_counted():
    told = policy(pins={"a": Tier.WARM, "b": Tier.WARM}, cold=ColdGroup())
    plan = Fleet(told, slots=1).tick({"a": {}, "b": {}, "c": load(50.0)})
    assert tiers(plan) == {"a": "warm", "b": "warm", "c": "cold"}
    assert plan.unplaced_adapters == 2


def test_idle_adapters_without_a_slot_are_not_short_of_one():
    plan = Fleet(policy(cold=ColdGroup()), slots=1).tick({"a": load(10.0), "b": {}})
    assert (tiers(plan)["b"], plan.unplaced_adapters) == ("cold", 0)


def test_like_values_do_not_swap_slots():
    fleet = Fleet(policy(cold=ColdGroup()), slots=1)
    fleet.tick({"a": load(10.0), "b": load(9.0)})
    for swing in (12.0, 14.0, 9.0):
        plan = fleet.tick({"a": load(10.0), "b": load(swing)})
        assert (tiers(plan), plan.changed) == ({"a": "warm", "b": "cold"}, ())
    assert tiers(fleet.tick({"a": load(10.0), "b": load(46.0)})) == {"a": "warm", "b": "cold"}, "both in their dwell"
    assert tiers(fleet.tick({"a": load(10.0), "b": load(136.0)})) == {"a": "cold", "b": "warm"}


def test_a_tenant_that_was_put_out_long_ago_takes_the_slot_of_one_worth_less():
    fleet = Fleet(policy(cold=ColdGroup()), slots=1)
    fleet.tick({"a": load(10.0), "b": load(9.0)})
    assert tiers(fleet.tick({"a": load(10.0), "b": load(16.0)}, 7200.0)) == {"a": "cold", "b": "warm"}


def test_a_slot_that_becomes_free_brings_a_tenant_with_traffic_back():
    fleet = Fleet(policy(cold=ColdGroup()), slots=1)
    fleet.tick({"a": load(10.0), "b": load(9.0)})
    got = fleet.tick({"a": load(10.0), "b": load(9.0)}, slots=4).explain("b")
    assert (got.after, got.reason) == (Tier.WARM, Reason.WOKE_UP)


def test_tenants_without_adapters_need_no_slot():
    assert tiers(Fleet(policy(cold=ColdGroup()), slots=1).tick({"a": load(10.0), "b": load(9.0, adapters=0)})) == {
        "a": "warm",
        "b": "warm",
    }


def test_an_override_to_the_ring_pushes_the_least_valuable_out():
    plan = Fleet(policy(cold=ColdGroup()), slots=1).tick(
        {"a": load(10.0), "b": {}}, overrides=[override("b", Tier.WARM)]
    )
    assert tiers(plan) == {"a": "cold", "b": "warm"}


def test_a_replica_that_restarts_keeps_its_slots_for_the_grace_and_nobody_is_demoted():
    tenants = {f"t{i}": load(10.0 + i) for i in range(4)}
    fleet = Fleet(policy(cold=ColdGroup()), slots=4)
    fleet.tick(tenants)
    assert fleet.ticks(tenants, for_s=540.0, slots=2).counts()[Tier.COLD] == 0
    assert fleet.tick(tenants, slots=4).counts()[Tier.COLD] == 0
    assert fleet.ticks(tenants, for_s=600.0, slots=2).counts()[Tier.COLD] == 0
    assert fleet.tick(tenants, 60.0, slots=2).counts()[Tier.COLD] == 2


def test_slots_that_nobody_can_count_demote_nobody():
    tenants = {f"t{i}": load(10.0 + i) for i in range(4)}
    fleet = Fleet(policy(cold=ColdGroup()), slots=4)
    fleet.tick(tenants)
    assert fleet.ticks(tenants, for_s=3600.0, slots=None).counts()[Tier.COLD] == 0
