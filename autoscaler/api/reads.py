"""Everything that can be read of a fleet."""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response

from autoscaler.api import render, render_fleet
from autoscaler.api.asked import Cursor, Limit, Parts, Reader, View, cursor_after, read_cursor, require
from autoscaler.api.parts import ApiParts
from autoscaler.api.problems import ProblemError
from autoscaler.api.render_override import override_with_effect
from autoscaler.api.ticks import TickRoute, TickView, of_tick
from autoscaler.domain.decisions import DecisionRecord
from autoscaler.domain.fleet import Tier
from autoscaler.domain.observation import Bools, Floats
from autoscaler.planner import explain
from autoscaler.telemetry import FleetView

router = APIRouter(prefix="/v1", tags=["reads"], route_class=TickRoute)


@router.get("/fleets")
async def fleets(request: Request, response: Response, parts: Parts, caller: Reader) -> dict[str, Any]:
    """Status of every fleet that the caller may see."""
    seen = [view for name, view in sorted(parts.views().items()) if caller.reaches(name)]
    of_tick(request, response, seen)
    return render.listed(map(render_fleet.fleet, seen))


@router.get("/fleets/{fleet}")
async def fleet(view: TickView, caller: Reader) -> dict[str, Any]:
    """Mode, epoch, groups, tier counts, freshness of signals, conditions."""
    return render_fleet.fleet(view)


@router.get("/fleets/{fleet}/tenants")
async def tenants(
    view: TickView,
    caller: Reader,
    tier: Tier | None = None,
    sort: Annotated[str, Query(pattern="^-?(tenant|rate|forecast|ttft)$")] = "-rate",
    search: Annotated[str, Query(max_length=253)] = "",
    limit: Limit = 100,
    cursor: Cursor = "",
) -> dict[str, Any]:
    """Tenants of one tier or all, sorted (`-` = highest first), page by page."""
    ids = view.plan.tiers.ids
    mask = np.ones(len(ids), np.bool_) if tier is None else view.plan.tiers.of(tier)
    if search:
        mask = mask & _named(ids, search)
    rows = np.flatnonzero(mask)
    sign = -1.0 if sort.startswith("-") else 1.0
    key = sign * _sort_key(view, sort.removeprefix("-"))[rows]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    if sort == "-tenant":
        rows, key = rows[::-1], key[::-1]
    start = _start(rows.tolist(), key, ids, read_cursor(cursor))
    page = rows[start : start + limit].tolist()
    more = start + limit < len(rows)
    after = cursor_after([float(key[start + len(page) - 1]), ids[page[-1]]]) if more and page else None
    return render.listed(render.tenant_rows(view, page), after, total=len(rows))


def _named(ids: tuple[str, ...], search: str) -> Bools:
    """Which ids contain a text, upper and lower case alike."""
    wanted = search.casefold()
    return np.fromiter((wanted in name.casefold() for name in ids), np.bool_, len(ids))


def _start(rows: list[int], key: Any, ids: tuple[str, ...], after: list[object] | None) -> int:
    """Where a page begins: behind the tenant of the cursor, or behind its value where the tenant has moved."""
    if after is None:
        return 0
    value, name = after[0], after[-1]
    for position, row in enumerate(rows):
        if ids[row] == name:
            return position + 1
    if not isinstance(value, int | float):
        raise ProblemError(400, "the cursor is none of ours; start without one")
    return int(np.searchsorted(key, value, side="right"))


def _sort_key(view: FleetView, name: str) -> Floats:
    """The column that tenants are sorted by (T); unknown numbers come last among the highest first."""
    if name == "tenant":
        return np.zeros(len(view.plan.tiers.ids))
    if name == "rate":
        return np.nan_to_num(view.plan.demand.rate_tokens_per_s, nan=-1.0)
    if name == "forecast":
        return view.plan.demand.upper_tokens_per_s
    catalogue = view.observation.catalogue
    worst = np.full(len(catalogue.tenants), -1.0)
    np.fmax.at(worst, catalogue.tenant_index, np.nan_to_num(view.observation.traffic.ttft_p99_s, nan=-1.0))
    return worst


@router.get("/fleets/{fleet}/tenants/{tenant:path}")
async def tenant(view: TickView, caller: Reader, tenant: str) -> dict[str, Any]:
    """One tenant: tier and why, rate, forecast, TTFT, SLO, owners, scores."""
    require("tenant", tenant, view.observation.catalogue.tenant_row)
    return render.tenant(view, tenant)


@router.get("/fleets/{fleet}/adapters")
async def adapters(
    view: TickView,
    caller: Reader,
    search: Annotated[str, Query(max_length=253)] = "",
    limit: Limit = 100,
    cursor: Cursor = "",
) -> dict[str, Any]:
    """The catalogue, ascending by id, page by page."""
    ids = view.observation.catalogue.ids
    rows = np.flatnonzero(_named(ids, search)).tolist() if search else range(len(ids))
    after = read_cursor(cursor)
    start = 0 if after is None else bisect_right(rows, str(after[-1]), key=ids.__getitem__)
    page = list(rows[start : start + limit])
    more = cursor_after([ids[page[-1]]]) if start + limit < len(rows) else None
    return render.listed(render.adapter_rows(view, page), more, total=len(rows))


@router.get("/fleets/{fleet}/adapters/{adapter:path}")
async def adapter(view: TickView, caller: Reader, adapter: str) -> dict[str, Any]:
    """One adapter: where it is registered, resident and assigned, who loaded it, and errors in the engine's words."""
    require("adapter", adapter, view.observation.catalogue.row)
    return render.adapter(view, adapter)


