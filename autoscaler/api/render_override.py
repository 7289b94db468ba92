"""An override as JSON, with what the last plan makes of it."""

from __future__ import annotations

from autoscaler.api.render import Json, override
from autoscaler.domain.fleet import Override, Tier
from autoscaler.telemetry import FleetView


def override_with_effect(o: Override, view: FleetView, now_s: float) -> Json:
    """One override; `decided_tier` is what the last plan decided with it, null where it has not, or no more.

    `note` says why the tenant is in another tier than was asked for, or may not come there; null where all is well.
    """
    found = {**override(o, now_s), "decided_tier": None, "note": None}
    if o.expires_at_s <= now_s:
        return found
    if o.tenant not in view.plan.tiers.row:
        return {**found, "note": "the catalogue has no such tenant, so nothing is decided for it"}
    if not any(k.tenant == o.tenant and k.revision == o.revision for k in view.overrides):
        return {**found, "note": _foreseen(o, view, now_s)}
    decision = view.plan.tiers.explain(o.tenant)
    if decision.after is not o.tier:
        found["note"] = f"it is {decision.after.value.upper()}, {decision.reason.value}: {decision.trail[-1].message}"
    return {**found, "decided_tier": decision.after.value}


def _foreseen(o: Override, view: FleetView, now_s: float) -> str | None:
    """What can be told before a plan knows the override: who else has been promised a hot group."""
    hot = view.policy.groups.hot
    if o.tier is not Tier.HOT or hot is None or view.plan.tiers.tier(o.tenant) is Tier.HOT:
        return None
    asked = {k.tenant for k in view.overrides if k.tier is Tier.HOT and k.expires_at_s > now_s} - {o.tenant}
    full = any(c.name == "HotGroupsFull" for c in view.plan.conditions)
    if not full and len(asked) < hot.max_groups:
        return None
    return (
        f"HotGroupsFull: the hot groups that there may be (`groups.hot.maxGroups` is {hot.max_groups}) were asked for "
        "already; the next tick decides whose tenants are worth most, and the others stay on the ring"
    )
