"""The fleet's clockwork between two events of its driver: arrivals are routed, engines run, answers end. Compiled.

An arrival sees what is true at its instant: every engine is brought to it first, so a router knows of all answers that
have ended. Engines that have nothing to do before it cost one comparison.
"""

from __future__ import annotations

import math

from autoscaler.simulator.engine import kernel
from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import compiled, internal
from autoscaler.simulator.engine.layout import NONE, EngineState
from autoscaler.simulator.engine.residency import view
from autoscaler.simulator.engine.rows import release
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import FleetState, Table
from autoscaler.simulator.fleet.core.routing import choose, draw

DONE, NEEDS_OPEN, NEEDS_ROWS = range(3)
_LOG_RATIO = math.log(b.FINE_RATIO)


@compiled
def run_window(  # type: ignore[no-untyped-def]
    s: EngineState, f: FleetState, table: Table, at, adapter, prompt, output, begin: int, until: int
) -> tuple[int, int]:
    """Route the arrivals from `begin` on that come before `until`: (next arrival, DONE). Engines stay at the last one.

    Arrays are columns of arrivals; `at` ascending. NEEDS_OPEN, NEEDS_ROWS: give more room and call again from there.
    """
    i = begin
    while i < len(at) and at[i] < until:
        now = at[i]
        if f.open[0, b.FREE_ROWS] == 0:
            return i, NEEDS_OPEN
        if s.request[0, a.FREE_ROWS] == 0:
            return i, NEEDS_ROWS
        advance_due(s, f, now)
        _arrive(s, f, table, now, adapter[i], prompt[i], output[i])
        i += 1
    return i, DONE


@compiled
def advance_due(s: EngineState, f: FleetState, now: int) -> None:
    """Bring every engine with something to do to `now`, which is before what begins exactly then."""
    for e in range(len(f.due)):
        if f.due[e] != NONE and f.due[e] <= now:
            advance_one(s, f, e, now)


@internal
def advance_one(s: EngineState, f: FleetState, e: int, now: int) -> None:
    """Bring one engine to `now`. While loads wait for their turn it is taken step by step: each ends some of them."""
    number = s.number[e]
    while f.load[e, b.L_COUNT] > 0:
        _feed_loads(s, f, e)
        if number[a.STEP_END] == NONE:
            if number[a.CLOCK] >= now:
                break
            kernel.advance(s, e, number[a.CLOCK], True)
        if number[a.STEP_END] == NONE or number[a.STEP_END] > now:
            break
        while not kernel.advance(s, e, number[a.STEP_END], False):
            collect(s, f, e)
        collect(s, f, e)
    while not kernel.advance(s, e, now, False):
        collect(s, f, e)
    collect(s, f, e)
    f.due[e] = kernel.next_event(s, e)


@compiled
def ask_load(s: EngineState, f: FleetState, e: int, now: int, adapter: int) -> bool:
    """Ask an engine to load an adapter at `now`; False: its queue of such calls is full."""
    load, size = f.load[e], f.asked.shape[1]
    if load[b.L_COUNT] == size:
        return False
    advance_one(s, f, e, now)
    f.asked[e, (load[b.L_HEAD] + load[b.L_COUNT]) % size] = adapter
    load[b.L_COUNT] += 1
    _feed_loads(s, f, e)
    f.due[e] = kernel.next_event(s, e)
    return True


@internal
def _feed_loads(s: EngineState, f: FleetState, e: int) -> None:
    """Hand over the next loads, as many at a time as the one who asks keeps under way."""
    load = f.load[e]
    while load[b.L_COUNT] > 0 and load[b.L_UNDER_WAY] < load[b.L_PARALLEL]:
        wanted = f.asked[e, load[b.L_HEAD] % f.asked.shape[1]]
        while not kernel.request_load(s, e, s.number[e, a.CLOCK], f.local[wanted]):
            collect(s, f, e)
        load[b.L_HEAD] += 1
        load[b.L_COUNT] -= 1
        load[b.L_UNDER_WAY] += 1


@internal
def _arrive(s: EngineState, f: FleetState, table: Table, now: int, adapter: int, prompt: int, output: int) -> None:
    total = f.total
    measured = now >= total[b.MEASURED_FROM]
    total[b.ARRIVED] += 1
    total[b.M_ARRIVED] += int(measured)
    router = draw(f, f.in_flight.shape[0])
    e, cluster = NONE, 0
    if total[b.IN_FLIGHT] < total[b.MOST_IN_FLIGHT]:
        e, cluster = choose(s, f, table, router, adapter)
    row = NONE
    opened = f.open[0, b.FIRST_FREE]
    if e != NONE and f.place[e] == b.SERVING:
        row = kernel.submit(s, e, now, opened, f.local[adapter], prompt, output)
        while row == kernel.FULL:
            collect(s, f, e)
            row = kernel.submit(s, e, now, opened, f.local[adapter], prompt, output)
    if row < 0:
        total[b.REFUSED] += 1
        total[b.M_REFUSED] += int(measured)
        return
    f.due[e] = kernel.next_event(s, e)
    if f.known.shape[1] > 1:
        f.known[e, adapter] = 1
    total[b.IN_FLIGHT] += 1
    f.in_flight[router, cluster, e] += 1
    one = f.open[opened]
    f.open[0, b.FIRST_FREE] = one[b.O_NEXT]
    f.open[0, b.FREE_ROWS] -= 1
    one[b.O_ARRIVED], one[b.O_ADAPTER], one[b.O_ENGINE], one[b.O_ROUTER] = now, adapter, e, router
    one[b.O_CLUSTER], one[b.O_PROMPT], one[b.O_OUTPUT], one[b.O_FIRST], one[b.O_STATE] = (
        cluster,
        prompt,
        output,
        NONE,
        1,
    )


