"""A replica leaves the ring, is let go of, drains and only then goes; and comes back while it can."""

from dataclasses import replace

from autoscaler.domain.decisions import Drain, PublishRing, Reason, Shrink, Undrain
from autoscaler.domain.fleet import PauseMode, ReplicaState
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.planner import PlannerMemory
from autoscaler.ring import MemberState
from tests.planner.invariants import check
from tests.planner.world import World, kinds, running


def shrinking(**changes: object) -> World:
    """Six replicas where fewer are enough, shortly before scale-in may begin."""
    world = running(replicas=6, ticks=12, **changes)
    world.tokens_per_s = 100.0
    return world


def test_scale_in_leaves_the_ring_is_acknowledged_drains_and_only_then_goes():
    world = shrinking()
    seen: list[str] = []
    for _ in range(40):
        epoch = world.ring[0] if world.ring else 0
        decided = world.tick(act=False)
        check(world, decided, epoch)
        for effect in decided.effects:
            world.apply(effect)
            if isinstance(effect, PublishRing | Drain | Shrink):
                seen.append(type(effect).__name__)
        if "Shrink" in seen:
            break
    assert [s for s in seen if s != "PublishRing"][:2] == ["Drain", "Shrink"]
    assert seen.index("PublishRing") < seen.index("Drain")
    assert len(world.replicas) == 5


def draining() -> World:
    """A world in which one replica was told to drain and still has a request."""
    world = shrinking()
    for _ in range(40):
        if "Drain" in kinds(world.tick()):
            return world
    raise AssertionError("nobody was drained")


def stands_again(world: World, name: str) -> None:
    for _ in range(6):
        decided = world.tick()
        assert not kinds(decided) & {"Shrink", "Grow"}
    assert world.replicas[name].state is ReplicaState.READY
    assert {m.replica: m.state for m in world.snapshot().members}[name] is MemberState.ACTIVE


def test_a_drain_is_taken_back_where_demand_returns_before_the_replica_has_gone():
    world = draining()
    (name,) = (r.id for r in world.replicas.values() if r.state is ReplicaState.DRAINING)
    world._change(name, in_flight=Fresh(1.0))
    world.groups["warm"] = replace(world.groups["warm"], pause=PauseMode.SCALE_IN, pause_reason="load test")
    assert Undrain(name) in world.tick().effects
    stands_again(world, name)


def test_a_controller_without_memory_takes_back_the_drain_that_it_finds():
    world = draining()
    (name,) = (r.id for r in world.replicas.values() if r.state is ReplicaState.DRAINING)
    world._change(name, in_flight=Fresh(1.0))
    world.memory = PlannerMemory()
    world.tokens_per_s = 6_000.0
    assert Undrain(name) in world.tick().effects
    stands_again(world, name)


def test_a_router_that_lags_holds_the_drain_and_is_named():
    world = shrinking()
    world.routers_follow = False
    for _ in range(40):
        decided = world.tick()
        assert not kinds(decided) & {"Drain", "Shrink"}
    assert len(world.replicas) == 6
    lag = next(c for c in decided.conditions if c.name == "RouterLag")
    assert "`envoy`" in lag.message
    assert "drains are held" in lag.message


def test_without_any_router_an_epoch_counts_after_the_ack_timeout():
    world = shrinking()
    world.routers_follow = False
    observe = world.observe
    world.observe = lambda: replace(observe(), routers=())  # type: ignore[method-assign]
    for _ in range(40):
        world.tick()
    assert len(world.replicas) < 6


def test_a_paused_group_is_not_scaled_in():
    world = shrinking()
    world.groups["warm"] = replace(world.groups["warm"], pause=PauseMode.SCALE_IN, pause_reason="load test")
    for _ in range(40):
        decided = world.tick()
    assert len(world.replicas) == 6
    assert any(step.reason is Reason.PAUSED for step in decided.scale.decisions["warm"].trail)


def test_missing_traffic_never_shrinks():
    world = shrinking()
    observe = world.observe

    def blind():
        seen = observe()
        return replace(seen, freshness={**seen.freshness, "traffic": Missing("Prometheus does not answer")})

    world.observe = blind  # type: ignore[method-assign]
    for _ in range(40):
        world.tick()
    assert len(world.replicas) == 6


def test_a_replica_that_drains_on_its_platforms_own_word_is_named_by_no_new_ring():
    world = running()
    world._change("warm-001", state=ReplicaState.DRAINING)
    decided = world.tick()
    assert "PublishRing" in kinds(decided)
    named = {m.replica for m in world.snapshot().members if m.state is MemberState.ACTIVE}
    assert "warm-001" not in named
