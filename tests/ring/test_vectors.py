"""The golden vectors agree with an independent reading of the specification, the product, and their own script."""

import json
from importlib.resources import files

import pytest

from autoscaler.ring import LowerEpochError, Ring, RingSnapshot, SnapshotError, decode, encode, h64, newest, ring_diff
from autoscaler.ring import ranked as product_ranked
from tests.ring import make_vectors, slow_reading

VECTORS = json.loads((files("autoscaler.ring") / "vectors.json").read_text(encoding="utf-8"))
DOCUMENTS = {item["name"]: item["snapshot"] for item in VECTORS["snapshots"]}


def decoded(name: str) -> RingSnapshot:
    return decode(json.dumps(DOCUMENTS[name]))


def test_the_packaged_file_is_what_its_script_writes():
    assert make_vectors.PATH.read_text(encoding="utf-8") == make_vectors.text_of(make_vectors.vectors())


def test_every_part_of_the_specification_has_vectors():
    vias = {answer["via"] for item in VECTORS["snapshots"] for answer in item["owners"]}
    assert vias == {"hot", "exception", "hash", "fallback", "base", "cold"}
    assert {"choice-preferred-owners", "choice-preferred-standbys", "choice-preferred-any"} < set(DOCUMENTS)
    outcomes = {(c["chosen"] is None, c["over"]) for c in VECTORS["choices"]}
    assert outcomes == {(False, False), (False, True), (True, False)}
    assert any(answer["rejected"] for item in VECTORS["snapshots"] for answer in item["owners"])


@pytest.mark.parametrize("vector", VECTORS["h"], ids=lambda v: ascii(v["text"][:12]))
def test_h_is_xxh64_of_the_utf8_bytes(vector):
    assert slow_reading.h(vector["text"]) == int(vector["h"], 16) == h64(vector["text"])


def test_mix_and_scores():
    for vector in VECTORS["mix"]:
        assert slow_reading.mix(int(vector["z"], 16)) == int(vector["mix"], 16)
    for vector in VECTORS["scores"]:
        assert slow_reading.score(vector["adapter"], vector["slot"]) == int(vector["score"], 16)


def test_rankings():
    for vector in VECTORS["rankings"]:
        expected = slow_reading.ranked(vector["adapter"], vector["slots"])
        assert vector["ranked"] == expected == list(product_ranked(vector["adapter"], reversed(vector["slots"])))


@pytest.mark.parametrize("item", VECTORS["snapshots"], ids=lambda item: item["name"])
def test_snapshots_have_their_digest_and_round_trip(item):
    document = item["snapshot"]
    assert slow_reading.digest(document) == document["digest"]
    snapshot = decode(json.dumps(document))
    assert encode(snapshot) == slow_reading.canonical(document).encode()
    assert decode(encode(snapshot)) == snapshot


@pytest.mark.parametrize("item", VECTORS["snapshots"], ids=lambda item: item["name"])
def test_owners_of_every_rule(item):
    document, ring = item["snapshot"], Ring(decode(json.dumps(item["snapshot"])))
    many = ring.owners_many([answer["adapter"] for answer in item["owners"]])
    for answer, bulk in zip(item["owners"], many, strict=True):
        adapter = answer["adapter"]
        names, via = slow_reading.owners(document, adapter)
        assert (answer["owners"], answer["via"]) == (names, via), adapter
        if via in ("exception", "hash", "fallback") and document["overflow"] == "standbys":
            assert answer["standbys"] == slow_reading.standbys(document, adapter, names), adapter
        found = ring.owners(adapter)
        assert (list(found.names), found.via.value, found.rejected) == (names, via, answer["rejected"]), adapter
        assert [member.slot for member in found.standbys] == answer["standbys"], adapter
        assert bulk == found, adapter


def test_choices_at_request_time():
    for vector in VECTORS["choices"]:
        arguments = vector["adapter"], vector["in_flight"], vector["skip_hot"]
        document = DOCUMENTS[vector["snapshot"]]
        replica_of = {member["slot"]: member["replica"] for member in document["members"]}
        slow = slow_reading.choose(document, *arguments)
        expected = None if vector["chosen"] is None else (vector["chosen"], vector["over"])
        assert (slow and (replica_of.get(slow[0], slow[0]), slow[1])) == expected, vector
        chosen = Ring(decoded(vector["snapshot"])).choose(*arguments[:2], skip_hot=vector["skip_hot"])
        assert (chosen and (chosen.member.replica, chosen.over)) == expected, vector


def test_the_bound_on_a_tenant():
    for vector in VECTORS["bounds"]:
        adapter, in_flight, wanted = vector["adapter"], vector["in_flight"], vector["retry_after_ms"]
        assert slow_reading.refused_ms(DOCUMENTS[vector["snapshot"]], adapter, in_flight) == wanted, vector
        assert Ring(decoded(vector["snapshot"])).refused_ms(adapter, in_flight) == wanted, vector
    assert {vector["retry_after_ms"] for vector in VECTORS["bounds"]} == {None, 1500}


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["name"].replace(" ", "-"))
def test_what_must_be_refused_is_refused_for_its_reason(vector):
    body = vector["body"] if "body" in vector else vector["repeat"] * vector["times"]
    with pytest.raises(SnapshotError) as refusal:
        decode(body)
    assert refusal.value.code == vector["code"]
    with pytest.raises(SnapshotError) as refusal:
        decode(body.encode())
    assert refusal.value.code == vector["code"]


def test_a_client_never_goes_back_to_a_lower_epoch():
    document = DOCUMENTS["every-rule"]

    def at(epoch):
        body = {**document, "epoch": epoch}
        return decode(json.dumps({**body, "digest": slow_reading.digest(body)}))

    for vector in VECTORS["epochs"]:
        current = None if vector["current"] is None else at(vector["current"])
        if vector["accepted"]:
            assert newest(current, at(vector["offered"])).epoch == vector["offered"]
        else:
            with pytest.raises(LowerEpochError, match="epoch 6 is below epoch 7"):
                newest(current, at(vector["offered"]))


def test_diffs():
    for vector in VECTORS["diffs"]:
        moves = ring_diff(decoded(vector["before"]), decoded(vector["after"]))
        found = [{"adapter": m.adapter, "from": m.source, "to": m.target} for m in moves]
        assert found == vector["moves"]
