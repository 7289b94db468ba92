"""The kinds of value that a policy key can hold, and how a dataclass field states its kind, bounds and meaning."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds as float; in YAML a number with a unit: `500ms`, `30s`, `5m`, `1h30m`, `2d`."""

    least_s: float = 0.0
    most_s: float = 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Number:
    """A finite float. `above` excludes `least` itself."""

    least: float = 0.0
    most: float = 1e12
    above: bool = False


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number."""

    least: int = 0
    most: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string without control characters. `pattern` must match all of it; `shape` says in words what that means."""

    pattern: str = ""
    shape: str = "text"
    most_bytes: int = 253


@dataclass(frozen=True, slots=True)
class Choice:
    """One of an enum's values."""

    options: type[StrEnum]


@dataclass(frozen=True, slots=True)
class Either:
    """A word, which is None in Python, or a value of another kind."""

    word: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping whose keys are the fields of a dataclass. `bare`: the field that a bare scalar stands for, if any."""

    of: type[Any]
    bare: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """A list; a tuple in Python. `unique`: no item may repeat."""

    kind: Kind
    most: int = 1_000
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping from free names to values of one kind."""

    name: Text
    kind: Kind
    most: int = 100_000


Kind: TypeAlias = Duration | Number | Integer | Flag | Text | Choice | Either | Section | Items | Table


@dataclass(frozen=True, slots=True)
class Key:
    """What a field says of itself.

    Attributes:
        kind: which values it takes.
        about: its meaning, one or two sentences, Markdown.
        name: its YAML key where that is not the field's name in camelCase without the unit of a duration.
        effect: what a change of it changes, a clause.
    """

    kind: Kind
    about: str
    name: str = ""
    effect: str = ""


def key(kind: Kind, default: Any, about: str, *, name: str = "", effect: str = "") -> Any:
    """A dataclass field that is a policy key. A callable default makes a new value for each policy."""
    metadata = {"key": Key(kind, " ".join(about.split()), name, effect)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def required(kind: Kind, about: str, *, name: str = "", effect: str = "") -> Any:
    """A policy key that every file must give."""
    return key(kind, MISSING, about, name=name, effect=effect)
