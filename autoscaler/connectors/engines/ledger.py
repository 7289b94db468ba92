"""The book of loads: what this controller loaded into which process, what failed, what is foreign."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.domain.fleet import LoadFailure, LoadLedger, Replica
from autoscaler.ports import PermanentError, TemporaryError

_log = logging.getLogger(__name__)

NEVER_AGAIN = float("inf")
LONGEST_BACKOFF_S = 300.0
# Start times that a platform reports twice for one process may differ by rounding.
SAME_START_S = 1.0
# From the second time on that an adapter is gone by itself, reloads wait.
PATIENT_VANISHINGS = 1


@dataclass(frozen=True, slots=True)
class LoadEntry:
    """One load that was begun, as it is remembered across restarts of the controller.

    Attributes:
        started_at_s: of the replica's process; the entry dies with it.
    """

    replica: str
    started_at_s: float
    adapter: str
    revision: str


class LoadMemory(Protocol):
    """Keeps entries over a restart of the controller. Without it, adapters loaded before it count as foreign."""

    def loads(self, fleet: str) -> Sequence[LoadEntry]:
        """All entries."""
        ...

    def remember_load(self, fleet: str, entry: LoadEntry) -> None:
        """Keep one; it replaces the replica's entry of that adapter."""
        ...

    def forget_loads(self, fleet: str, replica: str, adapter: str = "") -> None:
        """Drop one adapter's entry, or all of a replica."""
        ...


class NoMemory:
    """`LoadMemory` that keeps nothing."""

    def loads(self, fleet: str) -> Sequence[LoadEntry]:
        """Nothing."""
        return ()

    def remember_load(self, fleet: str, entry: LoadEntry) -> None:
        """Keep nothing."""

    def forget_loads(self, fleet: str, replica: str, adapter: str = "") -> None:
        """Nothing to drop."""


@dataclass(slots=True)
class _Process:
    """What is known of one replica's process."""

    started_at_s: float
    loaded: dict[str, str] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    settled_at_s: dict[str, float] = field(default_factory=dict)
    failed: dict[str, tuple[LoadFailure, str | None, str]] = field(default_factory=dict)
    vanished: dict[str, int] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()


