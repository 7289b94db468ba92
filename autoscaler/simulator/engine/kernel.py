"""One engine's clockwork: form a batch, take the time of its step, hand out tokens; equal steps are taken at once. Compiled.

Scheduling as vLLM V1: running requests first, in order, from a budget of tokens (one token each, or the next chunk of a
prompt); then waiting ones while seats, budget, adapter slots and KV blocks last. A failed allocation preempts the newest
running request, which computes everything again. An arrival during a step is seen when that step ends.
"""

from __future__ import annotations

import math

from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import compiled
from autoscaler.simulator.engine.layout import NONE, PS_PER_S, EngineState
from autoscaler.simulator.engine.queueing import (
    account_waiting,
    dequeue,
    enqueue,
    join_batch,
    leave_batch,
    next_admissible,
    slots_left,
)
from autoscaler.simulator.engine.residency import make_resident, touch

FULL, TOO_LONG = -1, -2


@compiled
def submit(s: EngineState, e: int, now: int, request_id: int, adapter: int, prompt: int, output: int) -> int:
    """Queue a request at picosecond `now`; its row, FULL (no free row or event space) or TOO_LONG (never fits the KV cache)."""
    if s.free[0] == 0 or not advance(s, e, now, False):
        return FULL
    number = s.number[e]
    if _blocks(prompt + output) > number[a.BLOCKS]:
        return TOO_LONG
    s.free[0] -= 1
    row = s.free[1 + s.free[0]]
    request = s.request[row]
    request[a.R_ID], request[a.R_ADAPTER], request[a.R_PROMPT] = request_id, adapter, prompt
    request[a.R_OUTPUT], request[a.R_GENERATED] = output, 0
    _wake(s, e, now)
    account_waiting(s, e, now)
    enqueue(s, e, row, False)
    number[a.SUBMITTED] += 1
    return int(row)


@compiled
def abort(s: EngineState, e: int, now: int, row: int) -> bool:
    """Drop the request in `row`: at once if it waits, with the step in flight if it runs. False: drain the events, call again."""
    if not advance(s, e, now, False):
        return False
    if s.request[row, a.R_STATE] == a.WAITS:
        account_waiting(s, e, now)
        dequeue(s, e, row)
        _release(s, row)
        s.number[e, a.ABORTED_COUNT] += 1
        return True
    for i in range(s.number[e, a.RUNNING]):
        if s.batch[e, i, a.B_ROW] == row:
            s.batch[e, i, a.B_LEFT] = 0
    if s.number[e, a.STEP_END] == NONE:
        _remove_done(s, e)
    return True


@compiled
def request_load(s: EngineState, e: int, now: int, adapter: int) -> bool:
    """Load `adapter` before the next step, as the engine's own endpoint does; False: too many loads or events, call again."""
    if not advance(s, e, now, False) or s.number[e, a.PENDING_LOADS] == a.LOAD_QUEUE:
        return False
    _wake(s, e, now)
    s.loading[e, s.number[e, a.PENDING_LOADS]] = adapter
    s.number[e, a.PENDING_LOADS] += 1
    return True


@compiled
def next_event(s: EngineState, e: int) -> int:
    """The picosecond up to which nothing can happen without a new call: the end of the step in flight, or NONE when idle."""
    number = s.number[e]
    if number[a.STEP_END] != NONE:
        return int(number[a.STEP_END])
    if number[a.RUNNING] + number[a.WAITING] + number[a.PENDING_LOADS] > 0:
        return int(number[a.CLOCK])
    return NONE


@compiled
def advance(s: EngineState, e: int, until: int, inclusive: bool) -> bool:
    """Run to picosecond `until`; a step that begins exactly then begins only if `inclusive`. False: drain the events, call again."""
    number = s.number[e]
    room = s.event.shape[1] - 3 * number[a.MAX_SEQS] - a.LOAD_QUEUE
    while True:
        if number[a.STEP_END] != NONE:
            if number[a.STEP_END] > until:
                return True
            if number[a.EVENTS] > room:
                return False
            _complete_steps(s, e, 1, number[a.STEP_END])
        if number[a.RUNNING] == 0 and number[a.WAITING] == 0 and number[a.PENDING_LOADS] == 0:
            number[a.CLOCK] = max(number[a.CLOCK], until)
            return True
        if number[a.CLOCK] > until or (number[a.CLOCK] == until and not inclusive):
            return True
        if number[a.EVENTS] > room:
            return False
        steady, fixed, per_context, context = _begin_step(s, e)
        if steady and number[a.JUMPING] == 1:
            _jump(s, e, until, fixed, per_context, context)


