"""Fleets that an operator has taken out of the controller's hands, until he gives them back."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.connectors.stores.audit import Audit
from autoscaler.connectors.stores.database import Database


@dataclass(frozen=True, slots=True)
class Detachment:
    """Who detached a fleet, why, and when."""

    actor: str
    reason: str
    at_s: float


class SqliteDetachments:
    """Detached fleets. A restart does not forget them."""

    def __init__(self, database: Database, audit: Audit) -> None:
        self._database = database
        self._audit = audit

    def read(self, fleet: str) -> Detachment | None:
        """The fleet's detachment, None where it is managed."""
        rows = self._database.read("SELECT actor, reason, at_s FROM detachments WHERE fleet = ?", (fleet,))
        return Detachment(*rows[0]) if rows else None

    def detach(self, fleet: str, actor: str, reason: str) -> Detachment:
        """Detach it; the first detachment stands where there is one."""
        with self._database.write() as transaction:
            added = transaction.execute(
                "INSERT OR IGNORE INTO detachments VALUES (?, ?, ?, ?)", (fleet, actor, reason, self._database.now_s())
            ).rowcount
            if added:
                self._audit.enter(transaction, fleet, actor, "fleet.detach", "fleet", "managed", reason)
            row = transaction.execute(
                "SELECT actor, reason, at_s FROM detachments WHERE fleet = ?", (fleet,)
            ).fetchone()
        return Detachment(*row)

    def attach(self, fleet: str, actor: str) -> Detachment | None:
        """Manage it again; returns the detachment that ended, None where there was none."""
        with self._database.write() as transaction:
            row = transaction.execute(
                "SELECT actor, reason, at_s FROM detachments WHERE fleet = ?", (fleet,)
            ).fetchone()
            if row is None:
                return None
            transaction.execute("DELETE FROM detachments WHERE fleet = ?", (fleet,))
            self._audit.enter(transaction, fleet, actor, "fleet.attach", "fleet", row[1], "managed")
        return Detachment(*row)
