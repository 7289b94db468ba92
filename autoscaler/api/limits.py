"""Bounds on what a request may bring, and on how many may come."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

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


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls at once, and so many a second from then on."""

    burst: float
    per_s: float


class Budget(Enum):
    """What calls are counted as. Each caller has a bucket of each."""

    COMMAND = Rate(60, 2)  # an operator's script that overrides a page of tenants passes at once
    READ = Rate(600, 100)  # ten dashboards that refresh each second
    RING = Rate(20_000, 2_000)  # a thousand routers with one credential, each an epoch and its acknowledgement
    REFUSED = Rate(30, 1)  # credentials that nobody knows, by the address that they come from


class RateLimits:
    """Token buckets by budget and caller. Callers beyond the most that are remembered push out the longest quiet one.

    Args:
        now_s: the controller's clock; where it goes back nothing is given and nothing is taken.
    """

    MOST_CALLERS = 10_000

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._left: OrderedDict[tuple[Budget, str], tuple[float, float]] = OrderedDict()

    def take(self, budget: Budget, caller: str) -> float:
        """Count one call; 0 where it may pass, else the seconds after which one may."""
        left = self._refilled(budget, caller)
        passes = left >= 1.0
        self._left[budget, caller] = (left - 1.0 if passes else left), self._now_s()
        self._left.move_to_end((budget, caller))
        while len(self._left) > self.MOST_CALLERS:
            self._left.popitem(last=False)
        return 0.0 if passes else (1.0 - left) / budget.value.per_s

    def exhausted(self, budget: Budget, caller: str) -> float:
        """As `take`, without counting a call."""
        left = self._refilled(budget, caller)
        return 0.0 if left >= 1.0 else (1.0 - left) / budget.value.per_s

    def _refilled(self, budget: Budget, caller: str) -> float:
        left, at_s = self._left.get((budget, caller), (budget.value.burst, self._now_s()))
        return min(left + max(self._now_s() - at_s, 0.0) * budget.value.per_s, budget.value.burst)


def retry_after(wait_s: float) -> dict[str, str]:
    """The header that says when to come again: whole seconds, at least one."""
    return {"Retry-After": str(max(1, math.ceil(wait_s)))}
