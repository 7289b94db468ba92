"""The engine model tied to real time: requests go in, their tokens come out as wall-clock time passes.

Nothing here wakes up by itself: a pump (one for all engines of the process) calls `run_to` some hundred times a second.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from autoscaler.simulator.engine.model import FINISHED, FIRST_TOKEN, LOADED, PREEMPTED, Engine
from autoscaler.simulator.http.histograms import Observations
from autoscaler.simulator.http.options import EngineOptions

# How often streams are looked at for new tokens. Ten times a second for 256 streams is 1 % of a core; more often than a
# person could read.
_PROGRESS_S = 0.1
_ITERATIONS_S = 1.0


class AbortedError(ConnectionError):
    """The engine went away with the request."""


@dataclass(slots=True)
class Request:
    """One request on its way. Times are seconds since the engine's start, NaN before they are known.

    `tokens` have been handed out by the model, of which the HTTP side has sent `sent`; `changed` wakes it up.
    """

    id: int
    adapter: int
    prompt_tokens: int
    output_tokens: int
    streamed: bool
    submitted_s: float
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    admitted_s: float = float("nan")
    first_token_s: float = float("nan")
    tokens: int = 0
    sent: int = 0
    preemptions: int = 0
    aborted: bool = False

    @property
    def done(self) -> bool:
        """All its tokens are there."""
        return self.tokens == self.output_tokens


class LiveEngine:
    """One engine between its start and its end. All times are seconds since its start."""

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.model = Engine(options.profile, options.limits, options.adapter_capacity)
        self.observed = Observations()
        self.requests: dict[int, Request] = {}
        self._next_id = 0
        self._unadmitted: set[int] = set()
        self._loading: dict[int, list[asyncio.Future[None]]] = {}
        self._progress_due_s = 0.0
        self._iterations_due_s = 0.0
        self._seen = self.model.gauges()

    @property
    def busy(self) -> bool:
        """Whether time passing changes anything."""
        return bool(self.requests or self._loading) or self.model.next_event_s() is not None

    def submit(self, now_s: float, adapter: int, prompt_tokens: int, output_tokens: int, streamed: bool) -> Request:
        """Queue a request. Raises RequestRefusedError for one that can never be served."""
        request = Request(self._next_id, adapter, prompt_tokens, output_tokens, streamed, now_s)
        self.model.submit(now_s, request.id, adapter, prompt_tokens, output_tokens)
        self._next_id += 1
        self.requests[request.id] = request
        self._unadmitted.add(request.id)
        return request

    def abort(self, now_s: float, request: Request) -> None:
        """The client went away."""
        if self.requests.pop(request.id, None) is not None:
            self._unadmitted.discard(request.id)
            self.model.abort(now_s, request.id)
            self.observed.finished["abort"] += 1

    def load(self, now_s: float, adapter: int) -> asyncio.Future[None]:
        """Load an adapter; the future is done when it is in memory. Raises RequestRefusedError for too many at once."""
        self.model.load(now_s, adapter)
        loaded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loading.setdefault(adapter, []).append(loaded)
        return loaded

    def abort_all(self) -> None:
        """The process ends: everybody who waits is told."""
        for request in self.requests.values():
            request.aborted = True
            request.changed.set()
        for waiting in self._loading.values():
            for loaded in waiting:
                if not loaded.done():
                    loaded.set_exception(AbortedError("the engine stopped while it loaded an adapter"))
        self.requests.clear()
        self._unadmitted.clear()
        self._loading.clear()

    def run_to(self, now_s: float) -> None:
        """Let the model run to `now_s` and hand out what happened."""
        if not self.busy:
            return
        for at_s, number, kind, value in self.model.advance(now_s).tolist():
            if kind == LOADED:
                self._loaded(value)
            elif (request := self.requests.get(number)) is not None:
                self._apply(request, at_s, kind, value)
        if self._unadmitted:
            self._note_admissions(now_s)
        if now_s >= self._progress_due_s:
            self._progress_due_s = now_s + _PROGRESS_S
            self._hand_out_progress()
        if now_s >= self._iterations_due_s:
            self._iterations_due_s = now_s + _ITERATIONS_S
            self._note_iterations()

    def _loaded(self, adapter: int) -> None:
        for loaded in self._loading.pop(adapter, ()):
            if not loaded.done():
                loaded.set_result(None)

    def _apply(self, request: Request, at_s: float, kind: int, value: int) -> None:
        if kind == PREEMPTED:
            request.preemptions += 1
            return
        if kind == FIRST_TOKEN:
            request.first_token_s = at_s
            if request.id in self._unadmitted:
                self._unadmitted.discard(request.id)
                request.admitted_s = at_s
            self.observed.first_token(at_s - request.submitted_s)
        if kind == FINISHED:
            del self.requests[request.id]
            self.observed.finish(request, at_s)
        request.tokens = value
        if kind == FINISHED or request.streamed:
            request.changed.set()

    def _note_admissions(self, now_s: float) -> None:
        running, _ = self.model.running_progress()
        for number in self._unadmitted.intersection(running.tolist()):
            self.requests[number].admitted_s = now_s
            self._unadmitted.discard(number)

    def _hand_out_progress(self) -> None:
        interval = self.options.stream_interval_tokens
        numbers, tokens = self.model.running_progress()
        for number, handed_out in zip(numbers.tolist(), tokens.tolist(), strict=True):
            request = self.requests.get(number)
            if request is not None and request.streamed and handed_out - request.sent >= interval:
                request.tokens = handed_out
                request.changed.set()

    def _note_iterations(self) -> None:
        now, before = self.model.gauges(), self._seen
        if (steps := now.steps - before.steps) > 0:
            tokens = now.prompt_tokens + now.generation_tokens - before.prompt_tokens - before.generation_tokens
            self.observed.iterations(steps, tokens)
        if (loads := now.gpu_loads - before.gpu_loads) > 0:
            self.observed.loads.observe((now.load_s - before.load_s) / loads, loads)
        self._seen = now
