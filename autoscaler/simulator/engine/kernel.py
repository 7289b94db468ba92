"""One engine's clockwork: form a batch, take the time of its step, hand out tokens; equal steps are taken at once.

Scheduling as vLLM V1: running requests first, in order, from a budget of tokens (one each, or the next chunk of a
prompt); then waiting ones while seats, budget, adapter slots and KV blocks last. A failed allocation preempts the
newest running request, which computes everything again. An arrival during a step is seen when that step ends. Compiled.
"""

from __future__ import annotations

import math

from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.compiled import compiled, internal
from autoscaler.simulator.engine.layout import BLOCK_TOKENS, NONE, PS_PER_S, EngineState, EngineView
from autoscaler.simulator.engine.queueing import account_waiting, dequeue, enqueue, next_admissible
from autoscaler.simulator.engine.residency import begin_round, join_batch, leave_batch, make_resident, touch_batch, view
from autoscaler.simulator.engine.rows import emit, kv_blocks, release, wake

FULL, TOO_LONG = -1, -2


@compiled
def submit(s: EngineState, e: int, now: int, request_id: int, adapter: int, prompt: int, output: int) -> int:
    """Queue a request at picosecond `now`: its row, FULL (no row or event space) or TOO_LONG (never fits the KV)."""
    v = view(s, e)
    if v.request[0, a.FREE_ROWS] == 0 or not _run(v, now, False):
        return FULL
    if kv_blocks(prompt + output) > v.number[a.BLOCKS]:
        return TOO_LONG
    row = v.request[0, a.FIRST_FREE]
    v.request[0, a.FIRST_FREE] = v.request[row, a.R_NEXT]
    v.request[0, a.FREE_ROWS] -= 1
    v.request[row, a.R_ID], v.request[row, a.R_ADAPTER] = request_id, adapter
    v.request[row, a.R_PROMPT], v.request[row, a.R_OUTPUT], v.request[row, a.R_GENERATED] = prompt, output, 0
    wake(v, now)
    account_waiting(v, now)
    enqueue(v, row, False)
    v.number[a.SUBMITTED] += 1
    return int(row)


@compiled
def abort(s: EngineState, e: int, now: int, row: int) -> bool:
    """Drop a request: at once if it waits, with the step in flight if it runs. False: drain the events, call again."""
    v = view(s, e)
    if not _run(v, now, False):
        return False
    if v.request[row, a.R_STATE] == a.WAITS:
        account_waiting(v, now)
        dequeue(v, row)
        release(v, row)
        v.number[a.ABORTED_COUNT] += 1
        return True
    for i in range(v.number[a.RUNNING]):
        if v.batch[i, a.B_ROW] == row:
            v.batch[i, a.B_LEFT] = 0
    if v.number[a.STEP_END] == NONE:
        _remove_done(v)
    return True


@compiled
def request_load(s: EngineState, e: int, now: int, adapter: int) -> bool:
    """Load `adapter` before the next step, as the engine's endpoint does. False: drain events or wait, call again."""
    v = view(s, e)
    if not _run(v, now, False) or v.number[a.PENDING_LOADS] == a.LOAD_QUEUE:
        return False
    wake(v, now)
    v.lists[a.LOADING, v.number[a.PENDING_LOADS]] = adapter
    v.number[a.PENDING_LOADS] += 1
    return True


@compiled
def next_event(s: EngineState, e: int) -> int:
    """The picosecond before which nothing happens without a new call (the step's end), or NONE when idle."""
    if s.number[e, a.STEP_END] != NONE:
        return int(s.number[e, a.STEP_END])
    if s.number[e, a.RUNNING] + s.number[e, a.WAITING] + s.number[e, a.PENDING_LOADS] > 0:
        return int(s.number[e, a.CLOCK])
    return NONE


@compiled
def advance(s: EngineState, e: int, until: int, inclusive: bool) -> bool:
    """Run to `until`; a step due exactly then begins only if `inclusive`. False: drain the events, call again."""
    number = s.number[e]
    if number[a.STEP_END] > until:
        return True
    return _run(view(s, e), until, inclusive)


