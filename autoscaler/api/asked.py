"""What routes ask of a request: its parts, its fleet, its page."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection
from typing import Annotated

from fastapi import Depends, Path, Query, Request

from autoscaler.api.auth import Admitted, Principal, operator, reader
from autoscaler.api.parts import ApiParts
from autoscaler.api.problems import ProblemError
from autoscaler.domain.names import did_you_mean
from autoscaler.telemetry import FleetView

Reader = Annotated[Principal, Depends(reader)]
Operator = Annotated[Principal, Depends(operator)]
FleetName = Annotated[str, Path(max_length=253)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Cursor = Annotated[str, Query(max_length=1024)]


def parts_of(request: Request) -> ApiParts:
    """What the application is made of."""
    parts: ApiParts = request.app.state.parts
    return parts


Parts = Annotated[ApiParts, Depends(parts_of)]


def require(kind: str, name: str, names: Collection[str]) -> None:
    """Raises ProblemError 404 with the nearest name where the fleet has no such tenant, adapter, group or replica."""
    if name not in names:
        hint = did_you_mean(name, names) or f"; there are {len(names)} of them"
        raise ProblemError(404, f"the fleet has no {kind} {name!r}{hint}")


def known_fleet(fleet: FleetName, parts: Parts, caller: Admitted) -> str:
    """The fleet's name. Raises ProblemError 404 with the nearest one, to those who may know of it."""
    if fleet not in parts.hubs:
        raise ProblemError(404, f"there is no fleet {fleet!r}{did_you_mean(fleet, parts.hubs)}")
    return fleet


KnownFleet = Annotated[str, Depends(known_fleet)]


def view_of(fleet: KnownFleet, parts: Parts) -> FleetView:
    """The fleet's last view. Raises ProblemError 404 for another name, 503 before the first tick."""
    view = parts.views().get(fleet)
    if view is None:
        raise ProblemError(
            503, f"the fleet {fleet!r} was not observed yet; ask again after a tick", {"Retry-After": "5"}
        )
    return view


View = Annotated[FleetView, Depends(view_of)]


def cursor_after(value: list[object]) -> str:
    """An opaque cursor that continues after `value`."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> list[object] | None:
    """What a cursor continues after, None where there is none. Raises ProblemError 400 for a damaged one."""
    if not cursor:
        return None
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error) as error:
        raise ProblemError(400, f"the cursor {cursor!r} is none of ours; start without one") from error
    if not isinstance(value, list) or not value:
        raise ProblemError(400, f"the cursor {cursor!r} is none of ours; start without one")
    return value
