"""Kinds of single values: durations, numbers, texts, words. Each reads, describes, writes and exports itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Protocol

from autoscaler.policy.nodes import Node, Report, Scalar, describe, nearest
from autoscaler.policy.reading import surprise

Json = dict[str, Any]
UNITS_S: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
BREAKS: Final = str.maketrans("\n\t", "  ")
DURATION = r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+"
NUMBER = r"[-+]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?"


class Bad:
    """No value could be read; the report says why."""


BAD: Final = Bad()


class Kind(Protocol):
    """What a policy key can hold."""

    def allowed(self) -> str:
        """What may be written, in a few words."""
        ...

    def read(self, node: Node, path: str, report: Report) -> Any:
        """The value, or BAD with the reason in `report`."""
        ...

    def write(self, value: Any) -> Any:
        """The value as plain YAML data that reads back equal."""
        ...

    def schema(self) -> Json:
        """JSON Schema (2020-12) of what may be written."""
        ...


def refuse(kind: Kind, node: Node, path: str, report: Report, why: str) -> Bad:
    """Report that `node` is not of `kind`; `why` is a clause with the remedy."""
    message = f"{describe(node)} is not allowed here: {why}" if why else f"{describe(node)} is not {kind.allowed()}"
    report.add(path, describe(node), kind.allowed(), message, node.line)
    return BAD


def figure(value: float) -> str:
    """A number as people write it: no exponent below 10^16, no trailing zeros."""
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """Seconds as a duration that reads back equal: `500ms`, `90s`, `5m`, `2h`, `7d`."""
    for unit, size in UNITS_S.items():
        if seconds >= size and seconds % size == 0:
            return f"{figure(seconds / size)}{unit}"
    millis = round(seconds * 1000)
    if 0 < millis < 1000 and millis / 1000 == seconds:
        return f"{millis}ms"
    return f"{figure(seconds)}s"


def seconds(text: str) -> float | None:
    """A duration's seconds; None where it is none."""
    if not re.fullmatch(DURATION, text, re.ASCII):
        return None
    parts = re.findall(r"([\d.]+)(ms|s|m|h|d)", text)
    return sum(float(n) / 1000 if unit == "ms" else float(n) * UNITS_S[unit] for n, unit in parts)


def _number(kind: Kind, node: Node, path: str, report: Report) -> float | Bad:
    if not isinstance(node, Scalar):
        return refuse(kind, node, path, report, "")
    if not node.plain:
        return refuse(kind, node, path, report, "a number stands without quotes")
    if len(node.text) <= 40 and re.fullmatch(NUMBER, node.text, re.ASCII):
        return float(node.text)
    why = f"it must be {kind.allowed()}"
    if re.fullmatch(r"[-+]?\.?(nan|inf)(inity)?", node.text, re.IGNORECASE):
        why = f"it is no finite number; {why}"
    elif re.fullmatch(r"[-+]?0[0-9_]+", node.text):
        why = f"a leading zero makes it octal in YAML 1.1; {why}"
    elif surprise(node):
        why = f"{surprise(node)}; {why}"
    return refuse(kind, node, path, report, why)


