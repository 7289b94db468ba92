"""What goes wrong in a scenario, when, and for how long: values, and how they strike a platform.

All are put on the platform's calendar before anything else, so every strategy is struck at the same instants. Which
replica is killed or hangs is a share of those that serve then, drawn once by the seed: strategies with different
fleets lose a replica each, not the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from autoscaler.simulator.fleet.platform import Platform


class Kind(StrEnum):
    """What can fail."""

    KILL = "kill"
    """A replica's process dies with what it had; its group starts another, with what a start brings and no more."""
    HANG = "hang"
    """A replica takes requests and answers nothing, neither its scrapes nor its API, and goes on afterwards."""
    SCRAPES = "scrapes"
    """Prometheus scrapes nothing."""
    ROUTERS = "routers"
    """Routers follow no new configuration; they go on with the one that they have."""
    MACHINES = "machines"
    """No machine is free: replicas asked for begin their start when it is over."""


class FailureError(ValueError):
    """A failure that cannot be; the message says what would."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One, at `at_s` of the run; `seconds`: how long it lasts, 0 for what happens at once."""

    at_s: float
    kind: Kind
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raises FailureError."""
        if self.kind is Kind.KILL and self.seconds:
            raise FailureError("a kill takes no time: the group starts another replica at once")
        if self.kind is not Kind.KILL and not self.seconds > 0:
            raise FailureError(f"{self.kind.value} has to last: say for how long")


@dataclass(frozen=True, slots=True)
class Struck:
    """What a failure did to one strategy's fleet. `replica`: whose process it was, empty where none served.

    `refused`: requests that it had.
    """

    at_s: float
    kind: Kind
    seconds: float
    replica: str = ""
    refused: int = 0


def put(platform: Platform, failures: Sequence[Failure], seed: int) -> list[Struck]:
    """Put failures on a platform's calendar. The list has each from the moment that it strikes."""
    struck: list[Struck] = []
    shares = np.random.default_rng((seed, 93)).random(len(failures)).tolist()
    for failure, share in zip(failures, shares, strict=True):
        strike = partial(_strike, platform, failure, share, struck.append)
        platform.calendar.at(failure.at_s, strike)
    return struck


def _strike(platform: Platform, failure: Failure, share: float, tell: Callable[[Struck], None]) -> None:
    until_s = failure.at_s + failure.seconds
    replica, refused = "", 0
    match failure.kind:
        case Kind.SCRAPES:
            platform.unscraped_until_s = max(platform.unscraped_until_s, until_s)
        case Kind.ROUTERS:
            platform.routers_held_until_s = max(platform.routers_held_until_s, until_s)
        case Kind.MACHINES:
            platform.no_machine_until_s = max(platform.no_machine_until_s, until_s)
        case Kind.KILL | Kind.HANG:
            serving = sorted(member.name for member in platform.serving())
            replica = serving[int(share * len(serving))] if serving else ""
            if replica and failure.kind is Kind.KILL:
                refused = platform.kill(replica)
            elif replica:
                platform.hang(replica, failure.seconds)
    tell(Struck(failure.at_s, failure.kind, failure.seconds, replica, refused))
