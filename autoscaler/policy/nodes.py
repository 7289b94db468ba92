"""A policy file as a tree of texts with line numbers, and the errors found in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias

SHOWN = 60
MAX_ERRORS = 200
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value as it was written. `plain`: without quotes, so that YAML would guess its type."""

    text: str
    plain: bool
    line: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """A YAML list."""

    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A YAML mapping; keys are unique texts, in the file's order."""

    items: tuple[tuple[Scalar, Node], ...]
    line: int


Node: TypeAlias = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class PolicyError:
    """One thing that is wrong with a file.

    Attributes:
        path: where, in the file's own words (`spec.groups.warm.minReplicas`); empty for the file as a whole.
        found: what is there, shortened.
        allowed: what may be there.
        message: one sentence with the remedy.
        file: as it was named by the caller.
        line: from 1, None where it is not about a line.
    """

    path: str
    found: str
    allowed: str
    message: str
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """`file:line: path: message`, for terminals and logs."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (where, self.path, self.message) if part)

    def as_json(self) -> dict[str, str]:
        """What `policy check --json` prints of it."""
        return {"path": self.path, "found": self.found, "allowed": self.allowed, "message": self.message}


@dataclass(slots=True)
class Report:
    """Errors gathered while one file is read, and the line of every path seen.

    `homes` says where a misplaced key belongs.
    """

    file: str
    homes: dict[str, str] = field(default_factory=dict)
    errors: list[PolicyError] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    left_out: int = 0

    @property
    def full(self) -> bool:
        """Whether further errors are only counted: nobody reads more, and a hostile file could have a million."""
        return len(self.errors) >= MAX_ERRORS

    def add(self, path: str, found: str, allowed: str, message: str, line: int | None = None) -> None:
        """Note an error; the line is looked up by path where none is given."""
        if self.full:
            self.left_out += 1
            return
        if line is None:
            line = self.lines.get(path)
        self.errors.append(PolicyError(path, found, allowed, message, self.file, line))

    def sorted(self) -> tuple[PolicyError, ...]:
        """All errors, by line, then as found; past MAX_ERRORS their number only."""
        found = sorted(self.errors, key=lambda e: e.line or 0)
        if self.left_out:
            message = f"{self.left_out:,} more errors are not shown; mend these first"
            found.append(PolicyError("", f"{self.left_out:,} more errors", "no errors", message, self.file))
        return tuple(found)


def shown(text: str) -> str:
    """A text as it may be shown anywhere: shortened, control and odd characters escaped, no quotes around it."""
    cut = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in cut)


def describe(node: Node) -> str:
    """A node in a few words, for `found`."""
    if isinstance(node, Sequence):
        return f"a list of {len(node.items)}"
    if isinstance(node, Mapping):
        return f"a mapping of {len(node.items)} keys"
    if not node.plain:
        return f'"{shown(node.text)}"'
    return shown(node.text) or "nothing"


def join(path: str, name: str) -> str:
    """The path of a key below `path`; an odd name is quoted."""
    if not PLAIN_NAME.fullmatch(name):
        return f'{path}["{shown(name)}"]'
    return f"{path}.{name}" if path else name


def nearest(name: str, names: list[str]) -> str:
    """A hint at the nearest allowed name, `; did you mean ...?`, or nothing."""
    squeezed = {re.sub(r"[^a-z0-9]", "", n.lower()): n for n in names}
    plain = re.sub(r"[^a-z0-9]", "", name[:SHOWN].lower())
    close = get_close_matches(plain, list(squeezed), 1, 0.6)
    return f"; did you mean `{squeezed[close[0]]}`?" if close else ""
