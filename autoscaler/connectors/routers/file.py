"""The ring as a file, for routers that watch one and as the durable copy that a restart goes on from."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from autoscaler.connectors.routers.epochs import judged
from autoscaler.domain.decisions import Applied, Failed, Outcome
from autoscaler.domain.fleet import Router
from autoscaler.ports import TemporaryError


class FilePublisher:
    """`RingPublisher` that renames a whole file into place; readers see the old snapshot or the new one.

    It hears of no routers. Its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Publish a snapshot if `epoch` is higher than the file's; on disk when this returns."""
        try:
            return await asyncio.to_thread(self._publish, epoch, body)
        except TemporaryError as error:
            return Failed(str(error), retry_after_s=0.0)
        except OSError as error:
            return Failed(f"{self._path} cannot be written: {error}", retry_after_s=0.0)

    async def last(self) -> tuple[int, bytes] | None:
        """The file's epoch and snapshot, None where there is no file. Raises TemporaryError where it is none."""
        return await asyncio.to_thread(self._last)

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Nobody says that he reads a file."""
        return ()

    def _publish(self, epoch: int, body: bytes) -> Outcome:
        with self._alone():
            outcome = judged(self._last(), epoch, body)
            if outcome is not None:
                return outcome
            partial = self._path.with_name(self._path.name + ".partial")
            with partial.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
            self._sync_folder()
        return Applied(str(self._path))

    def _last(self) -> tuple[int, bytes] | None:
        try:
            body = self._path.read_bytes()
            return int(json.loads(body)["epoch"]), body
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TemporaryError(
                f"{self._path} holds no ring snapshot ({error}): move it away, or put the last good one there"
            ) from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Compare and write without another process between them."""
        descriptor = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _sync_folder(self) -> None:
        """The rename itself survives a power cut only once the folder is on disk."""
        descriptor = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
