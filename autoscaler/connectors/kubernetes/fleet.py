"""`FleetActuator` over a cluster: replicas are pods, groups are objects with a `scale` subresource.

It reads from watches and writes only what changes something. Who else acts on a target is seen and left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

from autoscaler.connectors.kubernetes import readings
from autoscaler.connectors.kubernetes.cluster import (
    FIELD_MANAGER,
    MERGE,
    STRATEGIC,
    Cluster,
    ConflictedError,
    GoneError,
    Json,
    autoscalers,
    budgets,
    pod_path,
)
from autoscaler.connectors.kubernetes.hot_groups import MADE, HotTemplate
from autoscaler.connectors.kubernetes.made_groups import MadeGroups
from autoscaler.connectors.kubernetes.readings import (
    ACCEPT,
    DELETION_COST,
    DRAINING,
    GROUP,
    SLOT,
    TENANT,
    VICTIM_COST,
    labels,
    notes_on,
)
from autoscaler.connectors.kubernetes.targets import CountMemory, FollowedTarget, GroupTarget
from autoscaler.connectors.kubernetes.watch import Watched
from autoscaler.domain.decisions import (
    Applied,
    AssignSlot,
    Drain,
    Failed,
    Grow,
    OpenGate,
    Outcome,
    PlatformEffect,
    Renew,
    Shrink,
    Skipped,
    Undrain,
)
from autoscaler.domain.fleet import Group, PauseMode, Replica
from autoscaler.ports import PermanentError, TemporaryError

_ATTEMPTS = 4
_PAYS_DELETION_COST = frozenset({"Deployment", "ReplicaSet"})


class KubernetesFleet:
    """One fleet's pods and targets.

    Args:
        cluster: the API server.
        targets: the fleet's targets, now; they follow the policy.
        memory: which counts were ours.
        port: the engines' port; None: the pod's port `http`, else its first.
        template: what hot groups are made of, now; None: they are declared, or there are none.
        leaving: called, by another thread, when somebody else begins to take a pod away: routers must hear of it soon.
    """

    def __init__(
        self,
        cluster: Cluster,
        targets: Callable[[], tuple[GroupTarget, ...]],
        memory: CountMemory,
        port: int | None,
        template: Callable[[], HotTemplate | None] = lambda: None,
        leaving: Callable[[], None] = lambda: None,
    ) -> None:
        self._leaving = leaving
        self._made = MadeGroups(cluster, template, memory)
        self._budgets: dict[str, Watched] = {}
        self._cluster, self._targets, self._memory, self._port = cluster, targets, memory, port
        self._followed: dict[GroupTarget, FollowedTarget] = {}
        self._autoscalers: dict[str, Watched] = {}
        self._first_counts: dict[str, int] = {}
        self._refreshing = asyncio.Lock()

    async def replicas(self) -> tuple[Replica, ...]:
        """Pods that have not ended, ascending by name. Raises TemporaryError."""
        await self._refresh()
        found = [
            r for f in self._held()
            for r in readings.replicas_of(f.pods().values(), f.group, f.wanted, self._port)
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda r: r.id))

    async def groups(self) -> dict[str, Group]:
        """The policy's groups, and the hot ones that were given to declared targets. Raises TemporaryError."""
        await self._refresh()
        late = self._made.outdated(self._object)
        return {f.group: self._group(f, outdated=f.group == late) for f in self._held()}

    async def apply(self, effect: PlatformEffect) -> Outcome:
        """Do one effect. Raises TemporaryError, PermanentError."""
        match effect:
            case Grow():
                return await self._grow(effect)
            case Shrink():
                return await self._shrink(effect)
            case Renew(group=group):
                return await self._made.renew(self._object, group)
        found = self._pod(effect.replica)
        if found is None:
            return Failed(f"there is no pod {effect.replica}: it ended, or never was")
        followed, pod = found
        match effect:
            case AssignSlot(slot=slot):
                return await self._assign(followed, pod, slot)
            case OpenGate(resident=resident):
                return await self._open(followed, pod, resident)
            case Drain():
                return await self._mark(followed, pod, {"annotations": {DRAINING: "true"}})
            case Undrain():
                return await self._mark(followed, pod, {"annotations": {DRAINING: None}})

    async def detach(self) -> tuple[str, ...]:
        """Open every gate and take every label and annotation of ours off pods and declared targets.

        Deployments that were made for hot groups stay, since routers send to them.
        """
        await self._refresh()
        opened = cleaned = freed = made = 0
        for followed in self._followed.values():
            for pod in followed.pods().values():
                if readings.gated(pod):
                    opened += isinstance(await self._open(followed, pod, resident=False), Applied)
                marks = readings.marks(pod)
                if marks:
                    cleaned += isinstance(await self._mark(followed, pod, marks), Applied)
            found = followed.found
            if found is not None and MADE in labels(found):
                made += 1
            else:
                freed += await self._free(followed)
        told = {
            "opened the gates of {} pods": opened,
            "removed labels and annotations from {} pods": cleaned,
            "removed annotations from {} declared targets": freed,
            "left {} Deployments of hot groups, to be deleted once nobody sends to them": made,
        }
        return tuple(text.format(count) for text, count in told.items() if count)

    def reference(self, group: str) -> Json | None:
        """The object that holds a group's count, as Events name it; None where there is none."""
        for followed in self._held():
            found = followed.found
            if followed.group == group and found is not None:
                target, meta = followed.target, found["metadata"]
                where = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
                return {"apiVersion": target.api_version, "kind": target.kind, **where}
        return None

    def close(self) -> None:
        """End every watch."""
        for followed in self._followed.values():
            followed.close()
        for watched in (*self._autoscalers.values(), *self._budgets.values()):
            watched.close()
        self._made.close()

    # What there is

    async def _refresh(self) -> None:
        async with self._refreshing:
            wanted = (*self._targets(), *await self._made.targets())
            for gone in [t for t in self._followed if t not in wanted]:
                await asyncio.to_thread(self._followed.pop(gone).close)
            for target in wanted:
                self._followed.setdefault(target, FollowedTarget(self._cluster, target, self._leaving))
                for known, path in (
                    (self._autoscalers, autoscalers(target.namespace)), (self._budgets, budgets(target.namespace)),
                ):  # fmt: skip
                    if path not in known:
                        known[path] = Watched(self._cluster, path)
                        await asyncio.to_thread(known[path].first)
            await asyncio.gather(*(f.refresh() for f in self._followed.values()))

    def _held(self) -> Iterable[FollowedTarget]:
        return (f for f in self._followed.values() if f.group)

    def _object(self, target: GroupTarget) -> Json | None:
        return next((f.found for f in self._followed.values() if f.target == target), None)

    def _pod(self, name: str) -> tuple[FollowedTarget, Json] | None:
        return next(((f, p) for f in self._followed.values() if (p := f.pods().get(name)) is not None), None)

    def _group(self, followed: FollowedTarget, *, outdated: bool) -> Group:
        target = followed.target
        why = followed.missing_kind or readings.blocked(followed.found, target.kind, str(target))
        keeps = self._keeps(followed)
        return Group(
            followed.group, target.tier, followed.wanted, followed.tenant,
            pause=PauseMode.SCALE_IN if keeps else PauseMode.NONE, pause_reason=keeps,
            foreign_actor=self._foreign(followed), blocked=why, outdated=outdated,
        )  # fmt: skip

    def _keeps(self, followed: FollowedTarget) -> str:
        """Why no pod may be taken now: a budget that is used up, or pods that somebody else is taking away."""
        held = followed.pods().values()
        going = sum(readings.taken_by_others(p) for p in held)
        if going:
            return f"somebody else takes {going} of its pods away"
        try:
            found = self._budgets[budgets(followed.target.namespace)].objects().values()
        except PermanentError:
            return ""  # without the right to see them they are the evictions' business alone
        return readings.budget_used_up(found, held)

    def _foreign(self, followed: FollowedTarget) -> str:
        """Who else acts on its count: an autoscaler, or whoever changed it since we did, until it is handed back."""
        target, found = followed.target, followed.found
        if found is None:
            return ""
        autoscaler = readings.scaled_by(self._autoscalers_of(target), target.api_version, target.kind, target.name)
        if autoscaler:
            return autoscaler
        first = self._first_counts.setdefault(str(target), followed.wanted)
        ours = self._memory.counts().get(str(target), first)
        owner = readings.count_owner(found)
        accepted = notes_on(found).get(ACCEPT) == str(followed.wanted)
        return "" if followed.wanted == ours or accepted or owner == FIELD_MANAGER else owner

    def _autoscalers_of(self, target: GroupTarget) -> Iterable[Json]:
        try:
            return self._autoscalers[autoscalers(target.namespace)].objects().values()
        except PermanentError:
            return ()  # without the right to see them, what they do is still seen by the count

    # Counts

    async def _grow(self, effect: Grow) -> Outcome:
        followed = await self._holder(effect)
        if not isinstance(followed, FollowedTarget):
            return followed

        def grown(now: int) -> int | Outcome:
            return effect.replicas if now < effect.replicas else Skipped(f"{followed.target} has {now} already")

        return await self._scale(followed, grown)

    async def _holder(self, effect: Grow) -> FollowedTarget | Outcome:
        """The group's target; for a hot group without one, a new one or the first declared target that is free."""
        for followed in self._held():
            if followed.group == effect.group:
                return followed
        for followed in self._followed.values():
            if (
                followed.target.group
                or followed.group
                or readings.blocked(followed.found, followed.target.kind, "")
                or followed.wanted
            ):
                continue
            given = {"metadata": {"annotations": {GROUP: effect.group, TENANT: effect.tenant}}}
            await self._cluster.call("PATCH", followed.path, given, MERGE)
            return followed
        return await self._made.make(self._object, effect)

    async def _shrink(self, effect: Shrink) -> Outcome:
        followed = next((f for f in self._held() if f.group == effect.group), None)
        if followed is None:
            return Applied(f"there is no group {effect.group}")
        refused = self._refused_victims(followed, effect)
        if refused is not None:
            return refused
        for name in effect.victims:
            pod = followed.pods().get(name)
            if pod is not None:
                await self._mark(followed, pod, {"annotations": {DELETION_COST: VICTIM_COST}})
        expected = effect.replicas + len(effect.victims)

        def shrunk(now: int) -> int | Outcome:
            if now <= effect.replicas:
                return Applied(f"{followed.target} has {now} already")
            if now != expected and not effect.remove:
                return Skipped(f"{followed.target} was changed from {expected} to {now} meanwhile")
            return effect.replicas

        outcome = await self._scale(followed, shrunk)
        if effect.remove and isinstance(outcome, Applied):
            await self._free(followed)
        return outcome

    def _refused_victims(self, followed: FollowedTarget, effect: Shrink) -> Outcome | None:
        """Only Deployments and ReplicaSets let one choose who goes; others take the highest ordinals."""
        if followed.target.kind in _PAYS_DELETION_COST or effect.replicas == 0:
            return None
        ordinals = {name: int(last) for name in followed.pods() if (last := name.rpartition("-")[2]).isdecimal()}
        last_ones = sorted(ordinals, key=lambda name: ordinals[name])[effect.replicas :]
        if set(effect.victims) == set(last_ones):
            return None
        return Failed(
            f"{followed.target} removes {', '.join(last_ones)} when it shrinks, not {', '.join(effect.victims)}; "
            "a Deployment lets the controller choose, or shrink it by hand"
        )

    async def _scale(self, followed: FollowedTarget, decide: Callable[[int], int | Outcome]) -> Outcome:
        """Set the count that `decide` makes of the fresh one; over a conflict the count is read and judged anew."""
        path = f"{followed.path}/scale"
        for _ in range(_ATTEMPTS):
            scale = await self._cluster.call("GET", path)
            now = int(scale["spec"].get("replicas", 0))
            decided = decide(now)
            if not isinstance(decided, int):
                return decided
            scale["spec"]["replicas"] = decided
            try:
                followed.take(await self._cluster.call("PUT", path, scale))
            except ConflictedError:
                continue
            await self._memory.remember(str(followed.target), decided)
            return Applied(f"{followed.target}: {now} -> {decided}")
        raise TemporaryError(f"{followed.target} changes faster than its count can be set")

    async def _free(self, followed: FollowedTarget) -> int:
        """Take our annotations off a declared target; delete one that we made."""
        found = followed.found
        if found is None or followed.target.group or GROUP not in notes_on(found):
            return 0
        if MADE in labels(found):
            only = {"preconditions": {"uid": found["metadata"]["uid"]}, "propagationPolicy": "Background"}
            with contextlib.suppress(GoneError):
                await self._cluster.call("DELETE", followed.path, only)
            return 0
        await self._cluster.call(
            "PATCH", followed.path, {"metadata": {"annotations": {GROUP: None, TENANT: None}}}, MERGE
        )
        return 1

    # Pods

    async def _assign(self, followed: FollowedTarget, pod: Json, slot: str) -> Outcome:
        """Label it; the pod whose place it takes is the one that a rolling update should remove next."""
        outcome = await self._mark(followed, pod, {"labels": {SLOT: slot}})
        for other in followed.pods().values():
            if labels(other).get(SLOT) == slot and other["metadata"]["uid"] != pod["metadata"]["uid"]:
                await self._mark(followed, other, {"annotations": {DELETION_COST: VICTIM_COST}})
        return outcome

    async def _mark(
        self, followed: FollowedTarget, pod: Json, marks: Mapping[str, Mapping[str, str | None]]
    ) -> Outcome:
        """Set labels and annotations, or remove those that are None; no call where nothing changes."""
        meta = pod["metadata"]
        if all((meta.get(part) or {}).get(k) == v for part, wanted in marks.items() for k, v in wanted.items()):
            return Applied("so already")
        body = {"metadata": {"uid": meta["uid"], **marks}}  # so that a namesake is not meant
        return await self._patch(followed, pod_path(pod), body, MERGE)

    async def _open(self, followed: FollowedTarget, pod: Json, resident: bool) -> Outcome:
        if not readings.gated(pod):
            return Applied("open already")
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [readings.opened(resident)]}}
        return await self._patch(followed, f"{pod_path(pod)}/status", body, STRATEGIC)

    async def _patch(self, followed: FollowedTarget, path: str, body: Json, content_type: str) -> Outcome:
        try:
            followed.pod_seen(await self._cluster.call("PATCH", path, body, content_type))
        except (GoneError, ConflictedError) as error:
            return Skipped(f"the pod is gone: {error}")
        return Applied()
