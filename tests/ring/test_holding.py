"""Whoever a snapshot may name for an adapter, as owner or standby, holds it."""

import numpy as np
import pytest

from autoscaler.ring import Limits, Member, MemberState, Overflow, Ring, RingSnapshot, held_by_slot, place

SLOTS = tuple(f"s{i:04d}" for i in range(12))
ADAPTERS = tuple(f"a{i}" for i in range(400))
LOADS = 1.0 / np.arange(1, 401)


@pytest.mark.parametrize("standbys", [0, 1, 3])
@pytest.mark.parametrize("vacant", [(), SLOTS[3:4], SLOTS[3:9]])
@pytest.mark.parametrize("told", [True, False])
def test_slots_hold_what_readers_of_the_snapshot_may_ask_of_them(standbys, vacant, told):
    limits = Limits(residents_per_slot=1000)
    placement = place(ADAPTERS, LOADS, SLOTS, limits=limits, vacant=vacant, standbys=standbys if told else 0)
    states = {slot: MemberState.VACANT if slot in vacant else MemberState.ACTIVE for slot in SLOTS}
    ring = Ring(RingSnapshot(
        fleet="f", epoch=1, published_at="2026-11-29T12:00:00Z", replication_factor=2,
        members=tuple(Member(f"r-{slot}", "10.0.0.1:80", state, slot) for slot, state in states.items()),
        exceptions=placement.published_exceptions(), warm=ADAPTERS,
        overflow=Overflow.STANDBYS, standby_count=standbys,
    ))  # fmt: skip
    wanted = {(slot, adapter) for adapter in ADAPTERS for slot in ring.assigned(adapter)}
    for adapter, owners in zip(ADAPTERS, ring.owners_many(ADAPTERS), strict=True):
        if owners.via.value != "fallback":
            wanted |= {(member.slot, adapter) for member in owners.standbys}
    held = {
        (slot, adapter) for slot, adapters in held_by_slot(placement, standbys, vacant).items() for adapter in adapters
    }
    fallbacks = {a for a in ADAPTERS if ring.owners(a).via.value == "fallback"}
    assert wanted <= held
    assert {adapter for _, adapter in held - wanted} <= fallbacks


def test_an_adapter_without_a_place_is_held_nowhere():
    placement = place(("a", "b"), [2.0, 1.0], SLOTS[:2], limits=Limits(residents_per_slot=1))
    assert held_by_slot(placement, 1) == {"s0000": {"a"}, "s0001": {"a"}}
