"""The way out: let go of a fleet so that traffic goes on without the controller, and the way back."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from autoscaler.api import render
from autoscaler.api.asked import KnownFleet, Operator, Parts
from autoscaler.api.commands import Sentence
from autoscaler.api.problems import ProblemError
from autoscaler.ring import decode
from autoscaler.telemetry import FleetView

router = APIRouter(prefix="/v1", tags=["commands"])


class DetachRequest(BaseModel):
    """Why the fleet is let go."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "uninstalling, ticket 4711"}]})
    reason: Sentence


@router.post("/fleets/{fleet}/detach")
async def detach(fleet: KnownFleet, parts: Parts, caller: Operator, body: DetachRequest) -> dict[str, Any]:
    """Stop acting on the fleet, also after a restart; open its gates, remove our marks, and say what remains.

    Routers keep the last ring and engines their adapters, so traffic goes on. Doing it again is harmless.
    """
    kept = await asyncio.to_thread(parts.detachments.detach, fleet, caller.name, body.reason)
    done = await parts.let_go(fleet)
    view = parts.views().get(fleet)
    return {
        "fleet": fleet, "detached": True, "actor": kept.actor, "reason": kept.reason,
        "at": render.time_of(kept.at_s), "done": ["no effect is carried out any more, also after a restart", *done],
        "remains": remains(view) if view else ["the fleet was not observed yet, so what remains is not known"],
    }  # fmt: skip


@router.delete("/fleets/{fleet}/detach")
async def attach(fleet: KnownFleet, parts: Parts, caller: Operator) -> dict[str, Any]:
    """Manage the fleet again. The next tick decides from what is observed then."""
    ended = await asyncio.to_thread(parts.detachments.attach, fleet, caller.name)
    if ended is None:
        raise ProblemError(404, f"{fleet!r} is not detached")
    return {"fleet": fleet, "detached": False, "reason": ended.reason, "at": render.time_of(ended.at_s)}


def remains(view: FleetView) -> list[str]:
    """What stays behind once nothing acts on the fleet, a sentence each."""
    seen = view.observation
    loaded = sum(map(len, seen.ledger.loaded.values()))
    return [
        _ring(view),
        f"engines keep the adapters that they have; {loaded} of them were loaded by this controller, and none is "
        "unloaded",
        _replicas(view),
        f"{len(view.overrides)} overrides, the pauses and the audit stay in the store",
        *_leaving(view),
    ]


def _ring(view: FleetView) -> str:
    if view.observation.ring_body is None:
        return "no ring was ever published, so routers go on as they did before"
    snapshot = decode(view.observation.ring_body)
    return (
        f"routers keep ring epoch {snapshot.epoch} with {len(snapshot.members)} members; a replica that is replaced "
        "from now on is not added to it, so let routers balance over all replicas before you change any"
    )


def _replicas(view: FleetView) -> str:
    counts = ", ".join(f"{name} {group.current_replicas}" for name, group in sorted(view.observation.groups.items()))
    return f"replica counts stay as they are ({counts or 'no group'}); give them to an HPA, or set them by hand"


def _leaving(view: FleetView) -> list[str]:
    """Replicas whose departure had begun and now will not end."""
    leaving = sorted(view.plan.ring.departures)
    return [f"these replicas were leaving and stay, out of the ring: {', '.join(leaving)}"] if leaving else []
