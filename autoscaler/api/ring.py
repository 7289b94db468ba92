"""The ring as routers read it: the snapshot with its epoch as ETag, long poll, events, acknowledgements, owners."""

from __future__ import annotations

import asyncio
import functools
import gzip
import itertools
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from autoscaler.api import render
from autoscaler.api.asked import KnownFleet, Limit, Parts, Reader, View
from autoscaler.api.problems import ProblemError
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.ring import MEDIA_TYPE, decode, ring_diff

router = APIRouter(prefix="/v1", tags=["ring"])

_GZIP_FROM_BYTES = 1024
_HEARTBEAT_S = 15.0


class AckRequest(BaseModel):
    """Which epoch a router applies."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"router": "envoy-7d9f", "epoch": 42}]})
    router: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00-\x1f\x7f]+$")]
    epoch: Annotated[int, Field(ge=0, lt=2**53)]


@router.get("/fleets/{fleet}/ring", response_class=Response)
async def ring(
    fleet: KnownFleet,
    parts: Parts,
    caller: Reader,
    wait_s: Annotated[float, Query(ge=0, le=60)] = 0.0,
    if_none_match: Annotated[str, Header()] = "",
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """The published snapshot. With `If-None-Match` 304 until a newer epoch is there, for at most `wait_s` seconds."""
    hub = parts.hubs[fleet]
    known = _epoch(if_none_match)
    last = await (hub.newer(known, wait_s) if wait_s > 0 else hub.last())
    if last is None or last[0] <= known:
        if await hub.last() is None:
            raise ProblemError(503, f"no ring is published for {fleet!r} yet", {"Retry-After": "5"})
        return Response(status_code=304, headers={"ETag": f'"{known}"', "Cache-Control": "no-cache"})
    epoch, body = last
    headers = {"ETag": f'"{epoch}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if "gzip" in accept_encoding and len(body) >= _GZIP_FROM_BYTES:
        return Response(_packed(body), 200, headers | {"Content-Encoding": "gzip"}, MEDIA_TYPE)
    return Response(body, 200, headers, MEDIA_TYPE)


@router.get("/fleets/{fleet}/ring/events", response_class=StreamingResponse)
async def ring_events(
    fleet: KnownFleet, parts: Parts, caller: Reader, last_event_id: Annotated[str, Header()] = ""
) -> StreamingResponse:
    """Server-sent events: each epoch as `id: EPOCH`, `event: ring`, `data: SNAPSHOT`; a comment when nothing is new."""
    hub = parts.hubs[fleet]
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(hub, _epoch(last_event_id)), media_type="text/event-stream", headers=headers)


async def _events(hub: RingHub, known: int) -> AsyncIterator[bytes]:
    while True:
        newer = await hub.newer(known, _HEARTBEAT_S)
        if newer is None:
            yield b": still here\n\n"
            continue
        known, body = newer
        yield b"id: %d\nevent: ring\ndata: %s\n\n" % (known, body)


@router.post("/fleets/{fleet}/ring/acks", status_code=204)
async def ack(fleet: KnownFleet, parts: Parts, caller: Reader, body: AckRequest) -> None:
    """A router says which epoch it applies; say it at least every `ring.routerTtl`, or it is not waited for."""
    hub = parts.hubs[fleet]
    if not hub.acknowledge(body.router, body.epoch, parts.now_s()):
        last = await hub.last()
        there = 0 if last is None else last[0]
        raise ProblemError(409, f"epoch {body.epoch} was never published here (the newest is {there})")


@router.get("/fleets/{fleet}/ring/owners")
async def ring_owners(
    view: View, caller: Reader, adapter: Annotated[str, Query(min_length=1, max_length=253)]
) -> dict[str, Any]:
    """Who serves an adapter, and by which rule. A name that nobody knows goes where the ring says unknown names go."""
    return {"adapter": adapter, "epoch": view.plan.ring.epoch, **render.owners(view, adapter)}


@router.get("/fleets/{fleet}/ring/moves")
async def ring_moves(fleet: KnownFleet, parts: Parts, caller: Reader, limit: Limit = 100) -> dict[str, Any]:
    """What the last epochs moved, newest first, each with its first `limit` moves; none before a second epoch."""
    return render.listed(await asyncio.to_thread(_moves, parts.hubs[fleet].recent(), limit))


def _moves(recent: tuple[tuple[int, bytes], ...], limit: int) -> list[dict[str, Any]]:
    pairs = reversed(list(itertools.pairwise(recent)))
    return [_moves_of(epoch, before, body, limit) for (_, before), (epoch, body) in pairs]


@functools.lru_cache(maxsize=32)
def _moves_of(epoch: int, before: bytes, after: bytes, limit: int) -> dict[str, Any]:
    """Epochs do not change: what one moved is worked out once."""
    snapshot = decode(after)
    moves = ring_diff(decode(before), snapshot)
    first = [{"adapter": m.adapter, "from": m.source, "to": m.target} for m in moves[:limit]]
    return {"epoch": epoch, "published_at": snapshot.published_at, "moves": len(moves), "items": first}


@functools.lru_cache(maxsize=8)
def _packed(body: bytes) -> bytes:
    """A snapshot of 100,000 adapters takes a tenth of a second to compress: once an epoch, not once a router."""
    return gzip.compress(body, 6)


def _epoch(tag: str) -> int:
    """The epoch of an ETag or event id; -1 for anything else, so that the whole snapshot is sent."""
    text = tag.strip().removeprefix("W/").strip('"')
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
