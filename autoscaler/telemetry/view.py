"""The one thing that the API, the dashboard and metrics read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.domain.decisions import ApplyReport, Condition
from autoscaler.domain.fleet import Override
from autoscaler.domain.observation import Observation
from autoscaler.planner import FleetPlan
from autoscaler.policy.model import FleetPolicy


@dataclass(frozen=True, slots=True, eq=False)
class FleetView:
    """One tick of one fleet.

    Attributes:
        overrides: operators' words at that moment, expired ones included.
        steps_s: seconds that each step took.
        leader: whether this instance may act.
        frozen: why nothing is done, empty where something is.
    """

    fleet: str
    policy: FleetPolicy
    observation: Observation
    plan: FleetPlan
    report: ApplyReport
    overrides: tuple[Override, ...]
    steps_s: Mapping[str, float]
    leader: bool
    frozen: str = ""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What an operator must know."""
        return self.plan.conditions
