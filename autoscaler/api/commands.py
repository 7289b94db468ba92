"""The few commands: overrides, pauses, proposals. Who gives one comes from the credential."""

from __future__ import annotations

import asyncio
import datetime
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from autoscaler.api import render
from autoscaler.api.asked import Operator, Parts, View, require
from autoscaler.api.problems import ProblemError
from autoscaler.api.render_override import override_with_effect
from autoscaler.domain.fleet import LONGEST_OVERRIDE_S, Override, PauseMode, Tier
from autoscaler.domain.names import did_you_mean

router = APIRouter(prefix="/v1", tags=["commands"])

Sentence = Annotated[str, Field(min_length=3, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Ttl = Annotated[float, Field(gt=0, le=LONGEST_OVERRIDE_S)]


class OverrideRequest(BaseModel):
    """What a tenant's tier should be, why, and until when."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"tier": "hot", "reason": "launch day, ticket 4711", "ttl_s": 14400}]},
    )
    tier: Tier
    reason: Sentence
    ttl_s: Ttl | None = None
    expires_at: datetime.datetime | None = None

    @model_validator(mode="after")
    def _one_end(self) -> OverrideRequest:
        if (self.ttl_s is None) == (self.expires_at is None):
            raise ValueError("give exactly one of ttl_s and expires_at: an override ends")
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise ValueError("expires_at needs a time zone, such as 2026-12-01T12:00:00Z")
        return self


class PauseRequest(BaseModel):
    """Which scaling of a group stops, why, and for how long."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"mode": "scale-in", "reason": "load test", "ttl_s": 3600}]},
    )
    mode: PauseMode
    reason: Sentence
    ttl_s: Ttl = 3600.0


@router.put("/fleets/{fleet}/tenants/{tenant:path}/override")
async def put_override(
    view: View,
    parts: Parts,
    caller: Operator,
    tenant: str,
    body: OverrideRequest,
    response: Response,
    if_match: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Set a tenant's override. `If-Match: "REVISION"` changes exactly that one; `"0"` only where there is none.

    Decided within two ticks. The answer says what it displaces, and in `note` why it may not come to that.
    """
    require("tenant", tenant, view.observation.catalogue.tenant_row)
    if body.tier is Tier.HOT and view.policy.groups.hot is None:
        raise ProblemError(409, "the policy has no hot groups (`groups.hot: none`), so no tenant can be hot")
    now_s = parts.now_s()
    expires_at_s = body.expires_at.timestamp() if body.expires_at else now_s + (body.ttl_s or 0.0)
    if not now_s < expires_at_s <= now_s + LONGEST_OVERRIDE_S:
        raise ProblemError(
            422, f"expires_at is {body.expires_at}; it must be within the next {LONGEST_OVERRIDE_S / 86400:.0f} days"
        )
    wanted = Override(tenant, body.tier, body.reason, caller.name, now_s, expires_at_s)
    kept = await asyncio.to_thread(parts.overrides.put, view.fleet, wanted, _revision(if_match))
    response.headers["ETag"] = f'"{kept.revision}"'
    return {**override_with_effect(kept, view, now_s), "displaces_tier": view.plan.tiers.tier(tenant).value}


@router.delete("/fleets/{fleet}/tenants/{tenant:path}/override")
async def delete_override(
    view: View, parts: Parts, caller: Operator, tenant: str, if_match: Annotated[str | None, Header()] = None
) -> dict[str, Any]:
    """Clear a tenant's override; the answer is what was there."""
    revision = _revision(if_match)
    cleared = await asyncio.to_thread(parts.overrides.clear, view.fleet, tenant, caller.name, revision)
    if cleared is None:
        known = (o.tenant for o in parts.overrides.overrides(view.fleet))
        raise ProblemError(404, f"{tenant!r} has no override{did_you_mean(tenant, known)}")
    return render.override(cleared, parts.now_s())


@router.put("/fleets/{fleet}/groups/{group}/pause")
async def put_pause(view: View, parts: Parts, caller: Operator, group: str, body: PauseRequest) -> dict[str, Any]:
    """Stop a group's scale-in, scale-out or both for a while; `none` ends it."""
    require("group", group, view.plan.scale.decisions)
    expires_at_s = parts.now_s() + body.ttl_s
    said = (view.fleet, group, body.mode, body.reason, expires_at_s, caller.name)
    await asyncio.to_thread(parts.overrides.pause, *said)
    return {
        "group": group, "mode": body.mode.value, "reason": body.reason, "actor": caller.name,
        "expires_at": render.time_of(expires_at_s),
    }  # fmt: skip


@router.post("/fleets/{fleet}/proposals/{proposal_id}/approve")
async def approve(view: View, parts: Parts, caller: Operator, proposal_id: str) -> dict[str, Any]:
    """Let a proposed change happen; it does at the next tick if it is still wanted."""
    return await _decide(view.fleet, parts, caller, proposal_id, approve=True)


@router.post("/fleets/{fleet}/proposals/{proposal_id}/reject")
async def reject(view: View, parts: Parts, caller: Operator, proposal_id: str) -> dict[str, Any]:
    """Refuse a proposed change."""
    return await _decide(view.fleet, parts, caller, proposal_id, approve=False)


async def _decide(fleet: str, parts: Parts, caller: Operator, proposal_id: str, *, approve: bool) -> dict[str, Any]:
    decided = await asyncio.to_thread(parts.proposals.decide, fleet, proposal_id, caller.name, approve=approve)
    if decided is None:
        raise ProblemError(404, f"no proposal {proposal_id!r} waits; see GET /v1/fleets/{fleet}/proposals")
    return {"id": decided.id, "subject": decided.subject, "state": decided.state.value, "actor": caller.name}


def _revision(if_match: str | None) -> int | None:
    """The revision of an If-Match header. Raises ProblemError 400 where it is none."""
    if if_match is None or if_match == "*":
        return None
    found = re.fullmatch(r'"(\d{1,18})"', if_match.strip())
    if found is None:
        raise ProblemError(400, f'If-Match is {if_match!r}; it must be a revision in quotes, such as "3"')
    return int(found[1])
