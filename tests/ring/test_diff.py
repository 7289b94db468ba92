"""Differences between snapshots are the pairs that appear or go, matched in rank order, each once."""

from dataclasses import replace

from autoscaler.ring import Move, ring_diff, to_document
from tests.ring import make_vectors, slow_reading

SNAPSHOTS = make_vectors.snapshots()


def named(snapshot):
    return {*(snapshot.warm or ()), *snapshot.exceptions, *snapshot.hot}


def slow_pairs(snapshot, names):
    """(adapter, slot) pairs of the placement, vacancies included, by the slow reading."""
    document = to_document(snapshot)
    for member in document["members"]:
        member["state"] = "active" if member["state"] == "vacant" else member["state"]
    found = {name: slow_reading.owners({**document, "hot": {}}, name) for name in names}
    return {(name, slot) for name, (slots, via) in found.items() if via in ("exception", "hash") for slot in slots}


def test_every_pair_of_the_vectors_that_appears_or_goes_is_told_once():
    for before in SNAPSHOTS.values():
        for after in SNAPSHOTS.values():
            moves = ring_diff(before, after)
            names = named(before) | named(after)
            had, has = slow_pairs(before, names), slow_pairs(after, names)
            lost = [(m.adapter, m.source) for m in moves if m.source is not None]
            gained = [(m.adapter, m.target) for m in moves if m.target is not None]
            assert sorted(lost) == sorted(had - has)
            assert sorted(gained) == sorted(has - had)
            assert all(m.source or m.target for m in moves)


def test_lost_and_gained_slots_are_matched_in_rank_order():
    before = SNAPSHOTS["names-beyond-ascii"]
    after = replace(before, exceptions={**before.exceptions, "Ａ": ("s0002", "s0005", "s0001", "s0003")})
    assert ring_diff(before, after) == (
        Move("Ａ", "s0000", "s0005"), Move("Ａ", "s0004", "s0001"), Move("Ａ", None, "s0003"),
    )  # fmt: skip


def test_order_vacancy_and_hot_groups_are_no_moves():
    before = SNAPSHOTS["every-rule"]
    turned = {**before.exceptions, "listed": tuple(reversed(before.exceptions["listed"]))}
    assert ring_diff(before, replace(before, exceptions=turned)) == ()
    assert ring_diff(before, replace(before, hot={})) == ()
    woken = tuple(
        replace(m, replica="r", address="a", state="active") if m.state == "vacant" else m for m in before.members
    )
    assert ring_diff(before, replace(before, members=woken)) == ()
