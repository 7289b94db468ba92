"""Tells each tick in the cluster: the status of TierOverrides, and decisions as Events on the targets.

Beside the loop: a slow API server delays what is told, not what is done. Only the leader tells, and only what changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable

from autoscaler.connectors.kubernetes.cluster import Cluster, ConflictedError, Json
from autoscaler.connectors.kubernetes.tier_overrides import TierOverrides, in_order, made_elsewhere, read, time_text
from autoscaler.domain.decisions import DecisionRecord, Reason
from autoscaler.planner.views import WARM_GROUP
from autoscaler.policy.words import Mode
from autoscaler.ports import ConflictError, PermanentError, TemporaryError
from autoscaler.telemetry import FleetView

_log = logging.getLogger(__name__)
KEPT_AFTER_END_S = 86400.0
"""So long an ended TierOverride stays to be read before it is deleted."""
_MOST_EVENTS = 20
"""Of one tick: a fleet that starts decides thousands of tiers, and the API server keeps each Event for an hour."""
_WARNINGS = frozenset({Reason.BLOCKED, Reason.FOREIGN_ACTOR})


class Reporter:
    """One fleet's teller. `take` is a subscriber of the loop; `run` does the calls until it is cancelled.

    Args:
        cluster: the API server.
        overrides: the TierOverrides.
        reference: group -> the object that an Event is about; None: no Events.
    """

    def __init__(
        self, cluster: Cluster, overrides: TierOverrides, reference: Callable[[str], Json | None] | None
    ) -> None:
        self._cluster, self._overrides, self._reference = cluster, overrides, reference
        self._view: FleetView | None = None
        self._records: deque[DecisionRecord] = deque(maxlen=10 * _MOST_EVENTS)
        self._news = asyncio.Event()

    def take(self, view: FleetView, records: tuple[DecisionRecord, ...]) -> None:
        """A tick has ended."""
        if view.leader:
            self._view = view
            if self._reference is not None and view.plan.mode is not Mode.ADVISE:
                self._records.extend(_told_first(records)[:_MOST_EVENTS])
            self._news.set()

    async def run(self) -> None:
        """Tell, until cancelled. What fails is told at the next tick, or never where it is an Event."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await asyncio.to_thread(self._tell)
            except (TemporaryError, PermanentError, ConflictError) as error:
                _log.warning("the cluster was not told: %s", error)
            except Exception:
                _log.exception("the cluster was not told")

    def _tell(self) -> None:
        view, records = self._view, [self._records.popleft() for _ in range(len(self._records))]
        if view is None:
            return
        found = list(in_order(self._overrides.objects(), view.fleet))
        newest = {o["spec"]["tenant"]: o["metadata"]["uid"] for o in found}
        for each in found:
            self._settle(each, view, superseded=newest[each["spec"]["tenant"]] != each["metadata"]["uid"])
        for record in records:
            self._event(record)

    def _settle(self, found: Json, view: FleetView, *, superseded: bool) -> None:
        """Bring an object's status up to date; one that has ended for long goes."""
        if view.plan.now_s - read(found).expires_at_s > KEPT_AFTER_END_S:
            self._overrides.delete(found)
            return
        before = found.get("status") or {}
        if before.get("observedGeneration") != found["metadata"]["generation"] and made_elsewhere(found):
            self._overrides.audit(found)
        status = status_of(found, view, superseded=superseded)
        if status != before:
            self._overrides.status(found["metadata"]["name"], status)

    def _event(self, record: DecisionRecord) -> None:
        assert self._reference is not None
        group = record.subject.partition("/")[2] if record.subject.startswith("group/") else WARM_GROUP
        about = self._reference(group) or self._reference(WARM_GROUP)
        if about is None:
            return
        path = f"/api/v1/namespaces/{about['namespace']}/events"
        with contextlib.suppress(ConflictedError):  # told already, before this instance lost and won the lead
            self._cluster.now("POST", path, event_of(record, about))


def status_of(found: Json, view: FleetView, *, superseded: bool) -> Json:
    """A TierOverride's status after a tick. The condition `Active` says whether it is in force, and why not."""
    override, meta = read(found), found["metadata"]
    known = override.tenant in view.plan.tiers.row
    tier = view.plan.tiers.tier(override.tenant) if known else None
    if view.plan.now_s >= override.expires_at_s:
        active, reason, text = "False", "Expired", f"it ended at {time_text(override.expires_at_s)}"
    elif superseded:
        active, reason, text = "False", "Superseded", "another TierOverride of the same tenant was set later"
    elif not known:
        active, reason, text = (
            "False",
            "UnknownTenant",
            f"the catalogue of {view.fleet} has no tenant {override.tenant}",
        )
    elif view.plan.mode is Mode.ADVISE:
        active, reason, text = "False", "Advice", "the policy's mode is advise: nothing of the fleet is changed"
    elif override not in view.overrides:
        active, reason, text = "Unknown", "Seen", "it counts from the next tick"
    elif tier is not override.tier:
        trail = view.plan.tiers.explain(override.tenant).trail
        active, reason, text = "False", "Limited", trail[-1].message if trail else f"it is {tier}"
    else:
        active, reason, text = (
            "True",
            "InForce",
            f"{override.tenant} is {tier} until {time_text(override.expires_at_s)}",
        )
    before = next((c for c in (found.get("status") or {}).get("conditions", []) if c["type"] == "Active"), None)
    since = before["lastTransitionTime"] if before and before["status"] == active else time_text(view.plan.now_s)
    condition = {
        "type": "Active", "status": active, "reason": reason, "message": text, "lastTransitionTime": since,
        "observedGeneration": meta["generation"],
    }  # fmt: skip
    shown = {"observedGeneration": meta["generation"], "conditions": [condition]}
    return shown if tier is None else {**shown, "tier": str(tier)}


def event_of(record: DecisionRecord, about: Json) -> Json:
    """A decision as a core/v1 Event, whose name is the decision's: told again it is refused as a double."""
    at = datetime.datetime.fromtimestamp(int(record.at_s), datetime.UTC).isoformat().replace("+00:00", "Z")
    change = f"{record.before} -> {record.after}" if record.before != record.after else f"stays {record.after}"
    text = f"{record.subject} {change}: {record.message}"
    digest = hashlib.sha256(f"{record.fleet}/{record.id}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": f"{about['name'][:200]}.{digest}", "namespace": about["namespace"]},
        "involvedObject": about, "reason": record.reason.value, "message": text[:1024],
        "type": "Warning" if record.reason in _WARNINGS else "Normal", "count": 1,
        "firstTimestamp": at, "lastTimestamp": at, "source": {"component": "lora-autoscaler"},
    }  # fmt: skip


def _told_first(records: Iterable[DecisionRecord]) -> list[DecisionRecord]:
    """Groups, the ring and failures before tenants, of which there may be many."""
    return sorted(records, key=lambda r: r.subject.startswith("tenant/"))
