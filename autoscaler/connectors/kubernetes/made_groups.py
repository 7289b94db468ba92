"""Hot groups that are made: Deployments found by what they say of themselves, made, and kept to the warm template."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from autoscaler.connectors.kubernetes import readings
from autoscaler.connectors.kubernetes.cluster import Cluster, ConflictedError, Json, deployments
from autoscaler.connectors.kubernetes.hot_groups import MADE, MADE_FROM, HotTemplate
from autoscaler.connectors.kubernetes.readings import GROUP, TENANT, notes_on
from autoscaler.connectors.kubernetes.targets import CountMemory, GroupTarget
from autoscaler.connectors.kubernetes.watch import Watched
from autoscaler.domain.decisions import Applied, Failed, Grow, Outcome, Skipped
from autoscaler.domain.fleet import Tier
from autoscaler.ports import PermanentError, TemporaryError

_log = logging.getLogger(__name__)


class MadeGroups:
    """The Deployments of one fleet that this controller, or an earlier instance of it, has made.

    Args:
        cluster: the API server.
        template: what they are made of, now; None: none are made.
        memory: which counts were ours.
    """

    def __init__(self, cluster: Cluster, template: Callable[[], HotTemplate | None], memory: CountMemory) -> None:
        self._cluster, self._template, self._memory = cluster, template, memory
        self._watched: Watched | None = None
        self._seen = False

    async def targets(self) -> list[GroupTarget]:
        """One for each that is not being deleted. Raises TemporaryError."""
        template = self._template()
        if template is None:
            return []
        if self._watched is None:
            path = deployments(template.warm.namespace)
            self._watched = Watched(self._cluster, path, labelSelector=f"{MADE}={template.fleet}")
            await asyncio.to_thread(self._watched.first)
        try:
            found = self._watched.objects()
        except PermanentError as error:
            if self._seen:
                raise TemporaryError(str(error)) from error
            return []  # who may not see any has made none
        self._seen = True
        names = (made["metadata"]["name"] for made in _staying(found))
        return [GroupTarget("apps/v1", "Deployment", template.warm.namespace, name, Tier.HOT) for name in names]

    async def make(self, warm: Callable[[GroupTarget], Json | None], effect: Grow) -> Outcome:
        """Make a group's Deployment; one of that name that is there already is somebody's, or is still going."""
        template = self._template()
        if template is None:
            return Failed(
                f"no target is free for group {effect.group}: declare more under `groups.hot.targets`, at 0 replicas"
            )
        found = warm(template.warm)
        if found is None:
            return Failed(f"{template.warm}, whose template is to be copied, does not exist", retry_after_s=0.0)
        body = template.deployment(found, effect.group, effect.tenant, effect.replicas)
        if isinstance(body, Failed):
            return body
        name = body["metadata"]["name"]
        try:
            made = await self._cluster.call("POST", deployments(template.warm.namespace), body)
        except ConflictedError:
            return Failed(f"there is a Deployment {name} already: it is not ours, or still going", retry_after_s=0.0)
        self._take(made)
        target = GroupTarget("apps/v1", "Deployment", template.warm.namespace, name, Tier.HOT)
        await self._memory.remember(str(target), effect.replicas)
        return Applied(f"made {target} with {effect.replicas} replicas")

    def outdated(self, warm: Callable[[GroupTarget], Json | None]) -> str:
        """The group to be brought up to the template next, empty where none is.

        One at a time, and only once the warm group's own rollout has ended well: a template that does not work
        reaches no hot tenant, and one replica more than usual is all that it takes.
        """
        template = self._template()
        found = None if template is None else warm(template.warm)
        if template is None or found is None or not readings.rolled_out(found, template.warm.kind):
            return ""
        rolling = [made for made in self._held() if not readings.rolled_out(made, "Deployment")]
        for made in rolling or self._held():  # one that is stuck half-way may follow what mends it
            wanted = _anew(template, found, made)
            if wanted is not None and notes_on(wanted)[MADE_FROM] != notes_on(made).get(MADE_FROM):
                return notes_on(made).get(GROUP, "")
        return ""

    async def renew(self, warm: Callable[[GroupTarget], Json | None], group: str) -> Outcome:
        """Give a group's Deployment the template of now; its count stays, and its own strategy rolls it out.

        Raises TemporaryError, PermanentError.
        """
        template = self._template()
        found = None if template is None else warm(template.warm)
        made = next((m for m in self._held() if notes_on(m).get(GROUP) == group), None)
        wanted = None if template is None or found is None or made is None else _anew(template, found, made)
        if made is None or wanted is None:
            return Skipped(f"{group} has no template to follow")
        if notes_on(wanted)[MADE_FROM] == notes_on(made).get(MADE_FROM):
            return Applied("so already")
        notes = {**notes_on(made), MADE_FROM: notes_on(wanted)[MADE_FROM]}
        spec = {**made["spec"], **{k: v for k, v in wanted["spec"].items() if k not in ("replicas", "selector")}}
        body = {**made, "metadata": {**made["metadata"], "annotations": notes}, "spec": spec}
        path = f"{deployments(made['metadata']['namespace'])}/{made['metadata']['name']}"
        self._take(await self._cluster.call("PUT", path, body))
        _log.info("group %s is made anew, as its template has changed", group)
        return Applied(f"Deployment {made['metadata']['name']} is given the template of now")

    def close(self) -> None:
        """End the watch."""
        if self._watched is not None:
            self._watched.close()

    def _held(self) -> list[Json]:
        """Those that are not being deleted, ascending by name; none for who may not see any. Raises TemporaryError."""
        try:
            found = {} if self._watched is None else self._watched.objects()
        except PermanentError:
            return []
        return _staying(found)

    def _take(self, made: Json) -> None:
        if self._watched is not None:
            self._watched.seen(made)


def _staying(found: dict[str, Json]) -> list[Json]:
    return [made for _, made in sorted(found.items()) if not made["metadata"].get("deletionTimestamp")]


def _anew(template: HotTemplate, warm: Json, made: Json) -> Json | None:
    """What the Deployment would be if it were made now; None where it could not be, and stays as it is."""
    notes = notes_on(made)
    body = template.deployment(warm, notes.get(GROUP, ""), notes.get(TENANT, ""), made["spec"].get("replicas", 0))
    return None if isinstance(body, Failed) else body
