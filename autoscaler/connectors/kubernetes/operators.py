"""What operators say beside overrides, shared by all instances: pauses, detachments, approvals, and who said it.

All of it is one ConfigMap, so that a change and its audit entry are one write. It is small: a change comes from a
person. The audit keeps its newest entries; the whole of it is in the log.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from autoscaler.connectors.kubernetes.config_map import OneConfigMap
from autoscaler.connectors.stores.audit import AuditEntry
from autoscaler.connectors.stores.detachments import Detachment
from autoscaler.connectors.stores.proposals import APPROVAL_TTL_S, ProposalState, StoredProposal
from autoscaler.domain.decisions import Outcome, Skipped
from autoscaler.domain.fleet import PauseMode
from autoscaler.planner.approval import Proposal
from autoscaler.ports import PermanentError

_log = logging.getLogger(__name__)
MOST_ENTRIES = 500
_KEY = "operators.json"
_CHANGED = ("at_s", "fleet", "actor", "action", "subject", "before", "after")

Notes = dict[str, Any]
"""`pauses`: fleet -> group -> [mode, reason, until]; `detachments`: fleet -> [actor, reason, at]; `approvals`: fleet ->
proposal id -> proposal; `audit`: entries, oldest first; `number`: of the newest."""


class OperatorNotes:
    """The document. Reads come from a watch; each change is a compare-and-swap that carries its audit entry.

    Args:
        config_map: the place.
        now_s: time of entries.
    """

    def __init__(self, config_map: OneConfigMap, now_s: Callable[[], float]) -> None:
        self._config_map, self.now_s = config_map, now_s
        self._read: tuple[str, Notes] = ("", {})

    def read(self) -> Notes:
        """What is noted now, not to be changed. Raises TemporaryError, PermanentError."""
        found = self._config_map.seen()
        version = "" if found is None else str(found["metadata"]["resourceVersion"])
        if self._read[0] != version:
            self._read = version, _notes(found or {})
        return self._read[1]

    def change(self, edit: Callable[[Notes], tuple[str, ...] | None]) -> None:
        """Let `edit` change the notes in place and say (fleet, actor, action, subject, before, after); None: nothing.

        Raises TemporaryError, PermanentError.
        """

        def within(found: dict[str, Any]) -> Outcome | None:
            notes = _notes(found)
            said = edit(notes)
            if said is None:
                return Skipped("nothing changes")
            number = int(notes.get("number", 0)) + 1
            entry = dict(zip(_CHANGED, (self.now_s(), *said), strict=True))
            notes["number"] = number
            notes["audit"] = [*notes.get("audit", []), {"number": number, **entry}][-MOST_ENTRIES:]
            found["data"] = {**(found.get("data") or {}), _KEY: json.dumps(notes, sort_keys=True)}
            _log.info("%s by %s: %s", entry["action"], entry["actor"], entry["subject"], extra={"decision": entry})
            return None

        self._config_map.change_now(within)


def _notes(found: dict[str, Any]) -> Notes:
    try:
        return dict(json.loads((found.get("data") or {}).get(_KEY, "{}")))
    except (ValueError, TypeError) as error:
        name = found["metadata"]["name"]
        raise PermanentError(f"ConfigMap {name} holds no notes of ours ({error}): delete it to begin anew") from error


class NotedPauses:
    """Pauses, as `OverrideStore` has them."""

    def __init__(self, notes: OperatorNotes) -> None:
        self._notes = notes

    def pauses(self, fleet: str) -> dict[str, tuple[PauseMode, str, float]]:
        """Group -> (mode, reason, expires_at_s). Raises TemporaryError."""
        found = self._notes.read().get("pauses", {}).get(fleet, {})
        return {group: (PauseMode(mode), reason, until_s) for group, (mode, reason, until_s) in sorted(found.items())}

    def pause(self, fleet: str, group: str, mode: PauseMode, reason: str, expires_at_s: float, actor: str) -> None:
        """Set a group's pause; `PauseMode.NONE` ends it. Raises TemporaryError, PermanentError."""

        def edit(notes: Notes) -> tuple[str, ...]:
            pauses = notes.setdefault("pauses", {}).setdefault(fleet, {})
            before = str(pauses.pop(group, [PauseMode.NONE])[0])
            after = str(mode)
            if mode is not PauseMode.NONE:
                pauses[group] = [str(mode), reason, expires_at_s]
                after = f"{mode} until {expires_at_s:.0f}: {reason}"
            return fleet, actor, "pause.set", f"group/{group}", before, after

        self._notes.change(edit)


