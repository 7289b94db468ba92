"""Who changed what, when, from what to what. Entries are only ever added; the oldest go when there are too many."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from autoscaler.connectors.stores.database import Database

MOST_ENTRIES = 100_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change.

    Attributes:
        number: ascending, never used twice.
        actor: who, from the credential.
        action: `override.put`, `pause.set`, `proposal.approve`, ...
        subject: `tenant/acme`, `group/warm`.
        before, after: as text, empty where there was or is nothing.
    """

    number: int
    at_s: float
    fleet: str
    actor: str
    action: str
    subject: str
    before: str
    after: str


class Audit:
    """The audit of all fleets."""

    def __init__(self, database: Database, most: int = MOST_ENTRIES) -> None:
        self._database = database
        self._most = most

    def add(self, fleet: str, actor: str, action: str, subject: str, before: str = "", after: str = "") -> None:
        """Add an entry of its own."""
        with self._database.write() as transaction:
            self.enter(transaction, fleet, actor, action, subject, before, after)

    def enter(
        self,
        transaction: sqlite3.Connection,
        fleet: str,
        actor: str,
        action: str,
        subject: str,
        before: str = "",
        after: str = "",
    ) -> None:
        """Add an entry to the transaction that makes the change, so that neither is there without the other."""
        cursor = transaction.execute(
            "INSERT INTO audit (at_s, fleet, actor, action, subject, before, after) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self._database.now_s(), fleet, actor, action, subject, before, after),
        )
        transaction.execute("DELETE FROM audit WHERE number <= ?", ((cursor.lastrowid or 0) - self._most,))

    def read(self, fleet: str = "", before_number: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Entries, newest first; of one fleet where given, older than `before_number` where given."""
        rows = self._database.read(
            "SELECT number, at_s, fleet, actor, action, subject, before, after FROM audit "
            "WHERE (? = '' OR fleet = ?) AND (? = 0 OR number < ?) ORDER BY number DESC LIMIT ?",
            (fleet, fleet, before_number, before_number, limit),
        )
        return tuple(AuditEntry(*row) for row in rows)

    def reaches_back_to_s(self) -> float | None:
        """When the oldest entry was made, None where there is none."""
        at_s: float | None = self._database.read("SELECT min(at_s) FROM audit")[0][0]
        return at_s
