"""A file that is read again when it changes, and whose last valid meaning stands while it is invalid."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from autoscaler.policy.nodes import PolicyError

T = TypeVar("T")
Parse = Callable[[bytes], T | tuple[PolicyError, ...]]

# An editor that writes in place is seen half-way; what was touched this recently is left for the next look.
SETTLED_S = 0.5
MOST_BYTES = 64 << 20


class WatchedFile(Generic[T]):
    """One file. `value` is its last valid meaning, None before the first; `trouble` why a newer one was not taken.

    Args:
        path: the file; it may be a link that is swapped, as Kubernetes does for mounted ConfigMaps.
        parse: its content to a value, or everything that is wrong.
        wall_s: the clock of the file system's times.
    """

    def __init__(self, path: Path, parse: Parse[T], wall_s: Callable[[], float]) -> None:
        self.path = path
        self._parse = parse
        self._wall_s = wall_s
        self._signature: tuple[int, ...] | None = None
        self._content: bytes | None = None
        self._fault = ""
        self.value: T | None = None
        self.trouble = ""

    def look(self) -> T | None:
        """Read it if it has changed and is settled. Raises nothing: trouble is told in `trouble`."""
        try:
            before = _signature(self.path.stat())
            if before == self._signature or (self.value is not None and not self._settled(before)):
                return self.value
            content = self._read()
            if _signature(self.path.stat()) != before:
                return self.value
        except OSError as error:
            self._signature = None
            self.trouble = f"{self.path} cannot be read: {error.strerror or error}"
            return self.value
        except ValueError as error:
            self.trouble = str(error)
            return self.value
        self._signature = before
        self._take(content)
        self.trouble = self._fault
        return self.value

    def parse_again(self, parse: Parse[T]) -> T | None:
        """Give the same content a new meaning, as when the policy that it is read under has changed."""
        self._parse = parse
        if self._content is not None:
            content, self._content = self._content, None
            self._take(content)
            self.trouble = self._fault
        return self.value

    def _take(self, content: bytes) -> None:
        if content == self._content:
            # Touched, not changed: whoever compares by identity sees no change either.
            return
        self._content = content
        parsed = self._parse(content)
        if isinstance(parsed, tuple) and all(isinstance(e, PolicyError) for e in parsed):
            self._fault = _told(parsed)
        else:
            self.value, self._fault = parsed, ""  # type: ignore[assignment]

    def _read(self) -> bytes:
        with self.path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"{self.path} is larger than {MOST_BYTES >> 20} MiB: split it, or name the right file")
        return content

    def _settled(self, signature: tuple[int, ...]) -> bool:
        age_s = self._wall_s() - signature[0] / 1e9
        # A file from the future is not waited for: its clock is wrong, not its content.
        return age_s < 0 or age_s >= SETTLED_S


def _signature(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _told(errors: Sequence[PolicyError]) -> str:
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0]}{more}; the last valid one stands"
