"""vLLM's bodies, as bytes: errors, the model list, answers whole and streamed.

An answer's text is one word a token. What is the same in every event of a stream is built once.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from autoscaler.simulator.http.adapters import Registered

_WORD = b" word"
DONE = b"data: [DONE]\n\n"


def error_body(status: int, message: str, kind: str, param: str | None = None) -> bytes:
    """An error as vLLM answers it since mid 2025: nested under `error`."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": status}}).encode()


def model_list(base_model: str, max_model_len: int, registered: tuple[Registered, ...]) -> bytes:
    """`GET /v1/models`: the base model, then one entry a registered adapter."""

    def card(name: str, root: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": root, **more}

    base = card(base_model, base_model, parent=None, max_model_len=max_model_len)
    adapters = [card(a.name, a.path, parent=base_model, max_model_len=None) for a in registered]
    return json.dumps({"object": "list", "data": [base, *adapters]}).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a completion call asks for, as far as serving it costs anything."""

    model: str
    prompt_tokens: int
    output_tokens: int
    streamed: bool
    with_usage: bool
    chat: bool


def parse_completion(body: dict[str, Any], chat: bool, base_model: str, force_usage: bool) -> Asked:
    """Read a call's body; a prompt is as long as it has words (or ids). Raises ValueError for what gets 400."""
    model = body.get("model") or base_model
    asked = (body.get("max_completion_tokens"), body.get("max_tokens"), 256 if chat else 16)
    limit = next(value for value in asked if value is not None)
    if not isinstance(model, str) or not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ValueError(f"model must be a string and max_tokens at least 1, got {model!r} and {limit!r}")
    options = body.get("stream_options") or {}
    streamed = bool(body.get("stream", False))
    with_usage = force_usage or (isinstance(options, dict) and bool(options.get("include_usage")))
    if chat:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ValueError("messages must be a list with at least one message")
        # A chat template adds some tokens around each message.
        tokens = sum(4 + _count(message.get("content") or "") for message in messages if isinstance(message, dict))
    elif "prompt" in body:
        tokens = _count(body["prompt"])
    else:
        raise ValueError("prompt is required")
    return Asked(model, max(1, tokens), limit, streamed, with_usage, chat)


def _count(prompt: object) -> int:
    if isinstance(prompt, str):
        return prompt.count(" ") + 1
    if isinstance(prompt, list):
        return len(prompt) if all(isinstance(p, int) for p in prompt) else sum(_count(p) for p in prompt)
    if isinstance(prompt, dict):
        return _count(prompt.get("text", ""))
    raise ValueError(f"a prompt is a text or a list of token ids, not {type(prompt).__name__}")


class Answer:
    """One answer's bodies."""

    __slots__ = ("_after", "_asked", "_before", "_head", "_started")

    def __init__(self, asked: Asked, number: int) -> None:
        self._asked = asked
        kind = ("chat.completion" if asked.chat else "text_completion") + (
            ".chunk" if asked.chat and asked.streamed else ""
        )
        self._head = {
            "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{number}",
            "object": kind,
            "created": int(time.time()),
            "model": asked.model,
        }
        opened = json.dumps(self._head).encode()[:-1]
        text = b'"delta":{"content":"' if asked.chat else b'"text":"'
        self._before = b"data: " + opened + b',"choices":[{"index":0,' + text
        self._after = b'"}' if asked.chat else b'"'
        self._started = False

    def event(self, tokens: int, *, last: bool) -> bytes:
        """The event with the next `tokens` tokens; the last one also carries the usage, where wanted, and the end."""
        opening = b""
        if self._asked.chat and not self._started:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            opening = _event({**self._head, "choices": [role]})
        self._started = True
        reason = b',"logprobs":null,"finish_reason":' + (b'"length"' if last else b"null") + b"}]}\n\n"
        data = opening + self._before + _WORD * tokens + self._after + reason
        if not last:
            return data
        if self._asked.with_usage:
            data += _event({**self._head, "choices": [], "usage": self._usage()})
        return data + DONE

    def whole(self) -> bytes:
        """The answer that is not streamed."""
        text = (_WORD * self._asked.output_tokens).decode()
        content: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if self._asked.chat else {"text": text}
        )
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": "length"}
        return json.dumps({**self._head, "choices": [choice], "usage": self._usage()}).encode()

    def _usage(self) -> dict[str, int]:
        prompt, output = self._asked.prompt_tokens, self._asked.output_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"
