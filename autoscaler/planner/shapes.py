"""Whether a value read from a file has the types that its dataclass declares: JSON lets anything stand anywhere."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def misfit(value: object, where: str) -> str | None:
    """The first field of a dataclass, at any depth, that does not hold what it declares; None where all do.

    Numbers must be finite. Arrays, enums and other classes are held to their class alone.
    """
    for field, hint in _hints(type(value)):
        found = _misfit(getattr(value, field), hint, f"{where}.{field}")
        if found is not None:
            return found
    return None


def _hints(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind))


def _misfit(value: object, hint: Any, where: str) -> str | None:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if origin in (Union, UnionType):
        fits = any(_misfit(value, each, where) is None for each in inner)
        return None if fits else _told(value, where)
    if origin is tuple:
        return _misfit_of_tuple(value, inner, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return _told(value, where)
        pairs = ((part, kind) for item in value.items() for part, kind in zip(item, inner, strict=True))
        return next((found for part, kind in pairs if (found := _misfit(part, kind, where)) is not None), None)
    return _misfit_of_one(value, origin or hint, where)


def _misfit_of_tuple(value: object, inner: tuple[Any, ...], where: str) -> str | None:
    if not isinstance(value, tuple):
        return _told(value, where)
    kinds = inner[:1] * len(value) if inner[1:] == (...,) else inner
    if len(kinds) != len(value):
        return _told(value, where)
    pairs = zip(value, kinds, strict=True)
    return next((found for part, kind in pairs if (found := _misfit(part, kind, where)) is not None), None)


def _misfit_of_one(value: object, kind: Any, where: str) -> str | None:
    if kind is float or kind is int:
        numeric = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
        return None if numeric and math.isfinite(value) else _told(value, where)  # type: ignore[arg-type]
    if kind is None or kind is NoneType:
        return None if value is None else _told(value, where)
    if not isinstance(value, kind):
        return _told(value, where)
    return misfit(value, where) if dataclasses.is_dataclass(value) else None


def _told(value: object, where: str) -> str:
    return f"{where} is {str(value)[:40]!r}"