class LoadBook:
    """Loads of one fleet, by process. Every method takes the replica as it is now: a new process begins a new page."""

    def __init__(self, fleet: str, memory: LoadMemory, backoff_s: float) -> None:
        self._fleet = fleet
        self._memory = memory
        self._backoff_s = backoff_s
        self._processes: dict[str, _Process] = {}
        self.recall()

    def recall(self) -> None:
        """Begin anew from the memory: at the start, and while another instance leads and loads."""
        self._processes = {}
        for entry in self._memory.loads(self._fleet):
            process = self._processes.setdefault(entry.replica, _Process(entry.started_at_s))
            # Whether it was answered is not known: the engine's list will tell.
            process.begun[entry.adapter] = entry.revision

    def ledger(self) -> LoadLedger:
        """A frozen view."""
        return LoadLedger(
            loaded={r: dict(p.loaded) for r, p in self._processes.items() if p.loaded},
            failed={r: {a: f[0] for a, f in p.failed.items()} for r, p in self._processes.items() if p.failed},
            foreign={r: p.foreign for r, p in self._processes.items() if p.foreign},
        )

    def revision(self, replica: Replica, adapter: str) -> str | None:
        """The revision that this controller loaded there, None where it did not."""
        return self._of(replica).loaded.get(adapter)

    def refusal(self, replica: Replica, adapter: str, source: str, revision: str) -> LoadFailure | None:
        """The last failure of exactly this adapter, source and revision; a changed one deserves a new trial."""
        found = self._of(replica).failed.get(adapter)
        return found[0] if found and _concerns(found, source, revision) else None

    def begin(self, replica: Replica, adapter: str, revision: str) -> None:
        """A load is about to be sent. If its answer is lost, the engine's list decides whether it is ours."""
        process = self._of(replica)
        if adapter not in process.loaded and adapter not in process.foreign:
            process.begun[adapter] = revision
            self._remember(replica, adapter, revision)

    def loaded(self, replica: Replica, adapter: str, revision: str, now_s: float) -> None:
        """The engine answered a load with success."""
        process = self._of(replica)
        if process.begun.pop(adapter, None) != revision:
            self._remember(replica, adapter, revision)
        process.failed.pop(adapter, None)
        process.loaded[adapter] = revision
        process.settled_at_s[adapter] = now_s

    def not_ours(self, replica: Replica, adapter: str) -> None:
        """The engine had the name already, and not from us."""
        self._of(replica).failed.pop(adapter, None)
        self.not_begun(replica, adapter)

    def failed(
        self, replica: Replica, adapter: str, source: str, revision: str, error: str, now_s: float, *, again: bool
    ) -> LoadFailure:
        """A load failed; the wait doubles with each failure in a row."""
        process = self._of(replica)
        before = process.failed.get(adapter)
        attempts = 1 + (before[0].attempts if before else 0)
        wait_s = min(self._backoff_s * 2 ** min(attempts - 1, 16), LONGEST_BACKOFF_S) if again else NEVER_AGAIN
        failure = LoadFailure(attempts, now_s + wait_s, error)
        process.failed[adapter] = failure, source, revision
        if not again:
            self.not_begun(replica, adapter)
        return failure

    def not_begun(self, replica: Replica, adapter: str) -> None:
        """The engine refused: there is nothing whose answer could be lost."""
        process = self._of(replica)
        process.begun.pop(adapter, None)
        if adapter not in process.loaded:
            self._forget(replica.id, adapter)

    def unloaded(self, replica: Replica, adapter: str) -> None:
        """The engine no longer knows the name."""
        process = self._of(replica)
        process.loaded.pop(adapter, None)
        process.begun.pop(adapter, None)
        self._forget(replica.id, adapter)

    def listed(self, replica: Replica, adapters: frozenset[str], resolved: frozenset[str], asked_at_s: float) -> None:
        """The engine's list, as it was asked for at `asked_at_s`.

        A begun load that is on it is ours; a load of ours that is not on it is gone; what is left is foreign.

        Args:
            replica: as it is now.
            adapters: registered ids.
            resolved: those of them that the engine found by itself at a request.
            asked_at_s: when the list was asked for; what was settled later is left as it is.
        """
        process = self._of(replica)
        for adapter in process.begun.keys() & adapters:
            process.loaded[adapter] = process.begun.pop(adapter)
        gone = [
            a for a in process.loaded if a not in adapters and process.settled_at_s.get(a, asked_at_s) <= asked_at_s
        ]
        for adapter in gone:
            self._vanished(replica, process, adapter, asked_at_s)
        process.foreign = adapters - process.loaded.keys() - process.begun.keys() - resolved

    def keep(self, replicas: frozenset[str]) -> None:
        """Forget replicas that are gone."""
        for gone in self._processes.keys() - replicas:
            del self._processes[gone]
            self._forget(gone)

    def reconsider(self, wanted: Mapping[str, tuple[str, str]]) -> None:
        """Drop failures of adapters whose (source, revision) is no longer what failed."""
        for process in self._processes.values():
            process.failed = {a: f for a, f in process.failed.items() if a in wanted and _concerns(f, *wanted[a])}

    def _vanished(self, replica: Replica, process: _Process, adapter: str, now_s: float) -> None:
        revision = process.loaded.pop(adapter)
        self._forget(replica.id, adapter)
        times = process.vanished[adapter] = process.vanished.get(adapter, 0) + 1
        if times > PATIENT_VANISHINGS:
            wait_s = min(self._backoff_s * 2 ** min(times - 2, 16), LONGEST_BACKOFF_S)
            words = (
                f"it was loaded and is gone from the engine's list, {times} times so far; somebody else unloads it, "
                "or the replica has more than one API server and a load reaches only one of them"
            )
            process.failed[adapter] = LoadFailure(times, now_s + wait_s, words), None, revision

    def _remember(self, replica: Replica, adapter: str, revision: str) -> None:
        """Keep it over a restart. A store that fails stops no load: after a restart this one then counts as foreign."""
        try:
            self._memory.remember_load(self._fleet, LoadEntry(replica.id, replica.started_at_s, adapter, revision))
        except (TemporaryError, PermanentError) as error:
            _log.warning("the load of %s on %s is not kept: %s", adapter, replica.id, error)

    def _forget(self, replica: str, adapter: str = "") -> None:
        """Drop what is kept. A stale entry is put right by the engine's list and the process's start time."""
        try:
            self._memory.forget_loads(self._fleet, replica, adapter)
        except (TemporaryError, PermanentError) as error:
            _log.warning("loads of %s are still kept: %s", replica, error)

    def _of(self, replica: Replica) -> _Process:
        process = self._processes.get(replica.id)
        if process is None or abs(process.started_at_s - replica.started_at_s) > SAME_START_S:
            if process is not None:
                self._forget(replica.id)
            process = self._processes[replica.id] = _Process(replica.started_at_s)
        return process


def _concerns(failed: tuple[LoadFailure, str | None, str], source: str, revision: str) -> bool:
    """Whether a failure is of this source and revision. One without a source is the engine's, whatever is loaded."""
    return failed[1] is None or failed[1:] == (source, revision)
