"""All that the rules of one group look at, gathered once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.fleet import Group, Tier
from autoscaler.domain.signals import Fresh, Signal
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling.capacity import Capacity
from autoscaler.scaling.memory import GroupMemory
from autoscaler.scaling.readings import Readings
from autoscaler.scaling.schedule import Bounds
from autoscaler.scaling.trend import TOLD, LoadMemory, Sayer, foreseen
from autoscaler.scaling.view import GroupDemand


@dataclass(frozen=True, slots=True)
class Scene:
    """One group at one moment.

    Attributes:
        wanted: whether anybody needs the group at all; only a hot group can be unwanted.
        slots: adapter slots of one replica that residents may take up.
        wanted_adapters, unplaced_adapters: that ask for one, and those of them that have none; 0 in other groups.
        changes_left: changes of replica counts left in this hour, over all groups.
    """

    group: Group
    readings: Readings
    demand: GroupDemand
    cause: Cause
    cause_message: str
    capacity: Capacity
    bounds: Bounds
    memory: GroupMemory
    policy: FleetPolicy
    now_s: float
    wanted: bool = True
    slots: int = 1
    wanted_adapters: int = 0
    unplaced_adapters: int = 0
    churn_left: bool = True
    changes_left: int = 1_000_000

    @property
    def current(self) -> int:
        """Replicas in the spec of the group's target."""
        return self.group.current_replicas

    @property
    def idle(self) -> bool:
        """Routers were heard and saw no request, and no engine says otherwise."""
        return no_requests(self.demand) and not self.readings.busy

    @property
    def contradicted(self) -> bool:
        """Routers and engines have disagreed for longer than a long answer lasts: a source lies, or is passed by."""
        since = self.memory.contradicted_since_s
        return since is not None and self.now_s - since >= self.policy.diagnosis.window_s

    @property
    def asleep(self) -> bool:
        """A cold pool without a request for `idleAfter`: no forecast keeps it up, since the next request wakes it."""
        cold, since = self.policy.groups.cold, self.memory.idle_since_s
        if self.group.tier is not Tier.COLD or cold is None or since is None or not self.idle:
            return False
        return self.now_s - since >= cold.idle_after_s

    @property
    def pending_s(self) -> float:
        """For how long some replica has not been ready; 0 where all are."""
        since = self.memory.pending_since_s
        return 0.0 if since is None else self.now_s - since

    @property
    def stuck(self) -> bool:
        """Whether what is pending has been so for longer than the guard: it is not waited for any more."""
        return self.readings.unready > 0 and self.pending_s >= self.policy.scaling.scale_out.pending_guard_s

    @property
    def utilisation(self) -> float:
        """Share of measured capacity that demand may fill."""
        return self.policy.utilisation(self.group.tier)

    @property
    def slot_replicas(self) -> int:
        """Replicas at which every adapter with demand has an adapter slot."""
        return math.ceil(self.wanted_adapters / self.slots)

    @property
    def lead_s(self) -> float:
        """How far ahead growth has to look."""
        return lead_s(self.policy)

    @property
    def thrashes(self) -> bool:
        """Whether adapters thrash and users feel it: loads that delay nobody are a matter of placement alone."""
        if self.cause is not Cause.THRASH:
            return False
        seen, readings = self.readings.ttft_mean_s, self.readings
        late = seen is None or seen > self.policy.ttft_target_s / 2
        return late or readings.waiting + readings.deferred > self.policy.scaling.queue_per_replica * readings.heard

    @property
    def line(self) -> LoadMemory | None:
        """The load's own course, where it is of this tick and foresees better than the forecast; else None."""
        load = self.memory.load
        current = bool(load.samples) and load.samples[-1][0] == self.now_s
        return load if current and load.best is not Sayer.FORECAST else None

    def load_ahead(self, ahead_s: float, forecast: Signal) -> tuple[Signal, str]:
        """Load `ahead_s` from now, upper band, and by whom: the forecast, the line, or what was reached of late."""
        line = self.line
        said = None if line is None else foreseen(line, line.best, ahead_s)
        if line is None or said is None:
            return forecast, TOLD[Sayer.FORECAST]
        when = f", {ahead_s:.0f} s on" if line.best is Sayer.LINE else ""
        return Fresh(said), TOLD[line.best] + when

    @property
    def usable_tokens_per_s(self) -> Signal:
        """What demand may fill of one replica; Missing where capacity was never stated or measured."""
        return self.policy.usable(self.capacity.tokens_per_s, self.group.tier)


def lead_s(policy: FleetPolicy) -> float:
    """From now until a replica asked for in the next tick serves; rates are half a window old."""
    return policy.scaling.startup_s + policy.tick_interval_s + policy.signals.window_s / 2


def no_requests(demand: GroupDemand) -> bool:
    """Whether routers were heard and saw no request."""
    return isinstance(demand.requests_per_s, Fresh) and demand.requests_per_s.value <= 0.0


def disagree(demand: GroupDemand, readings: Readings) -> bool:
    """Routers saw no request while engines work, or requests while every engine says that nothing happens."""
    if not isinstance(demand.requests_per_s, Fresh):
        return False
    if demand.requests_per_s.value <= 0.0:
        return readings.busy
    return readings.complete and readings.tokens_per_s == 0.0 and not readings.busy