class NotedDetachments:
    """Fleets that are out of the controller's hands; every instance lets go of them."""

    def __init__(self, notes: OperatorNotes) -> None:
        self._notes = notes

    def read(self, fleet: str) -> Detachment | None:
        """The fleet's detachment, None where it is managed. Raises TemporaryError."""
        found = self._notes.read().get("detachments", {}).get(fleet)
        return None if found is None else Detachment(*found)

    def detach(self, fleet: str, actor: str, reason: str) -> Detachment:
        """Detach it; the first detachment stands where there is one. Raises TemporaryError, PermanentError."""
        stands: list[Detachment] = []

        def edit(notes: Notes) -> tuple[str, ...] | None:
            known = notes.setdefault("detachments", {})
            if new := fleet not in known:
                known[fleet] = [actor, reason, self._notes.now_s()]
            stands[:] = [Detachment(*known[fleet])]
            return (fleet, actor, "fleet.detach", "fleet", "managed", reason) if new else None

        self._notes.change(edit)
        return stands[0]

    def attach(self, fleet: str, actor: str) -> Detachment | None:
        """Manage it again; the detachment that ended, None where there was none. Raises as `detach` does."""
        ended: list[Detachment] = []

        def edit(notes: Notes) -> tuple[str, ...] | None:
            found = notes.setdefault("detachments", {}).pop(fleet, None)
            ended[:] = [] if found is None else [Detachment(*found)]
            return None if found is None else (fleet, actor, "fleet.attach", "fleet", found[1], "managed")

        self._notes.change(edit)
        return ended[0] if ended else None


class NotedProposals:
    """What waits is what this instance's plan proposes; what was approved or rejected is shared, until it runs out."""

    def __init__(self, notes: OperatorNotes) -> None:
        self._notes = notes
        self._waiting: dict[str, dict[str, StoredProposal]] = {}

    def propose(self, fleet: str, proposals: Iterable[Proposal]) -> None:
        """What waits now; it is not written anywhere."""
        before, now_s = self._waiting.get(fleet, {}), self._notes.now_s()
        waits = ProposalState.WAITING
        found = [
            StoredProposal(_proposal_id(p.key), p.key, p.subject, p.before, p.after, p.message, waits, now_s, "", 0.0)
            for p in proposals
        ]
        self._waiting[fleet] = {p.id: before.get(p.id, p) for p in found}

    def list(self, fleet: str) -> tuple[StoredProposal, ...]:
        """Newest first. Raises TemporaryError."""
        decided = self._decided(fleet)
        waiting = [p for key, p in self._waiting.get(fleet, {}).items() if key not in decided]
        return tuple(sorted([*decided.values(), *waiting], key=lambda p: (-p.created_at_s, p.id)))

    def decide(self, fleet: str, proposal_id: str, actor: str, *, approve: bool) -> StoredProposal | None:
        """Approve or reject one that waits; None where there is none. Raises TemporaryError, PermanentError."""
        waits = self._waiting.get(fleet, {}).get(proposal_id)
        if waits is None:
            return None
        now_s, done = self._notes.now_s(), [False]
        state = ProposalState.APPROVED if approve else ProposalState.REJECTED
        decided = dataclasses.replace(waits, state=state, actor=actor, until_s=now_s + APPROVAL_TTL_S)

        def edit(notes: Notes) -> tuple[str, ...] | None:
            known = notes.setdefault("approvals", {}).setdefault(fleet, {})
            for over in [key for key, p in known.items() if p["until_s"] <= now_s]:
                del known[over]
            done[:] = [proposal_id not in known]
            known.setdefault(proposal_id, dataclasses.asdict(decided))
            action = "proposal.approve" if approve else "proposal.reject"
            return (fleet, actor, action, waits.subject, waits.before, waits.after) if done[0] else None

        self._notes.change(edit)
        return decided if done[0] else None

    def approvals(self, fleet: str) -> frozenset[str]:
        """Keys of changes that are approved now. Raises TemporaryError."""
        return frozenset(p.key for p in self._decided(fleet).values() if p.state is ProposalState.APPROVED)

    def _decided(self, fleet: str) -> dict[str, StoredProposal]:
        found = self._notes.read().get("approvals", {}).get(fleet, {})
        now_s = self._notes.now_s()
        return {
            key: StoredProposal(**{**p, "state": ProposalState(p["state"])})
            for key, p in found.items() if p["until_s"] > now_s
        }  # fmt: skip


def _proposal_id(key: str) -> str:
    """The same in every instance."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


class NotedAudit:
    """Who changed what; the newest `MOST_ENTRIES`."""

    def __init__(self, notes: OperatorNotes) -> None:
        self._notes = notes

    def add(self, fleet: str, actor: str, action: str, subject: str, before: str = "", after: str = "") -> None:
        """Add an entry of its own. Raises TemporaryError, PermanentError."""
        self._notes.change(lambda notes: (fleet, actor, action, subject, before, after))

    def read(self, fleet: str = "", before_number: int = 0, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Newest first. Raises TemporaryError."""
        found = reversed(self._notes.read().get("audit", []))
        wanted = [
            AuditEntry(**e) for e in found
            if (not fleet or e["fleet"] == fleet) and (not before_number or e["number"] < before_number)
        ]  # fmt: skip
        return tuple(wanted[:limit])

    def reaches_back_to_s(self) -> float | None:
        """When the oldest kept entry was made."""
        found = self._notes.read().get("audit", [])
        return float(found[0]["at_s"]) if found else None
