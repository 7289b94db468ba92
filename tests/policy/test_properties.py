"""For any input: no exception; for any policy: it reads back equal, and the schema agrees."""

import json
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.domain.observation import Catalogue
from autoscaler.policy.catalogue import parse_catalogue
from autoscaler.policy.differences import diff
from autoscaler.policy.exports import as_document, default_file, json_schema, to_yaml
from autoscaler.policy.fields import Items, Section, Table, keys
from autoscaler.policy.loading import parse_policy
from autoscaler.policy.model import FleetPolicy, PolicyDocument
from autoscaler.policy.nodes import PolicyError, Report
from autoscaler.policy.reading import read_yaml
from autoscaler.policy.scalars import Choice, Duration, Either, Flag, Integer, Kind, Number, Text, duration, seconds

SCHEMA = jsonschema.Draft202012Validator(json_schema())
DEFAULT = default_file()
WHOLE = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def texts(kind: Text) -> st.SearchStrategy[str]:
    if kind.pattern:
        return st.from_regex(kind.pattern, fullmatch=True).filter(lambda t: not kind.fault(t))
    printable = st.characters(exclude_categories=["C", "Z"])
    return st.text(printable, min_size=1, max_size=12).filter(lambda t: not kind.fault(t))


def values(kind: Kind) -> st.SearchStrategy[Any]:
    match kind:
        case Duration(least_s=low, most_s=high):
            return (
                st.floats(low, high, allow_subnormal=False)
                .map(lambda s: round(s, 6))
                .filter(lambda s: low <= s <= high)
            )
        case Number(least=low, most=high, above=above):
            return st.floats(low, high, exclude_min=above, allow_subnormal=False)
        case Integer(least=low, most=high):
            return st.integers(low, high)
        case Flag():
            return st.booleans()
        case Text():
            return texts(kind)
        case Choice(options=options):
            return st.sampled_from(list(options))
        case Either(kind=inner, word=word):
            return st.none() | values(inner).filter(lambda v: v != word)
        case Section(of=of):
            return st.builds(of, **{k.field: values(k.kind) for k in keys(of)})
        case Items(kind=inner, unique=unique, most=most):
            return st.lists(values(inner), max_size=min(3, most), unique=unique).map(tuple)
        case Table(name=name, kind=inner):
            return st.dictionaries(values(name), values(inner), max_size=2)
        case _:
            raise AssertionError(f"no strategy for {kind}")


POLICIES = values(Section(FleetPolicy))
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)


@pytest.mark.slow
@WHOLE
@given(POLICIES, NAMES)
def test_a_policy_written_as_yaml_reads_back_equal_and_satisfies_the_schema(policy: FleetPolicy, name: str) -> None:
    report = Report("x.yaml")
    node = read_yaml(to_yaml(policy), report)
    assert node is not None, report.errors
    document = Section(PolicyDocument).read(node, "", report)
    wrong = [e for e in report.errors if e.path != "metadata.name"]  # these policies have no name
    assert wrong == []
    assert document.spec == policy
    data = as_document(policy) | {"metadata": {"name": name}}
    assert [e.message for e in SCHEMA.iter_errors(json.loads(json.dumps(data)))] == []
    answer_is_whole(parse_policy(yaml.safe_dump(data), "x.yaml"))  # the rules meet every combination of bounds


@pytest.mark.slow
@WHOLE
@given(POLICIES, POLICIES)
def test_a_difference_is_found_exactly_where_policies_differ(one: FleetPolicy, two: FleetPolicy) -> None:
    assert diff(one, one) == ()
    there, back = diff(one, two), diff(two, one)
    assert bool(there) == (one != two)
    assert {(c.path, json.dumps(c.old), json.dumps(c.new)) for c in there} == {
        (c.path, json.dumps(c.new), json.dumps(c.old)) for c in back
    }
    assert all(change.effect for change in there)


def answer_is_whole(parsed: FleetPolicy | Catalogue | tuple[PolicyError, ...]) -> None:
    if isinstance(parsed, tuple):
        assert parsed
        for error in parsed:
            assert error.message.isprintable(), error.message
            assert error.found
            assert error.allowed
            assert error.path.isprintable()
            str(error).encode()
            json.dumps(error.as_json())


@MANY
@given(st.text() | st.binary() | st.text("{}[]:,-&*!|>'\"%@`#?~ \n\taA0."))
def test_no_text_and_no_bytes_make_it_raise(content: str | bytes) -> None:
    parsed = parse_policy(content, "x.yaml")
    assert isinstance(parsed, tuple)
    answer_is_whole(parsed)
    answer_is_whole(parse_catalogue(content, "a.yaml", FleetPolicy(name="x", base_model="base")))


@MANY
@given(st.data())
def test_no_damage_to_a_good_file_makes_it_raise(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(DEFAULT)))
    end = data.draw(st.integers(start, min(len(DEFAULT), start + 200)))
    patch = data.draw(st.text(max_size=20))
    answer_is_whole(parse_policy(DEFAULT[:start] + patch + DEFAULT[end:], "x.yaml"))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def paths(data: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return [prefix]
    return [prefix, *(path for name, child in data.items() for path in paths(child, (*prefix, name)))]


PLAIN = yaml.safe_load(DEFAULT)
PATHS = paths(PLAIN)[1:]


@MANY
@given(st.sampled_from(PATHS), JUNK)
def test_junk_at_any_key_never_makes_it_raise_and_what_is_taken_satisfies_the_schema(
    path: tuple[str, ...], junk: Any
) -> None:
    data = json.loads(json.dumps(PLAIN))
    place = data
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = junk
    parsed = parse_policy(yaml.safe_dump(data, allow_unicode=True), "x.yaml")
    answer_is_whole(parsed)
    if isinstance(parsed, FleetPolicy):
        assert SCHEMA.is_valid(data), "the schema refuses what the check takes"


@MANY
@given(st.floats(0, 366 * 86400, allow_subnormal=False))
def test_any_duration_reads_back_equal(value: float) -> None:
    assert seconds(duration(value)) == value