@compiled
def _begin_step(s: EngineState, e: int) -> tuple[bool, int, int, int]:
    """Form the batch of the step at CLOCK and set STEP_END.

    Returns whether the same batch would go on decoding, and the terms of its time: fixed + per_context * context.
    """
    number, cost = s.number[e], s.cost[e]
    preemptions = number[a.PREEMPTIONS]
    account_waiting(s, e, number[a.CLOCK])
    budget, decoding, context, prefill, square = _schedule_running(s, e)
    admitted = 0
    scanned = 0
    if number[a.PREEMPTIONS] == preemptions and number[a.WAITING] > 0:
        admitted, budget, took, took_square = _schedule_waiting(s, e, budget)
        prefill += took
        square += took_square
        if budget > 0 and number[a.RUNNING] < number[a.MAX_SEQS] and slots_left(s, e) <= 0:
            scanned = number[a.WAITING]
    stall = _load_adapters(s, e)
    fixed = 0.0
    factor = 1.0
    if decoding + prefill > 0:
        fixed = cost[a.C_FIXED] + cost[a.C_SEQUENCE] * decoding + cost[a.C_PREFILL_TOKEN] * prefill
        fixed += cost[a.C_PREFILL_SQUARE] * square
        if prefill > 0:
            fixed += cost[a.C_PREFILL]
        distinct = number[a.DISTINCT]
        if distinct > 0:
            factor = cost[a.C_LORA_FACTOR] + cost[a.C_LORA_FACTOR_ADAPTER] * distinct
            fixed = fixed * factor + cost[a.C_LORA_FIXED] + cost[a.C_LORA_ADAPTER] * distinct
            fixed += cost[a.C_LORA_SEQUENCE] * decoding + cost[a.C_LORA_PREFILL_TOKEN] * prefill
        fixed += cost[a.C_ADMIT] * admitted + cost[a.C_SCAN] * scanned
    fixed_ps = int(round(fixed))
    per_context = int(round(cost[a.C_CONTEXT] * factor))
    number[a.STEP_END] = number[a.CLOCK] + max(1, stall + fixed_ps + per_context * context)
    steady = (
        decoding == number[a.RUNNING]
        and prefill == 0
        and stall == 0
        and number[a.LOADS_IN_STEP] == 0
        and number[a.PREEMPTIONS] == preemptions
        and fixed_ps > 0
    )
    return steady, fixed_ps, per_context, context


@compiled
def _schedule_running(s: EngineState, e: int) -> tuple[int, int, int, int, float]:
    """Give every running request its tokens of this step: (budget left, decoding, their context, prefill tokens, square term)."""
    number = s.number[e]
    budget = number[a.BUDGET]
    decoding, context, prefill = 0, 0, 0
    square = 0.0
    i = 0
    while i < number[a.RUNNING]:
        b = s.batch[e, i]
        lacks = b[a.B_TARGET] - b[a.B_COMPUTED]
        takes = min(lacks, budget)
        b[a.B_TAKES] = takes
        if not _allocate(s, e, i):
            break
        budget -= takes
        if lacks == 1:
            decoding += takes
            context += b[a.B_COMPUTED] * takes
        elif takes > 0:
            prefill += takes
            square += float(b[a.B_COMPUTED] + takes) ** 2 - float(b[a.B_COMPUTED]) ** 2
        i += 1
    return budget, decoding, context, prefill, square


@compiled
def _allocate(s: EngineState, e: int, i: int) -> bool:
    """Take the KV blocks that running request `i` needs in this step, preempting the newest; False if it was `i` itself."""
    number, b = s.number[e], s.batch[e, i]
    need = _blocks(b[a.B_COMPUTED] + b[a.B_TAKES]) - _blocks(b[a.B_COMPUTED])
    while need > number[a.FREE_BLOCKS]:
        last = number[a.RUNNING] - 1
        _preempt_last(s, e)
        if last == i:
            return False
    number[a.FREE_BLOCKS] -= need
    return True