@internal
def _run(v: EngineView, until: int, inclusive: bool) -> bool:
    number = v.number
    room = v.event.shape[0] - 3 * number[a.MAX_SEQS] - a.LOAD_QUEUE
    while True:
        if number[a.STEP_END] != NONE:
            if number[a.STEP_END] > until:
                return True
            if number[a.EVENTS] > room:
                return False
            _complete_steps(v, 1, number[a.STEP_END])
        if number[a.RUNNING] == 0 and number[a.WAITING] == 0 and number[a.PENDING_LOADS] == 0:
            number[a.CLOCK] = max(number[a.CLOCK], until)
            return True
        if number[a.CLOCK] > until or (number[a.CLOCK] == until and not inclusive):
            return True
        if number[a.EVENTS] > room:
            return False
        steady, fixed, per_context, context, least = _begin_step(v)
        if steady and number[a.JUMPING] == 1:
            _jump(v, until, fixed, per_context, context, least)


@internal
def _begin_step(v: EngineView) -> tuple[bool, int, int, int, int]:
    """Form the batch of the step at CLOCK and set STEP_END.

    Returns whether the same batch would go on decoding, the terms of its time (fixed + per_context * context), and the
    least number of tokens that one of its requests still needs.
    """
    number = v.number
    preemptions = number[a.PREEMPTIONS]
    account_waiting(v, number[a.CLOCK])
    context, least = _decode_all(v)
    decoding, prefill, admitted = number[a.RUNNING], 0, 0
    budget = number[a.BUDGET] - decoding
    square = 0.0
    if context == NONE:
        budget, decoding, context, prefill, square = _schedule_running(v)
    if number[a.PREEMPTIONS] == preemptions and number[a.WAITING] > 0:
        admitted, budget, took, took_square = _schedule_waiting(v, budget)
        prefill += took
        square += took_square
    stall = _load_adapters(v)
    fixed, per_context = 0, 0
    if decoding + prefill > 0:
        fixed, per_context = _step_time(v, decoding, prefill, square, admitted)
    number[a.STEP_END] = number[a.CLOCK] + max(1, stall + fixed + per_context * context)
    steady = decoding == number[a.RUNNING] and prefill == 0 and stall == 0 and number[a.LOADS_IN_STEP] == 0
    return steady and number[a.PREEMPTIONS] == preemptions and fixed > 0, fixed, per_context, context, least


@internal
def _step_time(v: EngineView, decoding: int, prefill: int, square: float, admitted: int) -> tuple[int, int]:
    """Picoseconds of a step: a fixed part, and what each token of the decoding requests' context adds."""
    real, distinct = v.real, v.number[a.DISTINCT]
    time = real[a.C_FIXED] + real[a.C_SEQUENCE] * decoding + real[a.C_PREFILL_TOKEN] * prefill
    time += real[a.C_PREFILL_SQUARE] * square
    if prefill > 0:
        time += real[a.C_PREFILL]
    if decoding + prefill > real[a.C_GRAPH_TOKENS]:
        time += real[a.C_EAGER]
    factor = 1.0
    if distinct > 0:
        factor = real[a.C_FACTOR] + real[a.C_FACTOR_ADAPTER] * distinct
        time = time * factor + real[a.C_LORA] + real[a.C_LORA_ADAPTER] * distinct
        time += real[a.C_LORA_SEQUENCE] * decoding + real[a.C_LORA_PREFILL_TOKEN] * prefill
    time += real[a.C_ADMIT] * admitted + real[a.C_WAITING] * v.number[a.WAITING]
    return int(round(time)), int(round(real[a.C_CONTEXT] * factor))  # noqa: RUF046 - compiled round gives a float


@internal
def _decode_all(v: EngineView) -> tuple[int, int]:
    """Give each running request one token if all decode and blocks and budget suffice: (their context, least left).

    (NONE, 0) and nothing done otherwise: the careful way then takes over.
    """
    number, batch = v.number, v.batch
    running = number[a.RUNNING]
    if running > number[a.BUDGET] or running == 0:
        return NONE, 0
    context, blocks = 0, 0
    least = batch[0, a.B_LEFT]
    for i in range(running):
        computed = batch[i, a.B_COMPUTED]
        if batch[i, a.B_TARGET] - computed != 1 or batch[i, a.B_FIRST] == 1:
            return NONE, 0
        context += computed
        blocks += int(computed % BLOCK_TOKENS == 0)
        least = min(least, batch[i, a.B_LEFT])
    if blocks > number[a.FREE_BLOCKS]:
        return NONE, 0
    number[a.FREE_BLOCKS] -= blocks
    for i in range(running):
        batch[i, a.B_TAKES] = 1
    return context, least


