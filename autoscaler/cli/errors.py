"""What goes wrong with a command, and the files it reads."""

from __future__ import annotations

from pathlib import Path


class UsageError(Exception):
    """Wrong usage or input: one clear sentence, exit code 2."""


def read_bytes(path: str | Path, what: str) -> bytes:
    """The file's content. Raises UsageError that names the file, why it cannot be read, and what it should be."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{path}: {reason}; expected {what}") from error
