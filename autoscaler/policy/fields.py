"""Kinds of value that hold others, and how a dataclass field states that it is a policy key.

The fields of the policy's dataclasses are the only schema there is: reading, defaults, JSON Schema, the documented
default file and the reference page all walk them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from autoscaler.policy.nodes import Mapping, Node, Report, Scalar, Sequence, describe, join, nearest, shown
from autoscaler.policy.scalars import BAD, Bad, Choice, Duration, Either, Json, Kind, Text, refuse


@dataclass(frozen=True, slots=True)
class Key:
    """What a field says of itself.

    Attributes:
        field: the dataclass's name for it.
        name: its YAML key.
        kind: which values it takes.
        about: its meaning, one or two sentences, Markdown.
        effect: what a change of it changes, a clause; empty where its section says it.
        default: makes the default; None where the key is required.
    """

    field: str
    name: str
    kind: Kind
    about: str
    effect: str
    default: Callable[[], Any] | None


def key(kind: Kind, default: Any, about: str, *, name: str = "", effect: str = "") -> Any:
    """A dataclass field that is a policy key. A callable default makes a new value for each policy."""
    metadata = {"kind": kind, "about": about, "name": name, "effect": effect}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def required(kind: Kind, about: str, *, name: str = "", effect: str = "") -> Any:
    """A policy key that every file must give."""
    return key(kind, MISSING, about, name=name, effect=effect)


def _key_of(item: Field[Any]) -> Key:
    said = item.metadata
    default: Callable[[], Any] | None = None
    if item.default_factory is not MISSING:
        default = item.default_factory
    elif item.default is not MISSING:
        value = item.default
        default = lambda: value  # noqa: E731 - a def would need a name that says no more
    name = said["name"] or _camel(item.name, said["kind"])
    return Key(item.name, name, said["kind"], said["about"], said["effect"], default)


def _camel(name: str, kind: Kind) -> str:
    inner: Any = kind
    while isinstance(inner, Either | Items):
        inner = inner.kind
    stem = name.removesuffix("_s") if isinstance(inner, Duration) else name.removesuffix("_ratio")
    return re.sub(r"_([a-z0-9])", lambda m: m[1].upper(), stem)


_KEYS: dict[type[Any], tuple[Key, ...]] = {}


def keys(of: type[Any]) -> tuple[Key, ...]:
    """The policy keys of a dataclass, in order. Fields that are no key (a policy's name) are left out."""
    if of not in _KEYS:
        _KEYS[of] = tuple(_key_of(item) for item in fields(of) if "kind" in item.metadata)
    return _KEYS[of]


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping whose keys are the fields of a dataclass. `bare`: the field that a bare scalar stands for, if any."""

    of: type[Any]
    bare: str = ""

    def allowed(self) -> str:
        """What may be written."""
        return "a mapping with " + ", ".join(k.name for k in keys(self.of))

    def read(self, node: Node, path: str, report: Report) -> Any:
        """The dataclass; a key that is wrong has its default, and the report says so."""
        if self.bare and isinstance(node, Scalar):
            node = Mapping(((Scalar(self.bare, True, node.line), node),), node.line)
        if not isinstance(node, Mapping):
            return refuse(self, node, path, report, f"it must be {self.allowed()}")
        given = {name.text: value for name, value in node.items}
        values: dict[str, Any] = {}
        for item in keys(self.of):
            child = given.pop(item.name, None)
            value = BAD if child is None else item.kind.read(child, join(path, item.name), report)
            if child is None and item.default is None:
                self._missing(item, path, node.line, report)
            if isinstance(value, Bad):
                value = item.default() if item.default else None
            values[item.field] = value
        for name in given:
            self._unknown(name, path, report)
        return self.of(**values)

    def _missing(self, item: Key, path: str, line: int, report: Report) -> None:
        at = join(path, item.name)
        report.add(at, "nothing", item.kind.allowed(), f"`{item.name}` is required: {item.kind.allowed()}", line)

    def _unknown(self, name: str, path: str, report: Report) -> None:
        if report.full:  # the nearest name costs half a millisecond
            report.left_out += 1
            return
        names = [k.name for k in keys(self.of)]
        hint = f"; it belongs in {report.homes[name]}" if name in report.homes else nearest(name, names)
        message = f"`{shown(name)}` is no key of {path or 'this file'}{hint}"
        report.add(join(path, name), "an unknown key", "one of " + ", ".join(names), message)

    def write(self, value: Any) -> dict[str, Any]:
        """Every key, by its YAML name."""
        return {k.name: k.kind.write(getattr(value, k.field)) for k in keys(self.of)}

    def schema(self) -> Json:
        """A reference; the definitions hold the rest."""
        ref: Json = {"$ref": f"#/$defs/{self.of.__name__}"}
        bare = next((k for k in keys(self.of) if k.name == self.bare), None)
        return {"anyOf": [bare.kind.schema(), ref]} if bare else ref


@dataclass(frozen=True, slots=True)
class Items:
    """A list; a tuple in Python. `unique`: no item may repeat."""

    kind: Kind
    most: int = 1_000
    unique: bool = False

    def allowed(self) -> str:
        """What may be written."""
        return f"a list of at most {self.most:,}, each {self.kind.allowed()}"

    def read(self, node: Node, path: str, report: Report) -> tuple[Any, ...] | Bad:
        """The values; BAD where one of them is."""
        if not isinstance(node, Sequence):
            return refuse(self, node, path, report, f"it must be {self.allowed()}")
        if len(node.items) > self.most:
            return refuse(self, node, path, report, f"at most {self.most:,} items are allowed")
        values = tuple(self.kind.read(item, f"{path}[{i}]", report) for i, item in enumerate(node.items))
        if any(isinstance(value, Bad) for value in values):
            return BAD
        if self.unique:
            for i, value in enumerate(values):
                if value in values[:i]:
                    message = f"{describe(node.items[i])} is given twice; keep one"
                    report.add(f"{path}[{i}]", describe(node.items[i]), "each once", message, node.items[i].line)
        return values

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        """Each item."""
        return [self.kind.write(item) for item in value]

    def schema(self) -> Json:
        """An array."""
        return {"type": "array", "items": self.kind.schema(), "maxItems": self.most, "uniqueItems": self.unique}


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping from free names, or from an enum's words, to values of one kind."""

    name: Text | Choice
    kind: Kind
    most: int = 100_000

    def allowed(self) -> str:
        """What may be written."""
        return f"a mapping from names ({self.name.allowed()}) to values, each {self.kind.allowed()}"

    def read(self, node: Node, path: str, report: Report) -> dict[Any, Any] | Bad:
        """The values that could be read, by name."""
        if not isinstance(node, Mapping):
            return refuse(self, node, path, report, f"it must be {self.allowed()}")
        if len(node.items) > self.most:
            return refuse(self, node, path, report, f"at most {self.most:,} entries are allowed")
        values: dict[Any, Any] = {}
        for name, child in node.items:
            at = join(path, name.text)
            read = self.name.read(Scalar(name.text, False, name.line), at, report)
            value = self.kind.read(child, at, report)
            if not isinstance(read, Bad) and not isinstance(value, Bad):
                values[read] = value
        return values

    def write(self, value: dict[Any, Any]) -> dict[str, Any]:
        """Each entry."""
        return {str(name): self.kind.write(item) for name, item in value.items()}

    def schema(self) -> Json:
        """An object with bounded names."""
        return {"type": "object", "propertyNames": self.name.schema(), "additionalProperties": self.kind.schema()}


def section(of: type[Any], about: str, *, effect: str = "") -> Any:
    """A policy key that holds a section; left out, it has all of the section's defaults."""
    return key(Section(of), of, about, effect=effect)


def inner(kind: Kind) -> Iterator[Kind]:
    """A kind and the kinds that it holds, without entering sections."""
    yield kind
    if isinstance(kind, Either | Items | Table):
        yield from inner(kind.kind)


def sections(of: type[Any]) -> Iterator[type[Any]]:
    """A dataclass and all dataclasses below it, each once, in reading order."""
    seen: dict[type[Any], None] = {of: None}
    queue = [of]
    while queue:
        for item in keys(queue.pop(0)):
            for kind in inner(item.kind):
                if isinstance(kind, Section) and kind.of not in seen:
                    seen[kind.of] = None
                    queue.append(kind.of)
    return iter(seen)


def homes(of: type[Any]) -> dict[str, str]:
    """Key -> the section that it belongs in, for keys that only one section below `of` has."""
    found: dict[str, list[str]] = {}
    for name, home in _homes(of, ""):
        found.setdefault(name, []).append(home)
    return {name: places[0] for name, places in found.items() if len(places) == 1}


def _homes(of: type[Any], path: str) -> Iterator[tuple[str, str]]:
    for item in keys(of):
        yield item.name, path or "the file's top level"
        for kind in inner(item.kind):
            if isinstance(kind, Section):
                yield from _homes(kind.of, join(path, item.name))
