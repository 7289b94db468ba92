"""A group's bounds at a moment: the policy's minimum and maximum, or those of the schedule that holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Group, Tier
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.schedules import active


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most replicas, each with who says so (`Bounds` or `Schedule`) and where."""

    least: int
    most: int
    least_by: Reason = Reason.BOUNDS
    most_by: Reason = Reason.BOUNDS
    least_source: str = ""
    most_source: str = ""


def bounds(group: Group, policy: FleetPolicy, now_s: float) -> Bounds | None:
    """The bounds of a group; None where the policy has no such group, which is then left alone."""
    groups = policy.groups
    section = {Tier.WARM: groups.warm, Tier.COLD: groups.cold, Tier.HOT: groups.hot}[group.tier]
    if section is None:
        return None
    path = f"groups.{group.tier.value}"
    plain = Bounds(
        section.min_replicas,
        section.max_replicas,
        least_source=f"{path}.minReplicas",
        most_source=f"{path}.maxReplicas",
    )
    schedule = active(section.schedules, now_s)
    if schedule is None:
        return plain
    least, most = schedule.min_replicas, schedule.max_replicas
    source = (
        f"{path}.schedules[{section.schedules.index(schedule)}] ({schedule.start}-{schedule.end} {schedule.time_zone})"
    )
    if least is not None:
        plain = replace(plain, least=least, most=max(plain.most, least), least_by=Reason.SCHEDULE, least_source=source)
    if most is not None:
        plain = replace(plain, least=min(plain.least, most), most=most, most_by=Reason.SCHEDULE, most_source=source)
    return plain
