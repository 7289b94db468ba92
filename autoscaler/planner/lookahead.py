"""Recorded rates of tenants, restated as totals of today's groups: what outlooks of groups are made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autoscaler.domain.observation import Floats
from autoscaler.planner.homes import hot_groups
from autoscaler.planner.plan import FleetPlan
from autoscaler.planner.views import group_rows
from autoscaler.policy.model import FleetPolicy


def recorded_totals(
    plan: FleetPlan, policy: FleetPolicy, ids: Sequence[str], rates: npt.NDArray[np.float32]
) -> tuple[list[str], Floats]:
    """Tokens/s per bucket and group, had each tenant always been in today's group with today's length of requests.

    Args:
        plan: today's tiers, lengths and forecasts.
        policy: which groups there are.
        ids: the recorded tenants (S); a fleet's largest, where it has too many to record all.
        rates: requests/s [T, S]; NaN = unknown, which for a tenant alone is a time before it came.

    Returns:
        Names of groups (G), and totals [T, G]; NaN in buckets of which nothing is known. Where tenants are not
        recorded, the totals are scaled by what the forecast says of all over what it says of the recorded ones.
    """
    names, group_of = group_rows(plan.tiers, hot_groups(plan.tiers), policy)
    rows = np.fromiter((plan.tiers.row.get(name, -1) for name in ids), np.int64, len(ids))
    known = rows >= 0
    rows, rates = rows[known], rates[:, known]
    weighted = np.nan_to_num(rates) * plan.demand.tokens_per_request[rows]
    members = np.zeros((len(rows), len(names)))
    members[np.arange(len(rows)), group_of[rows]] = 1.0
    mean = plan.demand.mean_tokens_per_s
    every = np.bincount(group_of, mean, len(names))
    recorded = np.bincount(group_of[rows], mean[rows], len(names))
    scale = np.divide(every, recorded, out=np.ones(len(names)), where=recorded > 0)
    totals: Floats = weighted @ members * scale
    totals[np.isnan(rates).all(axis=1)] = np.nan
    return names, totals
