"""Whatever bytes arrive, reading a snapshot ends in a snapshot or in a named refusal."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.ring import RingSnapshot, SnapshotError, decode, encode
from tests.ring import make_vectors, slow_reading

DOCUMENTS = [item["snapshot"] for item in make_vectors.owners_vectors(make_vectors.snapshots())]
CODES = {vector["code"] for vector in make_vectors.refused_vectors(make_vectors.snapshots())}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def ends_well(body):
    try:
        snapshot = decode(body)
    except SnapshotError as error:
        code = error.code
    else:
        assert isinstance(snapshot, RingSnapshot)
        assert decode(encode(snapshot)) == snapshot
        return
    assert code in CODES


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes(body):
    ends_well(body)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.data())
def test_a_snapshot_with_one_field_changed_and_the_digest_made_right(document, data):
    field = data.draw(st.sampled_from([*document, "members[0]", "unheard-of"]))
    value = data.draw(values)
    changed = {**document, field: value}
    if field == "members[0]":
        changed = {**document, "members": [value, *document["members"][1:]]}
    with suppress(UnicodeEncodeError):  # half a surrogate pair has no digest
        changed["digest"] = slow_reading.digest(changed)
    ends_well(json.dumps(changed))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.data())
def test_a_snapshot_with_bytes_changed(document, data):
    body = bytearray(json.dumps(document, ensure_ascii=False).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    ends_well(bytes(body))
