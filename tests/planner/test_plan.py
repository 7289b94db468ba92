"""Whole decisions, tick by tick, in the smallest world that follows them."""

from dataclasses import replace

import pytest

from autoscaler.domain.decisions import Grow, LoadAdapter, Reason, Renew, UnloadAdapter
from autoscaler.domain.fleet import EngineLimits, Override, PauseMode, ReplicaState, Tier
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.planner import PlannerMemory, checkpoint, explain, plan, restored
from autoscaler.policy.groups import Engine
from autoscaler.policy.steps import Ring as RingPolicy
from autoscaler.policy.steps import TenantSlo
from autoscaler.policy.words import Actuation, Isolation, Mode, Overflow
from autoscaler.ring import MemberState, Ring, ring_diff
from autoscaler.scaling.starts import Starts
from tests.planner.invariants import check
from tests.planner.world import World, catalogue, kinds, policy, running


def test_a_first_ring_is_published_only_once_every_assigned_adapter_is_registered():
    world = World(policy(), catalogue(24))
    world.start("warm", 4)
    first = world.tick()
    assert kinds(first) == {"AssignSlot", "LoadAdapter"}
    assert first.ring.trail[-1].reason is Reason.AWAITING_RESIDENCY
    second = world.tick()
    assert kinds(second) == {"PublishRing"}
    assert [m.state for m in world.snapshot().members] == [MemberState.ACTIVE] * 4
    assert second.ring.trail[0].reason is Reason.MEMBER_JOINED


def test_a_calm_fleet_has_no_effect_and_says_so():
    world = running(ticks=10)
    decided = world.tick()
    assert decided.effects == ()
    assert decided.ring.trail[0].reason is Reason.NOTHING_TO_DO


@pytest.mark.parametrize(
    ("stopped", "renewed"),
    [({}, True), ({"blocked": "is in a rollout"}, True), ({"pause": PauseMode.ALL}, False)],
    ids=["nobody stops it", "stuck in a rollout", "paused"],
)
def test_a_group_whose_turn_it_is_follows_what_it_is_made_from(stopped: dict[str, object], renewed: bool):
    world = running()
    world.groups["warm"] = replace(world.groups["warm"], outdated=True, **stopped)
    assert (Renew("warm") in world.tick().effects) is renewed


def test_the_same_input_gives_the_same_plan():
    world = running()
    seen, memory = world.observe(), world.memory
    one, after_one = plan(seen, memory, world.policy)
    two, after_two = plan(seen, memory, world.policy)
    assert one.effects == two.effects
    assert one.inputs_digest == two.inputs_digest
    assert checkpoint(after_one) == checkpoint(after_two)


@pytest.mark.parametrize("kept", [True, False], ids=["with its checkpoint", "without its checkpoint"])
def test_a_restarted_controller_moves_nothing(kept: bool):
    world = running()
    before = world.snapshot()
    world.memory = restored(checkpoint(world.memory)) if kept else PlannerMemory()
    for _ in range(4):
        decided = world.tick()
        assert not kinds(decided) & {"LoadAdapter", "UnloadAdapter", "Drain"}
    assert ring_diff(before, world.snapshot()) == ()


def test_a_new_replica_joins_after_its_adapters_and_takes_only_its_share():
    world = running(replicas=4)
    before = world.snapshot()
    world.groups["warm"] = replace(world.groups["warm"], current_replicas=5)
    world._spawn("warm", 1, ready=True)
    first = world.tick()
    loads = {e.replica for e in first.effects if isinstance(e, LoadAdapter)}
    assert "warm-004" in loads
    assert len(world.snapshot().members) == 4
    second = world.tick()
    assert kinds(second) == {"PublishRing"}
    moves = ring_diff(before, world.snapshot())
    assert {m.target for m in moves if m.target} <= {"s0004", *(m.slot for m in before.members)}
    to_new = sum(m.target == "s0004" for m in moves)
    assert to_new == pytest.approx(24 * 2 / 5, rel=0.6)


