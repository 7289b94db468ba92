"""Where each hot tenant's requests go: to its own group while that carries them, else to the ring.

Routers send all requests of a hot adapter to its group, whatever waits there. So a group is named only while its READY
replicas carry the tenant; one that is too small, still starts or saturates leaves them to the ring, which spreads a
tenant over as many owners as it needs. Worked numbers: replicas of 4,000 tokens/s filled to .8 carry 3,200 each. A
tenant of 6,000 moves in when two are ready; at 7,040, a tenth above what two may be filled to, it moves back.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.decisions import Condition
from autoscaler.domain.diagnosis import Cause, Diagnosis
from autoscaler.domain.figures import figure
from autoscaler.domain.fleet import Replica, ReplicaState, Tier
from autoscaler.domain.observation import Observation
from autoscaler.domain.signals import value_or
from autoscaler.planner.demand import Demand
from autoscaler.planner.residency import adapters_of
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring import MemberState, RingSnapshot
from autoscaler.scaling import ScalingMemory, capacity_of
from autoscaler.tiering import TierPlan

SHORT_TICKS = 2
"""A rate is measured over a window of four ticks: two in a row are no burst that the window cut in half."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a hot group's tenant lives. Lost with a restart: what is published says it again.

    Attributes:
        apart: its group is to serve it; False: the ring is.
        listed: routers send to the group now; they follow `apart` an epoch or more later.
        fits: the group may have as many replicas as the tenant needs.
        since_s: since when `apart` is what it is.
        left_at_s: when it last moved from its group to the ring, None if never.
        short_ticks: ticks in a row in which the group was too small, or saturated.
        crowded: it is not apart although replicas of its group are ready, or because the group could never be enough.
        why: why it is not apart, in words; empty where it is.
    """

    tenant: str
    apart: bool = False
    listed: bool = False
    fits: bool = True
    since_s: float = 0.0
    left_at_s: float | None = None
    short_ticks: int = 0
    crowded: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Group:
    """One group's figures of this tick; tokens/s, `usable` of one replica, None where no capacity is known.

    Attributes:
        ready: replicas that are, with the tenant's adapters.
        most: replicas that it may have, by its bounds and by what the others leave of the total.
    """

    ready: int
    asked: float
    usable: float | None
    most: int
    saturated: bool


def hot_group_name(tenant: str) -> str:
    """The group of a hot tenant: `hot-acme`; ids that are no Kubernetes names get a digest of 8 hex digits."""
    slug = re.sub(r"[^a-z0-9]+", "-", tenant.lower()).strip("-")[:40].strip("-")
    if slug == tenant:
        return f"hot-{tenant}"
    return f"hot-{slug or 'tenant'}-{hashlib.sha256(tenant.encode()).hexdigest()[:8]}"


def hot_groups(tiers: TierPlan) -> dict[str, str]:
    """Group name -> tenant, of the tenants that are HOT after this tick."""
    return {hot_group_name(tiers.ids[row]): tiers.ids[row] for row in np.flatnonzero(tiers.of(Tier.HOT)).tolist()}


def find_homes(
    observation: Observation,
    demand: Demand,
    diagnosis: Diagnosis,
    tiers: TierPlan,
    policy: FleetPolicy,
    scaling: ScalingMemory,
    leaving: Collection[str],
    published: RingSnapshot | None,
    before: Mapping[str, Home],
) -> dict[str, Home]:
    """Group name -> where its tenant lives; of HOT tenants, and of those that were until routers let go of the group.

    Args:
        scaling: what replicas were seen to carry.
        leaving: replicas on their way out.
        published: what routers follow now; it says where requests go, whatever was decided.
        before: of the last tick.
    """
    listed = listed_groups(published)
    hot = hot_groups(tiers)
    rows = observation.catalogue.tenant_row
    left = {
        name: g.tenant for name, g in observation.groups.items() if name in listed - hot.keys() and g.tenant in rows
    }
    homes = {}
    for name, tenant in sorted((hot | left).items()):
        last = before.get(name) or Home(tenant, apart=name in listed, since_s=observation.now_s)
        if name in hot:
            group = _figures(name, tenant, observation, demand, diagnosis, policy, scaling, leaving)
            homes[name] = _judged(last, group, policy, observation.now_s, listed=name in listed)
        else:
            why = f"{tenant} is {tiers.tier(tenant).value} again"
            homes[name] = _moved(last, False, True, 0, why, observation.now_s, listed=True)
    return homes


def crowded(homes: Mapping[str, Home]) -> Iterable[Condition]:
    """`ServedByRing/<tenant>`, where a group of its own exists and does not carry it, or never could."""
    for name, home in sorted(homes.items()):
        if not home.apart and home.crowded:
            yield Condition(f"ServedByRing/{home.tenant}", f"the ring serves {home.tenant}, not {name}: {home.why}")


def listed_groups(published: RingSnapshot | None) -> frozenset[str]:
    """Hot groups to which routers send."""
    hot = () if published is None else published.hot.values()
    return frozenset(g.group for g in hot if any(m.state is MemberState.ACTIVE for m in g.members))


def _figures(
    name: str,
    tenant: str,
    observation: Observation,
    demand: Demand,
    diagnosis: Diagnosis,
    policy: FleetPolicy,
    scaling: ScalingMemory,
    leaving: Collection[str],
) -> _Group:
    row = observation.catalogue.tenant_row[tenant]
    seen = float(demand.rate_tokens_per_s[row])
    capacity = capacity_of(scaling, policy, name)
    others = sum(g.current_replicas for g in observation.groups.values() if g.name != name)
    hot = policy.groups.hot
    return _Group(
        ready=sum(
            r.group == name and r.state is ReplicaState.READY and r.id not in leaving and _holds(r, row, observation)
            for r in observation.replicas
        ),
        asked=float(demand.mean_tokens_per_s[row]) if math.isnan(seen) else seen,
        # Where no capacity is known, as much as one was seen to carry with ease.
        usable=value_or(policy.usable(capacity.tokens_per_s), capacity.proven_tokens_per_s) or None,
        most=min(policy.budget.max_replicas_total - others, 0 if hot is None else hot.max_replicas),
        saturated=diagnosis.cause(name) is Cause.SATURATION,
    )


def _holds(replica: Replica, tenant_row: int, observation: Observation) -> bool:
    """Whether it has the tenant's adapters, those aside that failed; one without them is named to nobody."""
    if replica.registered is None:
        return True
    failed = observation.ledger.failed.get(replica.id, {})
    lacks = frozenset(adapters_of(observation.catalogue, tenant_row)) - replica.registered
    return lacks <= failed.keys()


