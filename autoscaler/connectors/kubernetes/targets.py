"""What holds a group's replica count, followed by watches: the target, its `scale`, and the pods that it selects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from autoscaler.connectors.kubernetes.cluster import Cluster, GoneError, Json, pods
from autoscaler.connectors.kubernetes.readings import GROUP, TENANT, notes_on, taken_by_others
from autoscaler.connectors.kubernetes.watch import Watched
from autoscaler.domain.fleet import Tier
from autoscaler.ports import PermanentError, TemporaryError


@dataclass(frozen=True, slots=True)
class GroupTarget:
    """An object with a `scale` subresource.

    Attributes:
        group: the group that it holds; empty: a declared one, which holds whichever hot group it is given to.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    tier: Tier
    group: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class CountMemory(Protocol):
    """The counts that this controller set last, by target; they outlive the process."""

    def counts(self) -> Mapping[str, int]:
        """Target -> count. Raises TemporaryError."""
        ...

    async def remember(self, target: str, count: int) -> None:
        """Keep one. Raises TemporaryError, PermanentError."""
        ...


class FollowedTarget:
    """One target as its watches show it. Its `scale` is read again only when the target has changed."""

    def __init__(self, cluster: Cluster, target: GroupTarget, leaving: Callable[[], None] = lambda: None) -> None:
        """`leaving` is called, by another thread, when somebody else begins to take a pod away."""
        self.target = target
        self._leaving = leaving
        self.missing_kind = ""
        self._cluster = cluster
        self._path = ""
        self._target: Watched | None = None
        self._pods: Watched | None = None
        self._selector = ""
        self._scale: Json | None = None
        self._scale_of = ""

    @property
    def path(self) -> str:
        """Of the object, empty before the first refresh."""
        return self._path

    @property
    def found(self) -> Json | None:
        """The object as the watch shows it, None where it does not exist. Raises TemporaryError."""
        return None if self._target is None else _objects(self._target).get(self.target.name)

    @property
    def group(self) -> str:
        """The group that it holds, empty where it is free."""
        found = self.found
        return self.target.group or ("" if found is None else notes_on(found).get(GROUP, ""))

    @property
    def tenant(self) -> str:
        """The tenant of the hot group that it was given to."""
        found = self.found
        return "" if found is None or self.target.group else notes_on(found).get(TENANT, "")

    @property
    def wanted(self) -> int:
        """The count in its spec, as of the last refresh."""
        return 0 if self._scale is None else int(self._scale["spec"].get("replicas", 0))

    def pods(self) -> dict[str, Json]:
        """Its pods by name. Raises TemporaryError."""
        return {} if self._pods is None else _objects(self._pods)

    def pod_seen(self, pod: Json) -> None:
        """Take in what a patch of ours has answered."""
        if self._pods is not None:
            self._pods.seen(pod)

    async def refresh(self) -> None:
        """Follow it, if not yet; read its scale if it has changed; follow its pods. Raises TemporaryError."""
        if self._target is None:
            await self._start()
        found = self.found
        if found is None:
            self._scale, self._scale_of = None, ""
            return
        if found["metadata"]["resourceVersion"] != self._scale_of:
            try:
                self.take(await self._cluster.call("GET", f"{self._path}/scale"))
            except GoneError:
                self._scale = None
                return
            except PermanentError as error:
                raise TemporaryError(str(error)) from error
            self._scale_of = found["metadata"]["resourceVersion"]
        await self._follow_pods()

    def take(self, scale: Json) -> None:
        """The scale as a call of ours has answered it; it is read again at the next refresh."""
        self._scale, self._scale_of = scale, ""

    def close(self) -> None:
        """End its watches."""
        for watched in (self._target, self._pods):
            if watched is not None:
                watched.close()

    async def _start(self) -> None:
        target = self.target
        try:
            collection = await self._cluster.collection(target.api_version, target.kind, target.namespace)
        except GoneError as error:
            self.missing_kind = str(error)
            return
        self.missing_kind = ""
        self._path = f"{collection}/{target.name}"
        self._target = Watched(self._cluster, collection, fieldSelector=f"metadata.name={target.name}")
        await asyncio.to_thread(self._target.first)

    async def _follow_pods(self) -> None:
        selector = "" if self._scale is None else self._scale.get("status", {}).get("selector", "")
        if not selector or selector == self._selector:
            return  # an empty selector would be every pod of the namespace
        before = self._pods
        self._pods = Watched(self._cluster, pods(self.target.namespace), told=self._look, labelSelector=selector)
        self._selector = selector
        await asyncio.to_thread(self._pods.first)
        if before is not None:
            before.close()

    def _look(self, before: Json | None, pod: Json) -> None:
        if taken_by_others(pod) and not (before is not None and taken_by_others(before)):
            self._leaving()


def _objects(watched: Watched) -> dict[str, Json]:
    """What a watch shows. What this account may not see may become visible with its next role: it is temporary here."""
    try:
        return watched.objects()
    except PermanentError as error:
        raise TemporaryError(str(error)) from error
