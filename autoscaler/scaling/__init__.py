"""How many replicas each group needs: demand and pressure through ordered clamps, each with its reason.

The room decides counts. It refuses to know which replica goes (the ring knows what each removal would move), how a
replica is made, and what time it is.
"""

from autoscaler.scaling.capacity import Capacity, capacity_of
from autoscaler.scaling.decide import decide_scale
from autoscaler.scaling.memory import ScalingMemory
from autoscaler.scaling.starts import as_measured
from autoscaler.scaling.view import GroupDemand, ScalePlan, ScaleView

__all__ = [
    "Capacity",
    "GroupDemand",
    "ScalePlan",
    "ScaleView",
    "ScalingMemory",
    "as_measured",
    "capacity_of",
    "decide_scale",
]
