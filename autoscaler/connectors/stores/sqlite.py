"""All stores of one file, opened together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autoscaler.connectors.engines.ledger import LoadEntry
from autoscaler.connectors.stores.audit import Audit
from autoscaler.connectors.stores.database import Database
from autoscaler.connectors.stores.decisions import SqliteDecisions
from autoscaler.connectors.stores.detachments import SqliteDetachments
from autoscaler.connectors.stores.overrides import SqliteOverrides
from autoscaler.connectors.stores.proposals import SqliteProposals


class SqliteCheckpoints:
    """`CheckpointStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, fleet: str) -> str | None:
        """The last saved text, None where there is none."""
        rows = self._database.read("SELECT state FROM checkpoints WHERE fleet = ?", (fleet,))
        return rows[0][0] if rows else None

    def save(self, fleet: str, text: str) -> None:
        """Replace it, atomically."""
        with self._database.write() as transaction:
            transaction.execute(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (fleet, self._database.now_s(), text)
            )


class SqliteLoads:
    """`LoadMemory`: which adapters this controller loaded into which process.

    A fleet that starts loads tens of thousands, and the disk would be waited for at each; an entry that a power cut
    takes leaves an adapter that is not unloaded, no more.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def loads(self, fleet: str) -> Sequence[LoadEntry]:
        """All entries."""
        rows = self._database.read(
            "SELECT replica, started_at_s, adapter, revision FROM adapter_loads WHERE fleet = ?", (fleet,)
        )
        return [LoadEntry(*row) for row in rows]

    def remember_load(self, fleet: str, entry: LoadEntry) -> None:
        """Keep one; it replaces the replica's entry of that adapter."""
        with self._database.write(survive_power_cut=False) as transaction:
            transaction.execute(
                "INSERT OR REPLACE INTO adapter_loads VALUES (?, ?, ?, ?, ?)",
                (fleet, entry.replica, entry.started_at_s, entry.adapter, entry.revision),
            )

    def forget_loads(self, fleet: str, replica: str, adapter: str = "") -> None:
        """Drop one adapter's entry, or all of a replica."""
        with self._database.write(survive_power_cut=False) as transaction:
            transaction.execute(
                "DELETE FROM adapter_loads WHERE fleet = ? AND replica = ? AND (? = '' OR adapter = ?)",
                (fleet, replica, adapter, adapter),
            )


class SqliteStores:
    """One file with everything that must outlive the process. Raises PermanentError or TemporaryError on opening."""

    def __init__(self, path: Path, now_s: Callable[[], float]) -> None:
        self._database = Database(path, now_s)
        self.audit = Audit(self._database)
        self.overrides = SqliteOverrides(self._database, self.audit)
        self.decisions = SqliteDecisions(self._database)
        self.checkpoints = SqliteCheckpoints(self._database)
        self.proposals = SqliteProposals(self._database, self.audit)
        self.detachments = SqliteDetachments(self._database, self.audit)
        self.loads = SqliteLoads(self._database)

    @property
    def conditions(self) -> Mapping[str, str]:
        """What an operator must know of the file: name -> sentence."""
        return self._database.conditions

    def close(self) -> None:
        """Close the file."""
        self._database.close()