def test_a_replica_that_cannot_load_one_adapter_joins_at_its_deadline_and_not_before():
    world = running(replicas=3)
    world.groups["warm"] = replace(world.groups["warm"], current_replicas=4)
    world._spawn("warm", 1, ready=True)
    refused = world.tick(act=False)
    wanted = [e for e in refused.effects if isinstance(e, LoadAdapter) and e.replica == "warm-003"]
    for effect in refused.effects:
        if effect is not wanted[0]:
            world.apply(effect)
    deadline_s = world.policy.ring.residency_deadline_s
    waited_s = 0.0
    while len(world.snapshot().members) < 4:
        decided = world.tick(act=False)
        for effect in decided.effects:
            if not (isinstance(effect, LoadAdapter) and effect.adapter == wanted[0].adapter):
                world.apply(effect)
        waited_s += 15.0
        assert waited_s <= deadline_s + 30.0
    assert waited_s >= deadline_s


def test_a_crashed_replica_leaves_the_ring_in_the_same_tick_and_nothing_moves():
    world = running()
    before = world.snapshot()
    world.crash("warm-001")
    decided = world.tick()
    assert kinds(decided) == {"PublishRing"}
    states = {m.slot: m.state for m in world.snapshot().members}
    assert states["s0001"] is MemberState.VACANT
    assert ring_diff(before, world.snapshot()) == ()
    assert decided.ring.trail[0].reason is Reason.MEMBER_LEFT


def test_a_successor_takes_the_slot_and_no_other_replica_moves():
    world = running()
    before = world.snapshot()
    world.crash("warm-001")
    world._spawn("warm", 1, ready=True)
    touched: set[str] = set()
    for _ in range(4):
        touched |= {e.replica for e in world.tick().effects if isinstance(e, LoadAdapter | UnloadAdapter)}
    assert touched == {"warm-004"}
    assert ring_diff(before, world.snapshot()) == ()
    assert {m.replica for m in world.snapshot().members if m.slot == "s0001"} == {"warm-004"}


def test_after_the_grace_the_adapters_of_a_lost_slot_are_loaded_elsewhere_and_then_named_there():
    world = running()
    world.crash("warm-001")
    for _ in range(60):
        epoch = world.ring[0] if world.ring else 0
        decided = world.tick(act=False)
        check(world, decided, epoch)
        for effect in decided.effects:
            world.apply(effect)
    assert [m.slot for m in world.snapshot().members] == ["s0000", "s0002", "s0003"]
    ring = Ring(world.snapshot())
    assert all(len(ring.owners(a).members) >= 2 for a in world.catalogue.ids)


def test_an_unreadable_publisher_holds_the_epoch():
    world = running()
    world.crash("warm-002")
    observe = world.observe
    lost = {"publisher": Missing("disk")}
    world.observe = lambda: (s := observe()) and replace(s, freshness=s.freshness | lost)  # type: ignore[method-assign]
    assert "PublishRing" not in kinds(world.tick())


def dedicated(**changes: object) -> World:
    base = policy()
    promised = replace(base.slo, tenants={"t007": TenantSlo(isolation=Isolation.DEDICATED)})
    budget = replace(base.budget, max_replicas_total=8)
    world = World(policy(slo=promised, budget=budget, **changes), catalogue(40))
    world.start("warm", 8)
    return world


def test_a_promised_group_is_made_within_the_budget_and_takes_its_tenant():
    world = dedicated()
    for _ in range(20):
        epoch = world.ring[0] if world.ring else 0
        decided = world.tick(act=False)
        check(world, decided, epoch)
        for effect in decided.effects:
            world.apply(effect)
        assert len(world.replicas) <= 8
    assert {g: v.current_replicas for g, v in world.groups.items()} == {"warm": 7, "hot-t007": 1}
    owners = Ring(world.snapshot()).owners("t007")
    assert owners.via == "hot"
    assert [m.replica for m in owners.members] == ["hot-t007-008"]
    assert decided.tiers.explain("t007").reason is Reason.ISOLATION_ASKED


