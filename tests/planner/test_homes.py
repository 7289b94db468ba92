"""A hot group serves its tenant only while it carries it; the ring takes over before it is let go of."""

from dataclasses import replace

import pytest

from autoscaler.domain.decisions import PublishRing
from autoscaler.domain.fleet import ReplicaState, Tier
from autoscaler.domain.signals import Fresh
from autoscaler.planner import FleetPlan, explain
from autoscaler.planner.homes import Home
from autoscaler.planner.views import scale_view
from autoscaler.policy.groups import HotGroups
from autoscaler.ring import Ring, decode
from tests.planner.invariants import check
from tests.planner.world import World, catalogue, policy

WHALE = "t000"
GROUP = "hot-t000"
SHARE = 1 / sum(1 / i for i in range(1, 9))  # of eight adapters' traffic by Zipf's law: .368


def pinned(most: int, whale_tokens_per_s: float, total: int = 32) -> World:
    """Eight adapters on six replicas of 1,000 tokens/s, filled to .8; the first one's tenant is pinned HOT."""
    base = policy()
    told = policy(
        groups=replace(base.groups, hot=HotGroups(max_replicas=most)),
        scaling=replace(base.scaling, capacity_tokens_per_s=1000.0, utilisation_ratio=0.8),
        tiering=replace(base.tiering, pins={WHALE: Tier.HOT}, promote_on=()),
        budget=replace(base.budget, max_replicas_total=total),
        ring=replace(base.ring, replication=2),
    )
    world = World(told, catalogue(8), whale_tokens_per_s / SHARE)
    world.start("warm", 6)
    return world


def steps(world: World, count: int) -> FleetPlan:
    """So many checked ticks; the last plan."""
    for _ in range(count):
        epoch = world.ring[0] if world.ring else 0
        decided = world.tick(act=False)
        check(world, decided, epoch)
        for effect in decided.effects:
            world.apply(effect)
    return decided


def via(world: World) -> str:
    return Ring(world.snapshot()).owners(WHALE).via.value


def warm_tokens(decided: FleetPlan) -> float:
    """Load that the placement counts on the ring."""
    placement = decided.ring.placement
    return float((placement.shares * placement.copies).sum())


def set_ready(world: World, ready: int) -> None:
    """So many replicas of the hot group are ready, the others still start."""
    for i, name in enumerate(sorted(r.id for r in world.replicas.values() if r.group == GROUP)):
        state = ReplicaState.READY if i < ready else ReplicaState.STARTING
        world.replicas[name] = replace(world.replicas[name], state=state)


def test_a_group_is_named_once_enough_of_it_is_ready_and_until_then_the_ring_counts_its_tenant():
    world = pinned(most=4, whale_tokens_per_s=1500.0)
    for _ in range(8):
        set_ready(world, 1)
        decided = steps(world, 1)
    assert world.groups[GROUP].current_replicas >= 2
    assert decided.homes[GROUP].apart is False
    assert via(world) in ("hash", "exception")
    whole = 1500.0 / SHARE
    assert warm_tokens(decided) > 0.95 * whole
    assert decided.demand.mean_tokens_per_s.sum() > 0.95 * whole
    condition = next(c for c in decided.conditions if c.name == f"ServedByRing/{WHALE}")
    assert (
        "it asks for 1500 tokens/s, and its group has 1 ready replicas that may be filled to 800" in condition.message
    )
    set_ready(world, 9)
    decided = steps(world, 3)
    assert via(world) == "hot"
    assert not any(c.name.startswith("ServedByRing") for c in decided.conditions)
    assert warm_tokens(decided) < 0.7 * whole, "on the ring it is a reserve, no load"


def test_a_ready_replica_without_the_adapter_carries_nothing():
    world = pinned(most=4, whale_tokens_per_s=1500.0)
    for _ in range(8):
        for name in sorted(r.id for r in world.replicas.values() if r.group == GROUP)[1:]:
            world.replicas[name] = replace(world.replicas[name], registered=frozenset())
        decided = steps(world, 1)
    assert decided.scale.decisions[GROUP].ready >= 2
    assert via(world) in ("hash", "exception")
    steps(world, 3)
    assert via(world) == "hot"


def test_before_a_capacity_is_known_a_group_takes_what_a_replica_was_seen_to_carry():
    world = pinned(most=4, whale_tokens_per_s=1500.0)
    world.policy = replace(world.policy, scaling=replace(world.policy.scaling, capacity_tokens_per_s=None))
    decided = steps(world, 12)
    assert decided.scale.capacity["warm"].source == "proven"
    assert via(world) in ("hash", "exception")
    assert "1 ready replicas that may be filled to 120" in decided.homes[GROUP].why
    world.tokens_per_s = 100.0 / SHARE
    steps(world, 3)
    assert via(world) == "hot"


