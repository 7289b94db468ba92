"""Advice to serve a stable hot tenant from a checkpoint with its adapter merged in. Advice only: nothing here is done.

A merged checkpoint is the base model's weights with one adapter added for good. Its replicas pay for no adapter slot in
any step, and cannot serve anybody else: so it is for a tenant that has kept a group of its own busy for days.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.fleet import Tier
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.scaling import ScalePlan
from autoscaler.tiering import TierPlan

STABLE_DAYS = 3.0
STEP_COST_RATIO = 1.082
"""A step with one adapter over one without, by recent kernels (1.08 + .002 n); servers of 2025 paid 1.4 to 1.8."""


@dataclass(frozen=True, slots=True)
class MergeAdvice:
    """One HOT tenant's case.

    Attributes:
        tenant, adapter: the adapter is empty where the tenant has several.
        advised: whether to do it.
        saved_replicas: what its group would need less, a share of its present size.
        message: the case in words, with rank, stability, saving, storage and consent.
    """

    tenant: str
    adapter: str
    advised: bool
    saved_replicas: float
    message: str


def merge_advice(
    tiers: TierPlan, scale: ScalePlan, catalogue: Catalogue, policy: FleetPolicy, now_s: float
) -> tuple[MergeAdvice, ...]:
    """The case of every HOT tenant, in the order of tenants."""
    groups = {d.tenant: d for d in scale.decisions.values() if d.tenant}
    found = []
    for row in np.flatnonzero(tiers.of(Tier.HOT)).tolist():
        tenant = tiers.ids[row]
        mine = np.flatnonzero(catalogue.tenant_index == row).tolist()
        replicas = groups[tenant].current if tenant in groups else 0
        found.append(_advice(tenant, mine, replicas, (now_s - float(tiers.since_s[row])), catalogue, policy))
    return tuple(found)


def _advice(
    tenant: str, mine: list[int], replicas: int, hot_s: float, catalogue: Catalogue, policy: FleetPolicy
) -> MergeAdvice:
    if len(mine) != 1:
        return MergeAdvice(
            tenant, "", False, 0.0,
            f"A merged checkpoint is not advised: {tenant} has {len(mine)} adapters, and a checkpoint holds one.",
        )  # fmt: skip
    adapter, rank = catalogue.ids[mine[0]], int(catalogue.ranks[mine[0]])
    saving = 1 - 1 / STEP_COST_RATIO
    saved, days, needed = replicas * saving, hot_s / policy.forecast.day_s, STABLE_DAYS
    stable = days >= needed
    facts = (
        f"it has been HOT for {days:.1f} days of the {needed:g} that count as stable; merging {adapter} "
        f"({f'rank {rank}' if rank else 'rank unknown'}) takes about {saving:.0%} off each step, {saved:.2g} of its "
        f"{replicas} replicas, and needs storage for another copy of the base model, made anew for each revision"
    )
    allowed = policy.groups.hot is not None and policy.groups.hot.merged_checkpoints.allowed
    consent = (
        "The policy consents to it"
        if allowed
        else "It is not done: the policy does not consent (groups.hot.mergedCheckpoints.allowed)"
    )
    advised = stable and replicas > 0
    verdict = "A merged checkpoint is advised" if advised else "A merged checkpoint is not advised yet"
    return MergeAdvice(tenant, adapter, advised, saved, f"{verdict}: {facts}. {consent}.")
