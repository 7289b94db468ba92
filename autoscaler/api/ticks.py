"""What only a tick changes is made once a tick: its ETag is the tick's, who has it gets 304, the others the same bytes.

The API shares a process with the loop, so an answer that is made anew for each who asks makes ticks longer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from autoscaler.api.asked import Reader, View
from autoscaler.api.problems import KnownAnswerError
from autoscaler.telemetry import FleetView

MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Answers as they were sent, by what was asked, each with the ETag that it is good for; the longest unasked go."""

    _kept: OrderedDict[str, tuple[str, bytes]] = field(default_factory=OrderedDict)

    def of(self, asked: str, tag: str) -> bytes | None:
        """The answer, if it is of this tick."""
        found = self._kept.get(asked)
        if found is None or found[0] != tag:
            return None
        self._kept.move_to_end(asked)
        return found[1]

    def keep(self, asked: str, tag: str, body: bytes) -> None:
        """Keep one in place of the last tick's."""
        self._kept[asked] = tag, body
        self._kept.move_to_end(asked)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)


class TickRoute(APIRoute):
    """A route whose answers are kept until the next tick, where its view is asked for through this module."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that keeps what it answers."""
        handler = super().get_route_handler()

        async def answered(request: Request) -> Response:
            response = await handler(request)
            if (tag := getattr(request.state, "tick_tag", "")) and response.status_code == 200:
                request.app.state.kept.keep(_asked(request), tag, bytes(response.body))
            return response

        return answered


def of_tick(request: Request, response: Response, views: Iterable[FleetView]) -> None:
    """Tag the answer with the ticks that it is made from. Raises KnownAnswerError where the caller or we have it."""
    tag = f'"{"+".join(view.plan.id for view in views)}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    asked = request.headers.get("If-None-Match", "")
    if tag in {part.strip().removeprefix("W/") for part in asked.split(",")}:
        raise KnownAnswerError(Response(status_code=304, headers=headers))
    kept = request.app.state.kept.of(_asked(request), tag)
    if kept is not None:
        raise KnownAnswerError(Response(kept, 200, headers, "application/json"))
    request.state.tick_tag = tag
    response.headers.update(headers)


def _asked(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}"


def _tagged(request: Request, response: Response, caller: Reader, view: View) -> FleetView:
    of_tick(request, response, [view])
    return view


TickView = Annotated[FleetView, Depends(_tagged)]
"""The fleet's last view, for answers that hold nothing else."""