def test_a_group_that_may_never_be_large_enough_stays_at_its_minimum_and_the_ring_serves():
    world = pinned(most=2, whale_tokens_per_s=4000.0)
    decided = steps(world, 30)
    assert via(world) == "exception"
    assert decided.scale.decisions[GROUP].desired == 1
    assert len(Ring(world.snapshot()).owners(WHALE).members) >= 5
    condition = next(c for c in decided.conditions if c.name == f"ServedByRing/{WHALE}")
    assert "it may have 2 (groups.hot.maxReplicas, budget.maxReplicasTotal)" in condition.message
    told = explain(f"tenant/{WHALE}", world.observe(), decided, world.policy)
    assert any(condition.message[1:] in fact for fact in told.facts)


def test_demand_is_counted_where_it_is_served_and_a_group_grows_to_carry_its_tenant_whole():
    world = pinned(most=8, whale_tokens_per_s=1500.0)
    decided = steps(world, 12)

    def demand(home: Home, group: str) -> float:
        view = scale_view(
            world.observe(), decided.demand, decided.diagnosis, decided.tiers, world.policy, True, {GROUP: home}
        )
        now, seen = view.demand[group].now_tokens_per_s, view.demand[group].seen_tokens_per_s
        assert isinstance(now, Fresh)
        assert isinstance(seen, Fresh)
        return now.value + seen.value

    inside, outside, hopeless = Home(WHALE, True, True), Home(WHALE), Home(WHALE, fits=False)
    mine = demand(inside, GROUP)
    assert mine >= 2 * 1500.0
    for home in (outside, hopeless, Home(WHALE, True, False), Home(WHALE, False, True)):
        assert demand(home, "warm") == pytest.approx(demand(inside, "warm") + mine)
    assert demand(outside, GROUP) == pytest.approx(1.1 * mine), "growth tolerates a tenth, moving in does not"
    assert demand(hopeless, GROUP) == 0.0


def test_what_the_others_leave_of_the_budget_bounds_the_group_too():
    world = pinned(most=8, whale_tokens_per_s=1500.0, total=7)
    decided = steps(world, 30)
    assert via(world) in ("hash", "exception")
    assert decided.homes[GROUP].fits is False
    assert world.groups["warm"].current_replicas >= 5, "the ring keeps what it needs for all"


def test_demand_follows_what_routers_do():
    world = pinned(most=4, whale_tokens_per_s=1500.0)
    apart = steps(world, 12)
    assert via(world) == "hot"
    world.tokens_per_s *= 2.0
    before = world.snapshot()
    seen = []
    for _ in range(4):
        set_ready(world, 2)
        decided = steps(world, 1)
        published = [decode(e.body) for e in decided.effects if isinstance(e, PublishRing)]
        seen.append((decided.homes[GROUP].apart, decided.homes[GROUP].listed, WHALE in (published or [before])[-1].hot))
    assert seen[0] == (True, True, True), "one tick over the line may be a burst that the window cut in half"
    assert seen[1] == (False, True, True), "its owners on the ring load it first"
    assert seen[2] == (False, True, False)
    assert seen[3][:2] == (False, False)
    assert len(Ring(world.snapshot()).owners(WHALE).members) > len(Ring(before).owners(WHALE).members)
    assert warm_tokens(decided) > 1.5 * warm_tokens(apart)


def test_it_returns_to_a_group_that_has_grown_and_only_after_a_while():
    world = pinned(most=8, whale_tokens_per_s=1500.0)
    steps(world, 12)
    world.tokens_per_s *= 2.0
    for _ in range(4):
        set_ready(world, 2)
        steps(world, 1)
    assert via(world) == "exception"
    set_ready(world, 9)
    steps(world, 4)
    assert via(world) == "exception", "scaleIn.stabilisation, 5 minutes, is not over"
    decided = steps(world, 20)
    assert via(world) == "hot"
    assert decided.scale.decisions[GROUP].ready >= 4


def test_a_group_that_queues_hands_its_tenant_back():
    world = pinned(most=4, whale_tokens_per_s=1500.0)
    steps(world, 12)
    assert via(world) == "hot"
    for name, replica in world.replicas.items():
        if replica.group == GROUP:
            signals = replace(replica.signals, waiting=Fresh(40.0))
            world.replicas[name] = replace(replica, signals=signals)
    decided = steps(world, 4)
    assert via(world) in ("hash", "exception")
    assert "requests queue there" in decided.homes[GROUP].why


def test_a_tenant_that_is_hot_no_more_stays_with_its_group_until_the_ring_has_it():
    world = pinned(most=4, whale_tokens_per_s=1500.0)
    steps(world, 12)
    world.policy = replace(world.policy, tiering=replace(world.policy.tiering, pins={}))
    decided = steps(world, 1)
    assert decided.tiers.tier(WHALE) is Tier.WARM
    assert via(world) == "hot"
    assert GROUP not in decided.scale.remove
    decided = steps(world, 2)
    assert via(world) in ("hash", "exception")
    steps(world, 20)
    assert GROUP not in world.groups


def test_a_controller_that_lost_its_memory_leaves_the_tenant_where_routers_have_it():
    world = pinned(most=4, whale_tokens_per_s=1500.0)
    steps(world, 12)
    hot = world.snapshot().hot
    world.memory = type(world.memory)()
    steps(world, 3)
    assert world.snapshot().hot == hot