@internal
def _schedule_running(v: EngineView) -> tuple[int, int, int, int, float]:
    """Give all running requests their tokens: (budget left, decoding, their context, prompt tokens, squares)."""
    number, batch = v.number, v.batch
    budget = number[a.BUDGET]
    decoding, context, prefill = 0, 0, 0
    square = 0.0
    i = 0
    while i < number[a.RUNNING]:
        computed = batch[i, a.B_COMPUTED]
        lacks = batch[i, a.B_TARGET] - computed
        takes = min(lacks, budget)
        batch[i, a.B_TAKES] = takes
        need = kv_blocks(computed + takes) - kv_blocks(computed)
        while need > number[a.FREE_BLOCKS] and i < number[a.RUNNING]:
            _preempt_last(v)
        if i == number[a.RUNNING]:
            break
        number[a.FREE_BLOCKS] -= need
        budget -= takes
        if lacks == 1 and batch[i, a.B_FIRST] == 0:
            decoding += takes
            context += computed * takes
        else:
            prefill += takes
            square += float(computed + takes) ** 2 - float(computed) ** 2
        i += 1
    return budget, decoding, context, prefill, square


@internal
def _preempt_last(v: EngineView) -> None:
    """Send the newest running request back to the head of the queue, to be computed again from its first token."""
    v.number[a.RUNNING] -= 1
    v.number[a.PREEMPTIONS] += 1
    last = v.number[a.RUNNING]
    row = v.batch[last, a.B_ROW]
    v.number[a.FREE_BLOCKS] += kv_blocks(v.batch[last, a.B_COMPUTED])
    v.request[row, a.R_GENERATED] = v.request[row, a.R_OUTPUT] - v.batch[last, a.B_LEFT]
    leave_batch(v, v.batch[last, a.B_ADAPTER])
    enqueue(v, row, True)
    emit(v, v.request[row, a.R_ID], a.PREEMPTED, v.request[row, a.R_GENERATED])


@internal
def _schedule_waiting(v: EngineView, budget: int) -> tuple[int, int, int, float]:
    """Admit waiting requests: (how many, budget left, prompt tokens begun, squares)."""
    number, batch = v.number, v.batch
    admitted, prefill = 0, 0
    square = 0.0
    while budget > 0 and number[a.RUNNING] < number[a.MAX_SEQS]:
        row = next_admissible(v)
        if row == NONE:
            break
        generated = v.request[row, a.R_GENERATED]
        target = v.request[row, a.R_PROMPT] + generated
        takes = min(target, budget)
        if kv_blocks(takes) > number[a.FREE_BLOCKS]:
            break
        adapter = v.request[row, a.R_ADAPTER]
        dequeue(v, row)
        join_batch(v, adapter)
        v.request[row, a.R_STATE] = a.RUNS
        number[a.FREE_BLOCKS] -= kv_blocks(takes)
        at = number[a.RUNNING]
        number[a.RUNNING] += 1
        batch[at, a.B_ROW], batch[at, a.B_ADAPTER], batch[at, a.B_COMPUTED] = row, adapter, 0
        batch[at, a.B_TARGET], batch[at, a.B_TAKES] = target, takes
        batch[at, a.B_LEFT], batch[at, a.B_FIRST] = v.request[row, a.R_OUTPUT] - generated, int(generated == 0)
        admitted += 1
        budget -= takes
        prefill += takes
        square += float(takes) ** 2
    return admitted, budget, prefill, square


@internal
def _load_adapters(v: EngineView) -> int:
    """Picoseconds this step stands still while adapters load: those asked for, then the batch's missing ones."""
    number, stall = v.number, 0
    number[a.LOADS_IN_STEP] = number[a.PENDING_LOADS]
    for i in range(number[a.PENDING_LOADS]):
        begin_round(v)
        stall += make_resident(v, v.lists[a.LOADING, i])
    return stall + touch_batch(v)


