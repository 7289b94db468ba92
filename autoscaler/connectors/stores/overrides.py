"""Operators' overrides and pauses."""

from __future__ import annotations

import sqlite3

from autoscaler.connectors.stores.audit import Audit
from autoscaler.connectors.stores.database import Database, Row
from autoscaler.domain.fleet import Override, PauseMode, Tier
from autoscaler.ports import ConflictError

COLUMNS = "tenant, tier, reason, actor, created_at_s, expires_at_s, revision"


class SqliteOverrides:
    """`OverrideStore`. A cleared override leaves its revision behind, so that an old ETag never matches a new one."""

    def __init__(self, database: Database, audit: Audit) -> None:
        self._database = database
        self._audit = audit

    def overrides(self, fleet: str) -> tuple[Override, ...]:
        """All that were not cleared, expired ones included, ascending by tenant."""
        rows = self._database.read(
            f"SELECT {COLUMNS} FROM overrides WHERE fleet = ? AND NOT cleared ORDER BY tenant", (fleet,)
        )
        return tuple(map(_override, rows))

    def put(self, fleet: str, override: Override, if_revision: int | None = None) -> Override:
        """Set a tenant's override; its revision is one more than the last. Raises ConflictError."""
        with self._database.write() as transaction:
            before, last = self._current(transaction, fleet, override.tenant, if_revision)
            stored = Override(
                override.tenant,
                override.tier,
                override.reason,
                override.actor,
                override.created_at_s,
                override.expires_at_s,
                last + 1,
            )
            transaction.execute(
                f"INSERT OR REPLACE INTO overrides (fleet, {COLUMNS}, cleared) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
                (
                    fleet,
                    stored.tenant,
                    str(stored.tier),
                    stored.reason,
                    stored.actor,
                    stored.created_at_s,
                    stored.expires_at_s,
                    stored.revision,
                ),
            )
            subject = f"tenant/{stored.tenant}"
            self._audit.enter(transaction, fleet, stored.actor, "override.put", subject, _said(before), _said(stored))
        return stored

    def clear(self, fleet: str, tenant: str, actor: str, if_revision: int | None = None) -> Override | None:
        """Clear it; returns what was there. Raises ConflictError."""
        with self._database.write() as transaction:
            before, last = self._current(transaction, fleet, tenant, if_revision)
            if before is None:
                return None
            transaction.execute(
                "UPDATE overrides SET cleared = 1, revision = ? WHERE fleet = ? AND tenant = ?",
                (last + 1, fleet, tenant),
            )
            self._audit.enter(transaction, fleet, actor, "override.clear", f"tenant/{tenant}", _said(before))
        return before

    def pauses(self, fleet: str) -> dict[str, tuple[PauseMode, str, float]]:
        """Group -> (mode, reason, expires_at_s)."""
        rows = self._database.read(
            "SELECT grouped, mode, reason, expires_at_s FROM pauses WHERE fleet = ? ORDER BY grouped", (fleet,)
        )
        return {group: (PauseMode(mode), reason, expires_at_s) for group, mode, reason, expires_at_s in rows}

    def pause(self, fleet: str, group: str, mode: PauseMode, reason: str, expires_at_s: float, actor: str) -> None:
        """Set a group's pause; `PauseMode.NONE` ends it."""
        with self._database.write() as transaction:
            found = transaction.execute(
                "SELECT mode FROM pauses WHERE fleet = ? AND grouped = ?", (fleet, group)
            ).fetchone()
            if mode is PauseMode.NONE:
                transaction.execute("DELETE FROM pauses WHERE fleet = ? AND grouped = ?", (fleet, group))
            else:
                transaction.execute(
                    "INSERT OR REPLACE INTO pauses VALUES (?, ?, ?, ?, ?)",
                    (fleet, group, str(mode), reason, expires_at_s),
                )
            before = found[0] if found else str(PauseMode.NONE)
            after = f"{mode} until {expires_at_s:.0f}: {reason}" if mode is not PauseMode.NONE else str(mode)
            self._audit.enter(transaction, fleet, actor, "pause.set", f"group/{group}", before, after)

    def _current(
        self, transaction: sqlite3.Connection, fleet: str, tenant: str, if_revision: int | None
    ) -> tuple[Override | None, int]:
        """(the override that is there, the last revision ever given); refuses what is not `if_revision`."""
        row = transaction.execute(
            f"SELECT {COLUMNS}, cleared FROM overrides WHERE fleet = ? AND tenant = ?", (fleet, tenant)
        ).fetchone()
        current = None if row is None or row[-1] else _override(row[:-1])
        revision = current.revision if current else 0
        if if_revision is not None and if_revision != revision:
            raise ConflictError(
                f"the override of {tenant} is at revision {revision}, not {if_revision}: read it again", revision
            )
        return current, (row[6] if row else 0)


def _override(row: Row) -> Override:
    tenant, tier, reason, actor, created_at_s, expires_at_s, revision = row
    return Override(tenant, Tier(tier), reason, actor, created_at_s, expires_at_s, revision)


def _said(override: Override | None) -> str:
    return "" if override is None else f"{override.tier} until {override.expires_at_s:.0f}: {override.reason}"
