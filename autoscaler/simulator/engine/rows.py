"""Small books of an engine: its clock when idle, request rows, events, KV blocks. Compiled."""

from __future__ import annotations

from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import internal
from autoscaler.simulator.engine.layout import BLOCK_TOKENS, NONE, EngineView


@internal
def wake(v: EngineView, now: int) -> None:
    """An idle engine's clock stands at its last call; bring it to `now`."""
    if v.number[a.STEP_END] == NONE and v.number[a.CLOCK] < now:
        v.number[a.CLOCK] = now


@internal
def release(v: EngineView, row: int) -> None:
    """Give a request's row back."""
    v.request[row, a.R_STATE] = 0
    v.request[row, a.R_NEXT] = v.request[0, a.FIRST_FREE]
    v.request[0, a.FIRST_FREE] = row
    v.request[0, a.FREE_ROWS] += 1


@internal
def emit(v: EngineView, request_id: int, kind: int, value: int) -> None:
    """Note an event at the engine's clock."""
    at = v.number[a.EVENTS]
    v.event[at, a.E_TIME], v.event[at, a.E_REQUEST] = v.number[a.CLOCK], request_id
    v.event[at, a.E_KIND], v.event[at, a.E_VALUE] = kind, value
    v.number[a.EVENTS] = at + 1


@internal
def kv_blocks(tokens: int) -> int:
    """KV blocks that hold so many tokens."""
    return (tokens + BLOCK_TOKENS - 1) // BLOCK_TOKENS
