"""Bearer tokens that all instances share: the chart makes an empty Secret, and whoever starts first fills it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

from autoscaler.connectors.kubernetes.cluster import Cluster, ConflictedError, GoneError, RefusedError

_ATTEMPTS = 4


def shared_tokens(
    cluster: Cluster, namespace: str, name: str, roles: Iterable[str], make: Callable[[], str]
) -> dict[str, str] | None:
    """Role -> its token, kept in the Secret `name`; those that are missing are made. Blocks.

    None where there is no such Secret, or this account may not use it. Raises TemporaryError, PermanentError.
    """
    path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
    for _ in range(_ATTEMPTS):
        try:
            found = cluster.now("GET", path)
            data = found.get("data") or {}
            missing = [role for role in roles if not data.get(role)]
            if missing:
                made = {role: base64.b64encode(make().encode()).decode() for role in missing}
                data = cluster.now("PUT", path, {**found, "data": {**data, **made}})["data"]
            return {role: base64.b64decode(data[role]).decode().strip() for role in roles}
        except ConflictedError:
            continue  # another instance has made them meanwhile
        except (GoneError, RefusedError):
            return None
    return None
