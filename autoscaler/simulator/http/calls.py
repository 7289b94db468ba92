"""The HTTP calls of one running engine, with vLLM's status codes and bodies."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from autoscaler.simulator.engine.model import RequestRefusedError
from autoscaler.simulator.http.adapters import Registry
from autoscaler.simulator.http.live import AbortedError, LiveEngine, Request
from autoscaler.simulator.http.options import EngineOptions, Faults
from autoscaler.simulator.http.page import MetricsPage
from autoscaler.simulator.http.wire import Answer, Asked, error_body, model_list, parse_completion

_LOST = "the engine stopped"
_STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}


class Calls:
    """Answers requests for one engine until it ends. `clock_s` is the engine's own time, seconds since its start."""

    def __init__(self, options: EngineOptions, faults: Faults, clock_s: Callable[[], float]) -> None:
        self.options, self.faults = options, faults
        self.live = LiveEngine(options)
        self.registry = Registry(options.base_model, options.adapter_capacity)
        self._page = MetricsPage(options.base_model, time.time())
        self._clock_s = clock_s
        self._answers = 0
        self._load_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._table: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            ("POST", "/v1/completions"): lambda request: self._complete(request, chat=False),
            ("POST", "/v1/chat/completions"): lambda request: self._complete(request, chat=True),
            ("POST", "/v1/embeddings"): self._embed,
            ("GET", "/v1/models"): self._models,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
        }
        if options.runtime_updates:
            self._table["POST", "/v1/load_lora_adapter"] = self._load
            self._table["POST", "/v1/unload_lora_adapter"] = self._unload

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request in, one answer out."""
        call = self._table.get((request.method, request.path))
        if call is None:
            return _json(404, b'{"detail":"Not Found"}')
        return await call(request)

    async def _complete(self, request: web.BaseRequest, chat: bool) -> web.StreamResponse:
        if self.faults.completion_status is not None:
            return _error(self.faults.completion_status, "made to fail", "InternalServerError")
        try:
            asked = parse_completion(await _body(request), chat, self.options.base_model, self.options.force_usage)
        except ValueError as error:
            return _error(400, str(error), "BadRequestError")
        submitted = await self._submit(asked)
        if isinstance(submitted, web.StreamResponse):
            return submitted
        try:
            if asked.streamed:
                return await self._stream(request, asked, submitted)
            return await self._whole(asked, submitted)
        finally:
            self.live.abort(self._clock_s(), submitted)

    async def _submit(self, asked: Asked) -> Request | web.StreamResponse:
        if asked.prompt_tokens + asked.output_tokens > self.options.max_model_len:
            length = f"{asked.prompt_tokens} + {asked.output_tokens} tokens"
            limit = self.options.max_model_len
            return _error(
                400, f"This model's maximum context length is {limit} tokens, not {length}.", "BadRequestError"
            )
        queue_limit = self.options.max_queued_requests
        if queue_limit is not None and self.live.model.gauges().waiting >= queue_limit:
            self.live.observed.rejected += 1
            return _error(503, f"{queue_limit} requests are waiting already", "ServiceUnavailableError")
        adapter = await self._number(asked.model)
        if adapter is None:
            return _error(404, f"The model `{asked.model}` does not exist.", "NotFoundError", "model")
        try:
            return self.live.submit(self._clock_s(), adapter, asked.prompt_tokens, asked.output_tokens, asked.streamed)
        except RequestRefusedError as refusal:
            return _error(400, str(refusal), "BadRequestError")

    async def _number(self, name: str) -> int | None:
        """The model's number of an adapter; with a resolver an unknown one is looked for on disk and loaded first."""
        number = self.registry.number(name)
        if number is not None or not self.options.resolver:
            return number
        async with self._load_locks[name]:
            number = self.registry.number(name)
            path = None if number is not None else self.options.files.resolve(name)
            if path is None:
                self._load_locks.pop(name, None)
                return number
            number = self.registry.new_number(name)
            await self.live.load(self._clock_s(), number)
            self.registry.add(name, path, number)
            return number

    async def _stream(self, http: web.BaseRequest, asked: Asked, request: Request) -> web.StreamResponse:
        """vLLM sends the headers of a stream at once, and its first event with the first token."""
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(http)
        answer = self._new_answer(asked)
        while not (request.done and request.sent == request.tokens):
            await request.changed.wait()
            request.changed.clear()
            if request.aborted:
                raise AbortedError(_LOST)
            new = request.tokens - request.sent
            if new:
                request.sent += new
                await response.write(answer.event(new, last=request.done))
        await response.write_eof()
        return response

    async def _whole(self, asked: Asked, request: Request) -> web.StreamResponse:
        await request.changed.wait()
        if request.aborted:
            raise AbortedError(_LOST)
        return _json(200, self._new_answer(asked).whole())

    def _new_answer(self, asked: Asked) -> Answer:
        self._answers += 1
        return Answer(asked, self._answers)

    async def _embed(self, request: web.BaseRequest) -> web.StreamResponse:
        """One prefill and a vector of eight numbers: enough for a router to be tested with."""
        try:
            body = await _body(request)
            asked = parse_completion(
                {**body, "prompt": body.get("input", ""), "max_tokens": 1}, False, self.options.base_model, True
            )
        except ValueError as error:
            return _error(400, str(error), "BadRequestError")
        submitted = await self._submit(asked)
        if isinstance(submitted, web.StreamResponse):
            return submitted
        try:
            await self._whole(asked, submitted)
        finally:
            self.live.abort(self._clock_s(), submitted)
        usage = {"prompt_tokens": asked.prompt_tokens, "total_tokens": asked.prompt_tokens}
        item = {"object": "embedding", "index": 0, "embedding": [0.125] * 8}
        return _json(200, json.dumps({"object": "list", "data": [item], "model": asked.model, "usage": usage}).encode())

    async def _models(self, _: web.BaseRequest) -> web.StreamResponse:
        if self.faults.models_status is not None:
            return _error(self.faults.models_status, "made to fail", "InternalServerError")
        return _json(200, model_list(self.options.base_model, self.options.max_model_len, self.registry.all))

    async def _metrics(self, _: web.BaseRequest) -> web.StreamResponse:
        if self.faults.metrics_status is not None:
            return web.Response(status=self.faults.metrics_status)
        page = self._page.text(self.live, self.registry, time.time())
        return web.Response(text=page, content_type="text/plain")

    async def _health(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=200)

    async def _version(self, _: web.BaseRequest) -> web.StreamResponse:
        return _json(200, b'{"version":"0.33.0"}')

    async def _load(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.faults.hang_loads:
            await asyncio.Event().wait()
        if self.faults.load_status is not None:
            return _error(self.faults.load_status, "made to fail", "InternalServerError")
        try:
            body = await _body(request)
        except ValueError as error:
            return _error(400, str(error), "Bad Request")
        missing = [field for field in ("lora_name", "lora_path") if not isinstance(body.get(field), str)]
        if missing:
            return _error(400, f"field required: {', '.join(missing)}", "Bad Request")
        name, path = body["lora_name"], body["lora_path"]
        async with self._load_locks[name]:
            refusal = self._refusal(name, path, bool(body.get("load_inplace", False)))
            if refusal is not None:
                return refusal
            number = self.registry.new_number(name)
            await self.live.load(self._clock_s(), number)
            self.registry.add(name, path, number)
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    def _refusal(self, name: str, path: str, in_place: bool) -> web.StreamResponse | None:
        if not name or not path:
            return _error(400, "Both 'lora_name' and 'lora_path' must be provided.", "InvalidUserInput")
        if name == self.options.base_model:
            return _error(400, f"The lora adapter '{name}' has the name of the base model.", "InvalidUserInput")
        if not in_place and self.registry.number(name) is not None:
            hint = "If you want to load the adapter in place, set 'load_inplace' to True."
            return _error(400, f"The lora adapter '{name}' has already been loaded. {hint}", "InvalidUserInput")
        rank, most = self.options.files.rank(path), self.options.limits.max_lora_rank
        if rank is None:
            return _error(404, f"Loading lora {name} failed: No adapter found for {path}", "NotFoundError")
        if rank > most:
            return _error(500, f"LoRA rank {rank} is greater than max_lora_rank {most}.", "InternalServerError")
        return None

    async def _unload(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            name = (await _body(request)).get("lora_name")
        except ValueError as error:
            return _error(400, str(error), "Bad Request")
        if not isinstance(name, str):
            return _error(400, "field required: lora_name", "Bad Request")
        if not name:
            return _error(400, "'lora_name' needs to be provided to unload a LoRA adapter.", "InvalidUserInput")
        if not self.registry.remove(name):
            return _error(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")


async def _body(request: web.BaseRequest) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    return body


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _error(status: int, message: str, kind: str, param: str | None = None) -> web.Response:
    return _json(status, error_body(status, message, kind, param))
