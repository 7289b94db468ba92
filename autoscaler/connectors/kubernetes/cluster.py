"""The API server, as JSON: the official client's configuration, credentials and connections, in worker threads.

Any kind with a `scale` subresource can be a target, so calls are made by path and not by the client's typed classes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

from autoscaler.ports import PermanentError, TemporaryError

Json = dict[str, Any]
Query = Mapping[str, str | int]
FIELD_MANAGER = "lora-autoscaler"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_CONNECT_S, _READ_S = 2.0, 10.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class GoneError(PermanentError):
    """404: the object, or its kind, is not there."""


class RefusedError(PermanentError):
    """401 or 403: this account may not do it."""


class ConflictedError(TemporaryError):
    """409: somebody changed the object since it was read; read it anew."""


class ExpiredError(TemporaryError):
    """410: the resource version is too old to watch from; list anew."""


class Cluster:
    """One API server, as one account.

    Args:
        kubeconfig: a file; None: the pod's own service account, else the default kubeconfig.

    Raises:
        PermanentError: there is no usable configuration.
    """

    def __init__(self, kubeconfig: Path | None = None) -> None:
        settings, loading = client.Configuration(), cast("Any", config)
        try:
            if kubeconfig is None and _NAMESPACE_FILE.exists():
                loading.load_incluster_config(client_configuration=settings)
                self.namespace = _NAMESPACE_FILE.read_text().strip()
            else:
                file = None if kubeconfig is None else str(kubeconfig)
                loading.load_kube_config(config_file=file, client_configuration=settings)
                _, active = loading.list_kube_config_contexts(config_file=file)
                self.namespace = active["context"].get("namespace") or "default"
        except (config.ConfigException, OSError) as error:
            raise PermanentError(
                f"the cluster cannot be reached: {error}; run in a pod with a service account, or name a kubeconfig in "
                "the settings (`kubernetes.kubeconfig`)"
            ) from error
        settings.connection_pool_maxsize = 32
        self._settings = settings
        self._api: Any = client.ApiClient(settings)
        self._plurals: dict[tuple[str, str], str] = {}

    def open(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        content_type: str = JSON,
        query: Query | None = None,
        read_s: float = _READ_S,
    ) -> urllib3.BaseHTTPResponse:
        """Make a call and give the open answer; blocks. Raises as `call` does."""
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        if body is not None:
            headers["Content-Type"] = content_type
            query = {"fieldManager": FIELD_MANAGER, **(query or {})}
        credentials: Mapping[str, Any] = self._settings.auth_settings()
        headers |= {c["key"]: c["value"] for c in credentials.values() if c["in"] == "header"}
        url = f"{self._settings.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer: urllib3.BaseHTTPResponse = self._api.rest_client.pool_manager.request(
                method, url, headers=headers, body=None if body is None else json.dumps(body).encode(),
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=read_s), retries=False, preload_content=False,
            )  # fmt: skip
            if answer.status >= 300:
                raise _refusal(method, path, answer.status, answer.read())
        except urllib3.exceptions.HTTPError as error:
            raise TemporaryError(f"the API server does not answer {method} {path}: {error}") from error
        return answer

    def now(
        self, method: str, path: str, body: Json | None = None, content_type: str = JSON, query: Query | None = None
    ) -> Json:
        """Make a call and wait for its answer, blocking this thread. Raises as `call` does."""
        answer = self.open(method, path, body, content_type, query)
        try:
            found: Json = json.loads(answer.read())
            return found
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise TemporaryError(f"the API server's answer to {method} {path} ended early: {error}") from error
        finally:
            answer.release_conn()

    async def call(
        self, method: str, path: str, body: Json | None = None, content_type: str = JSON, query: Query | None = None
    ) -> Json:
        """The answer to a call.

        Raises:
            GoneError, RefusedError, PermanentError: trying again cannot help.
            ConflictedError, ExpiredError, TemporaryError: it may.
        """
        return await asyncio.to_thread(self.now, method, path, body, content_type, query)

    async def collection(self, api_version: str, kind: str, namespace: str) -> str:
        """The path of a kind's objects in a namespace. Raises GoneError where the server has no such kind."""
        if (api_version, kind) not in self._plurals:
            found = await self.call("GET", _root(api_version))
            names = [r["name"] for r in found["resources"] if r["kind"] == kind and "/" not in r["name"]]
            if not names:
                raise GoneError(f"the cluster has no kind {kind} in {api_version}: is its operator installed?")
            self._plurals[api_version, kind] = names[0]
        return f"{_root(api_version)}/namespaces/{namespace}/{self._plurals[api_version, kind]}"

    def close(self) -> None:
        """Close idle connections."""
        self._api.rest_client.pool_manager.clear()


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def pods(namespace: str) -> str:
    """The path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod_path(pod: Json) -> str:
    """The path of a pod."""
    return f"{pods(pod['metadata']['namespace'])}/{pod['metadata']['name']}"


def config_maps(namespace: str) -> str:
    """The path of a namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def deployments(namespace: str) -> str:
    """The path of a namespace's Deployments."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


def autoscalers(namespace: str) -> str:
    """The path of a namespace's HorizontalPodAutoscalers."""
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"


def budgets(namespace: str) -> str:
    """The path of a namespace's PodDisruptionBudgets."""
    return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"


def _refusal(method: str, path: str, status: int, body: bytes) -> TemporaryError | PermanentError:
    try:
        said = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        said = body.decode(errors="replace")[:200]
    text = f"{method} {path} is answered {status}: {said}"
    if status in (401, 403):
        return RefusedError(f"{text}; give the account that right (the chart's `rbac` values name each), or do without")
    kinds: dict[int, type[TemporaryError | PermanentError]] = {404: GoneError, 409: ConflictedError, 410: ExpiredError}
    if status in kinds:
        return kinds[status](text)
    return TemporaryError(text) if status == 429 or status >= 500 else PermanentError(text)
