"""What goes wrong with a command, and the files it reads."""

from __future__ import annotations

import os
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


def check_readable(**flags: Path | None) -> None:
    """Refuse files that are not there before anything is done with them. Raises UsageError that names flag and file."""
    for flag, path in flags.items():
        if path is not None and not path.is_file():
            why = "it is a folder" if path.is_dir() else "there is no such file"
            raise UsageError(f"{flag} {path}: {why}; name a trace's file, or leave {flag} out")


def refuse_unused(where: str, **flags: object) -> None:
    """Refuse flags that were given (not None) and mean nothing there. Raises UsageError that names them."""
    given = [flag for flag, value in flags.items() if value is not None]
    if given:
        raise UsageError(f"{', '.join(given)} would not be used {where}: leave it out, or add what it needs")


def check_writable(*paths: Path | None) -> None:
    """Refuse what cannot be written before the work whose result goes there. Raises UsageError that names the file."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise UsageError(f"{path} cannot be written: it is a folder; name a file")
        if not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}; make it first")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"{path} cannot be written: permission denied")
