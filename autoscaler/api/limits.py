"""Bounds on what a request may bring."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoscaler.api.problems import problem

MAX_BODY_BYTES = 64 * 1024
"""The largest command is an override of about 1 KiB."""


class BodyLimit:
    """Answers 413 to bodies over the limit, whatever their Content-Length claims."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its body counted."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > MAX_BODY_BYTES:
            await self._refuse(scope, receive, send)
            return
        chunks, more, size = [], True, 0
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > MAX_BODY_BYTES:
                await self._refuse(scope, receive, send)
                return
        whole: list[Message] = [{"type": "http.request", "body": b"".join(chunks), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = problem(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        await response(scope, receive, send)
