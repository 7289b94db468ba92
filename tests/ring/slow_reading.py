"""A second, slow reading of the ring specification: plain Python, one page, no code shared with the product.

It works on the JSON documents themselves, so that it also stands for a client in another language.
"""

import functools
import json
import struct
from math import ceil

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotl(x, bits):
    return ((x << bits) | (x >> (64 - bits))) & MASK


def xxh_round(acc, lane):
    return rotl((acc + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data):
    """XXH64 with seed 0, from its public description."""
    n, at = len(data), 0
    if n >= 32:
        acc = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while at + 32 <= n:
            lanes = struct.unpack_from("<4Q", data, at)
            acc = [xxh_round(a, lane) for a, lane in zip(acc, lanes, strict=True)]
            at += 32
        h = sum(rotl(a, bits) for a, bits in zip(acc, (1, 7, 12, 18), strict=True)) & MASK
        for a in acc:
            h = ((h ^ xxh_round(0, a)) * P1 + P4) & MASK
    else:
        h = P5
    h = (h + n) & MASK
    while at + 8 <= n:
        h = (rotl(h ^ xxh_round(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= n:
        h = (rotl(h ^ (struct.unpack_from("<I", data, at)[0] * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotl(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


@functools.cache
def h(s):
    return xxh64(s.encode("utf-8"))


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def score(adapter, slot):
    return mix(h(adapter) ^ h(slot))


def ranked(adapter, slots):
    own = h(adapter)
    return sorted(slots, key=lambda slot: (-mix(own ^ h(slot)), slot.encode()))


def canonical(value):
    """RFC 8785 for objects, lists, strings and integers: keys in the order of their UTF-16 code units."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(canonical(key) + ":" + canonical(value[key]) for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def digest(document):
    body = canonical({key: value for key, value in document.items() if key != "digest"})
    return format(xxh64(body.encode("utf-8")), "016x")


def ring_slots(document, states):
    return [member["slot"] for member in document["members"] if member["state"] in states]


def names(members, key="replica"):
    return [member[key] for member in members if member["state"] == "active"]


def owners(document, adapter, skip_hot=False):
    """(names, via) by rules 1 to 6; names are slots on the ring and replicas elsewhere."""
    active = ring_slots(document, {"active"})
    group = document.get("hot", {}).get(adapter)
    if group is not None and not skip_hot and names(group["members"]):
        return names(group["members"]), "hot"
    exceptions, warm = document.get("exceptions", {}), document.get("warm")
    if adapter in exceptions or warm is None or adapter in warm:
        ranking = ranked(adapter, ring_slots(document, {"active", "vacant"}))
        if adapter in exceptions:
            found, via = [slot for slot in exceptions[adapter] if slot in active], "exception"
        else:
            found, via = [slot for slot in ranking[: document["replication_factor"]] if slot in active], "hash"
        if found:
            return found, via
        return [slot for slot in ranking if slot in active][:1], "fallback"
    if adapter in document.get("base_models", []):
        return names(document["members"]), "base"
    if document.get("unknown") == "reject" and adapter not in document.get("hot", {}):
        return [], "cold"
    if document.get("cold") is None:
        return names(document["members"]), "cold"
    return names(document["cold"]["members"]), "cold"


def standbys(document, adapter, own):
    active = ring_slots(document, {"active"})
    following = [slot for slot in ranked(adapter, ring_slots(document, {"active", "vacant"})) if slot in active]
    following = [slot for slot in following if slot not in own]
    if document["overflow"] == "owners":
        return []
    return following[: document["standby_count"]] if document["overflow"] == "standbys" else following


def choose(document, adapter, in_flight, skip_hot=False):
    """(name, over) for one more request, or None; in_flight by slot on the ring, by replica elsewhere."""
    own, via = owners(document, adapter, skip_hot)
    if not own:
        return None
    slot_of = {member["replica"]: member["slot"] for member in document["members"]}

    def load(name):
        return in_flight.get(slot_of.get(name, name), 0)

    if via in ("hot", "base", "cold"):
        return min(own, key=load), False
    active = ring_slots(document, {"active"})
    total = sum(in_flight.get(slot, 0) for slot in active)
    bound = ceil(document["request_bound_percent"] * (total + 1) / (100 * len(active)))

    def over(slot):
        return load(slot) + 1 > max(document["request_floor"], bound)

    least = min(own, key=load)
    if document["choice"] == "least":
        return least, over(least)
    for slot in [own[0], *sorted(own[1:], key=load), *standbys(document, adapter, own)]:
        if not over(slot):
            return slot, False
    return least, True


def refused_ms(document, adapter, in_flight):
    """When a request that is refused may come again; in_flight by adapter."""
    bound = document.get("fairness")
    if bound is None or owners(document, adapter)[1] == "hot":
        return None
    tenant = bound["tenants"].get(adapter)
    fellows = {a for a, t in bound["tenants"].items() if t == tenant} | {adapter}
    return bound["retry_after_ms"] if sum(in_flight.get(a, 0) for a in fellows) >= bound["max_in_flight"] else None
