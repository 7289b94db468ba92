"""Leadership by a Lease of coordination.k8s.io, by the rules of client-go's leader election.

Others' times are never trusted: a claim is over when it did not change for its duration on our own clock.
"""

from __future__ import annotations

import datetime
import logging
import math

from autoscaler.connectors.kubernetes.cluster import Cluster, ConflictedError, GoneError, Json
from autoscaler.ports import PermanentError, TemporaryError

_log = logging.getLogger(__name__)
FREEZE = "lora-autoscaler.io/freeze"
# The holder stops writing when this share of its time is over; others wait for all of it.
RENEWAL_DEADLINE_RATIO = 2 / 3


class KubernetesLease:
    """`Lease` of one instance. `renew` and `release` block, and are for one thread at a time.

    Args:
        cluster: the API server.
        namespace, name: of the Lease, which is made where it is missing.
        holder: this instance's name, unique.
        duration_s: how long a claim holds without renewal, a whole number of seconds at least.
    """

    def __init__(self, cluster: Cluster, namespace: str, name: str, holder: str, duration_s: float) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.holder, self._duration_s = holder, max(1, math.ceil(duration_s))
        self._renewed_at_s: float | None = None
        self._seen: tuple[object, float] = (None, -math.inf)
        self._frozen = ""
        self._fence = ""

    def held(self, now_s: float) -> bool:
        """Whether this instance may still write at `now_s`, with the renewal deadline already counted."""
        if self._renewed_at_s is None:
            return False
        return -1 <= now_s - self._renewed_at_s < self._duration_s * RENEWAL_DEADLINE_RATIO

    def frozen(self) -> str:
        """Why nothing may be done, as an annotation on the Lease says; empty where something may."""
        return self._frozen

    def fence(self) -> str:
        """`<uid of the Lease>/<how often it had changed hands when this instance took it>`."""
        return self._fence

    def renew(self, now_s: float) -> bool:
        """Take or renew the lease. False where another holds it or the API server does not answer."""
        try:
            lease = self._read()
            note = (lease["metadata"].get("annotations") or {}).get(FREEZE)
            self._frozen = "" if note is None else f"frozen by the Lease {self._namespace}/{self._name}: {note or '-'}"
            if not self._may_take(lease, now_s):
                self._renewed_at_s = None
                return False
            self._write(lease, now_s)
        except ConflictedError:
            self._renewed_at_s = None  # somebody was quicker
            return False
        except (TemporaryError, PermanentError) as error:
            _log.warning("the Lease %s/%s is not renewed: %s", self._namespace, self._name, error)
            return False
        self._renewed_at_s = now_s
        return True

    def release(self) -> None:
        """Give it back at once, so that a successor need not wait. What fails here ends by itself."""
        held, self._renewed_at_s = self._renewed_at_s is not None, None
        if not held:
            return
        try:
            lease = self._read()
            if lease["spec"].get("holderIdentity") == self.holder:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._cluster.now("PUT", f"{self._collection}/{self._name}", lease)
        except (TemporaryError, PermanentError) as error:
            _log.warning("the Lease %s/%s is not given back: %s", self._namespace, self._name, error)

    def _read(self) -> Json:
        try:
            return {"spec": {}, **self._cluster.now("GET", f"{self._collection}/{self._name}")}
        except GoneError:
            meta = {"name": self._name, "namespace": self._namespace}
            return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}

    def _may_take(self, lease: Json, now_s: float) -> bool:
        spec = lease["spec"]
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self.holder):
            return True
        claim = (holder, spec.get("renewTime"))
        if self._seen[0] != claim:
            self._seen = claim, now_s
        return now_s - self._seen[1] > float(spec.get("leaseDurationSeconds", self._duration_s))

    def _write(self, lease: Json, now_s: float) -> None:
        spec, at = lease["spec"], _micro_time(now_s)
        if spec.get("holderIdentity") != self.holder:
            spec["leaseTransitions"] = spec.get("leaseTransitions", 0) + 1
            spec["acquireTime"] = at
        spec |= {"holderIdentity": self.holder, "leaseDurationSeconds": self._duration_s, "renewTime": at}
        exists = "resourceVersion" in lease["metadata"]
        path = f"{self._collection}/{self._name}" if exists else self._collection
        written = self._cluster.now("PUT" if exists else "POST", path, lease)
        self._fence = f"{written['metadata']['uid']}/{written['spec']['leaseTransitions']}"


def _micro_time(at_s: float) -> str:
    return datetime.datetime.fromtimestamp(at_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
