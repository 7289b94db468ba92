"""Overrides as `TierOverride` objects: what `kubectl` makes and what our API makes are the same objects.

A tenant may have several, as when two people make one each: what was changed last counts, and clearing clears all. Who
made one is `spec.actor`, which the API server binds to the credential (an admission policy) and our API takes from its
own.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from autoscaler.connectors.kubernetes.cluster import FIELD_MANAGER, MERGE, Cluster, ConflictedError, GoneError, Json
from autoscaler.connectors.kubernetes.operators import NotedAudit, NotedPauses
from autoscaler.connectors.kubernetes.readings import seconds
from autoscaler.connectors.kubernetes.watch import Watched
from autoscaler.domain.fleet import LONGEST_OVERRIDE_S, Override, PauseMode, Tier
from autoscaler.ports import ConflictError, PermanentError, TemporaryError

API_VERSION, KIND = "lora-autoscaler.io/v1alpha1", "TierOverride"
_ATTEMPTS = 4
_REMEDY = (
    "overrides in a cluster are TierOverride objects: install the chart lora-autoscaler-crds, and give the controller "
    "`rbac.crds`"
)


def collection(namespace: str) -> str:
    """The path of a namespace's TierOverrides."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/tieroverrides"


class TierOverrides:
    """`OverrideStore` of all fleets of a namespace. Reads come from a watch; `put` and `clear` block on the server.

    Args:
        cluster: the API server.
        namespace: where the objects are.
        pauses, audit: where the rest of what operators say is noted.
    """

    def __init__(self, cluster: Cluster, namespace: str, pauses: NotedPauses, audit: NotedAudit) -> None:
        self._cluster, self._collection = cluster, collection(namespace)
        self._namespace, self._pauses, self._audit = namespace, pauses, audit
        self._watched = Watched(cluster, self._collection)
        self._ever_seen = False

    def first(self) -> None:
        """Block until the first listing has worked or failed."""
        self._watched.first()

    def close(self) -> None:
        """End the watch."""
        self._watched.close()

    def objects(self) -> list[Json]:
        """All, as the watch shows them; none where the kind or the right to read it is missing. Raises TemporaryError.

        Where they were read once, a right that is lost later is a failure: what was read last then stands.
        """
        try:
            found = list(self._watched.objects().values())
        except PermanentError as error:
            if self._ever_seen:
                raise TemporaryError(f"{error}; {_REMEDY}") from error
            return []
        self._ever_seen = True
        return found

    def conditions(self, fleet: str) -> dict[str, str]:
        """`OverridesUnavailable` where the kind is missing and the right to it is there: then somebody wants it."""
        try:
            self._watched.objects()
        except GoneError as error:
            return {"OverridesUnavailable": f"no override of {fleet} can be set or read: {error}; {_REMEDY}"}
        except (TemporaryError, PermanentError):
            return {}
        return {}

    def status(self, name: str, status: Json) -> None:
        """Write an object's status, blocking this thread. Raises TemporaryError, PermanentError."""
        path = f"{self._collection}/{name}/status"
        self._watched.seen(self._cluster.now("PATCH", path, {"status": status}, MERGE))

    def delete(self, found: Json) -> None:
        """Delete one that has ended. Raises ConflictError, TemporaryError, PermanentError."""
        meta = found["metadata"]
        self._delete(
            found["spec"]["tenant"], meta["name"], {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        )

    def audit(self, found: Json) -> None:
        """Enter one that was made elsewhere. Raises TemporaryError, PermanentError."""
        override = read(found)
        self._audit.add(
            found["spec"]["fleet"], override.actor, "override.put", f"tenant/{override.tenant}", "", said(override)
        )

    def overrides(self, fleet: str) -> tuple[Override, ...]:
        """All of a fleet, expired ones included, ascending by tenant. Raises TemporaryError."""
        newest = {o["spec"]["tenant"]: o for o in in_order(self.objects(), fleet)}
        return tuple(read(newest[tenant]) for tenant in sorted(newest))

    def put(self, fleet: str, override: Override, if_revision: int | None = None) -> Override:
        """Set a tenant's override. Raises ConflictError, TemporaryError, PermanentError."""
        for _ in range(_ATTEMPTS):
            before = self._newest(fleet, override.tenant)
            _require(override.tenant, before, if_revision)
            try:
                found = self._write(fleet, override, before)
            except ConflictedError:
                continue
            self._watched.seen(found)
            stored = read(found)
            before_text = "" if before is None else said(read(before))
            subject = f"tenant/{override.tenant}"
            self._audit.add(fleet, override.actor, "override.put", subject, before_text, said(stored))
            return stored
        raise TemporaryError(f"the override of {override.tenant} changes faster than it can be written")

    def clear(self, fleet: str, tenant: str, actor: str, if_revision: int | None = None) -> Override | None:
        """Clear it; returns what was there. Raises ConflictError, TemporaryError, PermanentError."""
        newest = self._newest(fleet, tenant)
        _require(tenant, newest, if_revision)
        if newest is None:
            return None
        for found in self._of(fleet, tenant):
            meta = found["metadata"]
            only = {"uid": meta["uid"]}
            if if_revision is not None and meta["uid"] == newest["metadata"]["uid"]:
                only["resourceVersion"] = newest["metadata"]["resourceVersion"]
            self._delete(tenant, meta["name"], only)
        self._audit.add(fleet, actor, "override.clear", f"tenant/{tenant}", said(read(newest)))
        return read(newest)

    def pauses(self, fleet: str) -> dict[str, tuple[PauseMode, str, float]]:
        """Group -> (mode, reason, expires_at_s). Raises TemporaryError."""
        return self._pauses.pauses(fleet)

    def pause(self, fleet: str, group: str, mode: PauseMode, reason: str, expires_at_s: float, actor: str) -> None:
        """Set a group's pause; `PauseMode.NONE` ends it. Raises TemporaryError, PermanentError."""
        self._pauses.pause(fleet, group, mode, reason, expires_at_s, actor)

    def _of(self, fleet: str, tenant: str) -> list[Json]:
        """A tenant's objects on the server now, the newest last."""
        try:
            found = self._cluster.now("GET", self._collection)["items"]
        except GoneError as error:
            raise PermanentError(_REMEDY) from error
        return [o for o in in_order(found, fleet) if o["spec"]["tenant"] == tenant]

    def _newest(self, fleet: str, tenant: str) -> Json | None:
        return next(reversed(self._of(fleet, tenant)), None)

    def _write(self, fleet: str, override: Override, before: Json | None) -> Json:
        spec = {
            "fleet": fleet, "tenant": override.tenant, "tier": str(override.tier), "reason": override.reason,
            "actor": override.actor, "expiresAt": time_text(override.expires_at_s),
        }  # fmt: skip
        if before is not None:
            path = f"{self._collection}/{before['metadata']['name']}"
            return self._cluster.now("PUT", path, {"apiVersion": API_VERSION, "kind": KIND, **before, "spec": spec})
        meta = {"name": object_name(fleet, override.tenant), "namespace": self._namespace}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}
        return self._cluster.now("POST", self._collection, body)

    def _delete(self, tenant: str, name: str, only: dict[str, str]) -> None:
        try:
            self._cluster.now("DELETE", f"{self._collection}/{name}", {"preconditions": only})
        except GoneError:
            pass
        except ConflictedError as error:
            raise ConflictError(f"the override of {tenant} was changed meanwhile: read it again", 0) from error
        self._watched.forget(name)


