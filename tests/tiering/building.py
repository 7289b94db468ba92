"""Tenants in one line each, and fleets that live through many ticks."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from autoscaler.domain.decisions import TierDecision
from autoscaler.domain.diagnosis import Diagnosis
from autoscaler.domain.fleet import Override, Tier
from autoscaler.domain.signals import UNSEEN, Fresh
from autoscaler.policy.groups import ColdGroup, Groups, HotGroups, WarmGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.steps import Budget, Scaling, Slo, TenantSlo, Tiering
from autoscaler.policy.words import Isolation, Trigger
from autoscaler.tiering import TieringMemory, TierPlan, TierView, decide_tiers

NOW = 1_795_867_200.0
HOUR = 3600.0
CAPACITY = 4000.0  # tokens/s of a replica: HOT from 12,000, back below 6,000

HOT_GROUPS = HotGroups()
_NOTHING: dict[str, Any] = {
    "rate": 0.0, "mean": 0.0, "upper": 0.0, "known": True, "burst": False, "slo_missed": False, "adapters": 1,
    "loadable": True,
}  # fmt: skip


def view(
    tenants: dict[str, dict[str, Any]],
    *,
    capacity: float | None = CAPACITY,
    slots: int | None = None,
    diagnosis: Diagnosis | None = None,
    overrides: Iterable[Override] = (),
    later: Iterable[float] | None = None,
) -> TierView:
    """Columns from `{tenant: {field: value}}`; what is left out is quiet, known and loadable."""
    ids = tuple(sorted(tenants))
    rows = [{**_NOTHING, **tenants[i]} for i in ids]

    def column(name: str, dtype: type = np.float64) -> Any:
        return np.array([row[name] for row in rows], dtype)

    return TierView(
        ids=ids,
        rate_tokens_per_s=column("rate"),
        mean_tokens_per_s=column("mean"),
        upper_tokens_per_s=column("upper"),
        known=column("known", np.bool_),
        burst=column("burst", np.bool_),
        slo_missed=column("slo_missed", np.bool_),
        adapters=column("adapters", np.int64),
        loadable=column("loadable", np.bool_),
        capacity_tokens_per_s=UNSEEN if capacity is None else Fresh(capacity),
        ring_adapters=slots,
        diagnosis=diagnosis or Diagnosis(),
        overrides=tuple(overrides),
        later_upper_tokens_per_s=None if later is None else np.array(list(later)),
    )


def load(tokens_per_s: float, **fields: Any) -> dict[str, Any]:
    """A steady tenant: rate and mean as given, upper band a tenth above."""
    return {"rate": tokens_per_s, "mean": tokens_per_s, "upper": tokens_per_s * 1.1, **fields}


def policy(
    *,
    dedicated: Iterable[str] = (),
    hot: HotGroups | None = HOT_GROUPS,
    cold: ColdGroup | None = None,
    total: int = 32,
    warm_min: int = 2,
    **tiering: Any,
) -> FleetPolicy:
    """The default policy with some of its keys changed; load promotes, unless said otherwise."""
    return FleetPolicy(
        name="fleet",
        base_model="base",
        slo=Slo(tenants={t: TenantSlo(isolation=Isolation.DEDICATED) for t in dedicated}),
        groups=Groups(warm=WarmGroup(min_replicas=warm_min), hot=hot, cold=cold),
        budget=Budget(max_replicas_total=total),
        scaling=Scaling(utilisation_ratio=0.8),
        tiering=Tiering(**{"promote_on": (Trigger.LOAD,), **tiering}),
    )


def override(tenant: str, tier: Tier, until: float = NOW + HOUR, **fields: Any) -> Override:
    """An operator's word."""
    return Override(tenant, tier, "launch day", "alice", NOW, until, **fields)


class Fleet:
    """A fleet that lives: each `tick` decides at the next moment and keeps the memory."""

    def __init__(self, told: FleetPolicy | None = None, **seen: Any) -> None:
        self.told, self.seen, self.now_s, self.memory = told or policy(), seen, NOW, TieringMemory()
        self.plan: TierPlan | None = None

    def tick(self, tenants: dict[str, dict[str, Any]], after_s: float = 15.0, **seen: Any) -> TierPlan:
        """One decision, `after_s` later than the last."""
        self.now_s += after_s
        self.plan, self.memory = decide_tiers(
            view(tenants, **{**self.seen, **seen}), self.told, self.memory, self.now_s
        )
        return self.plan

    def ticks(self, tenants: dict[str, dict[str, Any]], for_s: float, every_s: float = 60.0, **seen: Any) -> TierPlan:
        """The same for so long."""
        plan = self.tick(tenants, every_s, **seen)
        for _ in range(int(for_s // every_s) - 1):
            plan = self.tick(tenants, every_s, **seen)
        return plan

    def starts(self, tenant: str, tier: int, for_s: float = 24 * HOUR) -> None:
        """Put a known tenant into a tier for some time."""
        row = self.memory.ids.index(tenant)
        codes, since = self.memory.tier.copy(), self.memory.since_s.copy()
        codes[row], since[row] = tier, self.now_s - for_s
        self.memory = replace(self.memory, tier=codes, since_s=since)


def decide(
    tenant: dict[str, Any], told: FleetPolicy | None = None, before: int | None = 1, **seen: Any
) -> TierDecision:
    """The decision for one tenant `t` that has been in a tier for a day; `before` None is a new one."""
    fleet = Fleet(told, **seen)
    if before is not None:
        fleet.tick({"t": {}}, overrides=())
        fleet.starts("t", before)
    return fleet.tick({"t": tenant}).explain("t")
