"""What differs between two policies, key by key, and in words what that changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.policy.fields import Items, Key, Section, Table, keys
from autoscaler.policy.groups import CatalogueEntry
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import join
from autoscaler.policy.scalars import Either, Kind


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs.

    Attributes:
        path: as in the file.
        old, new: as the file would write them (plain YAML data); None where it is not there.
        effect: what it changes, a clause.
    """

    path: str
    old: Any
    new: Any
    effect: str


def diff(old: FleetPolicy, new: FleetPolicy) -> tuple[Change, ...]:
    """All keys that differ, in the file's order; empty for equal policies. Lists of adapters are matched by id."""
    name = () if old.name == new.name else (Change("metadata.name", old.name, new.name, "another fleet altogether"),)
    return (*name, *_sections(FleetPolicy, old, new, "spec", ""))


def _sections(of: type[Any], old: Any, new: Any, path: str, effect: str) -> Iterator[Change]:
    for item in keys(of):
        yield from _values(item, getattr(old, item.field), getattr(new, item.field), join(path, item.name), effect)


def _values(item: Key, old: Any, new: Any, path: str, above: str) -> Iterator[Change]:
    if old != new:
        yield from _kinds(item.kind, old, new, path, item.effect or above)


def _kinds(kind: Kind, old: Any, new: Any, path: str, effect: str) -> Iterator[Change]:
    inner = kind.kind if isinstance(kind, Either) and old is not None and new is not None else kind
    if isinstance(inner, Section):
        yield from _sections(inner.of, old, new, path, effect)
    elif isinstance(inner, Table):
        yield from _named(inner.kind, old, new, path, effect)
    elif isinstance(inner, Items) and isinstance(inner.kind, Section) and inner.kind.of is CatalogueEntry:
        yield from _named(inner.kind, {e.id: e for e in old}, {e.id: e for e in new}, path, effect)
    else:
        yield Change(path, kind.write(old), kind.write(new), effect)


def _named(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], path: str, effect: str) -> Iterator[Change]:
    for name in dict.fromkeys([*old, *new]):
        one, two, at = old.get(name), new.get(name), join(path, str(name))
        if one is None or two is None:
            yield Change(at, None if one is None else kind.write(one), None if two is None else kind.write(two), effect)
        elif one != two:
            yield from _kinds(kind, one, two, at, effect)
