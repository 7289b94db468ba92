"""The application: what it is made of, and what it looks like to its users."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from autoscaler.api import commands, detach, problems, reads, ring
from autoscaler.api.limits import BodyLimit, RateLimits
from autoscaler.api.parts import ApiParts
from autoscaler.api.ticks import KeptAnswers

_DESCRIPTION = """
Read what the controller sees, decides and does, and give it the few commands that operators have.

Every call but `/healthz`, `/readyz` and `/metrics` needs `Authorization: Bearer TOKEN`. Errors are
`application/problem+json` (RFC 9457). Unknown numbers are `null`, never 0.
"""


def create_app(parts: ApiParts) -> FastAPI:
    """The ASGI application."""
    app = FastAPI(title="lora-autoscaler", version="1", description=_DESCRIPTION, redoc_url=None)
    app.state.parts, app.state.limits, app.state.kept = parts, RateLimits(parts.now_s), KeptAnswers()
    app.add_middleware(BodyLimit)
    problems.install(app)
    for router in (reads.router, commands.router, detach.router, ring.router, _health):
        app.include_router(router)
    return app


_health = APIRouter(tags=["health"])


@_health.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """Liveness: the process answers."""
    return "ok\n"


@_health.get("/readyz", response_class=PlainTextResponse)
async def readyz(request: Request) -> Response:
    """Readiness: every fleet was observed once. The body says what is missing."""
    parts: ApiParts = request.app.state.parts
    why = parts.ready()
    return PlainTextResponse(f"{why or 'ok'}\n", 503 if why else 200)


@_health.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus exposition of our own series."""
    parts: ApiParts = request.app.state.parts
    return Response(generate_latest(parts.metrics), media_type=CONTENT_TYPE_LATEST)
