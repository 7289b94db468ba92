"""The API over HTTP: one connection pool and one short memory of answers for all viewers of this server.

Twenty viewers of a page ask the controller once every second or two, not twenty times, and between two ticks the
controller answers `not modified`. When the API fails, the last good answer stays, and says how old it is.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

import httpx

Json = dict[str, Any]
MOST_ANSWERS = 512
_NOT_MODIFIED = 304
_TIMEOUT = httpx.Timeout(15.0, connect=2.0)


class Trouble(StrEnum):
    """What keeps the API from answering."""

    UNREACHABLE = "unreachable"
    UNAUTHORISED = "unauthorised"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    NOT_READY = "not-ready"
    CONFLICT = "conflict"
    REFUSED = "refused"
    BROKEN = "broken"


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it a problem
    """An answer that is none: what kind, and the API's own sentence."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble, self.detail = trouble, detail


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known under one path.

    Attributes:
        value: the last good answer; None where there was never one.
        at_s: when it came, on this server's monotonic clock.
        problem: why there is no newer one; None where all is well.
        server_time_s: Unix time of the API's machine at that moment, so that two clocks are never compared.
        tag: the API's ETag of the value; empty where it gave none.
    """

    value: Json | None
    at_s: float = 0.0
    problem: Problem | None = None
    server_time_s: float | None = None
    tag: str = ""

    @property
    def age_s(self) -> float:
        """Seconds since it came."""
        return time.monotonic() - self.at_s

    @property
    def items(self) -> list[Json]:
        """The items of a list; empty where nothing is known."""
        return [] if self.value is None else list(self.value.get("items", ()))


class Api:
    """The API as one token sees it. Safe for many threads."""

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url
        self._client = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT, transport=transport)
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, path: str, params: Mapping[str, Any] | None = None, max_age_s: float = 1.5) -> Answer:
        """The answer of `/v1/PATH`, at most `max_age_s` old if the API answers. Never raises."""
        asked = httpx.QueryParams({k: v for k, v in (params or {}).items() if v not in (None, "")})
        key = f"/v1/{path}?{asked}"
        with self._lock_of(key):
            known = self._answers.get(key, Answer(None))
            if known.value is not None and known.problem is None and known.age_s < max_age_s:
                return known
            try:
                headers = {"If-None-Match": known.tag} if known.tag else {}
                response = self._ask("GET", f"/v1/{path}", params=asked, headers=headers)
                fresh = response.status_code != _NOT_MODIFIED
                value, tag = (
                    (self._value(response), response.headers.get("ETag", "")) if fresh else (known.value, known.tag)
                )
                answer = Answer(value, time.monotonic(), None, _date_of(response), tag)
            except Problem as problem:
                keeps = problem.trouble in (Trouble.UNREACHABLE, Trouble.BROKEN, Trouble.NOT_READY)
                answer = replace(known, problem=problem) if keeps else Answer(None, 0.0, problem)
            self._remember(key, answer)
            return answer

    def change(
        self, method: str, path: str, body: Json | None = None, headers: Mapping[str, str] | None = None
    ) -> Json:
        """Give a command. Raises Problem."""
        return self._value(self._ask(method, f"/v1/{path}", json=body, headers=headers))

    def forget(self) -> None:
        """Ask again for everything, since something was changed."""
        with self._lock:
            self._answers.clear()

    def _ask(self, method: str, path: str, **asked: Any) -> httpx.Response:
        try:
            response = self._client.request(method, path, **asked)
        except httpx.HTTPError as error:
            what = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "cannot be reached"
            raise Problem(Trouble.UNREACHABLE, f"The API at {self.url} {what}.") from error
        if response.status_code >= 400:
            raise _problem(response)
        return response

    def _value(self, response: httpx.Response) -> Json:
        try:
            value = response.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Problem(Trouble.BROKEN, f"{self.url}{response.url.path} answered something that is no JSON object.")
        return value

    def _lock_of(self, key: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def _remember(self, key: str, answer: Answer) -> None:
        with self._lock:
            self._answers[key] = answer
            self._answers.move_to_end(key)
            while len(self._answers) > MOST_ANSWERS:
                forgotten, _ = self._answers.popitem(last=False)
                self._locks.pop(forgotten, None)


def segment(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="/")


_TROUBLES = {
    401: Trouble.UNAUTHORISED, 403: Trouble.FORBIDDEN, 404: Trouble.NOT_FOUND, 412: Trouble.CONFLICT,
    503: Trouble.NOT_READY,
}  # fmt: skip


def _date_of(response: httpx.Response) -> float | None:
    try:
        return parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return None


def _problem(response: httpx.Response) -> Problem:
    status = response.status_code
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"status {status}"
    return Problem(_TROUBLES.get(status, Trouble.BROKEN if status >= 500 else Trouble.REFUSED), detail)
