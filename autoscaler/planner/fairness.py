"""Whether routers bound tenants: while the warm group has all that it may have and saturates, and minutes after."""

from __future__ import annotations

import math
from collections import Counter

from autoscaler.domain.diagnosis import Cause, Diagnosis
from autoscaler.domain.observation import Catalogue
from autoscaler.planner.views import WARM_GROUP
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import Fairness
from autoscaler.scaling import ScalePlan

STAY_S = 300.0
"""The bound ends so long after the fleet was last full: it empties the very queues by which fullness is seen, and an
aggressor that is let go fills them again within seconds."""


def full_at_s(
    scale: ScalePlan, diagnosis: Diagnosis, before_s: float | None, in_force: bool, now_s: float
) -> float | None:
    """When the warm group was last full: it saturates, serves with every replica that it may have, and needs more.

    Args:
        before_s: what this said at the last tick.
        in_force: the published ring bounds tenants.
    """
    decision = scale.decisions.get(WARM_GROUP)
    if decision is None:
        return before_s
    nothing_comes = decision.current == decision.desired <= decision.ready
    full = decision.recommended > decision.desired and nothing_comes
    cause = diagnosis.cause(WARM_GROUP)
    # A controller that starts, or whose engines are silent, does not know that the crowd is gone.
    unsure = in_force and (before_s is None or cause is Cause.UNKNOWN)
    return now_s if unsure or (full and cause is Cause.SATURATION) else before_s


def fairness(policy: FleetPolicy, catalogue: Catalogue, at_s: float | None, now_s: float) -> Fairness | None:
    """The bound that the ring should carry now; None where the policy has none, or the fleet has room."""
    told = policy.fairness
    if told is None or at_s is None or now_s - at_s > STAY_S:
        return None
    several = {tenant for tenant, count in Counter(catalogue.tenant_of).items() if count > 1}
    tenants = {a: t for a, t in zip(catalogue.ids, catalogue.tenant_of, strict=True) if t in several}
    return Fairness(told.max_in_flight_per_tenant, math.ceil(1000 * told.retry_after_s), tenants)
