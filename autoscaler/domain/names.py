"""The name that somebody most likely meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import pairwise

MOST_COMPARED = 5000
"""Names that are compared by similarity, at some 10 us each."""

_PARTS = re.compile(r"[0-9]+|[^\W\d_]+")


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name among `names` that is nearest to `name`, None where none is near.

    `tenant-1` is `tenant-01` before it is `tenant-41`: what differs only in case, punctuation and leading zeros of its
    numbers comes first, then what is similar and has the same numbers, then what is most similar.
    """
    known = list(names)
    same = _same_but_for_spelling(name)
    if same is not None and (found := next(filter(same.fullmatch, known), None)) is not None:
        return found
    near = get_close_matches(name, known[:MOST_COMPARED], 100)
    return min(near, key=lambda n: _numbers(n) != _numbers(name), default=None)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The clause `; did you mean '...'?`, empty where no name is near."""
    near = nearest_name(name, names)
    return "" if near is None else f"; did you mean {near!r}?"


def _same_but_for_spelling(name: str) -> re.Pattern[str] | None:
    """One pattern instead of a spelling for each name: a fleet may have 100,000, and this looks at all of them."""
    parts = _PARTS.findall(name)
    if not parts:
        return None
    pattern = r"[\W_]*" + _spelt(parts[0])
    for before, part in pairwise(parts):
        between = r"[\W_]+" if before.isdigit() and part.isdigit() else r"[\W_]*"
        pattern += between + _spelt(part)
    return re.compile(pattern + r"[\W_]*", re.IGNORECASE)


def _spelt(part: str) -> str:
    return "0*" + (part.lstrip("0") or "0") if part.isdigit() else re.escape(part)


def _numbers(name: str) -> list[str]:
    return [digits.lstrip("0") for digits in re.findall("[0-9]+", name)]
