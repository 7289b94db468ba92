"""The decision: one observation in, one plan out, with everything that led to it.

The rooms below decide tiers, scale and rings; this one puts them in order, keeps their memories, and derives the
effects that lead from what is observed to what was decided, make before break. It refuses to know how an effect is
done.
"""

from autoscaler.planner.approval import Proposal
from autoscaler.planner.explain import Explanation, UnknownSubjectError, explain
from autoscaler.planner.learned import GroupOutlook, Learned, LearnedModel
from autoscaler.planner.memory import PlannerMemory, checkpoint, restored
from autoscaler.planner.merging import MergeAdvice
from autoscaler.planner.plan import FleetPlan, plan
from autoscaler.planner.standing import HorizonStanding

__all__ = [
    "Explanation",
    "FleetPlan",
    "GroupOutlook",
    "HorizonStanding",
    "Learned",
    "LearnedModel",
    "MergeAdvice",
    "PlannerMemory",
    "Proposal",
    "UnknownSubjectError",
    "checkpoint",
    "explain",
    "plan",
    "restored",
]
