"""What comes from outside is read whole or refused with one kind of error."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.api.asked import cursor_after, read_cursor
from autoscaler.api.problems import ProblemError
from autoscaler.cli.settings import Settings, parse_credentials, parse_settings
from autoscaler.connectors.engines import answers
from autoscaler.connectors.kubernetes import readings
from autoscaler.planner import PlannerMemory, checkpoint, plan, restored
from autoscaler.policy.catalogue import parse_catalogue
from tests.planner.world import policy
from tests.scenarios.faults import started

BOUNDED = settings(max_examples=150, deadline=None)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
texts = st.text(max_size=200) | st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v))


def _paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, inner in items for path in _paths(inner, (*here, key)))]


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = _with(value[path[0]], path[1:], new)
    return copied


KEPT = json.loads(checkpoint(started().memory))
PLACES = _paths(KEPT)
REFUSED = "checkpoint|Expecting|Unterminated|Extra data|Invalid|Exceeds"


@BOUNDED
@given(st.sampled_from(PLACES), json_values)
def test_a_damaged_checkpoint_is_read_or_refused_and_never_half_taken(place: tuple[Any, ...], value: Any):
    try:
        found = restored(json.dumps(_with(KEPT, place, value)))
    except ValueError:
        return
    assert isinstance(found, PlannerMemory)


@pytest.mark.parametrize("value", [None, "x", True, [], {}, ["x"], {"x": 1}, math.nan, -1, 1e300], ids=ascii)
def test_no_plan_breaks_on_a_checkpoint_whose_fields_hold_something_else(value: Any):
    """Each number and text of the state in turn: refused, or a plan is made from it, and another from that one."""
    world = started()
    seen = world.observe()
    refused = 0
    for place in PLACES:
        try:
            found = restored(json.dumps(_with(KEPT, place, value)))
        except ValueError:
            refused += 1
            continue
        _, after = plan(seen, found, world.policy)
        plan(replace(seen, now_s=seen.now_s + 15), after, world.policy)
    assert refused > len(PLACES) / 5


@BOUNDED
@given(st.text(max_size=300) | json_values.map(json.dumps))
def test_what_is_no_checkpoint_is_refused(text: str):
    with pytest.raises(ValueError, match=REFUSED):
        restored(text)


def test_a_checkpoint_cut_off_anywhere_is_refused():
    text = checkpoint(started().memory)
    for end in range(0, len(text) - 1, 37):
        with pytest.raises(ValueError, match=REFUSED):
            restored(text[:end])


@BOUNDED
@given(texts)
def test_settings_tokens_and_catalogues_are_read_or_every_error_is_told(content: str | bytes):
    raw = content.encode(errors="replace") if isinstance(content, str) else content
    found = parse_settings(raw, Path("settings.yaml"))
    assert isinstance(found, Settings) or all(str(error) for error in found)
    for read in (parse_credentials(raw, Path("tokens.yaml")), parse_catalogue(raw, "adapters.yaml", policy())):
        assert read is not None


@BOUNDED
@given(st.text(max_size=300) | json_values.map(json.dumps), st.integers(100, 599))
def test_whatever_an_engine_answers_is_an_answer(body: str, status: int):
    for read in (answers.load_answer, answers.unload_answer):
        assert read(status, body) is not None
    listed = answers.adapters_listed(body)
    assert listed is None or all(isinstance(name, str) for name in listed)
    assert isinstance(answers.words_of(body), str)
    assert isinstance(answers.route_missing(status, body), bool)


@BOUNDED
@given(st.text(max_size=100))
def test_a_cursor_is_ours_or_a_problem(cursor: str):
    try:
        found = read_cursor(cursor)
    except ProblemError as error:
        found = [error.status]
    assert found is None or (isinstance(found, list) and found)


@BOUNDED
@given(
    st.lists(st.text(max_size=20) | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False), min_size=1, max_size=3)
)
def test_a_cursor_says_again_what_was_put_into_it(value: list[Any]):
    assert read_cursor(cursor_after(value)) == value


NOTES = st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=3)


@BOUNDED
@given(NOTES, NOTES, st.text(max_size=30), st.sampled_from(["Running", "Pending", "Failed", "Unknown", ""]))
def test_a_pod_with_hostile_labels_and_times_is_a_replica_or_nothing_breaks(labels, notes, address, phase):
    pod = {
        "metadata": {"name": "p", "labels": labels, "annotations": notes, "creationTimestamp": "2026-11-29T12:00:00Z"},
        "status": {"phase": phase, "podIP": address},
        "spec": {"containers": [{"name": "c", "args": ["--max-loras", address]}]},
    }
    replica = readings.replica_of(pod, "warm", 8000)
    assert replica.id == "p"
    assert math.isfinite(replica.started_at_s)
