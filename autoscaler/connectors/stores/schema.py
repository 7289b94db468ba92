"""The tables, as a list of migrations that only grows: number n leads from schema version n - 1 to n."""

from __future__ import annotations

# "LoRA" in ASCII, so that a file of another program is not taken for ours.
APPLICATION_ID = 0x4C6F5241

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE overrides (
            fleet TEXT NOT NULL, tenant TEXT NOT NULL, tier TEXT NOT NULL, reason TEXT NOT NULL, actor TEXT NOT NULL,
            created_at_s REAL NOT NULL, expires_at_s REAL NOT NULL, revision INTEGER NOT NULL, cleared INTEGER NOT NULL,
            PRIMARY KEY (fleet, tenant)
        ) WITHOUT ROWID""",
        """CREATE TABLE pauses (
            fleet TEXT NOT NULL, grouped TEXT NOT NULL, mode TEXT NOT NULL, reason TEXT NOT NULL,
            expires_at_s REAL NOT NULL, PRIMARY KEY (fleet, grouped)
        ) WITHOUT ROWID""",
        """CREATE TABLE checkpoints (
            fleet TEXT PRIMARY KEY, saved_at_s REAL NOT NULL, state TEXT NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE decisions (
            number INTEGER PRIMARY KEY AUTOINCREMENT, fleet TEXT NOT NULL, id TEXT NOT NULL, subject TEXT NOT NULL,
            record TEXT NOT NULL, UNIQUE (fleet, id)
        )""",
        "CREATE INDEX decisions_by_subject ON decisions (fleet, subject, number)",
        """CREATE TABLE audit (
            number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, fleet TEXT NOT NULL, actor TEXT NOT NULL,
            action TEXT NOT NULL, subject TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL
        )""",
        """CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
            BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END""",
        """CREATE TABLE proposals (
            number INTEGER PRIMARY KEY AUTOINCREMENT, fleet TEXT NOT NULL, key TEXT NOT NULL, subject TEXT NOT NULL,
            before TEXT NOT NULL, after TEXT NOT NULL, message TEXT NOT NULL, state TEXT NOT NULL,
            created_at_s REAL NOT NULL, actor TEXT NOT NULL, until_s REAL NOT NULL
        )""",
        "CREATE INDEX proposals_by_key ON proposals (fleet, key)",
        """CREATE TABLE adapter_loads (
            fleet TEXT NOT NULL, replica TEXT NOT NULL, started_at_s REAL NOT NULL, adapter TEXT NOT NULL,
            revision TEXT NOT NULL, PRIMARY KEY (fleet, replica, adapter)
        ) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE detachments (
            fleet TEXT PRIMARY KEY, actor TEXT NOT NULL, reason TEXT NOT NULL, at_s REAL NOT NULL
        ) WITHOUT ROWID""",
    ),
)

VERSION = len(MIGRATIONS)