@internal
def _jump(v: EngineView, until: int, fixed: int, per_context: int, context: int, least: int) -> None:
    """Take all whole steps of a steady batch that end by `until` and before anything else can happen.

    Step i (0, 1, ...) takes fixed + per_context * (context + i * batch): in integers, so k at once equal k single ones.
    """
    number, batch = v.number, v.batch
    running = number[a.RUNNING]
    # A request takes at most one block in 16 steps; the first step has taken its blocks already.
    most = min(least, 1 + BLOCK_TOKENS * (number[a.FREE_BLOCKS] // running))
    first = fixed + per_context * context
    growth = per_context * running
    span = until - number[a.CLOCK]
    if most < 2 or first > span:
        return
    steps = most
    if _span(most, first, growth) > span:
        steps = span // first
        if growth > 0:
            half = first - growth / 2.0
            steps = int((math.sqrt(half * half + 2.0 * growth * float(span)) - half) / growth)
        steps = max(1, min(steps, most))
        while steps < most and _span(steps + 1, first, growth) <= span:
            steps += 1
        while steps > 1 and _span(steps, first, growth) > span:
            steps -= 1
    blocks = 0
    for i in range(running):
        computed = batch[i, a.B_COMPUTED]
        blocks += kv_blocks(computed + steps) - kv_blocks(computed + 1)
    number[a.FREE_BLOCKS] -= blocks
    _complete_steps(v, steps, number[a.CLOCK] + _span(steps, first, growth))


@internal
def _span(steps: int, first: int, growth: int) -> int:
    return steps * first + growth * (steps * (steps - 1) // 2)


@internal
def _complete_steps(v: EngineView, steps: int, end: int) -> None:
    """End `steps` equal steps at `end`: tokens computed and handed out, finished requests leave the batch."""
    number, real, batch = v.number, v.real, v.batch
    running = number[a.RUNNING]
    seconds = (end - number[a.CLOCK]) / PS_PER_S
    real[a.RUNNING_S] += running * seconds
    real[a.DISTINCT_S] += number[a.DISTINCT] * seconds
    real[a.KV_S] += (number[a.BLOCKS] - number[a.FREE_BLOCKS]) / number[a.BLOCKS] * seconds
    number[a.BUSY] += end - number[a.CLOCK]
    number[a.STEPS] += steps
    number[a.CLOCK] = end
    number[a.STEP_END] = NONE
    done, handed = 0, 0
    for i in range(running):
        takes = batch[i, a.B_TAKES]
        computed = batch[i, a.B_COMPUTED] + takes + steps - 1
        batch[i, a.B_COMPUTED] = computed
        if takes > 0 and computed >= batch[i, a.B_TARGET] and batch[i, a.B_LEFT] > 0:
            batch[i, a.B_LEFT] -= steps
            batch[i, a.B_TARGET] += steps
            handed += steps
            if batch[i, a.B_FIRST] == 1:
                batch[i, a.B_FIRST] = 0
                number[a.PROMPT_TOKENS] += v.request[batch[i, a.B_ROW], a.R_PROMPT]
                emit(v, v.request[batch[i, a.B_ROW], a.R_ID], a.FIRST_TOKEN, 1)
            if batch[i, a.B_LEFT] == 0:
                _finish(v, batch[i, a.B_ROW])
        done += int(batch[i, a.B_LEFT] == 0)
    number[a.GENERATED_TOKENS] += handed
    if number[a.LOADS_IN_STEP] > 0:
        _announce_loads(v)
    if done > 0:
        _remove_done(v)


@internal
def _finish(v: EngineView, row: int) -> None:
    v.number[a.FINISHED_COUNT] += 1
    v.request[row, a.R_GENERATED] = v.request[row, a.R_OUTPUT]
    emit(v, v.request[row, a.R_ID], a.FINISHED, v.request[row, a.R_OUTPUT])


@internal
def _announce_loads(v: EngineView) -> None:
    """Tell which of the asked-for adapters are loaded, and keep those that were asked for since."""
    number, loading = v.number, v.lists[a.LOADING]
    loaded = number[a.LOADS_IN_STEP]
    for i in range(loaded):
        emit(v, NONE, a.LOADED, loading[i])
    for i in range(loaded, number[a.PENDING_LOADS]):
        loading[i - loaded] = loading[i]
    number[a.PENDING_LOADS] -= loaded
    number[a.LOADS_IN_STEP] = 0


@internal
def _remove_done(v: EngineView) -> None:
    """Close the gaps that finished and aborted requests leave, in order."""
    number, batch = v.number, v.batch
    kept = 0
    for i in range(number[a.RUNNING]):
        if batch[i, a.B_LEFT] > 0:
            if kept < i:
                for column in range(a.BATCH_COLUMNS):
                    batch[kept, column] = batch[i, column]
            kept += 1
            continue
        row = batch[i, a.B_ROW]
        number[a.FREE_BLOCKS] += kv_blocks(batch[i, a.B_COMPUTED])
        if v.request[row, a.R_GENERATED] < v.request[row, a.R_OUTPUT]:
            number[a.ABORTED_COUNT] += 1
        leave_batch(v, batch[i, a.B_ADAPTER])
        release(v, row)
    number[a.RUNNING] = kept
