"""What scale decisions are made from, and the plan that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.domain.decisions import Condition, ScaleDecision
from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import Group, Replica
from autoscaler.domain.signals import UNSEEN, Fresh, Signal
from autoscaler.scaling.capacity import Capacity


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """What one group's tenants ask for, with the tiers of this tick. Tokens are prompt plus completion tokens.

    Attributes:
        now_tokens_per_s: pooled upper band of the forecast over the look-ahead of growth (`scaling.startup`).
        horizon_tokens_per_s: pooled upper band over `scaleIn.horizon`.
        requests_per_s: what routers saw over the last window; a `Fresh` zero is trusted to be no traffic.
        seen_tokens_per_s: of the answers that ended in it.
        horizon_by: what set `horizon_tokens_per_s` where it is not tenants' forecasts, for the trail.
    """

    now_tokens_per_s: Signal = UNSEEN
    horizon_tokens_per_s: Signal = UNSEEN
    requests_per_s: Signal = UNSEEN
    horizon_by: str = ""
    seen_tokens_per_s: Signal = UNSEEN

    @property
    def tokens_per_request(self) -> float:
        """Of the requests seen; 0 where there were none."""
        tokens, requests = self.seen_tokens_per_s, self.requests_per_s
        known = isinstance(tokens, Fresh) and isinstance(requests, Fresh) and requests.value > 1e-6
        return tokens.value / requests.value if known else 0.0  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class ScaleView:
    """One fleet.

    Attributes:
        groups: what exists, by name.
        replicas: every live replica.
        demand: by group name; wanted groups that do not exist yet included.
        diagnosis: the cause per group.
        hot_tenants: name of each hot group that tiering wants -> its tenant. A hot group that exists and is not in it
            is not needed any more.
        asked: names of those that were asked for (isolation, a pin, an override); they go before others.
        unplaced_adapters: adapters with demand that have no adapter slot (`TierPlan.unplaced_adapters`).
        wanted_adapters: those and the ones that have one (`TierPlan.wanted_adapters`).
        churn_left: whether the ring's budget of moves allows a removal now.
    """

    groups: Mapping[str, Group]
    replicas: tuple[Replica, ...]
    demand: Mapping[str, GroupDemand] = field(default_factory=dict)
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    hot_tenants: Mapping[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    unplaced_adapters: int = 0
    wanted_adapters: int = 0
    churn_left: bool = True


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """Every group's decision.

    Attributes:
        decisions: by group name, in the order warm, cold, hot groups by name.
        conditions: what an operator must know (`AdapterSlotsShort`, `ForeignActor/warm`, `ReplicasStuck/warm`);
            the planner knows since when each holds.
        capacity: what one replica of each group carries.
        remove: hot groups that are not needed any more, to be removed once they are drained.
        startup_s: how long replicas were seen to take until they answer; Missing while the policy's word counts.
    """

    decisions: Mapping[str, ScaleDecision]
    conditions: tuple[Condition, ...] = ()
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    startup_s: Signal = UNSEEN
