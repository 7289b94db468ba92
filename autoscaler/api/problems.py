"""Errors as RFC 9457 `application/problem+json`: what is wrong, with which value, and what to do."""

from __future__ import annotations

import http
import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from autoscaler.planner import UnknownSubjectError
from autoscaler.ports import ConflictError, PermanentError, TemporaryError

_log = logging.getLogger(__name__)
_UNROUTED = {
    404: "there is no {path} here; /docs lists what there is",
    405: "{path} does not take {method}; /docs lists what it takes",
}
"""What the router itself refuses; every other 404 is a ProblemError that names the thing."""


class ProblemError(Exception):
    """A request that cannot be answered as asked."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, **extra: object) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.extra = status, detail, headers or {}, extra


class KnownAnswerError(Exception):
    """The answer is there already, with the caller or here; nothing has to be made for it."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **extra: object) -> JSONResponse:
    """One problem document."""
    body = {"type": "about:blank", "title": http.HTTPStatus(status).phrase, "status": status, "detail": detail, **extra}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def install(app: FastAPI) -> None:
    """Answer every error of the app as a problem; what nobody expected is logged and says nothing of the inside."""

    @app.exception_handler(ProblemError)
    async def _problem(request: Request, error: ProblemError) -> JSONResponse:
        return problem(error.status, error.detail, error.headers, **error.extra)

    @app.exception_handler(KnownAnswerError)
    async def _known(request: Request, known: KnownAnswerError) -> Response:
        return known.response

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        detail = _UNROUTED.get(error.status_code, "{detail}").format(
            detail=error.detail, method=request.method, path=request.url.path[:200]
        )
        return problem(error.status_code, detail, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = [
            {"path": ".".join(str(p) for p in e["loc"]), "message": e["msg"], "found": repr(e.get("input"))[:200]}
            for e in error.errors()
        ]
        detail = "; ".join(f"{e['path']}: {e['message']}" for e in errors)
        return problem(422, detail, errors=errors)

    @app.exception_handler(UnknownSubjectError)
    async def _unknown(request: Request, error: UnknownSubjectError) -> JSONResponse:
        return problem(404, str(error))

    @app.exception_handler(ConflictError)
    async def _conflict(request: Request, error: ConflictError) -> JSONResponse:
        return problem(
            412, str(error), {"ETag": f'"{error.current_revision}"'}, current_revision=error.current_revision
        )

    @app.exception_handler(TemporaryError)
    async def _temporary(request: Request, error: TemporaryError) -> JSONResponse:
        return problem(503, str(error), {"Retry-After": "5"})

    @app.exception_handler(PermanentError)
    async def _permanent(request: Request, error: PermanentError) -> JSONResponse:
        return problem(503, str(error))

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> JSONResponse:
        _log.exception("a request failed unexpectedly: %s %s", request.method, request.url.path)
        return problem(500, "an unexpected error; the controller's log has it")
