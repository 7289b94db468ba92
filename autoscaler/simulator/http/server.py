"""One simulated engine as a process would be: it starts up, listens, is told to stop, crashes, and starts again."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache

from aiohttp import web

from autoscaler.simulator.engine.model import BASE_MODEL, Engine
from autoscaler.simulator.engine.profile import EngineLimits, load_profile
from autoscaler.simulator.http.calls import Calls
from autoscaler.simulator.http.options import DEFAULT_PROFILE, EngineOptions, Faults
from autoscaler.simulator.http.pump import Pump

_BACKLOG = 1_024


@cache
def compile_model() -> None:
    """Have the engine model compiled before anybody waits for it: seconds the first time, then read from its cache."""
    model = Engine(load_profile(DEFAULT_PROFILE), EngineLimits(max_loras=2, kv_cache_tokens=4_096), 4)
    model.load(0.0, 0)
    for number in range(3):
        model.submit(0.0, number, number - 1 if number else BASE_MODEL, 8, 64)
    model.advance(0.1)
    model.running_progress()
    model.gauges()
    model.abort(0.2, 2)
    model.advance(10.0)


class SimulatedEngine:
    """An engine on an address of its own. Many share one event loop and one pump.

    Until its start-up is over nothing listens there: connections are refused, as with an engine that loads its weights.
    """

    def __init__(self, options: EngineOptions, pump: Pump, host: str = "127.0.0.1", port: int = 0) -> None:
        self.options, self.faults = options, Faults()
        self._pump, self._host, self._port = pump, host, port
        self._calls: Calls | None = None
        self._http: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._started_loop_s = 0.0
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def address(self) -> str:
        """`host:port`; the port is 0 until the first start where none was given."""
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        """The base of its API."""
        return f"http://{self.address}"

    @property
    def running(self) -> bool:
        """Whether it answers."""
        return self._listener is not None

    @property
    def in_flight(self) -> int:
        """Calls that it is answering now."""
        return self._in_flight

    async def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False where that took longer than `timeout_s`."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    @property
    def calls(self) -> Calls:
        """Its inside while it runs. Raises RuntimeError where it does not."""
        if self._calls is None:
            raise RuntimeError(f"the engine on {self.address} does not run: start it first")
        return self._calls

    async def start(self) -> None:
        """Start up (`start_up_s`), then listen. Nothing is left of an earlier life: no adapter, no request, no counter.

        Raises OSError where its port is taken.
        """
        compile_model()
        if self.options.start_up_s:
            await asyncio.sleep(self.options.start_up_s)
        loop = asyncio.get_running_loop()
        self._started_loop_s = loop.time()
        self._calls = Calls(self.options, self.faults, self._clock_s)
        # A client that goes away takes its request out of the batch, as vLLM does.
        self._http = web.Server(self._answer, handler_cancellation=True, access_log=None, keepalive_timeout=3600.0)
        self._listener = await loop.create_server(
            self._http, self._host, self._port, backlog=_BACKLOG, reuse_address=True
        )
        self._port = self._listener.sockets[0].getsockname()[1]
        self._pump.add(self)

    async def stop(self) -> None:
        """What SIGTERM does: no new connection; what is in flight has `shutdown_timeout_s`, and is then cut off."""
        self._stop_listening()
        await self.wait_idle(self.options.shutdown_timeout_s)
        await self.crash()

    async def crash(self) -> None:
        """What SIGKILL does: every connection is cut, whatever it carries."""
        self._stop_listening()
        self._pump.remove(self)
        calls, http = self._calls, self._http
        self._calls = self._http = None
        if http is not None:
            for connection in tuple(http.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            await http.shutdown(0)
        if calls is not None:
            calls.live.abort_all()

    def run_to(self, loop_s: float) -> None:
        """The pump's tick."""
        if self._calls is not None:
            self._calls.live.run_to(loop_s - self._started_loop_s)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _clock_s(self) -> float:
        return asyncio.get_running_loop().time() - self._started_loop_s

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        calls = self._calls
        if calls is None:
            # Accepted at the moment of the crash: cut off as all others were, not answered with a 500.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the engine stopped")
        self._in_flight += 1
        self._idle.clear()
        try:
            with contextlib.suppress(ConnectionResetError):
                return await calls.answer(request)
            # The client went away while it was written to: there is nobody left to answer.
            return web.Response(status=499)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
