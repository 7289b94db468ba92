"""Who asks our API, by the cluster: a TokenReview says whose a token is, SubjectAccessReviews what he may.

The rights are on `fleets.lora-autoscaler.io` in the controller's namespace, a resource that exists for RBAC alone:
`get` reads, `update` commands; with `resourceNames` for some fleets only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.connectors.kubernetes.cluster import Cluster, Json

AUDIENCE = "lora-autoscaler"
"""A token for us alone: `kubectl create token NAME --audience lora-autoscaler`."""
_REMEMBERED_S = 10.0
_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose a token is. `reads` and `commands`: the fleets; None = all."""

    name: str
    reads: frozenset[str] | None
    commands: frozenset[str] | None


class ClusterAccess:
    """Asks the API server, and remembers its answers for 10 s: so long a right that was taken away may still hold."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._known: dict[bytes, tuple[float, Caller | None]] = {}

    async def caller(self, token: str, fleets: Iterable[str]) -> Caller | None:
        """Whose the token is and what he may with `fleets`; None for nobody's.

        Raises TemporaryError, PermanentError.
        """
        names = sorted(fleets)
        key, now_s = hashlib.sha256("\n".join((token, *names)).encode()).digest(), time.monotonic()
        known = self._known.get(key)
        if known is None or now_s - known[0] > _REMEMBERED_S:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            known = self._known[key] = now_s, await self._ask(token, names)
        return known[1]

    async def _ask(self, token: str, fleets: list[str]) -> Caller | None:
        user = await self._review(token)
        if user is None:
            return None
        commands = await self._fleets(user, "update", fleets)
        return Caller(
            user["username"], commands if commands is None else await self._fleets(user, "get", fleets), commands
        )

    async def _review(self, token: str) -> Json | None:
        """The user, by our own audience or else by the API server's; a token for somebody else is nobody's here."""
        for audiences in ([AUDIENCE], None):
            spec = {"token": token} | ({"audiences": audiences} if audiences else {})
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
            status = (await self._cluster.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body))["status"]
            if status.get("authenticated"):
                user: Json = status["user"]
                return user
        return None

    async def _fleets(self, user: Json, verb: str, fleets: list[str]) -> frozenset[str] | None:
        """The fleets that a user may do `verb` to; None: all, those to come included."""
        if await self._may(user, verb, ""):
            return None
        return frozenset([name for name in fleets if await self._may(user, verb, name)])

    async def _may(self, user: Json, verb: str, fleet: str) -> bool:
        attributes = {
            "namespace": self._namespace, "group": "lora-autoscaler.io", "resource": "fleets", "verb": verb,
            "name": fleet,
        }  # fmt: skip
        spec = {"resourceAttributes": attributes, "user": user["username"], "groups": user.get("groups") or []}
        spec |= {"uid": user.get("uid", ""), "extra": user.get("extra") or {}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool((await self._cluster.call("POST", path, body))["status"].get("allowed"))