@internal
def collect(s: EngineState, f: FleetState, e: int) -> None:
    """Take in what an engine's buffer tells."""
    for j in range(s.number[e, a.EVENTS]):
        kind, at, opened = s.event[e, j, a.E_KIND], s.event[e, j, a.E_TIME], s.event[e, j, a.E_REQUEST]
        if kind == a.FIRST_TOKEN:
            _first_token(f, e, opened, at)
        elif kind == a.FINISHED:
            _finish(f, e, opened)
        elif kind == a.LOADED:
            f.load[e, b.L_UNDER_WAY] -= 1
            if f.known.shape[1] > 1:
                f.known[e, s.event[e, j, a.E_VALUE]] = 1
    s.number[e, a.EVENTS] = 0


@internal
def _first_token(f: FleetState, e: int, opened: int, at: int) -> None:
    one, total = f.open[opened], f.total
    waited = at - one[b.O_ARRIVED]
    one[b.O_FIRST] = at
    slot = bucket(f, waited)
    f.first[e, slot] += 1
    f.seen[one[b.O_ADAPTER], slot] += 1
    f.first_us[e] += waited // 1_000_000
    if one[b.O_ARRIVED] >= total[b.TRIED_FROM]:
        total[b.T_FIRST] += 1
        total[b.T_IN_TARGET] += int(waited <= total[b.TARGET_PS])
    if one[b.O_ARRIVED] >= total[b.MEASURED_FROM]:
        total[b.M_FIRST] += 1
        total[b.M_IN_TARGET] += int(waited <= total[b.TARGET_PS])
        f.fine[f.watched[one[b.O_ADAPTER]], fine_bin(waited)] += 1


@internal
def _finish(f: FleetState, e: int, opened: int) -> None:
    """An answer has ended: its router counts it now, as access logs do."""
    one, total = f.open[opened], f.total
    adapter, waited = one[b.O_ADAPTER], one[b.O_FIRST] - one[b.O_ARRIVED]
    if f.known.shape[1] > 1:
        pair = f.pair[e, adapter]
        pair[b.P_REQUESTS] += 1
        pair[b.P_PROMPT] += one[b.O_PROMPT]
        pair[b.P_OUTPUT] += one[b.O_OUTPUT]
        pair[b.P_TTFT_US] += waited // 1_000_000
    f.slow[adapter, bucket(f, waited)] += 1
    total[b.FINISHED] += 1
    if one[b.O_ARRIVED] >= total[b.MEASURED_FROM]:
        total[b.M_FINISHED] += 1
        total[b.M_TOKENS] += one[b.O_OUTPUT]
    close(f, opened)


@internal
def close(f: FleetState, opened: int) -> None:
    """Give a request's row back."""
    one = f.open[opened]
    f.in_flight[one[b.O_ROUTER], one[b.O_CLUSTER], one[b.O_ENGINE]] -= 1
    f.total[b.IN_FLIGHT] -= 1
    one[b.O_STATE] = 0
    one[b.O_NEXT] = f.open[0, b.FIRST_FREE]
    f.open[0, b.FIRST_FREE] = opened
    f.open[0, b.FREE_ROWS] += 1


@compiled
def drop_all(s: EngineState, f: FleetState, e: int) -> int:
    """An engine's process is gone: its requests are refused. How many; their rows in the engines' table are freed."""
    dropped = 0
    for opened in range(1, len(f.open)):
        one = f.open[opened]
        if one[b.O_STATE] == 1 and one[b.O_ENGINE] == e:
            f.total[b.REFUSED] += 1
            f.total[b.M_REFUSED] += int(one[b.O_ARRIVED] >= f.total[b.MEASURED_FROM])
            close(f, opened)
            dropped += 1
    v = view(s, e)
    row = v.number[a.HEAD]
    while row != NONE:
        following = v.request[row, a.R_GLOBAL_NEXT]
        release(v, row)
        row = following
    for i in range(v.number[a.RUNNING]):
        release(v, v.batch[i, a.B_ROW])
    return dropped


@internal
def bucket(f: FleetState, waited: int) -> int:
    """The routers' bucket of a time."""
    for i in range(len(f.edge)):
        if waited <= f.edge[i]:
            return i
    return len(f.edge)


@internal
def fine_bin(waited: int) -> int:
    """The fine bin of a time: its upper edge is FINE_FROM_PS x FINE_RATIO^bin."""
    if waited <= b.FINE_FROM_PS:
        return 0
    return min(b.FINE_BINS - 1, int(math.ceil(math.log(waited / b.FINE_FROM_PS) / _LOG_RATIO)))  # noqa: RUF046
