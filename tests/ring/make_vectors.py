"""Write autoscaler/ring/vectors.json, from which a ring client in any language can check itself.

    python -m tests.ring.make_vectors

The values come from the product; `test_vectors` holds them against an independent reading of the specification, and
against this script, so that the file is never stale.
"""

import json
from dataclasses import replace
from itertools import count, product
from pathlib import Path

import numpy as np

import autoscaler.ring
from autoscaler.ring import (
    Choice,
    Fairness,
    HotGroup,
    Member,
    MemberState,
    Overflow,
    Ring,
    RingSnapshot,
    Unknown,
    decode,
    digest,
    encode,
    h64,
    ranked,
    ring_diff,
    score,
    to_document,
)
from autoscaler.ring.codec import MAX_ID_BYTES
from autoscaler.ring.hashing import HASH_NAME, mix
from autoscaler.ring.snapshot import SnapshotError

PATH = Path(autoscaler.ring.__file__).parent / "vectors.json"

TEXTS = [
    "", "a", "s0000", "s0001", "adapter-17", "tenant/ä-ö-ü", "适配器", "🙂", "\u0000", "e\u0301", "\u00e9",
    "x" * 31, "x" * 32, "x" * 33, "0123456789" * 10, "long-" * 200,
]  # fmt: skip
STATES = [MemberState.ACTIVE] * 6 + [MemberState.VACANT] * 2 + [MemberState.DRAINING]


def member(number, state):
    gone = state is MemberState.VACANT
    replica, address = ("", "") if gone else (f"warm-{number}", f"10.0.0.{number}:8000")
    return Member(replica, address, state, f"s{number:04d}")


def group(prefix, *states):
    return tuple(Member(f"{prefix}-{i}", f"10.0.1.{i}:8000", state) for i, state in enumerate(states))


def adapter_where(slots, replication, condition):
    """The first `adapter-N` whose first owners by the hash satisfy a condition."""
    return next(a for n in count() if condition(ranked(a := f"adapter-{n}", slots)[:replication]))


def snapshots():
    members = tuple(member(i, state) for i, state in enumerate(STATES))
    on_ring = [m.slot for m in members if m.state is not MemberState.DRAINING]
    vacant = {m.slot for m in members if m.state is MemberState.VACANT}
    first_vacant = adapter_where(on_ring, 2, lambda own: own[0] in vacant and own[1] not in vacant)
    both_vacant = adapter_where(on_ring, 2, lambda own: set(own) == vacant)
    warm = ("adapter-17", "adapter-18", "listed", "part-dead", "all-dead", "stray", "hot-up", "hot-down",
            first_vacant, both_vacant)  # fmt: skip
    every_rule = RingSnapshot(
        fleet="llama-8b",
        epoch=42,
        published_at="2026-11-29T12:00:00Z",
        replication_factor=2,
        members=members,
        overflow=Overflow.STANDBYS,
        standby_count=1,
        exceptions={
            "listed": ("s0003", "s0000", "s0004"),
            "part-dead": ("s0006", "s0001", "s0008"),
            "all-dead": ("s0007", "s0008"),
            "stray": ("s0099", "s0002"),
        },
        hot={
            "hot-up": HotGroup("hot-hot-up", group("hot-up", MemberState.DRAINING, MemberState.ACTIVE)),
            "hot-down": HotGroup("hot-hot-down", group("hot-down", MemberState.DRAINING)),
            "hot-only": HotGroup("hot-hot-only", group("hot-only", MemberState.ACTIVE)),
            "hot-only-down": HotGroup("hot-hot-only-down", ()),
        },
        cold=group("cold", MemberState.ACTIVE, MemberState.DRAINING, MemberState.ACTIVE),
        warm=warm,
        base_models=("llama-8b",),
    )
    active = tuple(m for m in members if m.state is MemberState.ACTIVE)
    return {
        "every-rule": every_rule,
        "every-rule-later": replace(
            every_rule,
            epoch=43,
            members=(*members[:2], *members[3:], member(9, MemberState.ACTIVE)),
            exceptions={"listed": ("s0000", "s0009"), "stray": ("s0002", "s0099")},
        ),
        "no-cold-group-and-reject": replace(every_rule, cold=None, unknown=Unknown.REJECT),
        "no-cold-group": replace(every_rule, cold=None),
        "cold-group-at-zero": replace(every_rule, cold=()),
        "no-warm-list": replace(every_rule, warm=None, overflow=Overflow.OWNERS),
        "no-active-member": replace(
            every_rule, members=tuple(replace(m, state=MemberState.VACANT) for m in members), exceptions={}
        ),
        "more-owners-than-members": replace(every_rule, replication_factor=9, members=active, hot={}, exceptions={}),
        "names-beyond-ascii": replace(
            every_rule,
            replication_factor=3,
            members=active,
            exceptions={
                "🙂": ("s0001", "s0002", "s0003"),
                "Ａ": ("s0000", "s0002", "s0004"),
                "a\tb\"\\\u007f": ("s0005",),
            },
            hot={},
            warm=("🙂", "Ａ", "a\tb\"\\\u007f", "适配器", "tenant/ä-ö-ü"),
        ),
        "bounded": replace(
            every_rule, fairness=Fairness(3, 1500, {"adapter-17": "acme", "listed": "acme", "hot-down": "acme"})
        ),
        **{
            f"choice-{choice}-{overflow}": replace(
                every_rule, members=active, hot={}, choice=choice, overflow=overflow, standby_count=2,
                exceptions={"listed": ("s0003", "s0000")}, request_floor=4, request_bound_percent=125,
            )
            for choice, overflow in product(Choice, Overflow)
        },
    }  # fmt: skip


