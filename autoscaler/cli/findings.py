"""What a check found: fine, wrong with a remedy, or a note that is no fault."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How it stands."""

    FINE = "fine"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result.

    Attributes:
        check: what was looked at: `policy`, `metric`, `engine`, ...
        subject: which one.
        message: what was found, a sentence without its full stop.
        remedy: what to do, empty where nothing need be done.
    """

    check: str
    subject: str
    state: State
    message: str
    remedy: str = ""


def fine(check: str, subject: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check, subject, State.FINE, message)


def note(check: str, subject: str, message: str, remedy: str = "") -> Finding:
    """Worth knowing, no fault."""
    return Finding(check, subject, State.NOTE, message, remedy)


def wrong(check: str, subject: str, message: str, remedy: str) -> Finding:
    """A fault and its remedy."""
    return Finding(check, subject, State.WRONG, message, remedy)
