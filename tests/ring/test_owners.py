"""Owners in bulk, against the slow reading; and what a snapshot's reader tells in edge cases."""

import random

import pytest

from autoscaler.ring import Member, MemberState, Overflow, Ring, RingSnapshot, to_document
from tests.ring import slow_reading


def snapshot(members, **more):
    fields = {"fleet": "f", "epoch": 1, "published_at": "2026-11-29T12:00:00Z", "replication_factor": 2}
    return RingSnapshot(**{**fields, **more}, members=tuple(members))


def members(count, states=(MemberState.ACTIVE,), seed=0):
    draw = random.Random(seed)
    return [Member(f"r{i}", f"10.0.0.{i}:80", draw.choice(states), f"s{i:04d}") for i in range(count)]


@pytest.mark.slow
def test_owners_of_10000_random_adapters_are_those_of_the_slow_reading():
    draw = random.Random(7)
    alphabet = "abc-/0123456789äß适🙂"
    adapters = list({"".join(draw.choices(alphabet, k=draw.randint(1, 40))) for _ in range(10_000)})
    states = [MemberState.ACTIVE] * 5 + [MemberState.VACANT, MemberState.DRAINING]
    ring = snapshot(
        members(40, states, seed=3),
        warm=tuple(adapters),
        overflow=Overflow.STANDBYS,
        standby_count=2,
        exceptions={a: (f"s{i % 40:04d}", f"s{(i * 7 + 1) % 40:04d}") for i, a in enumerate(adapters[:500])},
    )
    document = {**to_document(ring), "warm": set(adapters)}  # a set, or the slow reading takes hours
    for adapter, found in zip(adapters, Ring(ring).owners_many(adapters), strict=True):
        names, via = slow_reading.owners(document, adapter)
        assert (list(found.names), found.via.value) == (names, via), adapter


def test_one_at_a_time_and_in_bulk_agree_where_many_slots_are_vacant():
    states = [MemberState.ACTIVE, MemberState.VACANT, MemberState.VACANT]
    ring = Ring(snapshot(members(30, states, seed=1), overflow=Overflow.STANDBYS, standby_count=3))
    adapters = [f"a{i}" for i in range(300)]
    assert ring.owners_many(adapters) == [ring.owners(adapter) for adapter in adapters]


def test_a_ring_without_members_has_no_owners_and_no_choice():
    ring = Ring(snapshot([], warm=("a",)))
    assert (ring.owners("a").names, ring.owners("a").via.value) == ((), "fallback")
    assert ring.choose("a", {}) is None
    assert ring.owners_many(["a", "b"])[1].members == ()


def test_a_vacancy_changes_who_serves_but_not_who_is_assigned():
    all_active = Ring(snapshot(members(9)))
    first, second = all_active.assigned("adapter-17")
    gone = [Member("", "", MemberState.VACANT, m.slot) if m.slot == first else m for m in members(9)]
    ring = Ring(snapshot(gone))
    assert ring.owners("adapter-17").names == (second,)
    assert ring.assigned("adapter-17") == (first, second)


def test_the_bound_counts_active_members_only_and_rounds_up():
    draining = Member("old", "10.0.0.99:80", MemberState.DRAINING, "s0099")
    ring = Ring(snapshot([*members(3), draining], request_floor=0))
    # 1.25 * (10 + 1) / 3 = 4.58: the next request may be the fifth on a slot, not the sixth.
    assert ring.request_limit({"s0000": 4, "s0001": 3, "s0002": 3, "s0099": 50}) == 5
    assert Ring(snapshot(members(3), request_floor=4)).request_limit({}) == 4
