"""Proposals that wait for an operator's word, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.connectors.stores.audit import Audit
from autoscaler.connectors.stores.database import Database
from autoscaler.planner.approval import Proposal

MOST_ENDED = 10_000
APPROVAL_TTL_S = 600.0
COLUMNS = "number, key, subject, before, after, message, state, created_at_s, actor, until_s"


class ProposalState(StrEnum):
    """Where a proposal stands."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    ENDED = "ended"  # no longer proposed, done, or its approval or rejection ran out


@dataclass(frozen=True, slots=True)
class StoredProposal:
    """A proposal.

    Attributes:
        id: ascending number as text; `key` names the change.
        actor: who approved or rejected it, empty while it waits.
        until_s: when the approval or rejection runs out: the same change is then proposed anew.
    """

    id: str
    key: str
    subject: str
    before: str
    after: str
    message: str
    state: ProposalState
    created_at_s: float
    actor: str
    until_s: float


class SqliteProposals:
    """Proposals of all fleets. An approval ends, so that it cannot wave through the same change weeks later."""

    def __init__(self, database: Database, audit: Audit) -> None:
        self._database = database
        self._audit = audit

    def propose(self, fleet: str, proposals: Iterable[Proposal]) -> None:
        """What waits now. New ones are added; waiting ones that are not among them have ended."""
        now_s = self._database.now_s()
        wanted = {p.key: p for p in proposals}
        with self._database.write() as transaction:
            transaction.execute(
                "UPDATE proposals SET state = 'ended' WHERE fleet = ? AND state IN ('approved', 'rejected') "
                "AND until_s <= ?",
                (fleet, now_s),
            )
            open_rows = transaction.execute(
                "SELECT number, key, state FROM proposals WHERE fleet = ? AND state <> 'ended'", (fleet,)
            ).fetchall()
            gone = [(n,) for n, key, state in open_rows if state == ProposalState.WAITING and key not in wanted]
            transaction.executemany("UPDATE proposals SET state = 'ended' WHERE number = ?", gone)
            known = {key for _, key, _ in open_rows}
            transaction.executemany(
                "INSERT INTO proposals (fleet, key, subject, before, after, message, state, created_at_s, actor, "
                "until_s) VALUES (?, ?, ?, ?, ?, ?, 'waiting', ?, '', 0)",
                [
                    (fleet, p.key, p.subject, p.before, p.after, p.message, now_s)
                    for key, p in wanted.items()
                    if key not in known
                ],
            )
            transaction.execute(
                "DELETE FROM proposals WHERE state = 'ended' AND number <= (SELECT max(number) FROM proposals) - ?",
                (MOST_ENDED,),
            )

    def decide(
        self, fleet: str, proposal_id: str, actor: str, *, approve: bool, ttl_s: float = APPROVAL_TTL_S
    ) -> StoredProposal | None:
        """Approve or reject a waiting proposal for `ttl_s`; None where there is no such one that waits."""
        state = ProposalState.APPROVED if approve else ProposalState.REJECTED
        with self._database.write() as transaction:
            changed = transaction.execute(
                "UPDATE proposals SET state = ?, actor = ?, until_s = ? WHERE fleet = ? AND number = ? "
                "AND state = 'waiting'",
                (str(state), actor, self._database.now_s() + ttl_s, fleet, _number(proposal_id)),
            ).rowcount
            found = self.read(fleet, proposal_id) if changed else None
            if found is not None:
                action = "proposal.approve" if approve else "proposal.reject"
                self._audit.enter(transaction, fleet, actor, action, found.subject, found.before, found.after)
        return found

    def approvals(self, fleet: str) -> frozenset[str]:
        """Keys of changes that are approved now."""
        rows = self._database.read(
            "SELECT key FROM proposals WHERE fleet = ? AND state = 'approved' AND until_s > ?",
            (fleet, self._database.now_s()),
        )
        return frozenset(key for (key,) in rows)

    def read(self, fleet: str, proposal_id: str) -> StoredProposal | None:
        """One proposal."""
        rows = self._database.read(
            f"SELECT {COLUMNS} FROM proposals WHERE fleet = ? AND number = ?", (fleet, _number(proposal_id))
        )
        return _stored(rows[0]) if rows else None

    def list(self, fleet: str, state: ProposalState | None = None, limit: int = 1000) -> tuple[StoredProposal, ...]:
        """Newest first, of one state where given."""
        rows = self._database.read(
            f"SELECT {COLUMNS} FROM proposals WHERE fleet = ? AND (? IS NULL OR state = ?) "
            "ORDER BY number DESC LIMIT ?",
            (fleet, state, state, limit),
        )
        return tuple(map(_stored, rows))


def _stored(row: tuple[object, ...]) -> StoredProposal:
    number, key, subject, before, after, message, state, created_at_s, actor, until_s = row
    return StoredProposal(
        str(number), str(key), str(subject), str(before), str(after), str(message), ProposalState(str(state)),
        float(str(created_at_s)), str(actor), float(str(until_s)),
    )  # fmt: skip


def _number(proposal_id: str) -> int:
    """An id that is no number is no proposal's."""
    return int(proposal_id) if proposal_id.isascii() and proposal_id.isdecimal() and len(proposal_id) < 19 else -1
