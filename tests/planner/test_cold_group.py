"""What is cold is served somewhere at every moment, on the ring or by the cold group."""

from dataclasses import replace

from autoscaler.domain.fleet import Override, Tier
from autoscaler.policy.groups import ColdGroup
from autoscaler.ring import Ring
from tests.planner.world import World, catalogue, policy


def with_cold_group() -> World:
    """Four warm replicas and a cold one, engines without a resolver."""
    base = policy()
    world = World(replace(base, groups=replace(base.groups, cold=ColdGroup(min_replicas=1))), catalogue(24))
    world.start("warm", 4)
    world.start("cold", 1, Tier.COLD)
    for _ in range(6):
        world.tick()
    return world


def answers(world: World, adapter: str) -> bool:
    """Whether each replica that routers may send the adapter to has it."""
    snapshot = world.snapshot()
    ring = Ring(snapshot)
    on_ring = adapter in (snapshot.warm or ())
    members = ring.owners(adapter).members if on_ring else snapshot.cold or ()
    return bool(members) and all(adapter in (world.replicas[m.replica].registered or ()) for m in members)


def test_an_adapter_leaves_the_ring_once_the_cold_group_has_it_and_comes_back_once_an_owner_has():
    world = with_cold_group()
    word = Override("t003", Tier.COLD, "contract ended", "ann", world.now_s, world.now_s + 1e6)
    world.overrides = (word,)
    for _ in range(6):
        world.tick()
        assert answers(world, "t003")
    assert "t003" not in (world.snapshot().warm or ())
    assert "t003" in (world.replicas["cold-004"].registered or ())
    world.overrides = (replace(word, tier=Tier.WARM),)
    for _ in range(6):
        world.tick()
        assert answers(world, "t003")
    assert "t003" in (world.snapshot().warm or ())


def test_a_cold_replica_that_lost_its_adapters_is_not_named_until_it_has_them():
    world = with_cold_group()
    world.overrides = (Override("t003", Tier.COLD, "contract ended", "ann", world.now_s, world.now_s + 1e6),)
    for _ in range(6):
        world.tick()
    world._change("cold-004", registered=frozenset())
    world.loaded.pop("cold-004", None)
    for _ in range(6):
        world.tick()
        assert answers(world, "t003")
    assert [m.replica for m in world.snapshot().cold or ()] == ["cold-004"]
    assert "t003" not in (world.snapshot().warm or ())
