"""Sends arrivals open-loop over HTTP and measures what a client sees.

Open-loop: a request leaves when the trace says so, whatever became of those before it; a slow fleet is not spared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np

from autoscaler.simulator.http.pump import LoopLag
from autoscaler.simulator.traffic.arrivals import Arrivals, Floats, Ints

_LAG_PROBE_S = 0.01
_WORD = "x "


@dataclass(frozen=True, slots=True)
class LoadResults:
    """One row a request that has ended, in the order of their ends.

    Attributes:
        sent_s: when it was sent, seconds since the load began.
        adapter: index of the trace's adapters.
        ttft_s: to the first byte of content; NaN where none came.
        duration_s: to the last byte.
        output_tokens: as the answer's usage says; 0 where it says nothing.
        status: HTTP status, 0 where the connection broke before one came, -1 where it broke after.
        lag_p99_s: 99th percentile of how late the client's own event loop was.
    """

    sent_s: Floats
    adapter: Ints
    ttft_s: Floats
    duration_s: Floats
    output_tokens: Ints
    status: Ints
    lag_p99_s: float

    @property
    def errors(self) -> int:
        """Requests that did not end with 200 and a whole answer."""
        return int((self.status != 200).sum())

    def ttft_quantile_s(self, quantile: float, of: Ints | None = None) -> float:
        """A quantile of the times to first token, of all requests or of some rows; NaN where there are none."""
        values = self.ttft_s if of is None else self.ttft_s[of]
        values = values[~np.isnan(values)]
        return float(np.quantile(values, quantile)) if len(values) else float("nan")


class LoadGenerator:
    """A client for one base URL.

    Results pile up until `take` is called: 56 bytes a request.
    """

    def __init__(
        self,
        url: str,
        names: Sequence[str],
        *,
        streamed_ratio: float = 1.0,
        chat_ratio: float = 0.0,
        base_model: str = "",
        base_ratio: float = 0.0,
        max_tokens_limit: int = 4_096,
        seed: int = 0,
    ) -> None:
        """`names` are the adapters by index. `base_ratio` of the requests go to `base_model` instead.

        Longer prompts and answers than `max_tokens_limit` are cut to it.
        """
        self._url, self._names = url, tuple(names)
        self._streamed_ratio, self._chat_ratio = streamed_ratio, chat_ratio
        self._base_model, self._base_ratio = base_model, base_ratio
        self._limit = max_tokens_limit
        self._rng = np.random.default_rng((seed, 3))
        self._session: aiohttp.ClientSession | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._rows: list[tuple[float, int, float, float, int, int]] = []
        self._lag = LoopLag()
        self._began_loop_s: float | None = None
        self.sent = 0

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._open)

    async def run(self, chunks: Iterable[Arrivals], *, drain_s: float = 60.0) -> None:
        """Send all arrivals at their times, then wait at most `drain_s` for the last answers."""
        async with self._connected():
            probe = asyncio.ensure_future(self._probe_lag())
            try:
                origin_s = self._clock_s()
                for chunk in chunks:
                    await self._send_chunk(chunk, origin_s)
                if self._open:
                    await asyncio.wait(self._open, timeout=drain_s)
            finally:
                probe.cancel()
                for task in tuple(self._open):
                    task.cancel()
                await asyncio.gather(*self._open, return_exceptions=True)

    def take(self) -> LoadResults:
        """What has ended since the last call."""
        rows, self._rows = self._rows, []
        columns = list(zip(*rows, strict=True)) or [()] * 6
        sent, adapter, ttft, duration, tokens, status = columns
        lag_s = self._lag.p99_s()
        self._lag.clear()
        return LoadResults(
            np.array(sent, np.float64),
            np.array(adapter, np.int64),
            np.array(ttft, np.float64),
            np.array(duration, np.float64),
            np.array(tokens, np.int64),
            np.array(status, np.int64),
            lag_s,
        )

    async def _send_chunk(self, chunk: Arrivals, origin_s: float) -> None:
        coins = self._rng.random((3, len(chunk))) < np.array(
            [[self._streamed_ratio], [self._chat_ratio], [self._base_ratio]]
        )
        rows = zip(
            chunk.time_s.tolist(),
            chunk.adapter.tolist(),
            np.minimum(chunk.prompt_tokens, self._limit).tolist(),
            np.minimum(chunk.output_tokens, self._limit).tolist(),
            *coins.tolist(),
            strict=True,
        )
        for at_s, adapter, prompt, output, streamed, chat, to_base in rows:
            wait_s = origin_s + at_s - self._clock_s()
            # Below a millisecond the timer is no more exact than sending now.
            if wait_s > 0.001:
                await asyncio.sleep(wait_s)
            self._send(-1 if to_base and self._base_model else adapter, prompt, output, streamed, chat)

    def _send(self, adapter: int, prompt: int, output: int, streamed: bool, chat: bool) -> None:
        model = self._base_model if adapter < 0 else self._names[adapter]
        body: dict[str, object] = {"model": model, "max_tokens": output, "stream": streamed}
        if chat:
            body["messages"] = [{"role": "user", "content": _WORD * prompt}]
        else:
            body["prompt"] = _WORD * (prompt - 1)
        if streamed:
            body["stream_options"] = {"include_usage": True}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        task = asyncio.get_running_loop().create_task(self._ask(path, json.dumps(body).encode(), adapter))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        self.sent += 1

    async def _ask(self, path: str, body: bytes, adapter: int) -> None:
        sent_s = self._clock_s()
        ttft_s, tokens, status = float("nan"), 0, 0
        try:
            assert self._session is not None
            async with self._session.post(self._url + path, data=body, headers=_HEADERS) as answer:
                status = answer.status
                tail = b""
                async for data in answer.content.iter_any():
                    if ttft_s != ttft_s and status == 200:
                        ttft_s = self._clock_s() - sent_s
                    tail = tail[-1024:] + data
                tokens = _completion_tokens(tail)
        except (aiohttp.ClientError, TimeoutError, asyncio.CancelledError):
            # Cut off, or given up at the end of the run: in both cases the client has no whole answer.
            status = -1 if status == 200 else status
        self._rows.append((sent_s, adapter, ttft_s, self._clock_s() - sent_s, tokens, status))

    def _connected(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        return self._session

    async def _probe_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _LAG_PROBE_S
            await asyncio.sleep(_LAG_PROBE_S)
            self._lag.note(loop.time() - due_s)

    def _clock_s(self) -> float:
        now_s = asyncio.get_running_loop().time()
        if self._began_loop_s is None:
            self._began_loop_s = now_s
        return now_s - self._began_loop_s


_HEADERS = {"Content-Type": "application/json"}
_USAGE = b'"completion_tokens":'


def _completion_tokens(tail: bytes) -> int:
    """The usage near the end of an answer; 0 where there is none."""
    _, found, rest = tail.rpartition(_USAGE)
    digits = rest.lstrip()[:12]
    number = digits[: len(digits) - len(digits.lstrip(b"0123456789"))]
    return int(number) if found and number else 0
