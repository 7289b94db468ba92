"""How long a replica takes from being asked for until its engine answers, as it was seen.

Growth looks so far ahead. What a policy states is a guess until then: 180 s where an image is pulled and kernels are
compiled for 560 s means that every rise is met a start too late. Worked numbers: starts of 310, 330 and 900 s are 330.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.model import FleetPolicy

KEPT = 9
ENOUGH = 3  # one alone may have waited for a machine
LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Starts:
    """What was seen to start.

    Attributes:
        since_s: replica id -> when it was first there, of those that do not answer yet.
        took_s: of the last `KEPT` that came to answer, oldest first.
        answered: ids that answered once; a container that restarts has its machine and its image already.
    """

    since_s: Mapping[str, float] = field(default_factory=dict)
    took_s: tuple[float, ...] = ()
    answered: frozenset[str] = frozenset()

    @property
    def startup_s(self) -> Signal:
        """The median start; Missing until `ENOUGH` were seen."""
        if len(self.took_s) < ENOUGH:
            return Missing(f"{len(self.took_s)} starts were seen, {ENOUGH} are needed")
        return Fresh(median(self.took_s))


def follow(starts: Starts, replicas: Sequence[Replica], now_s: float) -> Starts:
    """The starts after one more tick. A process that ran before it was first seen counts from its own start."""
    since_s = {
        r.id: starts.since_s.get(r.id, min(r.started_at_s or now_s, now_s))
        for r in replicas
        if r.state in (ReplicaState.PENDING, ReplicaState.STARTING) and r.id not in starts.answered
    }
    ready = {r.id for r in replicas if r.state is ReplicaState.READY}
    took_s = [now_s - starts.since_s[name] for name in sorted(ready & starts.since_s.keys())]
    return Starts(
        since_s,
        (*starts.took_s, *(s for s in took_s if 0.0 < s < LONGEST_S))[-KEPT:],
        frozenset(ready | starts.answered.intersection(r.id for r in replicas)),
    )


def as_measured(policy: FleetPolicy, starts: Starts) -> FleetPolicy:
    """The policy with the start that was measured in place of the stated one, once there is one."""
    measured = starts.startup_s
    if isinstance(measured, Missing):
        return policy
    return replace(policy, scaling=replace(policy.scaling, startup_s=measured.value))
