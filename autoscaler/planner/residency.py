"""Which adapters each replica should hold, which it lacks, and the loads and unloads that mend the difference.

A registered name is read back from the engine each tick; what vanished is loaded again. Loads that failed wait for
their time; a replica that was given up for an adapter is not waited for, and another slot takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.decisions import LoadAdapter, Reason, UnloadAdapter
from autoscaler.domain.fleet import LoadFailure, LoadLedger, Replica, ReplicaState
from autoscaler.domain.observation import Catalogue

_SERVING = frozenset({ReplicaState.READY, ReplicaState.DRAINING})
# With the wait doubling from 10 s, a load that failed five times has been tried for two and a half minutes.
MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Lack:
    """What one replica lacks of what it should hold.

    Attributes:
        waited: adapters that a load can still bring.
        hopeless: adapters that this replica was given up for: a final answer, or `MOST_ATTEMPTS` in a row that failed.
            The latter are still tried, at the longest wait, since a store of adapters that was away comes back.
        outdated: registered, but of an older revision than the catalogue's.
    """

    waited: frozenset[str] = frozenset()
    hopeless: frozenset[str] = frozenset()
    outdated: frozenset[str] = frozenset()

    @property
    def absent(self) -> frozenset[str]:
        """Adapters that the replica does not serve now."""
        return self.waited | self.hopeless


@dataclass(frozen=True, slots=True)
class Residency:
    """Expected against seen, by replica id; a replica whose adapter list is unknown lacks nothing that is known of.

    Attributes:
        instead: adapter -> slots that hold it in place of owners that were given up for it.
    """

    expected: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lacks: Mapping[str, Lack] = field(default_factory=dict)
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def complete(self, replica: str) -> bool:
        """Whether nothing that can still be loaded is waited for."""
        lack = self.lacks.get(replica)
        return lack is None or not lack.waited

    def serves(self, replica: str, adapter: str) -> bool:
        """Whether the replica is known to serve an adapter that it should hold."""
        lack = self.lacks.get(replica)
        return lack is None or adapter not in lack.absent


def adapters_of(catalogue: Catalogue, tenant_row: int) -> tuple[str, ...]:
    """The adapters of one tenant, ascending."""
    return tuple(catalogue.ids[i] for i in np.flatnonzero(catalogue.tenant_index == tenant_row).tolist())


def compare(
    expected: Mapping[str, frozenset[str]], replicas: Iterable[Replica], ledger: LoadLedger, catalogue: Catalogue
) -> Residency:
    """What serving replicas lack. Those that do not serve yet lack everything, and are not asked."""
    lacks: dict[str, Lack] = {}
    for replica in replicas:
        wanted = expected.get(replica.id)
        if not wanted:
            continue
        if replica.state not in _SERVING:
            lacks[replica.id] = Lack(waited=wanted)
        elif replica.registered is not None:
            lack = _lack(wanted, replica.registered, replica.id, ledger, catalogue)
            if lack.absent or lack.outdated:
                lacks[replica.id] = lack
    return Residency(expected, lacks)


def _lack(
    wanted: frozenset[str], registered: frozenset[str], replica: str, ledger: LoadLedger, catalogue: Catalogue
) -> Lack:
    absent = wanted - registered
    failed = ledger.failed.get(replica, {})
    hopeless = frozenset(a for a in absent if a in failed and given_up(failed[a]))
    loaded, rows = ledger.loaded.get(replica, {}), catalogue.row
    # What was expected a tick before may have left the catalogue since: it is not outdated, it goes.
    outdated = frozenset(
        adapter
        for adapter, revision in loaded.items()
        if adapter in wanted and adapter in registered and adapter in rows
        and revision != catalogue.revisions[rows[adapter]]
    )  # fmt: skip
    return Lack(absent - hopeless, hopeless, outdated)


def final(failure: LoadFailure) -> bool:
    """Whether trying again cannot help."""
    return math.isinf(failure.retry_at_s)


def given_up(failure: LoadFailure) -> bool:
    """Whether nobody waits for this replica to load it any more."""
    return final(failure) or failure.attempts >= MOST_ATTEMPTS


def loads(
    residency: Residency,
    replicas: Iterable[Replica],
    ledger: LoadLedger,
    catalogue: Catalogue,
    reasons: Mapping[str, Reason],
    urgent: Mapping[str, frozenset[str]],
    now_s: float,
) -> tuple[LoadAdapter, ...]:
    """Loads that may be made now, urgent ones first, then by replica and adapter.

    Args:
        reasons: replica id -> why it is being filled.
        urgent: replica id -> adapters that routers send there already.
    """
    wanted = []
    for replica in replicas:
        lack = residency.lacks.get(replica.id)
        if lack is None or replica.state not in _SERVING:
            continue
        failed, pressing = ledger.failed.get(replica.id, {}), urgent.get(replica.id, frozenset())
        due = [a for a in lack.absent if a not in failed or failed[a].retry_at_s <= now_s]
        due = sorted(due, key=lambda a: (a not in pressing, a))[: _room(residency, replica, ledger)]
        # A new revision takes the place of the old one.
        due += [a for a in lack.outdated if a not in failed or failed[a].retry_at_s <= now_s]
        for adapter in due:
            row = catalogue.row[adapter]
            wanted.append(
                LoadAdapter(
                    replica.id, adapter, catalogue.sources[row], catalogue.revisions[row],
                    reasons.get(replica.id, Reason.REBALANCED), adapter in pressing and adapter in lack.absent,
                )
            )  # fmt: skip
    return tuple(sorted(wanted, key=lambda e: (not e.urgent, e.replica, e.adapter)))


def _room(residency: Residency, replica: Replica, ledger: LoadLedger) -> int:
    """Loads that fit the host memory beside what this controller loaded and has yet to unload there.

    Where a replica should hold more than its memory does (a cold pool, which only has to know the names), all fit.
    """
    expected, most = residency.expected[replica.id], replica.limits.max_cpu_loras
    if len(expected) > most or replica.registered is None:
        return len(expected)
    return max(most - len(ledger.loaded.get(replica.id, {}).keys() & replica.registered), 0)


def unloads(
    residency: Residency, replicas: Iterable[Replica], ledger: LoadLedger, kept: frozenset[str]
) -> tuple[UnloadAdapter, ...]:
    """Adapters that this controller loaded, that are still registered and belong there no more.

    `kept`: adapters that any replica may be asked for (cold ones), which stay until the engine evicts them itself.
    """
    gone = [
        UnloadAdapter(replica.id, adapter)
        for replica in replicas
        if replica.state is ReplicaState.READY and replica.registered is not None
        for adapter in ledger.loaded.get(replica.id, {}).keys() & replica.registered
        if adapter not in residency.expected.get(replica.id, frozenset()) and adapter not in kept
    ]
    return tuple(sorted(gone, key=lambda e: (e.replica, e.adapter)))
