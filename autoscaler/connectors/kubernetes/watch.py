"""Objects of the API server, kept up to date by a watch, so that a tick reads memory and not the server."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import urllib3

from autoscaler.connectors.kubernetes.cluster import Cluster, ExpiredError, GoneError, Json, RefusedError
from autoscaler.ports import PermanentError, TemporaryError

_log = logging.getLogger(__name__)
_PAGE = 500
_WATCH_S = 240  # the server ends a watch after so long
_SILENCE_S = 90.0  # bookmarks come about once a minute, of kinds that ever had an event: the rest is quiet, or dead
_BACKOFF_S = (0.2, 10.0)  # first and longest wait after a failure


class Watched:
    """A collection that a thread of its own follows: listed in pages, then watched from its resource version.

    A watch that ends is taken up where it was; one whose version is too old (410) is listed anew. Until that has
    worked `objects` raises, so that what may be old is never taken for what is.

    Args:
        cluster: the API server.
        path: of the collection.
        selectors: `labelSelector` or `fieldSelector`.
        stale_s: how long without a working watch `objects` still answers.
        told: called, by the watch's thread, with each object as it was (None: it is new) and as it has become.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        stale_s: float = 10.0,
        told: Callable[[Json | None, Json], None] = lambda before, found: None,
        **selectors: str,
    ) -> None:
        self.path, self.selectors, self._told = path, selectors, told
        self._cluster, self._stale_s = cluster, stale_s
        self._objects: dict[str, Json] = {}
        self._version = ""
        self._failure: TemporaryError | PermanentError | None = None
        self._broken_since_s: float | None = None
        self._synced, self._ended = threading.Event(), threading.Event()
        self._tried = threading.Event()
        self._answer: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._follow, name=f"watch {path}", daemon=True)
        self._thread.start()

    def objects(self) -> dict[str, Json]:
        """The objects by name, as of now.

        Raises TemporaryError where they are not known (yet, or any more), PermanentError where this account may not
        read them or there is no such kind.
        """
        failure, since_s = self._failure, self._broken_since_s
        if isinstance(failure, PermanentError):
            raise failure
        if not self._synced.is_set():
            raise failure or TemporaryError(f"{self.path} is still being listed")
        if failure is not None and since_s is not None and time.monotonic() - since_s > self._stale_s:
            raise failure
        return dict(self._objects)

    def first(self, wait_s: float = 10.0) -> None:
        """Block until the first listing has worked or failed."""
        self._tried.wait(wait_s)

    def seen(self, found: Json) -> None:
        """Take in what a write of ours has answered, before the watch tells it."""
        self._objects[found["metadata"]["name"]] = found

    def forget(self, name: str) -> None:
        """Take in that a call of ours has deleted one."""
        self._objects.pop(name, None)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        answer = self._answer
        if answer is not None:
            with contextlib.suppress(Exception):
                answer.shutdown()
        self._thread.join(5)

    def _follow(self) -> None:
        wait_s = _BACKOFF_S[0]
        while not self._ended.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
                wait_s = _BACKOFF_S[0]
            except ExpiredError:
                self._version = ""
            except (TemporaryError, PermanentError) as error:
                self._fail(error)
            except Exception as error:
                _log.exception("the watch of %s failed", self.path)
                self._version = ""
                self._fail(TemporaryError(f"the watch of {self.path} failed: {error}"))
            self._ended.wait(wait_s)
            wait_s = min(wait_s * 2, _BACKOFF_S[1])

    def _fail(self, error: TemporaryError | PermanentError) -> None:
        if self._ended.is_set():
            return
        if self._failure is None:
            _log.warning("%s", error)
            self._broken_since_s = time.monotonic()
        if isinstance(error, GoneError | RefusedError):
            self._version = ""
        self._failure = error
        self._tried.set()

    def _works(self) -> None:
        self._failure = self._broken_since_s = None
        self._synced.set()
        self._tried.set()

    def _list(self) -> None:
        found: dict[str, Json] = {}
        more = ""
        while True:
            paging: dict[str, Any] = {"continue": more} if more else {}
            page = self._cluster.now("GET", self.path, query={"limit": _PAGE, **self.selectors, **paging})
            found |= {item["metadata"]["name"]: item for item in page["items"]}
            more = page["metadata"].get("continue", "")
            if not more:
                break
        self._objects, self._version = found, page["metadata"]["resourceVersion"]
        self._works()

    def _watch(self) -> None:
        query: dict[str, str | int] = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": _WATCH_S}
        query |= {"resourceVersion": self._version, **self.selectors}
        self._answer = self._cluster.open("GET", self.path, query=query, read_s=_SILENCE_S)
        self._works()
        try:
            for line in _lines(self._answer):
                self._take(json.loads(line))
        except urllib3.exceptions.ReadTimeoutError:
            return  # the next watch tells whether the connection was dead
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise TemporaryError(f"the watch of {self.path} broke off: {error}") from error
        finally:
            answer, self._answer = self._answer, None
            answer.close()

    def _take(self, event: Json) -> None:
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            text = f"the watch of {self.path} ended: {found.get('message', found)}"
            raise ExpiredError(text) if found.get("code") == 410 else TemporaryError(text)
        self._version = found["metadata"]["resourceVersion"]
        if kind == "DELETED":
            self._objects.pop(found["metadata"]["name"], None)
        elif kind != "BOOKMARK":
            before = self._objects.get(found["metadata"]["name"])
            self._objects[found["metadata"]["name"]] = found
            self._told(before, found)


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """One event each; chunks end where they like."""
    rest = b""
    for chunk in answer.stream(65_536):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
