"""One budget over all groups: who gets replicas when `budget.maxReplicasTotal` does not hold all of them.

In order: groups that may not shrink; every group's minimum, the warm group's first; what already runs; growth.
So a group that was asked for takes its first replica from the warm group, and one that load alone wants waits.
Worked numbers: 8 in all, warm runs 8 and wants 8, a tenant was promised a group: warm 7, hot 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.domain.decisions import Reason, Step, Trail
from autoscaler.domain.fleet import Tier


@dataclass(frozen=True, slots=True)
class Claim:
    """What one group asks of the budget.

    Attributes:
        desired: after the group's own limits.
        least: never fewer, where the budget holds it.
        fixed: it may not shrink (paused, blocked, foreign actor), so what runs is taken from the budget first.
        asked: a hot group that the policy or an operator asked for.
    """

    group: str
    tier: Tier
    current: int
    desired: int
    least: int
    fixed: bool = False
    asked: bool = False

    @property
    def rank(self) -> tuple[int, str]:
        """Who goes first: asked-for groups, warm, hot by load, cold."""
        order = 0 if self.asked else {Tier.WARM: 1, Tier.HOT: 2, Tier.COLD: 3}[self.tier]
        return order, self.group

    def levels(self) -> tuple[int, int, int]:
        """Counts to reach at each level: minimum, what runs, all."""
        first = self.least if self.asked or self.current else 0
        least = min(self.desired, first)
        return least, max(least, min(self.current, self.desired)), self.desired


def share(claims: tuple[Claim, ...], most: int) -> dict[str, int]:
    """Replicas per group, `most` in all; fixed groups keep what runs even beyond it."""
    granted = {claim.group: min(claim.current, claim.desired) if claim.fixed else 0 for claim in claims}
    left = most - sum(granted.values())
    for level in range(3):
        for claim in sorted(claims, key=lambda c: (level == 0 and c.tier is not Tier.WARM, c.rank)):
            more = max(0, min(claim.levels()[level] - granted[claim.group], left))
            granted[claim.group] += more
            left -= more
    return granted


def within_total(claims: tuple[Claim, ...], trails: Mapping[str, Trail], most: int) -> dict[str, Trail]:
    """The trails, with a step where the total bit."""
    if sum(claim.desired for claim in claims) <= most:
        return dict(trails)
    granted = share(claims, most)
    out = dict(trails)
    for claim in claims:
        count = granted[claim.group]
        if count != claim.desired:
            others = ", ".join(
                f"{c.group} {granted[c.group]}" for c in sorted(claims, key=lambda c: c.rank) if c is not claim
            )
            text = f"budget.maxReplicasTotal {most} leaves {count} beside {others or 'no other group'}"
            out[claim.group] = (*out[claim.group], Step(Reason.BUDGET, count, text))
    return out
