"""A Prometheus, or what speaks its API (Thanos, Mimir, VictoriaMetrics): credentials, TLS, tenants, partial answers."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.adapters import Retry
from requests.auth import AuthBase, HTTPBasicAuth

from autoscaler.domain.signals import Missing

RETRIED = (429, 500, 502, 503, 504)
# Queries of one tick that are under way at once: a tick must not be a burst for a Prometheus that others use too.
AT_ONCE = 4
# Prometheus 3 tells about questionable expressions in the same list; these do not say that data is missing.
HARMLESS = ("PromQL info", "PromQL warning")
MOST_WORDS = 300

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """How Prometheus is reached.

    Attributes:
        url: with the base path of those that have one, such as `http://mimir/prometheus`.
        bearer_token_file: holds a token; read at each query, so that it may be renewed.
        username, password_file: for basic authentication; the file is read at each query.
        ca_file: certificate authority to trust instead of the system's.
        cert_file, key_file: the client's certificate.
        headers: sent with every query, such as `X-Scope-OrgID: team-a`.
        matchers: labels put into every query of ours, such as `cluster: eu-1`.
        replica_labels: labels in which the copies of a highly available Prometheus differ, and nothing else does.
        timeout_s: of one query, also told to the server.
        retries: after a failed connection or a status of an overloaded server.
    """

    url: str
    bearer_token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    matchers: Mapping[str, str] = field(default_factory=dict)
    replica_labels: tuple[str, ...] = ("prometheus_replica", "__replica__", "replica")
    timeout_s: float = 10.0
    retries: int = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query found.

    Attributes:
        rows: `metric` and `value` or `values` each.
        partial: what the server says is missing from them, empty where they are whole.
    """

    rows: Rows
    partial: str = ""


class PrometheusConnection:
    """Queries of one Prometheus. Every failure is a value."""

    def __init__(self, settings: PrometheusSettings) -> None:
        session = requests.Session()
        session.verify = str(settings.ca_file) if settings.ca_file else True
        if settings.cert_file:
            session.cert = (str(settings.cert_file), str(settings.key_file or settings.cert_file))
        session.hooks["response"].append(self._note_partial)
        retry = Retry(
            total=settings.retries,
            backoff_factor=0.2,
            status_forcelist=RETRIED,
            allowed_methods=None,
            raise_on_status=False,
        )
        self.settings = settings
        self._client = PrometheusConnect(
            settings.url.rstrip("/"),
            headers=dict(settings.headers),
            session=session,
            retry=retry,
            auth=_auth(settings),
            timeout=settings.timeout_s,
        )
        # Whole milliseconds: a fraction of a second is no duration to Prometheus.
        self._within = {"timeout": f"{round(1000 * settings.timeout_s)}ms"}
        self._noted = threading.local()
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def query(self, expression: str, at_s: float | None = None) -> Answer | Missing:
        """An instant query, at the server's present where no time is given."""
        params = self._within | ({} if at_s is None else {"time": f"{at_s:.3f}"})
        return await self._in_thread(lambda: self._client.custom_query(expression, params))

    async def query_range(self, expression: str, start_s: float, end_s: float, step_s: float) -> Answer | Missing:
        """A range query; whole seconds."""
        start, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (start_s, end_s))
        return await self._in_thread(
            lambda: self._client.custom_query_range(expression, start, end, f"{step_s:g}", self._within)
        )

    async def now_s(self) -> float | Missing:
        """The server's clock."""
        answer = await self.query("time()")
        # A scalar's result is the pair itself.
        return answer if isinstance(answer, Missing) else float(str(answer.rows[1]))

    async def metric_names(self) -> frozenset[str] | Missing:
        """Every metric name that it holds."""
        answer = await self._in_thread(self._client.all_metrics)
        return answer if isinstance(answer, Missing) else frozenset(map(str, answer.rows))

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    async def _in_thread(self, call: Any) -> Answer | Missing:
        async with self._at_once:
            return await asyncio.to_thread(self._told, call)

    def _told(self, call: Any) -> Answer | Missing:
        self._noted.partial = ""
        try:
            return Answer(call(), self._noted.partial)
        except PrometheusApiClientException as error:
            return Missing(f"Prometheus refused the query: {_words(str(error))}")
        except (requests.JSONDecodeError, KeyError, TypeError) as error:
            return Missing(f"{self.settings.url} answered what is no Prometheus answer: {error}"[:MOST_WORDS])
        except (OSError, ValueError) as error:
            # requests' own errors are OSErrors, as is a credential file that is gone.
            return Missing(f"{self.settings.url} does not answer: {_cause(error)}")

    def _note_partial(self, response: requests.Response, *_: object, **__: object) -> None:
        """Remember warnings, which the client does not hand on; a body without any is not parsed for it."""
        if b'"warnings":' not in response.content and b'"isPartial":true' not in response.content:
            return
        try:
            body = response.json()
            said = [w for w in body.get("warnings") or () if not w.startswith(HARMLESS)]
        except (ValueError, AttributeError):
            return
        if body.get("isPartial") is True:
            said.append("the answer is partial")
        self._noted.partial = "; ".join(said)[:MOST_WORDS]


class _BearerFile(AuthBase):
    """A token read from its file at each request."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._path.read_text().strip()}"
        return request


class _BasicFile(AuthBase):
    """A user whose password is read from its file at each request."""

    def __init__(self, username: str, path: Path) -> None:
        self._username = username
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        password = self._path.read_text().removesuffix("\n")
        HTTPBasicAuth(self._username.encode(), password.encode())(request)
        return request


def selector(metric: str, *matchers: Mapping[str, str]) -> str:
    """`metric{label="value"}` with the values escaped; later matchers win."""
    merged = {label: value for each in matchers for label, value in each.items()}
    inner = ",".join(f"{label}={quoted(value)}" for label, value in merged.items())
    return f"{metric}{{{inner}}}" if inner else metric


def quoted(value: str) -> str:
    """A PromQL string: whatever is in the value, it stays a value."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _auth(settings: PrometheusSettings) -> AuthBase | None:
    if settings.bearer_token_file is not None:
        return _BearerFile(settings.bearer_token_file)
    if settings.password_file is not None:
        return _BasicFile(settings.username, settings.password_file)
    return None


def _words(text: str) -> str:
    """The server's own sentence within the client's `HTTP Status Code 422 (b'...')`."""
    found = re.search(r"\((b['\"].*)\)$", text, re.DOTALL)
    try:
        return str(json.loads(ast.literal_eval(found[1]))["error"])[:MOST_WORDS] if found else text[:MOST_WORDS]
    except (ValueError, SyntaxError, KeyError, TypeError):
        return text[:MOST_WORDS]


def _cause(error: BaseException) -> str:
    """The innermost cause; the outer ones repeat it within their own."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return str(reason or error)[:MOST_WORDS]
