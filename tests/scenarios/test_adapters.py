"""Adapters that come, go, change, vanish or do not load: what the fleet decides, tick by tick, and what it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from autoscaler.domain.decisions import Grow, LoadAdapter, PublishRing, Reason, UnloadAdapter
from autoscaler.domain.fleet import EngineLimits, ReplicaState, Tier
from autoscaler.domain.observation import Catalogue
from autoscaler.planner import FleetPlan
from autoscaler.policy.steps import TenantSlo
from autoscaler.policy.words import Isolation, Overflow
from autoscaler.ring import Ring
from tests.planner.world import catalogue, policy
from tests.scenarios.troubled import TroubledWorld

OWNERS_ONLY = replace(policy().ring, overflow=Overflow.OWNERS, replication=2)


def fleet(replicas: int = 4, adapters: int = 12, ticks: int = 4, **changes: object) -> TroubledWorld:
    """Two owners an adapter and no standbys, so that who holds what is who is named."""
    world = TroubledWorld(policy(**{"ring": OWNERS_ONLY, **changes}), catalogue(adapters))
    world.tokens_per_s = 2000.0
    world.start("warm", replicas)
    if ticks:
        world.steps(ticks)
    return world


def owners(world: TroubledWorld, adapter: str) -> set[str]:
    return {m.replica for m in Ring(world.snapshot()).owners(adapter).members}


def loads(decided: FleetPlan, adapter: str) -> set[str]:
    return {e.replica for e in decided.effects if isinstance(e, LoadAdapter) and e.adapter == adapter}


def unloads(decided: FleetPlan, adapter: str) -> set[str]:
    return {e.replica for e in decided.effects if isinstance(e, UnloadAdapter) and e.adapter == adapter}


def conditions(decided: FleetPlan) -> dict[str, str]:
    return {c.name: c.message for c in decided.conditions}


def with_revision(world: TroubledWorld, adapter: str, revision: str, source: str = "") -> None:
    world.catalogue = Catalogue.of(
        {a: (a, source or f"/adapters/{a}", revision if a == adapter else "", 16) for a in world.catalogue.ids}
    )


def test_a_new_adapter_is_loaded_by_its_owners_and_named_there():
    world = fleet()
    world.catalogue = catalogue(13)
    first = world.step()
    assert len(loads(first, "t012")) == 2
    world.steps(2)
    assert owners(world, "t012") == world.holders("t012") == loads(first, "t012")


def test_a_new_revision_is_loaded_while_the_old_one_serves():
    world = fleet()
    before = owners(world, "t003")
    with_revision(world, "t003", "r2")
    decided = world.step()
    assert loads(decided, "t003") == before
    assert unloads(decided, "t003") == set()
    assert {e.revision for e in decided.effects if isinstance(e, LoadAdapter)} == {"r2"}
    decided = world.step()
    assert decided.effects == ()
    assert owners(world, "t003") == before
    assert {world.book.revision(world.replicas[r], "t003") for r in before} == {"r2"}


def test_a_new_revision_that_does_not_load_leaves_the_old_one_serving():
    world = fleet()
    before = owners(world, "t003")
    with_revision(world, "t003", "r2")
    world.refusals["*", "t003"] = ("404: /adapters/t003 is not found", False)
    world.steps(6)
    assert owners(world, "t003") == before <= world.holders("t003")
    tried = [t for t in world.attempts if t[2] == "t003"]
    assert len(tried) == 2 * len(before)


def test_a_removed_adapter_leaves_the_ring_then_routers_then_engines():
    world = fleet()
    held = world.holders("t011")
    world.catalogue = catalogue(11)
    world.routers_follow = False
    gone = world.step()
    assert [type(e) for e in gone.effects] == [PublishRing]
    assert gone.ring.trail[0].reason is Reason.TIERS_CHANGED
    assert "t011" not in (world.snapshot().warm or ())
    for _ in range(3):
        assert unloads(world.step(), "t011") == set()
    world.routers_follow = True
    world.step()
    assert unloads(world.step(), "t011") == held
    assert world.holders("t011") == set()


def test_a_removed_adapter_that_another_loader_brought_stays():
    world = fleet()
    theirs = sorted(world.replicas)[0]
    known = world.replicas[theirs].registered or frozenset()
    world._change(theirs, registered=known | {"t011", "somebodys"})
    ours = {r for r in world.holders("t011") if world.book.revision(world.replicas[r], "t011") is not None}
    world.catalogue = catalogue(11)
    world.steps(6)
    assert "somebodys" in (world.replicas[theirs].registered or ())
    assert world.holders("t011") == ({theirs} if theirs not in ours else set())


def test_a_corrupt_adapter_is_cold_in_the_engines_words_and_blocks_no_other():
    world = fleet(ticks=0, engine=replace(policy().engine, resolver=True))
    world.refusals["*", "t002"] = ("500: rank 64 is greater than max_lora_rank 16", False)
    decided = world.steps(4)
    assert decided.tiers.explain("t002").reason is Reason.UNLOADABLE
    assert decided.tiers.tier("t002") is Tier.COLD
    others = {a for a in world.catalogue.ids if a != "t002"}
    assert {a for a in others if owners(world, a) <= world.holders(a)} == others
    tried = [t for t in world.attempts if t[2] == "t002"]
    assert 2 <= len(tried) <= 4
    decided = world.steps(20, 60.0)
    assert [t for t in world.attempts if t[2] == "t002"] == tried


def test_a_load_that_fails_for_ever_on_one_replica_goes_to_another_slot():
    """Elsewhere its status never became Failed, and no other pod was tried."""
    world = fleet(replicas=6)
    unlucky = sorted(owners(world, "t004"))[0]
    world.refusals[unlucky, "t004"] = ("503: no space left on device", True)
    world.forget(unlucky, "t004")
    first = world.step()
    assert loads(first, "t004") == {unlucky}
    assert owners(world, "t004") == world.holders("t004")
    began_s = world.now_s
    while "AdapterFailed/t004" not in conditions(decided := world.step()):
        assert world.now_s - began_s < 400.0
    told = conditions(decided)["AdapterFailed/t004"]
    assert told == (f"{unlucky} cannot load t004 (attempts: 5, again every few minutes): 503: no space left on device")
    tries = [t for t, r, a in world.attempts if r == unlucky and a == "t004"][1:]
    waits = [after - before for before, after in pairwise(tries)]
    assert waits == sorted(waits)
    assert waits[0] >= 10.0
    world.steps(3)
    assert len(owners(world, "t004")) == 2
    assert owners(world, "t004") == world.holders("t004")
    assert unlucky not in owners(world, "t004")


def test_what_was_given_up_heals_by_itself_and_its_stand_in_goes():
    world = fleet(replicas=6)
    rightful = owners(world, "t004")
    unlucky = sorted(rightful)[0]
    world.refusals[unlucky, "t004"] = ("503: the adapter store is away", True)
    world.forget(unlucky, "t004")
    world.steps(30)
    assert owners(world, "t004") != rightful
    world.refusals.clear()
    decided = world.steps(40)
    assert owners(world, "t004") == rightful == world.holders("t004")
    assert "AdapterFailed/t004" not in conditions(decided)


@pytest.mark.slow
def test_an_adapter_that_nobody_loads_is_tried_on_a_bounded_number_of_replicas():
    world = fleet(replicas=8, ticks=0)
    world.refusals["*", "t004"] = ("503: the adapter store is away", True)
    decided = world.steps(200)
    tried = {r for _, r, a in world.attempts if a == "t004"}
    assert len(tried) <= 6
    assert "the adapter store is away" in conditions(decided)["AdapterFailed/t004"]
    spent = len([t for t in world.attempts if t[2] == "t004"])
    assert spent <= len(tried) * (5 + 200 * 15 / 300 + 1)


def test_adapters_that_vanish_are_loaded_again_and_not_named_there_meanwhile():
    """Elsewhere requests got 404 while the object said Running."""
    world = fleet()
    world.forget("warm-001")
    lost = {a for a in world.catalogue.ids if "warm-001" in owners(world, a)}
    decided = world.step()
    assert {e.adapter for e in decided.effects if isinstance(e, LoadAdapter) and e.urgent} == lost
    assert not any("warm-001" in owners(world, a) for a in lost)
    assert all(len(owners(world, a)) == 1 for a in lost)
    world.step()
    assert all("warm-001" in owners(world, a) for a in lost)


def test_adapters_that_keep_vanishing_are_reloaded_ever_more_rarely_and_told():
    world = fleet()
    at = sorted(owners(world, "t001"))[0]
    began = len(world.attempts)
    for _ in range(80):
        world.forget(at, "t001")
        decided = world.step()
    again = [t for t, r, a in world.attempts[began:] if a == "t001" and r == at]
    assert len(again) <= 12
    assert at not in owners(world, "t001")
    assert "somebody else unloads it" in conditions(decided)["AdapterFailed/t001"]


def test_where_nobody_has_an_adapter_its_owners_stay_named():
    """A 404 from an owner that loads it is mended in seconds; a ring without an owner would be a 404 for all."""
    world = fleet()
    for name in world.holders("t000"):
        world.forget(name, "t000")
    world.step()
    assert owners(world, "t000")
    world.steps(2)
    assert owners(world, "t000") == world.holders("t000")


def test_a_scale_out_brings_adapters_before_it_is_named_and_a_dead_owner_leaves_at_once():
    """Elsewhere new pods never got the adapter, and a dead pod stayed in the route."""
    world = fleet(replicas=2)
    world.tokens_per_s = 6000.0
    named_empty = []
    for _ in range(8):
        world.step()
        active = {m.replica for m in world.snapshot().members if m.replica}
        named_empty += [r for r in active if not world.replicas[r].registered]
    assert len(world.replicas) > 2
    assert named_empty == []
    world.crash("warm-000")
    world.step()
    assert "warm-000" not in {m.replica for m in world.snapshot().members}


def test_one_adapter_that_does_not_load_leaves_its_tenants_hot_group_to_the_others():
    mine = {a: ("acme", f"/adapters/{a}", "", 16) for a in ("acme-a", "acme-b")}
    others = {f"t{i:03d}": (f"t{i:03d}", f"/adapters/t{i:03d}", "", 16) for i in range(6)}
    base = policy()
    promised = replace(base.slo, tenants={"acme": TenantSlo(isolation=Isolation.DEDICATED)})
    scaling = replace(base.scaling, capacity_tokens_per_s=1000.0)
    world = TroubledWorld(policy(slo=promised, scaling=scaling), Catalogue.of(others | mine))
    world.start("warm", 4)
    for name in ("hot-acme-004", "hot-acme-005"):
        world.refusals[name, "acme-b"] = ("404: no such adapter", False)
    world.steps(10)
    ring = Ring(world.snapshot())
    assert ring.owners("acme-a").via == "hot"
    assert ring.owners("acme-b").via != "hot"
    assert owners(world, "acme-b") <= world.holders("acme-b")


def test_loads_wait_for_unloads_where_host_memory_is_full():
    """Elsewhere a new version was loaded before the old one went; at full slots the load failed."""
    small = EngineLimits(max_loras=4, max_cpu_loras=8, max_lora_rank=16, max_num_seqs=64)
    base = policy()
    told = policy(
        engine=replace(base.engine, limits=replace(base.engine.limits, max_loras=4, max_cpu_loras=8)),
        ring=replace(OWNERS_ONLY, replication=1),
    )
    world = TroubledWorld(told, catalogue(24), most_loaded=8)
    world.start("warm", 4)
    for name in world.replicas:
        world._change(name, limits=small)
    world.steps(6)
    for round_ in range(4):
        ids = [f"t{i:03d}" for i in range(24)] + [f"n{round_}{i:02d}" for i in range(6)]
        kept = sorted(set(ids[6 * (round_ % 2) :]))
        world.catalogue = Catalogue.of({a: (a, f"/adapters/{a}", "", 16) for a in kept[:26]})
        for _ in range(12):
            world.step()
    assert all(len(r.registered or ()) <= 8 for r in world.replicas.values())
    refused = {a for failed in world.book.ledger().failed.values() for a in failed}
    assert refused == set()


def test_a_restarted_process_is_filled_again_and_unnamed_until_then():
    world = fleet()
    world.starts("warm-002")
    world.step()
    assert "warm-002" not in {m.replica for a in world.catalogue.ids for m in Ring(world.snapshot()).owners(a).members}
    world.steps(4)
    assert world.replicas["warm-002"].state is ReplicaState.READY
    named = {a for a in world.catalogue.ids if "warm-002" in owners(world, a)}
    assert named
    assert named <= (world.replicas["warm-002"].registered or frozenset())


def test_replicas_are_not_added_for_adapters():
    world = fleet(replicas=2, adapters=12, ticks=0)
    world.tokens_per_s = 600.0
    world.steps(6)
    world.catalogue = catalogue(60)
    for _ in range(12):
        decided = world.step()
        assert not any(isinstance(e, Grow) for e in decided.effects)
