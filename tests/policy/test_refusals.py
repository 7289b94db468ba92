"""What `policy check` answers to a wrong file: one clear sentence each, all at once, with path and line."""

import pytest

from autoscaler.policy.loading import parse_policy
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import PolicyError

HEAD = "apiVersion: lora-autoscaler.io/v1alpha1\nkind: FleetPolicy\nmetadata: {name: x}\nspec:\n  baseModel: base\n"


def errors(content: str | bytes) -> tuple[PolicyError, ...]:
    parsed = parse_policy(content, "x.yaml")
    assert not isinstance(parsed, FleetPolicy), "this file should have been refused"
    return parsed


def spec(text: str) -> str:
    return HEAD + "".join(f"  {line}\n" for line in text.splitlines())


def only(content: str | bytes) -> PolicyError:
    found = errors(content)
    assert len(found) == 1, [str(e) for e in found]
    return found[0]


BOMB = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\n" + "c: [*b, *b, *b]\n" * 9

WHOLE_FILES = {
    "empty": ("", "the file is empty", None),
    "only comments": ("# nothing\n\n", "the file is empty", None),
    "null": ("~", "the file is empty", 1),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "no UTF-8 text (at byte 8)", None),
    "nul bytes": ("a: \x00", "character U+0000 is not allowed in YAML", 1),
    "utf-16": ("apiVersion: x".encode("utf-16"), "no UTF-8 text", None),
    "lone surrogate": ("a: \ud800", "a lone surrogate", None),
    "bomb": (BOMB, "anchors and aliases are refused", 1),
    "alias without anchor": ("a: *b", "anchors and aliases are refused", 1),
    "tag": ("a: !!python/object:os.system [ls]", "YAML tags are refused", 1),
    "two documents": (HEAD + "---\n" + HEAD, "one file holds one policy", 6),
    "syntax": ("a: [1, 2\nb: 3", "no valid YAML", 2),
    "tabs": ("a:\n\tb: 1", "no valid YAML", 2),
    "deep": ("[" * 100, "nested deeper than 16 levels", 1),
    "deep mapping": ("{a: " * 100, "nested deeper than 16 levels", 1),
    "absurdly deep": ("[" * 5_000, "nest", 1),
    "list key": ("[a]: 1", "a key must be a text", 1),
    "10 MB": ("#" * 10_000_000, "too large (10,000,000 bytes; at most 1,048,576 are read)", None),
    "a list": ("- a\n- b", "a list of 2 is not allowed here", 1),
    "a word": ("hello", "hello is not allowed here", 1),
}


@pytest.mark.parametrize("name", WHOLE_FILES)
def test_a_file_that_is_no_policy_gets_one_clear_answer(name: str) -> None:
    content, message, line = WHOLE_FILES[name]
    error = only(content)
    assert message in error.message
    assert (error.file, error.line) == ("x.yaml", line)
    assert error.message.isprintable()


