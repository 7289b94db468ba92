"""One SQLite file: opened with care, written durably, and every failure told with its remedy."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoscaler.connectors.stores.schema import APPLICATION_ID, MIGRATIONS
from autoscaler.ports import PermanentError, TemporaryError

BUSY_TIMEOUT_MS = 5000
Row = tuple[Any, ...]


class Database:
    """The file and its one connection, which threads share.

    Args:
        path: the file; its folder must exist.
        now_s: time of entries that are written.
        migrations: schema versions, oldest first.

    Raises:
        PermanentError: the file is of a newer version or of another program, or cannot be opened or written.
        TemporaryError: it is locked by another process, or the disk is full.
    """

    def __init__(
        self, path: Path, now_s: Callable[[], float], migrations: Sequence[Sequence[str]] = MIGRATIONS
    ) -> None:
        self.path = path
        self.now_s = now_s
        self.conditions: dict[str, str] = {}
        self._lock = threading.RLock()
        with told(path):
            self._connection = self._open()
            self._migrate(migrations)

    def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """All rows of a query."""
        with self._lock, told(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def write(self, *, survive_power_cut: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that is on disk when the block has ended, or has not happened at all.

        Without `survive_power_cut` the disk is not waited for: the death of this process loses nothing even so.
        """
        with self._lock, told(self.path):
            # WAL alone would lose the last commits with the machine; FULL waits for the disk at each.
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if survive_power_cut else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorname not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                raise
            damage = str(error)
        if damage != "ok":
            connection.close()
            self._set_aside(damage)
            connection = self._connect()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        return connection

    def _set_aside(self, damage: str) -> None:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", ""):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        self.conditions["StoreSetAside"] = (
            f"{self.path} was damaged ({damage}) and is now {aside}; overrides, pauses and decisions begin anew. "
            f"What can be saved: sqlite3 {aside} .recover"
        )

    def _migrate(self, migrations: Sequence[Sequence[str]]) -> None:
        version = self.read("PRAGMA user_version")[0][0]
        owner = self.read("PRAGMA application_id")[0][0]
        if version > len(migrations):
            raise PermanentError(
                f"{self.path} has schema version {version}, this program knows up to {len(migrations)}: run the newer "
                "program again, or name another file"
            )
        if owner != APPLICATION_ID and self.read("SELECT 1 FROM sqlite_master LIMIT 1"):
            raise PermanentError(f"{self.path} is a database of another program: name another file")
        for number, statements in enumerate(migrations[version:], start=version + 1):
            with self.write() as transaction:
                for statement in statements:
                    transaction.execute(statement)
                transaction.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                transaction.execute(f"PRAGMA user_version = {number}")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors, as the ports' errors with the file and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise _error(path, error) from error
    except OSError as error:
        raise PermanentError(f"{path} cannot be used: {error}: name a file in a folder that can be written") from error


def _error(path: Path, error: sqlite3.Error) -> TemporaryError | PermanentError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TemporaryError(f"{path} is locked by another process: {error}")
    if name.startswith("SQLITE_FULL"):
        return TemporaryError(f"the disk of {path} is full: free some space; what was saved before is safe")
    if name.startswith("SQLITE_READONLY"):
        return PermanentError(f"{path} is read-only: let this user write the file and its folder")
    if name.startswith("SQLITE_CANTOPEN"):
        return PermanentError(f"{path} cannot be opened: name a file in a folder that exists and can be written")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return PermanentError(f"{path} is damaged ({error}): restart to have it set aside and begin anew")
    if name.startswith("SQLITE_IOERR"):
        return TemporaryError(f"the disk of {path} failed: {error} ({name})")
    return PermanentError(f"{path}: {error}")