def asked(snapshot):
    named = [*(snapshot.warm or ()), *snapshot.exceptions, *snapshot.hot, *snapshot.base_models, "never-heard-of", "ü"]
    return list(dict.fromkeys(named))


def owners_vectors(found):
    for name, snapshot in found.items():
        ring = Ring(snapshot)
        answers = []
        for adapter in asked(snapshot):
            owners = ring.owners(adapter)
            answers.append({
                "adapter": adapter,
                "owners": list(owners.names),
                "via": owners.via.value,
                "standbys": [m.slot for m in owners.standbys],
                "rejected": owners.rejected,
            })  # fmt: skip
        yield {"name": name, "snapshot": to_document(snapshot), "owners": answers}


def in_flights(ring, adapter):
    """Quiet, even, and ever more of the adapter's ranking over the bound; then all of it."""
    order = [m.slot for m in ring.ranked(adapter)]
    yield {}
    yield dict.fromkeys(order, 10)
    for crowded in range(1, 5):
        yield {slot: (20 - rank if rank < crowded else 1) for rank, slot in enumerate(order)}
    yield {slot: (3 if rank < 2 else 0) for rank, slot in enumerate(order)}
    yield {slot: (4 if rank < 2 else 0) for rank, slot in enumerate(order)}
    yield {slot: (5, 4, 9, 9, 0, 0)[rank] for rank, slot in enumerate(order)}
    yield {order[0]: 7, order[1]: 7}


def choice_vectors(found):
    for name, snapshot in found.items():
        if not name.startswith("choice-"):
            continue
        ring = Ring(snapshot)
        for adapter in ("adapter-17", "listed"):
            for in_flight in in_flights(ring, adapter):
                yield choice_vector(name, ring, adapter, in_flight, False)
        yield choice_vector(name, ring, "llama-8b", {"s0000": 2, "s0001": 1, "s0002": 1}, False)
        yield choice_vector(name, ring, "never-heard-of", {"cold-0": 3, "cold-2": 1}, False)
    ring = Ring(found["every-rule"])
    yield choice_vector("every-rule", ring, "hot-up", {}, False)
    yield choice_vector("every-rule", ring, "hot-up", {}, True)
    yield choice_vector("no-active-member", Ring(found["no-active-member"]), "adapter-17", {}, False)


def bound_vectors(found):
    for name in ("bounded", "every-rule"):
        ring = Ring(found[name])
        for adapter, in_flight in (
            ("adapter-17", {}),
            ("adapter-17", {"adapter-17": 2, "adapter-18": 9}),
            ("adapter-17", {"adapter-17": 3}),
            ("adapter-17", {"adapter-17": 1, "listed": 1, "hot-down": 1}),
            ("listed", {"adapter-17": 2}),
            ("hot-down", {"adapter-17": 2, "listed": 7}),
            ("hot-up", {"hot-up": 50}),
            ("adapter-18", {"adapter-17": 9, "adapter-18": 2}),
            ("adapter-18", {"adapter-18": 3}),
            ("llama-8b", {"llama-8b": 3}),
            ("never-heard-of", {"never-heard-of": 3}),
        ):
            yield {
                "snapshot": name,
                "adapter": adapter,
                "in_flight": in_flight,
                "retry_after_ms": ring.refused_ms(adapter, in_flight),
            }


def choice_vector(name, ring, adapter, in_flight, skip_hot):
    chosen = ring.choose(adapter, in_flight, skip_hot=skip_hot)
    return {
        "snapshot": name,
        "adapter": adapter,
        "in_flight": in_flight,
        "skip_hot": skip_hot,
        "chosen": None if chosen is None else chosen.member.replica,
        "over": chosen is not None and chosen.over,
    }