def _bounded(kind: Duration | Number | Integer, value: float, node: Node, path: str, report: Report) -> bool:
    low, high, above = kind.bounds()
    if low <= value <= high and not (above and value == low):
        return True
    refuse(kind, node, path, report, f"it must be {kind.allowed()}")
    return False


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds as float; in YAML a number with a unit: `500ms`, `30s`, `5m`, `1h30m`, `2d`."""

    least_s: float = 0.0
    most_s: float = 366 * 86400.0

    def bounds(self) -> tuple[float, float, bool]:
        """Least, most, whether the least is excluded."""
        return self.least_s, self.most_s, False

    def allowed(self) -> str:
        """What may be written."""
        return f"a duration from {duration(self.least_s)} to {duration(self.most_s)}"

    def read(self, node: Node, path: str, report: Report) -> float | Bad:
        """Seconds."""
        if not isinstance(node, Scalar):
            return refuse(self, node, path, report, "")
        value = seconds(node.text) if len(node.text) <= 40 else None
        if value is None:
            why = "a unit is missing" if re.fullmatch(NUMBER, node.text, re.ASCII) else surprise(node)
            why = f"{why}; it" if why else "it"
            return refuse(self, node, path, report, f"{why} must be {self.allowed()}, such as 30s, 5m or 1h30m")
        return value if _bounded(self, value, node, path, report) else BAD

    def write(self, value: float) -> str:
        """With a unit."""
        return duration(value)

    def schema(self) -> Json:
        """A pattern; JSON Schema cannot bound it."""
        return {"type": "string", "pattern": f"^{DURATION}$"}


@dataclass(frozen=True, slots=True)
class Number:
    """A finite float. `above` excludes `least` itself; `why` says in a clause what the bounds come from."""

    least: float = 0.0
    most: float = 1e12
    above: bool = False
    why: str = ""

    def bounds(self) -> tuple[float, float, bool]:
        """Least, most, whether the least is excluded."""
        return self.least, self.most, self.above

    def allowed(self) -> str:
        """What may be written."""
        start = f"above {figure(self.least)}" if self.above else f"from {figure(self.least)}"
        return f"a number {start} to {figure(self.most)}" + (f" ({self.why})" if self.why else "")

    def read(self, node: Node, path: str, report: Report) -> float | Bad:
        """The number."""
        value = _number(self, node, path, report)
        return value if isinstance(value, Bad) or _bounded(self, value, node, path, report) else BAD

    def write(self, value: float) -> float | int:
        """Whole where it is whole."""
        return int(value) if value == int(value) else value

    def schema(self) -> Json:
        """Bounds."""
        return {"type": "number", "exclusiveMinimum" if self.above else "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number."""

    least: int = 0
    most: int = 1_000_000

    def bounds(self) -> tuple[float, float, bool]:
        """Least, most, whether the least is excluded."""
        return self.least, self.most, False

    def allowed(self) -> str:
        """What may be written."""
        return f"a whole number from {self.least} to {self.most}"

    def read(self, node: Node, path: str, report: Report) -> int | Bad:
        """The number."""
        value = _number(self, node, path, report)
        if isinstance(value, Bad) or not _bounded(self, value, node, path, report):
            return BAD
        return int(value) if value == int(value) else refuse(self, node, path, report, f"it must be {self.allowed()}")

    def write(self, value: int) -> int:
        """Itself."""
        return value

    def schema(self) -> Json:
        """Bounds."""
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag:
    """`true` or `false`."""

    def allowed(self) -> str:
        """What may be written."""
        return "true or false"

    def read(self, node: Node, path: str, report: Report) -> bool | Bad:
        """The boolean; `yes`, `on` and the like are refused, since YAML 1.2 takes them for texts."""
        if isinstance(node, Scalar) and node.plain and node.text in ("true", "false"):
            return node.text == "true"
        return refuse(self, node, path, report, "write true or false, without quotes")

    def write(self, value: bool) -> bool:
        """Itself."""
        return value

    def schema(self) -> Json:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Text:
    """A string without control characters.

    `pattern` must match all of it, `shape` says in words what that means, `lines` allows more than one.
    """

    pattern: str = ""
    shape: str = "a text"
    most_bytes: int = 253
    lines: bool = False
    least_bytes: int = 1

    def allowed(self) -> str:
        """What may be written."""
        return self.shape

    def read(self, node: Node, path: str, report: Report) -> str | Bad:
        """The text."""
        if not isinstance(node, Scalar):
            return refuse(self, node, path, report, "")
        if why := surprise(node):
            return refuse(self, node, path, report, f"{why}; put it in quotes to make it a text")
        if why := self.fault(node.text):
            return refuse(self, node, path, report, why)
        return node.text

    def fault(self, text: str) -> str:
        """What is wrong with a text, a clause; empty where nothing is."""
        if text != text.strip():
            return "it begins or ends with a space; take it away"
        size = len(text.encode("utf-8", "surrogatepass"))
        if not self.least_bytes <= size <= self.most_bytes:
            return f"it has {size:,} bytes; {self.least_bytes} to {self.most_bytes:,} are allowed"
        one_line = text.translate(BREAKS) if self.lines else text
        odd = None if one_line.isprintable() else next(c for c in one_line if not c.isprintable())
        if odd is not None:
            return f"it contains the character U+{ord(odd):04X}; control and invisible characters are refused"
        return "" if not self.pattern or re.fullmatch(self.pattern, text) else f"it must be {self.shape}"

    def write(self, value: str) -> str:
        """Itself."""
        return value

    def schema(self) -> Json:
        """Length and pattern."""
        limits: Json = {"type": "string", "minLength": self.least_bytes, "maxLength": self.most_bytes}
        return limits | {"pattern": f"^(?:{self.pattern})$"} if self.pattern else limits


@dataclass(frozen=True, slots=True)
class Choice:
    """One of an enum's values."""

    options: type[StrEnum]

    def allowed(self) -> str:
        """What may be written."""
        return "one of " + ", ".join(self.options)

    def read(self, node: Node, path: str, report: Report) -> StrEnum | Bad:
        """The enum's member."""
        if isinstance(node, Scalar) and node.text in list(self.options):
            return self.options(node.text)
        hint = nearest(node.text, list(self.options)) if isinstance(node, Scalar) else ""
        return refuse(self, node, path, report, f"it must be {self.allowed()}{hint}")

    def write(self, value: StrEnum) -> str:
        """Its word."""
        return value.value

    def schema(self) -> Json:
        """The words."""
        return {"enum": [option.value for option in self.options]}


@dataclass(frozen=True, slots=True)
class Either:
    """A word, which is None in Python, or a value of another kind."""

    word: str
    kind: Kind

    def allowed(self) -> str:
        """What may be written."""
        return f"{self.word}, or {self.kind.allowed()}"

    def read(self, node: Node, path: str, report: Report) -> Any:
        """None for the word, else the other kind's value."""
        if isinstance(node, Scalar) and node.text == self.word:
            return None
        if isinstance(node, Scalar) and node.plain and node.text in ("", "~", "null"):
            return refuse(self, node, path, report, f"write `{self.word}`, or leave the key out")
        before = len(report.errors)
        value = self.kind.read(node, path, report)
        for i in range(before, len(report.errors)):
            error = report.errors[i]
            if error.path == path:
                message = f"{error.message}, or `{self.word}`"
                report.errors[i] = replace(error, allowed=self.allowed(), message=message)
        return value

    def write(self, value: Any) -> Any:
        """The word for None."""
        return self.word if value is None else self.kind.write(value)

    def schema(self) -> Json:
        """Both."""
        return {"anyOf": [{"const": self.word}, self.kind.schema()]}
