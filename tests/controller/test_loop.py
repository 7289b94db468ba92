"""The loop goes on whatever fails, and says why it does not act."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.connectors.stores.lease import FileLease
from autoscaler.domain.decisions import (
    Applied,
    AssignSlot,
    Failed,
    Grow,
    LoadAdapter,
    PublishRing,
    Reason,
    Shrink,
    Skipped,
)
from autoscaler.domain.fleet import Override, Tier
from autoscaler.domain.signals import Missing
from autoscaler.policy.words import Actuation, Mode
from autoscaler.ports import PermanentError, TemporaryError
from autoscaler.ring import MemberState, ring_diff
from autoscaler.telemetry import FleetMetrics
from tests.controller.stage import MemoryStores, Stage, TimedLease, VirtualClock, reasons, stage
from tests.planner.world import catalogue, policy
from tests.scenarios.troubled import TroubledWorld


def fleet(replicas: int = 4, adapters: int = 12, **changes: object) -> TroubledWorld:
    world = TroubledWorld(policy(**changes), catalogue(adapters))
    world.start("warm", replicas)
    return world


async def settled(world: TroubledWorld, **parts: object) -> Stage:
    staged = stage(world, **parts)  # type: ignore[arg-type]
    await staged.ticks(4)
    assert world.ring is not None
    return staged


async def test_a_tick_that_fails_is_followed_by_the_next():
    world, clock = fleet(), VirtualClock(naps=5)
    staged = stage(world, clock=clock)
    reading, calls = staged.controller._wanted, iter(range(100))

    def falters():
        if next(calls) in (0, 2):
            raise RuntimeError("a bug")
        return reading()

    staged.controller._wanted = falters
    with pytest.raises(asyncio.CancelledError):
        await staged.controller.run()
    assert world.ring is not None
    assert staged.controller.latest is not None


async def test_a_failed_tick_is_tried_again_soon_and_others_at_the_policys_interval():
    clock = VirtualClock(naps=2)
    staged = stage(fleet(), clock=clock)
    staged.stores.failure = TemporaryError("locked")
    began_s = clock.at_s
    with pytest.raises(asyncio.CancelledError):
        await staged.controller.run()
    assert clock.at_s - began_s == 10.0
    assert staged.controller.latest is None


async def test_a_store_that_fails_is_a_condition_and_stops_no_decision():
    staged = await settled(fleet())
    staged.stores.failure = PermanentError("state.db is read-only: let this user write the file")
    staged.world.crash("warm-001")
    view = await staged.tick()
    states = {m.slot: m.state for m in staged.world.snapshot().members}
    assert states["s0001"] is MemberState.VACANT
    view = await staged.tick()
    told = {c.name: c.message for c in view.conditions}["StoreFailed"]
    assert "decisions and state are not kept: state.db is read-only" in told
    assert "overrides cannot be read, what was read last stands" in told
    staged.stores.failure = None
    assert "StoreFailed" not in {c.name for c in (await staged.ticks(2)).conditions}


async def test_an_override_stands_while_its_store_is_away_and_ends_by_its_own_time():
    world = fleet(engine=replace(policy().engine, resolver=True))
    staged = await settled(world)
    now_s = staged.clock.at_s
    staged.stores.live = (Override("t003", Tier.COLD, "contract ended", "ann", now_s, now_s + 120.0),)
    assert (await staged.ticks(2)).plan.tiers.tier("t003") is Tier.COLD
    staged.stores.failure = TemporaryError("locked")
    assert (await staged.tick()).plan.tiers.tier("t003") is Tier.COLD
    assert (await staged.ticks(10)).plan.tiers.tier("t003") is Tier.WARM


async def test_a_checkpoint_that_cannot_be_used_is_told_once():
    stores = MemoryStores(text="{")
    staged = stage(fleet(), stores=stores)
    assert "CheckpointLost" in {c.name for c in (await staged.tick()).conditions}
    assert "CheckpointLost" not in {c.name for c in (await staged.tick()).conditions}
    assert stores.text != "{"


@pytest.mark.parametrize(
    ("parts", "changes", "why"),
    [
        ({}, {"mode": Mode.ADVISE}, "the policy's mode is advise"),
        ({"frozen": lambda: "detached by ann: moving house"}, {}, "detached by ann: moving house"),
        ({"lease": TimedLease(0.0)}, {}, "another instance leads"),
    ],
    ids=["advise", "frozen", "another leads"],
)
async def test_what_is_not_done_says_why(parts, changes, why):
    staged = stage(fleet(**changes), **parts)
    view = await staged.tick()
    assert view.plan.effects
    assert reasons(view) == {why}
    assert staged.ports.done == []
    assert (staged.stores.text is None) == ("lease" in parts)


async def test_exported_counts_are_skipped_and_the_ring_goes_on():
    world = fleet(replicas=1, actuation=Actuation.EXPORT)
    staged = await settled(world)
    view = await staged.tick()
    assert view.plan.scale.decisions["warm"].desired == 2
    assert not any(isinstance(e, Grow | Shrink) for e in staged.ports.done)
    assert world.ring is not None


async def test_a_proposal_is_not_an_effect_until_it_is_approved():
    world = fleet(replicas=1, mode=Mode.PROPOSE)
    staged = await settled(world)
    assert [p.key for p in staged.controller.latest.plan.proposals] == ["group/warm:1->2"]
    assert world.groups["warm"].current_replicas == 1
    world.approvals = frozenset({"group/warm:1->2"})
    await staged.tick()
    assert world.groups["warm"].current_replicas == 2


async def test_a_load_that_outlasts_its_tick_is_not_started_twice():
    world = fleet()
    staged = stage(world)
    staged.ports.stuck["t000"] = asyncio.Event()
    world.policy = replace(world.policy, tick_interval_s=0.02)
    first = await staged.tick()
    waiting = {
        e.replica for e, o in first.report.outcomes if isinstance(e, LoadAdapter) and o == Skipped("still loading")
    }
    await staged.ticks(3)
    sent = [e.replica for e in staged.ports.sent if e.adapter == "t000"]
    assert waiting
    assert len(sent) == len(set(sent)) == len({e.replica for e in staged.ports.sent if e.adapter == "t000"})
    staged.ports.stuck["t000"].set()
    await staged.ticks(2)
    assert world.holders("t000")
    assert len([e for e in staged.ports.sent if e.adapter == "t000"]) == len(sent)


async def test_no_more_loads_than_the_policy_says_are_sent_to_a_replica_at_once():
    world = fleet(replicas=1, adapters=6)
    staged = stage(world)
    world.policy = replace(world.policy, tick_interval_s=0.02)
    staged.ports.stuck = {a: asyncio.Event() for a in world.catalogue.ids}
    await staged.tick()
    assert len(staged.ports.sent) == world.policy.engine.loading.parallel_per_replica == 2


async def test_loads_that_wait_for_their_turn_are_not_sent_once_the_lease_is_lost():
    world, lease = fleet(replicas=1, adapters=6), TimedLease()
    staged = stage(world, lease=lease)
    world.policy = replace(world.policy, tick_interval_s=0.02)
    staged.ports.stuck = {a: asyncio.Event() for a in world.catalogue.ids}
    await staged.tick()
    lease.until_s = staged.clock.at_s
    for event in staged.ports.stuck.values():
        event.set()
    await asyncio.sleep(0.01)
    assert len(staged.ports.sent) == 2
    assert reasons(await staged.tick()) == {"another instance leads"}
    assert len(staged.ports.sent) == 2


async def test_a_lease_that_ends_between_two_effects_stops_the_second():
    world, lease = fleet(), TimedLease()
    staged = stage(world, lease=lease)
    kept = staged.stores.text
    lease.until_s = staged.clock.at_s + 16.0
    staged.ports.takes_s[AssignSlot] = 2.0
    view = await staged.tick()
    assigned = [o for e, o in view.report.outcomes if isinstance(e, AssignSlot)]
    assert assigned[0] == Applied()
    assert set(assigned[1:]) == {Skipped("the lease is not held")}
    assert len([e for e in staged.ports.done if isinstance(e, AssignSlot)]) == 1
    assert staged.stores.text == kept


async def test_an_effect_that_breaks_fails_alone():
    world = fleet()
    staged = stage(world)
    staged.ports.breaks[AssignSlot] = KeyError("a bug")
    view = await staged.ticks(4)
    failed = {type(e): o.error for e, o in view.report.outcomes if isinstance(o, Failed)}
    assert set(failed) == {AssignSlot}
    assert world.ring is not None
    assert any(
        r.subject.startswith("replica/") and r.message.startswith("AssignSlot failed") for r in staged.stores.records
    )


async def test_an_adapter_that_breaks_its_load_holds_back_no_other():
    world = fleet()
    world.refusals["*", "t001"] = ("500: cannot read adapter_model.safetensors", True)
    staged = stage(world)
    view = await staged.ticks(12, 60.0)
    assert world.ring is not None
    told = {c.name: c.message for c in view.conditions}["AdapterFailed/t001"]
    assert "cannot read adapter_model.safetensors" in told
    assert all(world.holders(a) for a in world.catalogue.ids if a != "t001")


@pytest.mark.parametrize("source", ["replicas", "publisher"])
async def test_a_controller_that_starts_blind_takes_nobody_off_the_ring(source):
    world = fleet()
    first = await settled(world)
    before, text = world.ring, first.stores.text
    world.silent[source] = "connection refused"
    for stores in (MemoryStores(text=text), MemoryStores()):
        staged = stage(world, stores=stores, clock=first.clock)
        view = await staged.ticks(20)
        assert world.ring == before
        assert not any(isinstance(e, PublishRing | Shrink) for e in view.plan.effects)
    if source == "replicas":
        assert view.plan.effects == ()
        assert "PlatformUnreadable" in {c.name for c in view.conditions}


async def test_counts_stand_while_the_platform_is_not_seen():
    world = fleet()
    staged = await settled(world)
    await staged.ticks(2, 310.0)
    world.silent["replicas"] = "connection refused"
    for silent in ((), ("engines",)):
        world.silent.update(dict.fromkeys(silent, "no answer"))
        decision = (await staged.tick()).plan.scale.decisions["warm"]
        assert (decision.desired, decision.reason) == (4, Reason.SIGNALS_MISSING)
        assert "connection refused" in decision.trail[-1].message


async def test_numbers_of_engines_do_not_outlive_their_source():
    world = fleet()
    staged = await settled(world)
    world.silent.update(replicas="connection refused", engines="no answer")
    seen = (await staged.tick()).observation
    assert all(isinstance(r.signals.kv_usage_ratio, Missing) for r in seen.replicas)


async def test_two_instances_one_leads_and_its_successor_moves_nothing(tmp_path: Path):
    world, clock = fleet(), VirtualClock()
    leases = [FileLease(tmp_path / "lease.json", name, 15.0) for name in ("one", "two")]
    one, two = (stage(world, clock=clock, lease=lease) for lease in leases)
    for _ in range(6):
        clock.at_s += 5.0
        held = [lease.renew(clock.at_s) for lease in leases]
        assert held == [True, False]
        await one.tick(0.0)
        assert reasons(await two.tick(0.0)) <= {"another instance leads"}
    assert two.ports.done == []
    assert two.stores.text is None
    assert one.stores.text is not None
    before = world.snapshot()
    clock.at_s += 20.0
    assert leases[1].renew(clock.at_s)
    assert not leases[0].renew(clock.at_s)
    view = await two.tick(0.0)
    assert view.leader
    assert reasons(await one.tick(0.0)) <= {"another instance leads"}
    assert ring_diff(before, world.snapshot()) == ()
    world.crash("warm-002")
    await two.tick(5.0)
    await one.tick(0.0)
    assert [type(e) for e in two.ports.done].count(PublishRing) == 1
    assert world.snapshot().epoch == before.epoch + 1


async def test_published_gauges_move_in_a_run_in_which_they_must():
    metrics, world = FleetMetrics(), fleet(replicas=2)
    staged = stage(world, subscribers=(metrics.update,))
    world.tokens_per_s = 100.0
    shown: dict[str, set[float]] = {}

    def look() -> None:
        for family in metrics.registry.collect():
            for sample in family.samples:
                shown.setdefault(sample.name.removeprefix("lora_autoscaler_"), set()).add(sample.value)

    for load, ticks in ((100.0, 6), (6000.0, 12), (100.0, 60)):
        world.tokens_per_s = load
        for _ in range(ticks):
            await staged.tick(30.0)
            look()
    still = {"is_leader", "thrash_score", "signal_age_seconds", "router_epoch_lag"}
    gauges = {
        "desired_replicas",
        "recommended_replicas",
        "current_replicas",
        "ring_epoch",
        "ring_churn_budget_remaining",
    }
    assert {name for name in gauges if len(shown[name]) < 3} == set()
    assert still <= set(shown)
    assert max(shown["desired_replicas"]) > 2