KEYS = {
    "unknown key": (
        "scaling: {queuePerReplicas: 5}",
        "spec.scaling.queuePerReplicas",
        "did you mean `queuePerReplica`?",
    ),
    "snake case": ("scaling: {kv_usage: 0.8}", "spec.scaling.kv_usage", "did you mean `kvUsage`?"),
    "misplaced key": ("kvUsage: 0.8", "spec.kvUsage", "it belongs in spec.scaling"),
    "duplicate key": ("mode: advise\nmode: enforce", "spec.mode", "`mode` is given twice, first in line 6; keep one"),
    "misspelt word": ("mode: enfroce", "spec.mode", "one of advise, propose, enforce; did you mean `enforce`?"),
    "NaN": ("scaling: {tolerance: .nan}", "spec.scaling.tolerance", "it is no finite number"),
    "infinity": ("scaling: {tolerance: -.inf}", "spec.scaling.tolerance", "it is no finite number"),
    "negative bound": ("groups: {warm: {minReplicas: -1}}", "spec.groups.warm.minReplicas", "from 1 to 10000"),
    "kv in percent": ("scaling: {kvUsage: 80}", "spec.scaling.kvUsage", "the gauge ends at 1; 80 % is 0.8"),
    "fraction": ("budget: {maxReplicasTotal: 2.5}", "spec.budget.maxReplicasTotal", "a whole number"),
    "octal": ("budget: {maxReplicasTotal: 010}", "spec.budget.maxReplicasTotal", "octal in YAML 1.1"),
    "underscores": ("budget: {maxReplicasTotal: 1_0}", "spec.budget.maxReplicasTotal", "a whole number"),
    "huge number": (f"budget: {{maxReplicasTotal: {'9' * 9000}}}", "spec.budget.maxReplicasTotal", "a whole number"),
    "quoted number": ('budget: {maxReplicasTotal: "8"}', "spec.budget.maxReplicasTotal", "stands without quotes"),
    "no unit": ("tickInterval: 15", "spec.tickInterval", "a unit is missing"),
    "sexagesimal": ("tickInterval: 1:30", "spec.tickInterval", "YAML reads it as a number in base 60"),
    "wrong unit": ("tickInterval: 15sec", "spec.tickInterval", "such as 30s, 5m or 1h30m"),
    "too long": ("tickInterval: 1d", "spec.tickInterval", "a duration from 100ms to 10m"),
    "yes": ("engine: {resolver: yes}", "spec.engine.resolver", "write true or false"),
    "on": (
        "slo: {tenants: {on: {ttft: 1s}}}",
        "spec.slo.tenants",
        "the key `on` is no text: YAML reads it as a boolean",
    ),
    "number as name": ("signals: {matchers: {job: 7}}", "spec.signals.matchers.job", "put it in quotes"),
    "date as revision": (
        "adapters: {list: [{id: a, source: /a, revision: 2026-01-02}]}",
        "spec.adapters.list[0].revision",
        "YAML reads it as a date; put it in quotes",
    ),
    "version as revision": (
        "adapters: {list: [{id: a, source: /a, revision: 1.10}]}",
        "spec.adapters.list[0].revision",
        "YAML reads it as a number; put it in quotes",
    ),
    "control character": ('slo: {tenants: {"a\\u0007": {}}}', 'spec.slo.tenants["a\\u0007"]', "character U+0007"),
    "long name": (f"slo: {{tenants: {{{'a' * 254}: {{}}}}}}", f"spec.slo.tenants.{'a' * 254}", "it has 254 bytes"),
    "nothing": ("mode:", "spec.mode", "nothing is not allowed here"),
    "null group": ("groups: {cold: ~}", "spec.groups.cold", "write `none`, or leave the key out"),
    "wrong group word": ("groups: {hot: off}", "spec.groups.hot", "a mapping with source"),
    "list for a mapping": ("ring: []", "spec.ring", "a mapping with replication"),
    "mapping for a list": ("tiering: {promoteOn: {load: 1}}", "spec.tiering.promoteOn", "a list of at most 3"),
    "repeated item": ("tiering: {promoteOn: [load, load]}", "spec.tiering.promoteOn[1]", "load is given twice"),
    "unknown signal": ("signals: {queries: {wating: up}}", "spec.signals.queries.wating", "did you mean `waiting`?"),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_wrong_value_is_named_with_its_path_and_the_remedy(name: str) -> None:
    text, path, message = KEYS[name]
    error = only(spec(text))
    assert (error.path, error.line) == (path, 7 if name == "duplicate key" else 6)
    assert message in error.message
    assert error.allowed
    assert error.found
    assert len(error.found) < 100


def test_everything_that_is_wrong_comes_at_once_in_the_files_order() -> None:
    found = errors(
        "apiVersion: v1\nkind: Fleet\nspec:\n  mode: go\n  budget: {maxReplicasTotal: 0}\n  ring: {loadBound: 1}\n"
        "  x: 1\n"
    )
    assert [(e.path, e.line) for e in found] == [
        ("apiVersion", 1),
        ("metadata", 1),
        ("kind", 2),
        ("spec.baseModel", 4),
        ("spec.mode", 4),
        ("spec.budget.maxReplicasTotal", 5),
        ("spec.ring.loadBound", 6),
        ("spec.x", 7),
    ]


def test_a_value_without_a_key_is_told() -> None:
    first = errors("? \n: 1")[0]
    assert (first.found, first.message) == (
        "nothing",
        "the key `` is no text: YAML reads it as nothing; put it in quotes",
    )


def test_past_two_hundred_errors_only_their_number_is_told() -> None:
    found = errors(spec("\n".join(f"k{i}: 1" for i in range(1_000))))
    assert len(found) == 201
    assert found[-1].message == "800 more errors are not shown; mend these first"
    assert found[0].path == "spec.k0"


def test_an_error_prints_as_file_line_path_and_sentence_and_exports_as_json() -> None:
    error = only(spec("tickInterval: 15"))
    assert str(error).startswith("x.yaml:6: spec.tickInterval: 15 is not allowed here: a unit is missing")
    assert error.as_json() == {
        "path": "spec.tickInterval",
        "found": "15",
        "allowed": "a duration from 100ms to 10m",
        "message": error.message,
    }


def test_hostile_text_in_an_error_is_escaped_and_cut() -> None:
    error = only(spec('mode: "\\u001b[31mred' + "x" * 500 + '"'))
    assert "\\u001b[31mred" in error.message
    assert error.message.isprintable()
    assert len(error.message) < 250


@pytest.mark.parametrize(("text", "value"), [("500ms", 0.5), ("90s", 90.0), ("1h30m", 5400.0), ("1.5h", 5400.0)])
def test_durations_are_seconds(text: str, value: float) -> None:
    parsed = parse_policy(spec(f"scaling: {{startup: {text}}}"), "x.yaml")
    assert isinstance(parsed, FleetPolicy)
    assert parsed.scaling.startup_s == value


def test_a_bom_and_a_json_policy_are_read() -> None:
    text = '\ufeff{"apiVersion": "lora-autoscaler.io/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "x"}, '
    parsed = parse_policy((text + '"spec": {"baseModel": "base"}}').encode(), "x.json")
    assert parsed == FleetPolicy(name="x", base_model="base")
