"""Advice on merged checkpoints: rank, stability, saving, storage and consent, and never an effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.decisions import ApplyReport, Reason
from autoscaler.domain.fleet import Tier
from autoscaler.domain.observation import Catalogue
from autoscaler.planner import FleetPlan, explain
from autoscaler.policy.groups import Groups, HotGroups, MergedCheckpoints, WarmGroup
from autoscaler.policy.steps import Slo, TenantSlo
from autoscaler.policy.words import Isolation
from autoscaler.telemetry import FleetView, records_of
from tests.planner.world import World, catalogue, policy

DAY_S = 86_400.0


def hot_world(**changes: object) -> World:
    """t003 was promised a group of its own."""
    promised = Slo(tenants={"t003": TenantSlo(isolation=Isolation.DEDICATED)})
    world = World(policy(slo=promised, **changes), catalogue(12))
    world.start("warm", 4)
    for _ in range(6):
        world.tick()
    return world


def view(world: World, plan: FleetPlan) -> FleetView:
    return FleetView("fleet", world.policy, world.observe(), plan, ApplyReport(), (), {}, True)


def merge_records(now: FleetView, before: FleetView | None) -> list[str]:
    return [r.subject for r in records_of(now, before) if r.reason is Reason.MERGE_ADVISED]


def test_a_tenant_that_stays_hot_for_days_is_advised_once_and_nothing_is_done():
    world = hot_world()
    young = world.tick()
    assert young.tiers.tier("t003") is Tier.HOT
    [case] = young.merges
    assert (case.tenant, case.adapter, case.advised) == ("t003", "t003", False)
    assert "HOT for 0.0 days of the 3 that count as stable" in case.message
    before = view(world, young)
    world.now_s += 3 * DAY_S
    old = world.tick()
    [case] = old.merges
    assert case.advised
    assert case.saved_replicas == pytest.approx(0.076 * old.scale.decisions["hot-t003"].current, rel=0.01)
    assert "merging t003 (rank 16) takes about 8% off each step" in case.message
    assert "storage for another copy of the base model" in case.message
    assert "It is not done: the policy does not consent" in case.message
    assert merge_records(view(world, old), before) == ["tenant/t003"]
    later = world.tick()
    assert merge_records(view(world, later), view(world, old)) == []
    assert all(getattr(e, "adapter", "") != "t003" or "merge" not in repr(e).lower() for e in later.effects)


def test_explain_tells_the_case_and_the_consent():
    groups = Groups(
        warm=WarmGroup(min_replicas=2, max_replicas=16),
        hot=HotGroups(merged_checkpoints=MergedCheckpoints(allowed=True, path_template="/merged/{id}")),
    )
    world = hot_world(groups=groups)
    plan = world.tick()
    facts = explain("tenant/t003", world.observe(), plan, world.policy).facts
    assert any("A merged checkpoint is not advised yet" in f and "The policy consents to it" in f for f in facts)
    assert not any("merged checkpoint" in f for f in explain("tenant/t001", world.observe(), plan, world.policy).facts)


def test_a_tenant_with_several_adapters_is_not_advised():
    world = hot_world()
    world.catalogue = Catalogue.of(
        {a: ("t003" if a in ("t003", "t004") else a, f"/adapters/{a}", "", 16) for a in world.catalogue.ids}
    )
    world.tick()
    world.now_s += 4 * DAY_S
    [case] = world.tick().merges
    assert not case.advised
    assert case.message == ("A merged checkpoint is not advised: t003 has 2 adapters, and a checkpoint holds one.")


def test_without_hot_tenants_there_is_no_case():
    world = World(
        replace(policy(), groups=Groups(warm=WarmGroup(min_replicas=2, max_replicas=4), hot=None)), catalogue(4)
    )
    world.start("warm", 2)
    assert world.tick().merges == ()
