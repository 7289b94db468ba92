"""Decision records, newest kept, bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence

from autoscaler.connectors.stores.database import Database
from autoscaler.domain.decisions import DecisionRecord, Reason, Step

MOST_RECORDS = 200_000
FIELDS = ("at_s", "step", "reason", "before", "after", "message")


class SqliteDecisions:
    """`DecisionLog` of all fleets."""

    def __init__(self, database: Database, most: int = MOST_RECORDS) -> None:
        self._database = database
        self._most = most

    def append(self, records: Sequence[DecisionRecord]) -> None:
        """Keep these, in one transaction; a record that is there already is left as it is."""
        if not records:
            return
        rows = [(r.fleet, r.id, r.subject, written(r)) for r in records]
        with self._database.write() as transaction:
            transaction.executemany(
                "INSERT OR IGNORE INTO decisions (fleet, id, subject, record) VALUES (?, ?, ?, ?)", rows
            )
            newest = transaction.execute("SELECT max(number) FROM decisions").fetchone()[0]
            transaction.execute("DELETE FROM decisions WHERE number <= ?", (newest - self._most,))

    def read(self, fleet: str, since: str = "", subject: str = "", limit: int = 100) -> tuple[DecisionRecord, ...]:
        """Ascending by id: the newest `limit`, or with `since` the first `limit` after that record.

        A `since` that is no longer kept is before everything that is.
        """
        after = 0
        if since:
            found = self._database.read("SELECT number FROM decisions WHERE fleet = ? AND id = ?", (fleet, since))
            after = found[0][0] if found else 0
        order = "ASC" if since else "DESC"
        rows = self._database.read(
            "SELECT id, subject, record FROM decisions WHERE fleet = ? AND number > ? AND (? = '' OR subject = ?) "
            f"ORDER BY number {order} LIMIT ?",
            (fleet, after, subject, subject, limit),
        )
        records = tuple(read_record(fleet, *row) for row in rows)
        return records if since else records[::-1]


def written(record: DecisionRecord) -> str:
    """What is kept of a record beside its fleet, id and subject."""
    return json.dumps(
        {name: getattr(record, name) for name in FIELDS}
        | {"trail": [[s.reason, s.value, s.message] for s in record.trail], "data": dict(record.data)},
        separators=(",", ":"),
    )


def read_record(fleet: str, record_id: str, subject: str, text: str) -> DecisionRecord:
    """A record from what `written` made of it."""
    kept = json.loads(text)
    return DecisionRecord(
        id=record_id,
        fleet=fleet,
        subject=subject,
        at_s=kept["at_s"],
        step=kept["step"],
        reason=Reason(kept["reason"]),
        before=kept["before"],
        after=kept["after"],
        message=kept["message"],
        trail=tuple(Step(Reason(reason), value, message) for reason, value, message in kept["trail"]),
        data=kept["data"],
    )