def _judged(before: Home, group: _Group, policy: FleetPolicy, now_s: float, *, listed: bool) -> Home:
    slack = 1.0 + policy.scaling.tolerance_ratio
    fits = _within(group, group.most, slack if before.fits else 1.0 / slack)
    enough = _within(group, group.ready, slack if before.apart else 1.0)
    short = 0 if enough and not group.saturated else before.short_ticks + 1
    if before.apart:
        stays = group.ready > 0 and short < SHORT_TICKS
    else:
        settled = before.left_at_s is None or now_s - before.left_at_s >= policy.scaling.scale_in.stabilisation_s
        stays = group.ready > 0 and short == 0 and settled
    why = "" if stays else _why(group, fits)
    home = _moved(before, stays, fits, short, why, now_s, listed=listed)
    return replace(home, crowded=not stays and (group.ready > 0 or not fits))


def _within(group: _Group, replicas: int, slack: float) -> bool:
    """Whether so many replicas carry what the tenant asks for. Where no capacity is known, only a queue says no."""
    return group.usable is None or group.asked <= replicas * group.usable * slack


def _moved(before: Home, apart: bool, fits: bool, short: int, why: str, now_s: float, *, listed: bool) -> Home:
    return Home(
        tenant=before.tenant,
        apart=apart,
        listed=listed,
        fits=fits,
        since_s=now_s if apart != before.apart else before.since_s,
        left_at_s=now_s if before.apart and not apart else before.left_at_s,
        short_ticks=short,
        why=why,
    )


def _why(group: _Group, fits: bool) -> str:
    asked = f"it asks for {figure(group.asked)} tokens/s"
    filled = "" if group.usable is None else f" that may be filled to {figure(group.ready * group.usable)}"
    carry = f"its group has {group.ready} ready replicas{filled}"
    queue = ", and requests queue there" if group.saturated else ""
    most = f"; it may have {max(group.most, 0)} (groups.hot.maxReplicas, budget.maxReplicasTotal)"
    return f"{asked}, and {carry}{queue}{'' if fits else most}"