@compiled
def _preempt_last(s: EngineState, e: int) -> None:
    """Send the newest running request back to the head of the queue, to be computed again from its first token."""
    number = s.number[e]
    number[a.RUNNING] -= 1
    number[a.PREEMPTIONS] += 1
    victim = s.batch[e, number[a.RUNNING]]
    row = victim[a.B_ROW]
    number[a.FREE_BLOCKS] += _blocks(victim[a.B_COMPUTED])
    s.request[row, a.R_GENERATED] = s.request[row, a.R_OUTPUT] - victim[a.B_LEFT]
    leave_batch(s, e, victim[a.B_ADAPTER])
    enqueue(s, e, row, True)
    _emit(s, e, number[a.CLOCK], row, a.PREEMPTED, s.request[row, a.R_GENERATED])


@compiled
def _schedule_waiting(s: EngineState, e: int, budget: int) -> tuple[int, int, int, float]:
    """Admit waiting requests: (how many, budget left, prompt tokens begun, square term)."""
    number = s.number[e]
    admitted, prefill = 0, 0
    square = 0.0
    while budget > 0 and number[a.RUNNING] < number[a.MAX_SEQS]:
        row = next_admissible(s, e)
        if row == NONE:
            break
        request = s.request[row]
        target = request[a.R_PROMPT] + request[a.R_GENERATED]
        takes = min(target, budget)
        if _blocks(takes) > number[a.FREE_BLOCKS]:
            break
        dequeue(s, e, row)
        join_batch(s, e, request[a.R_ADAPTER])
        request[a.R_STATE] = a.RUNS
        number[a.FREE_BLOCKS] -= _blocks(takes)
        b = s.batch[e, number[a.RUNNING]]
        number[a.RUNNING] += 1
        b[a.B_ROW], b[a.B_ADAPTER], b[a.B_COMPUTED] = row, request[a.R_ADAPTER], 0
        b[a.B_TARGET], b[a.B_TAKES] = target, takes
        b[a.B_LEFT] = request[a.R_OUTPUT] - request[a.R_GENERATED]
        admitted += 1
        budget -= takes
        prefill += takes
        square += float(takes) ** 2
    return admitted, budget, prefill, square


@compiled
def _load_adapters(s: EngineState, e: int) -> int:
    """Picoseconds this step stands still while the batch's missing adapters, then those asked for, are loaded one by one."""
    number = s.number[e]
    stall = 0
    for i in range(number[a.DISTINCT]):
        touch(s, e, s.active[e, i])
    for i in range(number[a.DISTINCT]):
        if s.adapter[e, s.active[e, i], a.A_GPU] == NONE:
            stall += max(0, make_resident(s, e, s.active[e, i]))
    number[a.LOADS_IN_STEP] = number[a.PENDING_LOADS]
    for i in range(number[a.PENDING_LOADS]):
        stall += max(0, make_resident(s, e, s.loading[e, i]))
    return stall


