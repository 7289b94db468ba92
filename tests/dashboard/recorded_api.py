"""An API that answers what was recorded, on loopback; what it is asked and told is written down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))
    return answers | {f"fleets/{fleet['fleet']}": fleet for fleet in answers["fleets"]["items"]}


@dataclass
class RecordedApi:
    """Answers by path below `/v1/`; an int is a status with a problem document. `token` is the one that is accepted.

    `tag` is the ETag of every answer; empty = none. `late_s`: since the last tick, by its machine's clock.
    """

    answers: dict[str, Any]
    token: str = "reader"
    tag: str = ""
    late_s: float = 0.0
    url: str = ""
    asked: list[str] = field(default_factory=list)
    told: list[tuple[str, str, Any, dict[str, str]]] = field(default_factory=list)

    @property
    def fleet(self) -> dict[str, Any]:
        return self.answers["fleets"]["items"][0]

    @property
    def now(self) -> datetime:
        return datetime.fromisoformat(self.fleet["at"]) + timedelta(seconds=self.late_s)

    def answer(self, path: str, authorization: str) -> tuple[int, Any]:
        if authorization != f"Bearer {self.token}":
            return 401, {"detail": "this token is not known, or it has expired"}
        found = self.answers.get(path, 404)
        if isinstance(found, int):
            return found, {"detail": f"the fleet has no such thing as {path!r}"}
        return 200, found


@contextmanager
def serving(api: RecordedApi) -> Iterator[RecordedApi]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            api.asked.append(self.path)
            path = unquote(urlsplit(self.path).path.removeprefix("/v1/"))
            if api.tag and self.headers.get("If-None-Match") == api.tag:
                self._head(304)
                self.end_headers()
                return
            self._send(*api.answer(path, self.headers.get("Authorization", "")))

        def _told(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            api.told.append((self.command, unquote(self.path), body, dict(self.headers)))
            self._send(200, {})

        do_PUT = do_DELETE = _told  # noqa: N815 - the base class names them

        def _send(self, status: int, value: Any) -> None:
            body = json.dumps(value).encode()
            self._head(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _head(self, status: int) -> None:
            self.send_response_only(status)
            if api.answers.get("fleets") and api.answers["fleets"]["items"]:
                self.send_header("Date", format_datetime(api.now, usegmt=True))
            if api.tag:
                self.send_header("ETag", api.tag)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
