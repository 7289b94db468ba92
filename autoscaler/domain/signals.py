"""A measured quantity, or the reason why there is none. Absence is a value; a true zero is not absence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Fresh:
    """A finite measurement.

    Attributes:
        value: in the unit that the signal's name says.
        age_s: seconds between the measurement and the observation that holds it.
    """

    value: float
    age_s: float = 0.0

    def __post_init__(self) -> None:
        if not (float("-inf") < self.value < float("inf")):
            raise ValueError(f"a fresh signal is a finite number, not {self.value}: absence is Missing(why)")


@dataclass(frozen=True, slots=True)
class Missing:
    """No trustworthy measurement. `why` is a clause for people: `no series`, `stale by 95 s`, `NaN without a count`."""

    why: str


Signal: TypeAlias = Fresh | Missing

UNSEEN = Missing("not observed")


def value_or(signal: Signal, default: float) -> float:
    """The measurement, or `default` where there is none. Use it only where the default is the cautious side."""
    return signal.value if isinstance(signal, Fresh) else default