def test_a_hot_group_that_is_not_needed_any_more_drains_and_goes():
    world = dedicated()
    for _ in range(20):
        world.tick()
    world.policy = replace(
        world.policy,
        slo=replace(world.policy.slo, tenants={}),
        tiering=replace(world.policy.tiering, dwell_s=0.0, demote_ticks=1),
    )
    for _ in range(30):
        world.tick()
    assert "hot-t007" not in world.groups
    assert Ring(world.snapshot()).owners("t007").via in ("hash", "exception")


def test_an_override_moves_a_tenant_within_two_ticks_and_ends():
    world = running(engine=replace(policy().engine, resolver=True))
    now_s = world.now_s
    world.overrides = (Override("t003", Tier.COLD, "contract ended", "ann", now_s, now_s + 60.0),)
    for _ in range(2):
        world.tick()
    assert "t003" not in (world.snapshot().warm or ())
    for _ in range(6):
        decided = world.tick()
    assert "t003" in (world.snapshot().warm or ())
    assert decided.tiers.tier("t003") is Tier.WARM


def test_advice_remembers_no_ring_and_starts_from_what_is():
    world = running(mode=Mode.ADVISE, ticks=0)
    for _ in range(5):
        decided = world.tick(act=False)
    assert world.memory.ring == PlannerMemory().ring or world.memory.ring.published is None
    assert any(isinstance(e, LoadAdapter) for e in decided.effects)


def test_propose_holds_a_change_until_exactly_it_is_approved():
    world = dedicated(mode=Mode.PROPOSE)
    for _ in range(6):
        decided = world.tick()
    assert world.groups.keys() == {"warm"}
    keys = {p.key for p in decided.proposals}
    assert keys == {"group/hot-t007:0->1", "group/warm:8->7"}
    world.approvals = frozenset(keys)
    for _ in range(25):
        decided = world.tick()
        world.approvals |= {p.key for p in decided.proposals}
    assert world.groups["hot-t007"].current_replicas == 1


def test_exported_counts_are_decided_and_not_acted_on():
    world = running(replicas=6, ticks=12, actuation=Actuation.EXPORT)
    world.tokens_per_s = 100.0
    for _ in range(40):
        decided = world.tick()
        assert not kinds(decided) & {"Grow", "Shrink", "Drain"}
    assert decided.scale.decisions["warm"].desired < 6


def test_growth_follows_demand_at_once():
    world = running(ticks=30)
    busy = replace(
        next(iter(world.replicas.values())).signals,
        waiting=Fresh(60.0),
        running=Fresh(64.0),
        kv_usage_ratio=Fresh(0.95),
    )
    for name in list(world.replicas):
        world._change(name, signals=busy)
    decided = world.tick()
    grow = next(e for e in decided.effects if isinstance(e, Grow))
    assert grow.replicas == 4
    assert decided.scale.decisions["warm"].trail[0].reason is Reason.SATURATION


def test_a_checkpoint_of_another_version_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"version 99.*run the release that wrote it"):
        restored('{"version": 99}')


def test_a_pod_that_handed_its_slot_over_holds_back_no_newcomer():
    world = running()
    world._spawn("warm", 1, ready=True)
    world._change("warm-004", replaces="warm-001")
    for _ in range(4):
        world.tick()
    assert {m.replica for m in world.snapshot().members if m.slot == "s0001"} == {"warm-004"}
    assert world.replicas["warm-001"].state is ReplicaState.READY
    world.groups["warm"] = replace(world.groups["warm"], current_replicas=5)
    world._spawn("warm", 1, ready=True)
    for _ in range(6):
        decided = world.tick()
    assert "warm-005" in {m.replica for m in world.snapshot().members}
    assert Reason.AWAITING_RESIDENCY not in {step.reason for step in decided.ring.trail}