def in_order(found: list[Json], fleet: str) -> Iterator[Json]:
    """A fleet's objects, the one that was changed last at the end."""
    mine = [o for o in found if o["spec"]["fleet"] == fleet]
    return iter(
        sorted(mine, key=lambda o: (_last_set(o)[0], o["metadata"]["creationTimestamp"], o["metadata"]["name"]))
    )


def read(found: Json) -> Override:
    """One object as an override; one that would end later ends `LONGEST_OVERRIDE_S` after it was made."""
    spec, made_s = found["spec"], seconds(_last_set(found)[0])
    ends_s = min(seconds(spec["expiresAt"]), made_s + LONGEST_OVERRIDE_S)
    return Override(
        spec["tenant"], Tier(spec["tier"]), spec["reason"], spec["actor"], made_s, ends_s, revision_of(found)
    )  # fmt: skip


def revision_of(found: Json) -> int:
    """Grows with each change of the spec, and with each new object; below 2**53, since it is an ETag for browsers too.

    Generations begin at 1 with each object, and one that is made in the second in which another was deleted differs in
    its uid.
    """
    meta = found["metadata"]
    salt = int(hashlib.sha256(meta["uid"].encode()).hexdigest()[:8], 16) % 1000
    return (int(seconds(meta["creationTimestamp"])) * 1000 + salt) * 1000 + min(int(meta.get("generation", 1)), 999)


def object_name(fleet: str, tenant: str) -> str:
    """Readable, and different for each tenant, whose id may hold what a name may not."""
    slug = re.sub(r"[^a-z0-9]+", "-", tenant.lower()).strip("-")[:40]
    return "-".join(filter(None, (fleet[:60], slug, hashlib.sha256(f"{fleet}/{tenant}".encode()).hexdigest()[:8])))


def time_text(at_s: float) -> str:
    """Seconds as an API time, rounded up to a whole second."""
    whole = datetime.datetime.fromtimestamp(-(-at_s // 1), datetime.UTC)
    return whole.isoformat().replace("+00:00", "Z")


def said(override: Override) -> str:
    """For the audit."""
    return f"{override.tier} until {time_text(override.expires_at_s)}: {override.reason}"


def made_elsewhere(found: Json) -> bool:
    """Whether somebody else than our API set the spec last."""
    return _last_set(found)[1] != FIELD_MANAGER


def _last_set(found: Json) -> tuple[str, str]:
    """When the spec was set last, and by which field manager."""
    entries: list[dict[str, Any]] = found["metadata"].get("managedFields") or []
    owners = [e for e in entries if not e.get("subresource") and "f:spec" in (e.get("fieldsV1") or {})]
    newest = max(owners, key=lambda e: str(e.get("time", "")), default={})
    return str(newest.get("time") or found["metadata"]["creationTimestamp"]), str(newest.get("manager", ""))


def _require(tenant: str, found: Json | None, if_revision: int | None) -> None:
    revision = 0 if found is None else revision_of(found)
    if if_revision is not None and if_revision != revision:
        raise ConflictError(
            f"the override of {tenant} is at revision {revision}, not {if_revision}: read it again", revision
        )