@compiled
def _jump(s: EngineState, e: int, until: int, fixed: int, per_context: int, context: int) -> None:
    """Take all whole steps of a steady batch that end by `until` and before anything else can happen.

    Step i (0, 1, ...) takes fixed + per_context * (context + i * batch): arithmetic in integers, so k at once equal k single.
    """
    number = s.number[e]
    batch = number[a.RUNNING]
    most = s.batch[e, 0, a.B_LEFT]
    for i in range(batch):
        most = min(most, s.batch[e, i, a.B_LEFT])
    # Each request takes at most one block in 16 steps; the first step's blocks are taken already.
    most = min(most, 1 + BLOCK_STEPS * (number[a.FREE_BLOCKS] // batch))
    first = fixed + per_context * context
    growth = per_context * batch
    span = until - number[a.CLOCK]
    if most < 2 or first > span:
        return
    steps = most
    if _span(most, first, growth) > span:
        if growth == 0:
            steps = span // first
        else:
            half = first - growth / 2.0
            steps = int((math.sqrt(half * half + 2.0 * growth * float(span)) - half) / growth)
        steps = max(1, min(steps, most))
        while steps < most and _span(steps + 1, first, growth) <= span:
            steps += 1
        while steps > 1 and _span(steps, first, growth) > span:
            steps -= 1
    for i in range(batch):
        computed = s.batch[e, i, a.B_COMPUTED]
        number[a.FREE_BLOCKS] -= _blocks(computed + steps) - _blocks(computed + 1)
    _complete_steps(s, e, steps, number[a.CLOCK] + _span(steps, first, growth))


BLOCK_STEPS = a.BLOCK_TOKENS


@compiled
def _span(steps: int, first: int, growth: int) -> int:
    return steps * first + growth * (steps * (steps - 1) // 2)


@compiled
def _complete_steps(s: EngineState, e: int, steps: int, end: int) -> None:
    """End `steps` equal steps at `end`: tokens computed and handed out, finished requests leave the batch."""
    number, integral = s.number[e], s.integral[e]
    seconds = (end - number[a.CLOCK]) / PS_PER_S
    integral[a.RUNNING_S] += number[a.RUNNING] * seconds
    integral[a.DISTINCT_S] += number[a.DISTINCT] * seconds
    integral[a.KV_S] += (number[a.BLOCKS] - number[a.FREE_BLOCKS]) / number[a.BLOCKS] * seconds
    number[a.BUSY] += end - number[a.CLOCK]
    number[a.STEPS] += steps
    number[a.CLOCK] = end
    number[a.STEP_END] = NONE
    done = False
    for i in range(number[a.RUNNING]):
        b = s.batch[e, i]
        b[a.B_COMPUTED] += b[a.B_TAKES] + steps - 1
        if b[a.B_LEFT] == 0:
            done = True
        elif b[a.B_TAKES] > 0 and b[a.B_COMPUTED] >= b[a.B_TARGET]:
            done = _hand_out(s, e, i, steps) or done
    for i in range(number[a.LOADS_IN_STEP]):
        _emit(s, e, end, NONE, a.LOADED, s.loading[e, i])
    for i in range(number[a.LOADS_IN_STEP], number[a.PENDING_LOADS]):
        s.loading[e, i - number[a.LOADS_IN_STEP]] = s.loading[e, i]
    number[a.PENDING_LOADS] -= number[a.LOADS_IN_STEP]
    number[a.LOADS_IN_STEP] = 0
    if done:
        _remove_done(s, e)


@compiled
def _hand_out(s: EngineState, e: int, i: int, steps: int) -> bool:
    """Give running request `i` its `steps` new tokens; True if those were its last."""
    number, b = s.number[e], s.batch[e, i]
    row = b[a.B_ROW]
    request = s.request[row]
    if b[a.B_LEFT] == request[a.R_OUTPUT]:
        number[a.PROMPT_TOKENS] += request[a.R_PROMPT]
        _emit(s, e, number[a.CLOCK], row, a.FIRST_TOKEN, 1)
    b[a.B_LEFT] -= steps
    b[a.B_TARGET] += steps
    number[a.GENERATED_TOKENS] += steps
    if b[a.B_LEFT] > 0:
        return False
    number[a.FINISHED_COUNT] += 1
    _emit(s, e, number[a.CLOCK], row, a.FINISHED, request[a.R_OUTPUT])
    request[a.R_GENERATED] = request[a.R_OUTPUT]
    return True


@compiled
def _remove_done(s: EngineState, e: int) -> None:
    """Close the gaps that finished and aborted requests leave, in order."""
    number = s.number[e]
    kept = 0
    for i in range(number[a.RUNNING]):
        b = s.batch[e, i]
        if b[a.B_LEFT] > 0:
            if kept < i:
                s.batch[e, kept, :] = b
            kept += 1
            continue
        row = b[a.B_ROW]
        number[a.FREE_BLOCKS] += _blocks(b[a.B_COMPUTED])
        if s.request[row, a.R_GENERATED] < s.request[row, a.R_OUTPUT]:
            number[a.ABORTED_COUNT] += 1
        leave_batch(s, e, b[a.B_ADAPTER])
        _release(s, row)
    number[a.RUNNING] = kept


@compiled
def _wake(s: EngineState, e: int, now: int) -> None:
    """An idle engine's clock stands at its last call; bring it to `now`."""
    if s.number[e, a.STEP_END] == NONE and s.number[e, a.CLOCK] < now:
        s.number[e, a.CLOCK] = now


@compiled
def _release(s: EngineState, row: int) -> None:
    s.request[row, a.R_STATE] = 0
    s.free[1 + s.free[0]] = row
    s.free[0] += 1


@compiled
def _emit(s: EngineState, e: int, time: int, row: int, kind: int, value: int) -> None:
    at = s.number[e, a.EVENTS]
    event = s.event[e, at]
    event[a.E_TIME], event[a.E_KIND], event[a.E_VALUE] = time, kind, value
    event[a.E_REQUEST] = s.request[row, a.R_ID] if row != NONE else NONE
    s.number[e, a.EVENTS] = at + 1


@compiled
def _blocks(tokens: int) -> int:
    return (tokens + BLOCK_STEPS - 1) // BLOCK_STEPS