@router.get("/fleets/{fleet}/groups")
async def groups(view: TickView, caller: Reader) -> dict[str, Any]:
    """Groups with current, recommended, desired and ready replicas, and why."""
    return render.listed(render_fleet.groups(view))


@router.get("/fleets/{fleet}/overrides")
async def overrides(view: View, parts: Parts, caller: Reader) -> dict[str, Any]:
    """Overrides that were not cleared; expired ones say so.

    `decided_tier` is what the last tick decided with each, `note` why that is not what was asked for.
    """
    now_s = parts.now_s()
    return render.listed(override_with_effect(o, view, now_s) for o in parts.overrides.overrides(view.fleet))


@router.get("/fleets/{fleet}/decisions")
async def decisions(
    view: View,
    parts: Parts,
    caller: Reader,
    since: Annotated[str, Query(max_length=253)] = "",
    subject: Annotated[str, Query(max_length=512)] = "",
    limit: Limit = 100,
) -> dict[str, Any]:
    """Decision records, ascending, after `since` (a record's id), of one subject where given.

    A record that is no longer kept is before all that are; one that never was is answered with 404.
    """
    found = parts.decisions.read(view.fleet, since, subject, limit)
    if since and not _was_kept(since, found, view.fleet, parts):
        newest = parts.decisions.read(view.fleet, limit=1)
        last = f"the newest is {newest[0].id!r}" if newest else "there are none yet"
        raise ProblemError(404, f"the fleet has no decision record {since!r}; {last}; leave `since` out to begin anew")
    return render.listed(map(render.record, found), found[-1].id if len(found) == limit else None)


def _was_kept(since: str, later: tuple[DecisionRecord, ...], fleet: str, parts: ApiParts) -> bool:
    """Whether a record had this id. `later`: what the log has after it, which begins anew where the id is unknown.

    Ids ascend with the clock of who leads, which may step back: then the newest records are looked through.
    """
    if re.fullmatch(re.escape(fleet) + r"-[0-9]{13,}/[0-9]{4,}", since) is None:
        return False
    ascends = not later or later[0].id > since
    return ascends or any(r.id == since for r in parts.decisions.read(fleet, limit=1000))


@router.get("/fleets/{fleet}/explain")
async def explanation(view: TickView, caller: Reader, subject: Annotated[str, Query(max_length=512)]) -> dict[str, Any]:
    """Why a tenant, adapter, group, replica or signal is as it is, in sentences with numbers."""
    return dataclasses.asdict(explain(subject, view.observation, view.plan, view.policy))


@router.get("/fleets/{fleet}/noisy-neighbours")
async def noisy_neighbours(view: TickView, caller: Reader) -> dict[str, Any]:
    """Tenants that hurt others or are hurt, worst first, with evidence."""
    return render.listed(render.noisy_neighbours(view))


@router.get("/fleets/{fleet}/adapter-thrash")
async def adapter_thrash(view: TickView, caller: Reader) -> dict[str, Any]:
    """Replicas by adapter thrash, worst first; which adapters others push out, how often and by whom; the cures.

    `basis` says how an eviction is known: `seen` (it left memory while others came in, at least so often), `counted`
    (by the engine, shared out by request rates) or `estimated` (by request rates and adapter slots).
    """
    return render.listed(render.adapter_thrash(view), pushed_out=render.pushed_out(view), cures=render.cures(view))


@router.get("/fleets/{fleet}/residency")
async def residency(
    view: TickView, caller: Reader, replica: Annotated[list[str] | None, Query(max_length=64)] = None
) -> dict[str, Any]:
    """Adapters that replicas should hold, lack and hold, of at most 64 named replicas or of all."""
    names = {r.id for r in view.observation.replicas}
    for name in replica or ():
        require("replica", name, names)
    return render.listed(render.residency(view, frozenset(replica or ())))


@router.get("/fleets/{fleet}/costs")
async def costs(view: TickView, caller: Reader) -> dict[str, Any]:
    """Replica-hours by group and by tenant's share."""
    return render.costs(view)


@router.get("/fleets/{fleet}/proposals")
async def proposals(view: View, parts: Parts, caller: Reader) -> dict[str, Any]:
    """What waits for approval in propose mode, and what became of the latest."""
    return render.listed(
        {
            "id": p.id, "key": p.key, "subject": p.subject, "before": p.before, "after": p.after, "message": p.message,
            "state": p.state.value, "created_at": render.time_of(p.created_at_s), "actor": p.actor or None,
        }
        for p in parts.proposals.list(view.fleet)
    )  # fmt: skip


@router.get("/audit")
async def audit(parts: Parts, caller: Reader, limit: Limit = 100, cursor: Cursor = "") -> dict[str, Any]:
    """Who changed what, newest first; `reaches_back_to` says how far back it is kept."""
    after = read_cursor(cursor)
    before_number = after[-1] if after is not None else 0
    if not isinstance(before_number, int):
        raise ProblemError(400, "the cursor is none of ours; start without one")
    found = parts.audit.read("", before_number, limit)
    more = cursor_after([found[-1].number]) if len(found) == limit else None
    visible = (render.audit_entry(e) for e in found if caller.reaches(e.fleet))
    oldest_s = parts.audit.reaches_back_to_s()
    return render.listed(visible, more, reaches_back_to=None if oldest_s is None else render.time_of(oldest_s))
