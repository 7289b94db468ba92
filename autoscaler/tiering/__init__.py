"""Which tier each tenant lives in: HOT, WARM or COLD, vectorised over all tenants, each with its reason.

The room decides tiers and nothing else. It refuses to know how demand was forecast, how an adapter is placed, how many
replicas a group has and what time it is: columns and the time are arguments, memory goes in and comes out.
"""

from autoscaler.tiering.decide import decide_tiers
from autoscaler.tiering.memory import TieringMemory
from autoscaler.tiering.plan import TierPlan
from autoscaler.tiering.view import TierView

__all__ = ["TierPlan", "TierView", "TieringMemory", "decide_tiers"]
