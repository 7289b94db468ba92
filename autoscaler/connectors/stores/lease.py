"""Leadership on one machine: a file that says who leads until when, and a lock that dies with its process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autoscaler.ports import PermanentError

# The holder stops writing when this share of its time is over; others wait for all of it.
RENEWAL_DEADLINE_RATIO = 2 / 3


@dataclass(frozen=True, slots=True)
class _Claim:
    holder: str
    renewed_at_s: float
    duration_s: float


class FileLease:
    """`Lease` for processes of one machine, whose clocks agree.

    A claim is taken over when its time is over, or at once when its process is gone: the process holds a lock that the
    system drops with it. A process that was stopped and goes on finds its own deadline passed and does not write.

    Args:
        path: the lease file; its folder must exist.
        holder: this instance's name, unique.
        duration_s: how long a claim holds without renewal.

    Raises:
        PermanentError: the file cannot be made.
    """

    def __init__(self, path: Path, holder: str, duration_s: float = 15.0) -> None:
        self._path = path
        self._holder = holder
        self._duration_s = duration_s
        self._renewed_at_s: float | None = None
        self._alive: int | None = None

    def held(self, now_s: float) -> bool:
        """Whether this instance may still write at `now_s`, with the renewal deadline already counted."""
        if self._renewed_at_s is None:
            return False
        since_s = now_s - self._renewed_at_s
        # A clock that was set back makes the claim's age meaningless; the next renewal puts it right.
        return -1 <= since_s < self._duration_s * RENEWAL_DEADLINE_RATIO

    def renew(self, now_s: float) -> bool:
        """Take or renew the lease; call it several times within its duration. False where another holds it."""
        with self._exclusive():
            claim = self._read()
            if claim is not None and claim.holder != self._holder and not self._over(claim, now_s):
                self._give_up()
                return False
            if self._alive is None:
                self._alive = self._lock_alive()
            self._write(_Claim(self._holder, now_s, self._duration_s))
        self._renewed_at_s = now_s
        return True

    def release(self) -> None:
        """Give it back at once, so that a successor need not wait."""
        with self._exclusive():
            claim = self._read()
            if claim is not None and claim.holder == self._holder:
                self._path.unlink(missing_ok=True)
        self._give_up()

    def leader(self) -> str:
        """Who holds or last held it, empty where nobody did."""
        claim = self._read()
        return claim.holder if claim else ""

    def _over(self, claim: _Claim, now_s: float) -> bool:
        return now_s >= claim.renewed_at_s + claim.duration_s or not _locked(self._alive_path(claim.holder))

    def _give_up(self) -> None:
        self._renewed_at_s = None
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None
            self._alive_path(self._holder).unlink(missing_ok=True)

    def _alive_path(self, holder: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{holder}.alive")

    def _lock_alive(self) -> int:
        descriptor = os.open(self._alive_path(self._holder), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        try:
            descriptor = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise PermanentError(
                f"the lease {self._path} cannot be used: {error}: name a folder to write in"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> _Claim | None:
        """The claim; a file that cannot be read is nobody's: it is replaced as a whole, so it was not ours."""
        try:
            said = json.loads(self._path.read_text())
            return _Claim(str(said["holder"]), float(said["renewed_at_s"]), float(said["duration_s"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, claim: _Claim) -> None:
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(
            json.dumps({"holder": claim.holder, "renewed_at_s": claim.renewed_at_s, "duration_s": claim.duration_s})
        )
        partial.replace(self._path)


def _locked(path: Path) -> bool:
    """Whether a living process may hold the file's lock; where the file is gone only time can tell."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
