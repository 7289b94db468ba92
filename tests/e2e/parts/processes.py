"""Servers of the tests' own: started on loopback, waited for, their log kept, and ended with all that they started."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import pytest

from tests.e2e.parts.programs import PROGRAMS

LOOPBACK = "127.0.0.1"
T = TypeVar("T")


class PartFailedError(Exception):
    """A program ended or did not become ready in time; the message carries the end of its log."""


def need(name: str) -> str:
    """The path of a program; where it is missing the test skips, and fails when `CI` is set."""
    if path := PROGRAMS[name].path():
        return str(path)
    reason = f"{name} is not here; `python -m tests.e2e.parts` gets it, or says why it cannot"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def free_port(host: str = LOOPBACK) -> int:
    """A port that nobody listens on, below the range from which the kernel takes ports for outgoing connections."""
    for _ in range(200):
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise PartFailedError(f"no free port on {host} between 20000 and 32000; end what holds them")


def wait_until(what: str, condition: Callable[[], T], timeout_s: float = 30, every_s: float = 0.05) -> T:
    """The first true answer of `condition`; after `timeout_s` an error that names `what` was waited for."""
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout_s:g} s still not: {what} (last answer: {answer!r})")
        time.sleep(every_s)
    return answer


def answers_200(url: str) -> bool:
    """Whether a GET of a plain-HTTP address is answered with success within a second."""
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


class Server:
    """One program in its own process group. `start` returns once it is ready; leaving the `with` ends the whole group.

    It dies with the thread that started it too, so that a killed test run leaves nothing: start it from a thread that
    stays (the test's, a fixture's).
    """

    running: list["Server"] = []  # noqa: RUF012 - of the process, so that a failed test can show every log

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        directory: Path,
        ready: Callable[[], object],
        *,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60,
    ) -> None:
        self.name, self.argv, self.ready, self.timeout_s = name, list(argv), ready, timeout_s
        self.environment = {**os.environ, **(environment or {})}
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until ready."""
        self.launch()
        try:
            wait_until(f"{self.name} is ready", lambda: self.exit_code is not None or self.ready(), self.timeout_s)
            if self.exit_code is not None:
                raise PartFailedError(f"{self.name} ended with {self.exit_code} before it was ready")
        except (TimeoutError, PartFailedError) as failure:
            self.close()
            raise PartFailedError(f"{failure}; the end of {self.log}:\n{self.log_tail()}") from None

    def launch(self) -> Self:
        """Start, and do not wait."""
        dies_with_us = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*dies_with_us, *self.argv],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        Server.running.append(self)
        return self

    @property
    def exit_code(self) -> int | None:
        """What it ended with, or None where it runs or was never started."""
        return self.process.poll() if self.process else None

    def stop(self, grace_s: float = 10) -> None:
        """SIGTERM, wait at most `grace_s`, then SIGKILL whatever of the group is left."""
        self.terminate()
        if self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
        self.close()

    def terminate(self) -> None:
        """SIGTERM the group, and do not wait."""
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        """SIGKILL what is left of the group, as a crash would."""
        self._signal(signal.SIGKILL)
        if self in Server.running:
            Server.running.remove(self)
        if self.process:
            self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.process and self in Server.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def log_tail(self, lines: int = 40) -> str:
        """The last lines that the program wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