def test_a_replica_whose_engine_was_not_heard_yet_does_not_shrink_the_others_places():
    world = running(engine=Engine())
    before = world.snapshot().replication_factor
    world._spawn("warm", 1, ready=True)
    world._change("warm-004", limits=EngineLimits())
    decided = world.tick()
    assert (before, decided.ring.placement.replication) == (2, 2)


def test_a_replica_that_joins_brings_its_moves_whatever_is_left_of_the_churn_budget():
    world = running(ring=RingPolicy(moves_per_hour=1))
    world.memory = replace(world.memory, ring=replace(world.memory.ring, budget=-50.0))
    world.groups["warm"] = replace(world.groups["warm"], current_replicas=5)
    world._spawn("warm", 1, ready=True)
    for _ in range(6):
        world.tick()
    held = world.memory.ring.placement
    assert held is not None
    fair = held.copies.sum() / 5
    assert held.slot_residents[list(held.ranking.slots).index("s0004")] > 0.5 * fair
    assert world.memory.ring.budget < 0


def test_explain_says_how_full_a_replica_is_planned_where_nobody_stated_it():
    for overflow, share in ((Overflow.STANDBYS, "85%"), (Overflow.ANY, "90%")):
        base = policy()
        told = policy(
            scaling=replace(base.scaling, utilisation_ratio=None),
            ring=replace(base.ring, overflow=overflow),
            engine=replace(base.engine, resolver=True),
        )
        world = World(told, catalogue(4), 100.0)
        world.start("warm", 2)
        more, _ = explain("group/warm", world.observe(), world.tick(act=False), told).to_change
        assert f"forecast demand above {share} of capacity" in more


def test_growth_looks_as_far_ahead_as_replicas_were_seen_to_take():
    world = running()
    facts = explain("group/warm", world.observe(), world.tick(), world.policy).facts
    assert "A new replica takes 180 s, by the policy's word: 0 starts were seen, 3 are needed." in facts
    world.memory = replace(world.memory, scaling=replace(world.memory.scaling, starts=Starts(took_s=(560.0,) * 3)))
    decided = world.tick()
    assert decided.demand.forecast.horizons_s[1] == 560.0 + world.policy.tick_interval_s
    facts = explain("group/warm", world.observe(), decided, world.policy).facts
    assert "A new replica takes 560 s until it answers, as was seen; growth looks so far ahead." in facts


def test_routing_is_by_least_requests_where_the_busy_adapters_fit_and_engines_resolve_the_others():
    """24 adapters in 8 adapter slots, five busy: without a resolver each must be registered where it is sent."""
    base = policy()
    for resolver, expected in ((True, ("least", 6)), (False, ("preferred", 2))):
        engine = replace(base.engine, resolver=resolver)
        told = policy(engine=engine, groups=replace(base.groups, hot=None))
        world = World(told, catalogue(24), 1000.0)
        world.busy = 5
        world.start("warm", 6)
        for _ in range(20):
            world.tick()
        snapshot = world.snapshot()
        assert (snapshot.choice.value, snapshot.replication_factor) == expected


def test_silence_changes_neither_owners_nor_choice_since_nobody_knows_who_is_in_use():
    """A controller that starts anew hears no request in its first tick."""
    base = policy()
    engine = replace(base.engine, resolver=True)
    world = World(policy(engine=engine, groups=replace(base.groups, hot=None)), catalogue(24), 1000.0)
    world.busy = 5
    world.start("warm", 6)
    for _ in range(20):
        world.tick()
    world.memory = replace(world.memory, demand=None)
    world.tokens_per_s = 0.0
    for _ in range(4):
        held = world.tick().ring.placed
        assert (held.placement.replication, held.choice.value, held.moves) == (6, "least", 0)
