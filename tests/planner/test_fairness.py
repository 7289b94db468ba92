"""Tenants are bounded while the warm group has all that it may have and saturates, and minutes after; never else."""

from dataclasses import replace

import pytest

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import ReplicaSignals
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.planner import FleetPlan, PlannerMemory, checkpoint, restored
from autoscaler.planner.fairness import STAY_S
from autoscaler.policy.groups import Groups, HotGroups, WarmGroup
from autoscaler.policy.steps import Fairness as Told
from autoscaler.ring import Fairness
from tests.planner.world import World, catalogue, policy

CALM = ReplicaSignals(waiting=Fresh(0.0), running=Fresh(8.0), kv_usage_ratio=Fresh(0.2))
CROWDED = ReplicaSignals(waiting=Fresh(80.0), running=Fresh(64.0), kv_usage_ratio=Fresh(0.95))
BOUND = Fairness(32, 2500)
TOLD = Told(max_in_flight_per_tenant=32, retry_after_s=2.5)


def full_world(told: Told | None = TOLD, most: int = 3) -> World:
    """Three replicas of at most `most`, calm; the ring is published."""
    groups = Groups(warm=WarmGroup(min_replicas=2, max_replicas=most), hot=HotGroups())
    world = World(policy(fairness=told, groups=groups), catalogue(12), signals=CALM)
    world.start("warm", 3)
    for _ in range(4):
        world.tick()
    return world


def crowd(world: World, signals: ReplicaSignals = CROWDED, ticks: int = 2) -> FleetPlan:
    world.signals = signals
    world.replicas = {n: replace(r, signals=signals) for n, r in world.replicas.items()}
    for _ in range(ticks):
        decided = world.tick()
    return decided


def test_a_full_fleet_bounds_its_tenants_and_says_so():
    world = full_world()
    assert world.snapshot().fairness is None
    first = crowd(world, ticks=1)
    assert first.ring.trail[0].reason is Reason.TENANTS_BOUNDED
    assert first.ring.trail[0].value == 32
    assert world.snapshot().fairness == BOUND
    assert [c.name for c in crowd(world, ticks=1).conditions if c.name == "TenantsBounded"]
    assert world.tick().ring.trail[0].reason is Reason.NOTHING_TO_DO, "one epoch, not one a tick"


@pytest.mark.parametrize(
    "world",
    [full_world(told=None), full_world(most=8)],
    ids=["the policy says nothing of it", "replicas may still come"],
)
def test_a_fleet_that_may_grow_or_was_not_told_bounds_nobody(world: World):
    crowd(world)
    assert world.snapshot().fairness is None


def test_the_bound_stays_until_the_fleet_has_had_room_for_minutes():
    world = full_world()
    crowd(world)
    crowd(world, CALM, ticks=int(STAY_S // 15) - 1)
    assert world.snapshot().fairness == BOUND, "the bound itself is why queues are short"
    off = crowd(world, CALM, ticks=3)
    assert world.snapshot().fairness is None
    assert not [c for c in off.conditions if c.name == "TenantsBounded"]


def test_silent_engines_do_not_end_it():
    world = full_world()
    crowd(world)
    silent = ReplicaSignals(waiting=Missing("down"), running=Missing("down"), kv_usage_ratio=Missing("down"))
    crowd(world, silent, ticks=int(STAY_S // 15) + 5)
    assert world.snapshot().fairness == BOUND


@pytest.mark.parametrize("kept", [True, False], ids=["with its checkpoint", "without its checkpoint"])
def test_a_restart_does_not_end_it_before_its_time(kept: bool):
    world = full_world()
    crowd(world)
    world.memory = restored(checkpoint(world.memory)) if kept else PlannerMemory()
    crowd(world, CALM, ticks=3)
    assert world.snapshot().fairness == BOUND


def test_a_tenant_of_several_adapters_is_one_tenant():
    world = full_world()
    entries = {a: ("both" if a in ("t001", "t002") else a, f"/adapters/{a}", "", 16) for a in world.catalogue.ids}
    world.catalogue = Catalogue.of(entries)
    crowd(world)
    assert world.snapshot().fairness == replace(BOUND, tenants={"t001": "both", "t002": "both"})