def refused_vectors(found):
    good = to_document(found["every-rule"])

    def body(**changes):
        document = {key: value for key, value in {**good, **changes}.items() if value is not ...}
        return json.dumps({**document, "digest": digest(document)})

    members = good["members"]
    text = encode(found["every-rule"]).decode()
    cases = {
        "empty": "",
        "not JSON": "{",
        "a list": "[]",
        "nested too deep": "[" * 100_000,
        "another version": body(version=2),
        "version as text": body(version="1"),
        "version true": body(version=True),
        "no version": body(version=...),
        "another hash": body(hash="hrw-xxh3-v1"),
        "wrong digest": text.replace('"epoch":42', '"epoch":43'),
        "digest in capitals": text.replace(good["digest"], "ABCDEF0123456789"),
        "no digest": json.dumps({key: value for key, value in good.items() if key != "digest"}),
        "a fraction": text.replace('"epoch":42', '"epoch":42.0'),
        "an exponent": text.replace('"epoch":42', '"epoch":42e0'),
        "not a number": text.replace('"epoch":42', '"epoch":NaN'),
        "a number beyond 2^53": text.replace('"epoch":42', '"epoch":9007199254740992'),
        "a key twice": text.replace('"epoch":42', '"epoch":42,"epoch":42'),
        "a slot twice": body(members=[*members, members[0]]),
        "an owner twice": body(exceptions={"listed": ["s0000", "s0000"]}),
        "epoch below zero": body(epoch=-1),
        "epoch as text": body(epoch="42"),
        "epoch true": body(epoch=True),
        "no epoch": body(epoch=...),
        "no owners": body(replication_factor=0),
        "an unknown state": body(members=[{**members[0], "state": "resting"}]),
        "an unknown choice": body(choice="random"),
        "an active member without address": body(members=[{**members[0], "address": ""}]),
        "a member without slot": body(members=[{key: value for key, value in members[0].items() if key != "slot"}]),
        "warm is an object": body(warm={}),
        "exceptions is a list": body(exceptions=[]),
        "an adapter is a number": body(warm=[17]),
        "an empty name": body(warm=[""]),
        "a name too long": body(warm=["x" * (MAX_ID_BYTES + 1)]),
        "a time without zone": body(published_at="2026-11-29T12:00:00"),
        "a bound of nobody": body(fairness={"max_in_flight": 0, "retry_after_ms": 1000}),
        "a bound without a time": body(fairness={"max_in_flight": 8}),
        "a bound that is a number": body(fairness=8),
        "a tenant without a name": body(fairness={"max_in_flight": 8, "retry_after_ms": 0, "tenants": {"a": ""}}),
        "half a surrogate pair": text.replace('"fleet":"llama-8b"', '"fleet":"\\ud800"'),
    }
    for name, refused in cases.items():
        try:
            decode(refused)
        except SnapshotError as error:
            # A body that is one character over and over is told as such, to keep this file small.
            repeated = {"repeat": refused[0], "times": len(refused)} if len(refused) > 50_000 else {"body": refused}
            yield {"name": name, "code": error.code, **repeated}
        else:
            raise AssertionError(f"{name} was not refused")


def diff_vectors(found):
    names = [("every-rule", "every-rule"), ("every-rule", "every-rule-later"), ("every-rule-later", "every-rule"),
             ("every-rule", "no-active-member")]  # fmt: skip
    for before, after in names:
        moves = ring_diff(found[before], found[after])
        yield {
            "before": before,
            "after": after,
            "moves": [{"adapter": m.adapter, "from": m.source, "to": m.target} for m in moves],
        }


def hexadecimal(number):
    return format(number, "016x")


def vectors():
    found = snapshots()
    slots = [f"s{i:04d}" for i in range(12)]
    numbers = [0, 1, 2**32, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15, h64("adapter-17")]
    return {
        "about": "Golden vectors of the ring, version 1. Numbers of 64 bits are 16 hex digits. See docs/ring.md.",
        "hash": HASH_NAME,
        "h": [{"text": text, "h": hexadecimal(h64(text))} for text in TEXTS],
        "mix": [
            {"z": hexadecimal(z), "mix": hexadecimal(mixed)}
            for z, mixed in zip(numbers, mix(np.array(numbers, np.uint64)).tolist(), strict=True)
        ],
        "scores": [
            {"adapter": a, "slot": s, "score": hexadecimal(score(a, s))} for a in TEXTS for s in ("s0000", "s0007", "")
        ],
        "rankings": [{"adapter": a, "slots": slots, "ranked": list(ranked(a, slots))} for a in TEXTS]
        + [
            {"adapter": "adapter-17", "slots": s, "ranked": list(ranked("adapter-17", s))}
            for s in ([], ["z", "ä", "🙂"])
        ],
        "snapshots": list(owners_vectors(found)),
        "choices": list(choice_vectors(found)),
        "bounds": list(bound_vectors(found)),
        "refused": list(refused_vectors(found)),
        "epochs": [
            {"current": None, "offered": 0, "accepted": True},
            {"current": 7, "offered": 8, "accepted": True},
            {"current": 7, "offered": 7, "accepted": True},
            {"current": 7, "offered": 6, "accepted": False},
        ],
        "diffs": list(diff_vectors(found)),
    }


def text_of(found):
    """JSON with one vector a line."""
    parts = []
    for name, value in found.items():
        lines = ",\n".join(json.dumps(item) for item in value) if isinstance(value, list) else json.dumps(value)
        parts.append(
            f"{json.dumps(name)}: [\n{lines}\n]" if isinstance(value, list) else f"{json.dumps(name)}: {lines}"
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    PATH.write_text(text_of(vectors()), encoding="utf-8")
