"""The controller's API from the shell: one caller whose every failure is a sentence with its remedy."""

from __future__ import annotations

import argparse
import os
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from autoscaler.cli.errors import RefusedError, UsageError, read_bytes
from autoscaler.cli.remote_options import DEFAULT_URL, ENV_TOKEN, ENV_URL

_TIMEOUT_S = 15.0


class Controller:
    """One controller, asked as one caller about one fleet."""

    def __init__(self, url: str, token: str, fleet: str | None) -> None:
        self.url = url.rstrip("/")
        self._fleet = fleet
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT_S)

    def __enter__(self) -> Controller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    @property
    def fleet(self) -> str:
        """The fleet that was asked for, else the only one. Raises UsageError where there is a choice."""
        if self._fleet is None:
            names = [f["fleet"] for f in self.get("/v1/fleets")["items"]]
            if len(names) != 1:
                has = f"has {len(names)}: {', '.join(names)}; name one with --fleet" if names else "shows none yet"
                raise UsageError(f"which fleet? {self.url} {has}")
            self._fleet = str(names[0])
        return self._fleet

    def path(self, *parts: str) -> str:
        """The path of something of the fleet: `/v1/fleets/FLEET/...`; names are escaped."""
        return "/".join(("/v1/fleets", *(quote(part, safe="") for part in (self.fleet, *parts))))

    def get(self, path: str, **query: Any) -> Any:
        """GET. Raises UsageError or RefusedError."""
        return self.call("GET", path, params=query)

    def pages(self, path: str, **query: Any) -> list[Any]:
        """All items of a paged list."""
        items: list[Any] = []
        cursor = ""
        while True:
            page = self.get(path, limit=1000, **query, **({"cursor": cursor} if cursor else {}))
            items += page["items"]
            cursor = page["next_cursor"] or ""
            if not cursor:
                return items

    def call(
        self, method: str, path: str, *, params: Any = None, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Any call; returns the answer's JSON, None where it has none.

        Raises:
            UsageError: nobody answers there, or not as a controller does, or the credential is missing or unknown.
            RefusedError: the controller said no, in its own words.
        """
        try:
            answer = self._client.request(method, path, params=params, json=body, headers=headers)
        except httpx.ConnectError as error:
            raise UsageError(
                f"no controller answers at {self.url} ({_reason(error)}); start one with `lora-autoscaler run`, or "
                f"name another with --server or {ENV_URL}"
            ) from error
        except httpx.TimeoutException as error:
            raise UsageError(f"{self.url} did not answer within {_TIMEOUT_S:g} s; is it overloaded?") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UsageError(f"{self.url} cannot be asked: {error}") from error
        if answer.is_success:
            return _json(answer, self.url) if answer.content else None
        raise self._refused(answer)

    def _refused(self, answer: httpx.Response) -> Exception:
        detail = _detail(answer)
        if answer.status_code == 401:
            return UsageError(f"{detail}; give one with --token-file, --token or {ENV_TOKEN}")
        if answer.status_code == 404 and not detail:
            return UsageError(f"{self.url} has no {answer.request.url.path}; is this a lora-autoscaler API?")
        if answer.status_code == 412:
            return RefusedError(f"{detail}; somebody was faster")
        return RefusedError(detail or f"{self.url} answered {answer.status_code} {answer.reason_phrase}")


def controller(arguments: argparse.Namespace) -> Controller:
    """The controller that the command line and the environment name. Raises UsageError."""
    url = arguments.server or os.environ.get(ENV_URL) or DEFAULT_URL
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise UsageError(f"--server is {url!r}; it must be a URL such as {DEFAULT_URL}")
    return Controller(url, _token(arguments), arguments.fleet)


def _token(arguments: argparse.Namespace) -> str:
    if arguments.token_file is not None:
        token = read_bytes(arguments.token_file, "a file with a bearer token").decode(errors="replace").strip()
        if not token:
            raise UsageError(f"{arguments.token_file}: the file is empty; expected a bearer token")
    else:
        token = arguments.token or os.environ.get(ENV_TOKEN, "")
    if not token.isascii() or not token.isprintable():
        raise UsageError("the token has characters that no token has; is it the right file?")
    return token


def _json(answer: httpx.Response, url: str) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise UsageError(f"{url} answered what is no JSON; is this a lora-autoscaler API?") from error


def _detail(answer: httpx.Response) -> str:
    """The sentence of a problem document, empty where the answer is none."""
    if "problem+json" not in answer.headers.get("content-type", ""):
        return ""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return ""


def _reason(error: Exception) -> str:
    text = str(error).lower()
    return "connection refused" if "refused" in text else "no such host" if "name" in text else str(error)
