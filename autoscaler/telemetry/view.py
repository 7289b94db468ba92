"""The one thing that the API, the dashboard and metrics read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.domain.decisions import ApplyReport, Condition
from autoscaler.domain.fleet import Override
from autoscaler.domain.observation import Observation
from autoscaler.planner import FleetPlan
from autoscaler.policy.model import FleetPolicy


@dataclass(frozen=True, slots=True)
class LearningView:
    """What goes on beside the loop.

    Attributes:
        known_buckets: buckets of history of which something is known, at most what the policy keeps.
        day_buckets, model_buckets: buckets in a day, and the fewest that a model is trained on.
        training: a model is being trained now.
        trouble: why there is no newer model, empty where nothing is wrong.
        waits_for: what history lacks for a model, in words.
    """

    known_buckets: int
    day_buckets: int
    model_buckets: int
    training: bool
    trouble: str = ""
    waits_for: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FleetView:
    """One tick of one fleet.

    Attributes:
        overrides: operators' words at that moment, expired ones included.
        steps_s: seconds that each step took.
        leader: whether this instance may act.
        frozen: why nothing is done, empty where something is.
        learning: what is learnt beside the loop; None where nothing is.
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
    learning: LearningView | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What an operator must know."""
        return self.plan.conditions
