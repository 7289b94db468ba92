"""What only a tick changes is answered once a tick: its ETag is the tick's, and who has it gets 304 without a body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import Depends, Request, Response

from autoscaler.api.asked import Reader, View
from autoscaler.api.problems import NotModifiedError
from autoscaler.telemetry import FleetView


def of_tick(request: Request, response: Response, views: Iterable[FleetView]) -> None:
    """Tag the answer with the ticks that it is made from. Raises NotModifiedError where the caller has it."""
    tag = f'"{"+".join(view.plan.id for view in views)}"'
    asked = request.headers.get("If-None-Match", "")
    if tag in {part.strip().removeprefix("W/") for part in asked.split(",")}:
        raise NotModifiedError(tag)
    response.headers["ETag"], response.headers["Cache-Control"] = tag, "no-cache"


def _tagged(request: Request, response: Response, caller: Reader, view: View) -> FleetView:
    of_tick(request, response, [view])
    return view


TickView = Annotated[FleetView, Depends(_tagged)]
"""The fleet's last view, for answers that hold nothing else."""
