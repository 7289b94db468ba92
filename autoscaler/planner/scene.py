"""What all steps of one tick of the ring read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.fleet import EngineLimits, Replica, Tier
from autoscaler.domain.observation import Bools, Observation
from autoscaler.planner.demand import Demand
from autoscaler.planner.departures import Departures
from autoscaler.planner.homes import Home
from autoscaler.planner.memory import RingMemory
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling import ScalePlan
from autoscaler.tiering import TierPlan


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One tick's observation and decisions, the ring's memory with what is published, the warm group, hot tenants."""

    observation: Observation
    policy: FleetPolicy
    demand: Demand
    tiers: TierPlan
    scale: ScalePlan
    before: RingMemory
    departures: Departures
    warm: tuple[Replica, ...]
    homes: Mapping[str, Home]

    @property
    def now_s(self) -> float:
        """The observation's time."""
        return self.observation.now_s

    @property
    def limits(self) -> EngineLimits:
        """The smallest engine of the warm group: a placement must fit each of its replicas.

        A replica whose engine was not heard yet has the defaults of nobody; it does not shrink the others' places.
        """
        heard = [r.limits for r in self.warm if r.limits != EngineLimits()]
        smallest = min(heard, key=lambda limits: (limits.max_loras, limits.max_cpu_loras), default=EngineLimits())
        return self.policy.limits(Tier.WARM, smallest)

    def hot_groups(self) -> dict[str, int]:
        """Group name -> tenant row, of the tenants that are HOT after this tick or whose group routers still name."""
        return {name: self.tiers.row[home.tenant] for name, home in self.homes.items()}

    def dedicated(self) -> Bools:
        """Adapters whose hot group serves them now (A): on the ring they are a reserve, not a load."""
        return self._of(home for home in self.homes.values() if home.apart and home.listed)

    def returning(self) -> Bools:
        """Adapters that go back to the ring from a hot group that still serves them (A)."""
        return self._of(home for home in self.homes.values() if home.listed and not home.apart)

    def _of(self, homes: Iterable[Home]) -> Bools:
        tenants = np.zeros(len(self.tiers.ids), np.bool_)
        tenants[[self.tiers.row[home.tenant] for home in homes]] = True
        return tenants[self.observation.catalogue.tenant_index]
