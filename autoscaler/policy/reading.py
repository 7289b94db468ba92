"""YAML text to a tree of nodes, refusing what YAML allows and people regret.

Read from the parser's events, so that nothing is built from what is refused: anchors and aliases (bombs), tags,
duplicate keys, keys that are not text, more than one document, deep nesting, files that are too large or no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from autoscaler.policy.nodes import Mapping, Node, Report, Scalar, Sequence, describe, join, shown

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
IMPLICIT: Any = yaml.SafeLoader.yaml_implicit_resolvers
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
GUESSES = {"bool": "a boolean", "int": "a number", "float": "a number", "null": "nothing", "timestamp": "a date"}


class RefusedError(Exception):
    """The file cannot be read any further; the report says why."""


def guess(node: Scalar) -> str:
    """What YAML 1.1 takes a scalar for: `str`, `bool`, `int`, `float`, `null`, `timestamp`, ..."""
    if node.plain:
        for tag, pattern in IMPLICIT.get(node.text[:1], ()):
            if pattern.match(node.text):
                return str(tag.rpartition(":")[2])
    return "str"


def surprise(node: Scalar) -> str:
    """Why an unquoted scalar is no text, in words: `YAML reads it as a boolean`; empty where it is."""
    kind = guess(node)
    if kind == "int" and ":" in node.text:
        return "YAML reads it as a number in base 60"
    return "" if kind == "str" else f"YAML reads it as {GUESSES.get(kind, kind)}"


def read_yaml(content: str | bytes, report: Report, max_bytes: int = MAX_BYTES) -> Node | None:
    """The tree of a file's only document; None where it cannot be had, with the reason in `report`. Never raises."""
    try:
        text = _decoded(content, report, max_bytes)
        return _Builder(report, yaml.parse(text, Loader=LOADER)).document()
    except RefusedError:
        return None
    except yaml.YAMLError as error:
        _syntax(error, report)
        return None


def _decoded(content: str | bytes, report: Report, max_bytes: int) -> str:
    size = len(content)
    if size > max_bytes:
        report.add(
            "", f"{size:,} bytes", f"at most {max_bytes:,} bytes",
            f"the file is too large ({size:,} bytes; at most {max_bytes:,} are read)",
        )  # fmt: skip
        raise RefusedError
    try:
        text = content.decode() if isinstance(content, bytes) else content.encode().decode()
    except UnicodeError as error:
        place = f"byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else "a lone surrogate"
        report.add("", "binary data", "YAML in UTF-8", f"this is no UTF-8 text (at {place}); save it as UTF-8")
        raise RefusedError from None
    text = text.removeprefix("\ufeff")
    odd = CONTROL.search(text)
    if odd:
        message = f"character U+{ord(odd[0]):04X} is not allowed in YAML; is this a text file?"
        report.add("", shown(odd[0]), "YAML in UTF-8", message, text.count("\n", 0, odd.start()) + 1)
        raise RefusedError
    return text


def _syntax(error: yaml.YAMLError, report: Report) -> None:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be parsed"
    context = getattr(error, "context", None)
    message = f"this is no valid YAML: {shown(f'{context}, {problem}' if context else problem)}"
    report.add("", "a syntax error", "valid YAML", message, None if mark is None else mark.line + 1)


def line_of(event: yaml.Event) -> int:
    """The line, from 1, where an event starts."""
    return 1 if event.start_mark is None else event.start_mark.line + 1


def scalar(event: Any) -> Scalar:
    """A scalar event's text, and whether it stood without quotes."""
    return Scalar(event.value, not event.style, line_of(event))


class _Builder:
    """Builds nodes from events; recursion ends at MAX_DEPTH."""

    def __init__(self, report: Report, events: Iterator[yaml.Event]) -> None:
        self.report = report
        self.events = events

    def refuse(self, event: yaml.Event, path: str, found: str, allowed: str, message: str) -> RefusedError:
        self.report.add(path, found, allowed, message, line_of(event))
        return RefusedError()

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise self.refuse(
                    event, "", "a second document", "one document", "one file holds one policy; split it at `---`"
                )
            if isinstance(event, yaml.NodeEvent):
                root = self.node(event, "", 0)
        if root is None or (isinstance(root, Scalar) and guess(root) == "null"):
            self.report.add("", "an empty file", "a policy", "the file is empty; start from policies/default.yaml")
            return None
        return root

    def node(self, event: yaml.Event, path: str, depth: int) -> Node:
        self.plainly(event, path)
        if depth > MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} levels"
            raise self.refuse(event, path, "deep nesting", f"{MAX_DEPTH} levels", message)
        line = line_of(event)
        self.report.lines[path] = line
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path, depth, line)
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(path, depth, line)
        return scalar(event)

    def plainly(self, event: Any, path: str) -> None:
        if event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            message = "anchors and aliases are refused, since a few lines can fill the memory; write the values out"
            raise self.refuse(event, path, f"{sign}{shown(event.anchor)}", "values written out", message)
        if event.tag not in (None, "!"):
            raise self.refuse(event, path, shown(event.tag), "no tags", "YAML tags are refused; leave it out")

    def sequence(self, path: str, depth: int, line: int) -> Sequence:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, f"{path}[{len(items)}]", depth + 1))
        return Sequence(tuple(items), line)

    def mapping(self, path: str, depth: int, line: int) -> Mapping:
        items: dict[str, tuple[Scalar, Node]] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event, path)
            at = join(path, key.text)
            first = items.get(key.text)
            if first is not None:
                message = f"`{shown(key.text)}` is given twice, first in line {first[0].line}; keep one"
                self.report.add(at, "a second value", "each key once", message, key.line)
            value = self.node(next(self.events), at, depth + 1)
            items.setdefault(key.text, (key, value))
        return Mapping(tuple(items.values()), line)

    def key(self, event: yaml.Event, path: str) -> Scalar:
        self.plainly(event, path)
        if not isinstance(event, yaml.ScalarEvent):
            message = "a key must be a text, not a list or a mapping; is it a `{` or a `[` without quotes?"
            raise self.refuse(event, path, "a list or a mapping", "a text", message)
        key = scalar(event)
        if surprise(key):
            message = f"the key `{shown(key.text)}` is no text: {surprise(key)}; put it in quotes"
            self.report.add(path, describe(key), "a text", message, key.line)
        return key
