"""What goes wrong with a command, and the files it reads."""

from __future__ import annotations

from pathlib import Path


class UsageError(Exception):
    """Wrong usage or input: one clear sentence, exit code 2."""


class RefusedError(Exception):
    """The answer is no: one clear sentence, exit code 1."""


def read_bytes(path: str | Path, what: str) -> bytes:
    """The file's content. Raises UsageError that names the file, why it cannot be read, and what it should be."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UsageError(f"{path}: {reason}; expected {what}") from error
