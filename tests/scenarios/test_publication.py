"""What is really published goes before what was decided: failed writes, other leaders, routers that are not heard."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.decisions import Drain, Reason, Shrink
from autoscaler.planner import PlannerMemory
from autoscaler.ring import MemberState, encode
from tests.planner.world import catalogue, policy
from tests.scenarios.troubled import TroubledWorld


def fleet(replicas: int = 6) -> TroubledWorld:
    world = TroubledWorld(policy(), catalogue(12), tokens_per_s=2000.0)
    world.start("warm", replicas)
    world.steps(4)
    return world


def test_an_epoch_that_was_never_published_lets_nobody_drain():
    world = fleet()
    world.publish_fails, world.routers_heard, world.tokens_per_s = True, False, 100.0
    for _ in range(45):
        decided = world.step()
        assert not any(isinstance(e, Drain | Shrink) for e in decided.effects)
    assert decided.ring.departures
    assert {m.state for m in world.snapshot().members} == {MemberState.ACTIVE}
    world.publish_fails = False
    world.steps(20)
    assert len(world.replicas) < 6


def test_a_ring_of_the_same_epoch_by_another_leader_is_taken_as_it_is():
    world = fleet(4)
    world.crash("warm-003")
    world.publish_fails = True
    world.step()
    mine = world.memory.ring.published
    members = tuple(replace(m, address="10.9.9.9:8000") if m.slot == "s0000" else m for m in mine.members)
    world.ring, world.publish_fails = (mine.epoch, encode(replace(mine, members=members))), False
    world.step()
    assert world.snapshot().epoch == mine.epoch + 1
    assert {m.address for m in world.snapshot().members if m.slot == "s0000"} == {"10.0.0.1:8000"}


def test_a_platform_that_does_not_answer_holds_all_and_the_dead_leave_when_it_does():
    world = fleet(4)
    world.silent["replicas"] = "connection refused"
    before = world.ring
    world.crash("warm-001")
    world.tokens_per_s = 12_000.0
    for _ in range(10):
        decided = world.step()
        assert decided.effects == ()
    assert world.ring == before
    assert decided.ring.trail[0].reason is Reason.SIGNALS_MISSING
    assert "PlatformUnreadable" in {c.name for c in decided.conditions}
    del world.silent["replicas"]
    world.step()
    assert "warm-001" not in {m.replica for m in world.snapshot().members}


def test_a_controller_without_its_memory_takes_the_published_ring_for_its_own():
    world = fleet(4)
    before = world.ring
    world.memory = PlannerMemory()
    for _ in range(3):
        assert world.step().effects == ()
    assert world.ring == before
