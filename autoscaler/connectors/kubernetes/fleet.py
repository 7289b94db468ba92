"""`FleetActuator` over a cluster: replicas are pods, groups are objects with a `scale` subresource.

It reads from watches and writes only what changes something. Who else acts on a target is seen and left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from autoscaler.connectors.kubernetes import readings
from autoscaler.connectors.kubernetes.cluster import (
    FIELD_MANAGER,
    MERGE,
    STRATEGIC,
    Cluster,
    ConflictedError,
    GoneError,
    Json,
    pods,
)
from autoscaler.connectors.kubernetes.readings import (
    ACCEPT,
    DELETION_COST,
    DRAINING,
    GATE,
    GROUP,
    SLOT,
    TENANT,
    VICTIM_COST,
    labels,
    notes_on,
)
from autoscaler.connectors.kubernetes.targets import FollowedTarget, GroupTarget
from autoscaler.connectors.kubernetes.watch import Watched
from autoscaler.domain.decisions import (
    Applied,
    AssignSlot,
    Drain,
    Failed,
    Grow,
    OpenGate,
    Outcome,
    Shrink,
    Skipped,
    Undrain,
)
from autoscaler.domain.fleet import Group, Replica
from autoscaler.ports import PermanentError, TemporaryError

Effect: TypeAlias = Grow | AssignSlot | OpenGate | Drain | Undrain | Shrink
_ATTEMPTS = 4
_PAYS_DELETION_COST = frozenset({"Deployment", "ReplicaSet"})


class CountMemory(Protocol):
    """The counts that this controller set last, by target; they outlive the process."""

    def counts(self) -> Mapping[str, int]:
        """Target -> count. Raises TemporaryError."""
        ...

    async def remember(self, target: str, count: int) -> None:
        """Keep one. Raises TemporaryError, PermanentError."""
        ...


class KubernetesFleet:
    """One fleet's pods and targets.

    Args:
        cluster: the API server.
        targets: the fleet's targets, now; they follow the policy.
        memory: which counts were ours.
        port: the engines' port; None: the pod's port `http`, else its first.
    """

    def __init__(
        self, cluster: Cluster, targets: Callable[[], tuple[GroupTarget, ...]], memory: CountMemory, port: int | None
    ) -> None:
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
        return {f.group: self._group(f) for f in self._held()}

    async def apply(self, effect: Effect) -> Outcome:
        """Do one effect. Raises TemporaryError, PermanentError."""
        match effect:
            case Grow():
                return await self._grow(effect)
            case Shrink():
                return await self._shrink(effect)
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
        """Open every gate and take every label and annotation of ours off pods and declared targets."""
        await self._refresh()
        opened = cleaned = freed = 0
        for followed in self._followed.values():
            for pod in followed.pods().values():
                if readings.gated(pod):
                    opened += isinstance(await self._open(followed, pod, resident=False), Applied)
                marks = _marks(pod)
                if marks:
                    cleaned += isinstance(await self._mark(followed, pod, marks), Applied)
            freed += await self._free(followed)
        told = {"opened the gates of {} pods": opened, "removed labels and annotations from {} pods": cleaned,
                "removed annotations from {} declared targets": freed}  # fmt: skip
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
        for watched in self._autoscalers.values():
            watched.close()

    # What there is

    async def _refresh(self) -> None:
        async with self._refreshing:
            wanted = self._targets()
            for gone in [t for t in self._followed if t not in wanted]:
                await asyncio.to_thread(self._followed.pop(gone).close)
            for target in wanted:
                self._followed.setdefault(target, FollowedTarget(self._cluster, target))
                path = f"/apis/autoscaling/v2/namespaces/{target.namespace}/horizontalpodautoscalers"
                if path not in self._autoscalers:
                    self._autoscalers[path] = Watched(self._cluster, path)
                    await asyncio.to_thread(self._autoscalers[path].first)
            await asyncio.gather(*(f.refresh() for f in self._followed.values()))

    def _held(self) -> Iterable[FollowedTarget]:
        return (f for f in self._followed.values() if f.group)

    def _pod(self, name: str) -> tuple[FollowedTarget, Json] | None:
        return next(((f, p) for f in self._followed.values() if (p := f.pods().get(name)) is not None), None)

    def _group(self, followed: FollowedTarget) -> Group:
        target = followed.target
        why = followed.missing_kind or readings.blocked(followed.found, target.kind, str(target))
        return Group(
            followed.group, target.tier, followed.wanted, followed.tenant,
            foreign_actor=self._foreign(followed), blocked=why,
        )  # fmt: skip

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
        path = f"/apis/autoscaling/v2/namespaces/{target.namespace}/horizontalpodautoscalers"
        try:
            return self._autoscalers[path].objects().values()
        except PermanentError:
            return ()  # without the right to see them, what they do is still seen by the count

    # Counts

    async def _grow(self, effect: Grow) -> Outcome:
        followed = await self._holder(effect)
        if isinstance(followed, Failed):
            return followed

        def grown(now: int) -> int | Outcome:
            return effect.replicas if now < effect.replicas else Skipped(f"{followed.target} has {now} already")

        return await self._scale(followed, grown)

    async def _holder(self, effect: Grow) -> FollowedTarget | Failed:
        """The group's target; for a hot group without one, the first declared target that is free."""
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
        return Failed(
            f"no target is free for group {effect.group}: declare more under `groups.hot.targets`, at 0 replicas"
        )

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
        """Take our annotations off a declared target."""
        found = followed.found
        if found is None or followed.target.group or GROUP not in notes_on(found):
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
        return await self._patch(followed, f"{_path(pod)}", body, MERGE)

    async def _open(self, followed: FollowedTarget, pod: Json, resident: bool) -> Outcome:
        if not readings.gated(pod):
            return Applied("open already")
        reason, text = ("AdaptersResident", "every adapter of its slot is resident") if resident else (
            "Opened", "opened before every adapter was resident: the deadline is over, or the fleet was detached"
        )  # fmt: skip
        condition = {"type": GATE, "status": "True", "reason": reason, "message": text}
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
        return await self._patch(followed, f"{_path(pod)}/status", body, STRATEGIC)

    async def _patch(self, followed: FollowedTarget, path: str, body: Json, content_type: str) -> Outcome:
        try:
            followed.pod_seen(await self._cluster.call("PATCH", path, body, content_type))
        except (GoneError, ConflictedError) as error:
            return Skipped(f"the pod is gone: {error}")
        return Applied()


def _path(pod: Json) -> str:
    return f"{pods(pod['metadata']['namespace'])}/{pod['metadata']['name']}"


def _marks(pod: Json) -> dict[str, dict[str, str | None]]:
    """What of ours is on a pod, as the patch that takes it off."""
    notes = notes_on(pod)
    gone: dict[str, str | None] = {DRAINING: None} if DRAINING in notes else {}
    if notes.get(DELETION_COST) == VICTIM_COST:
        gone[DELETION_COST] = None
    slot: dict[str, dict[str, str | None]] = {"labels": {SLOT: None}} if SLOT in labels(pod) else {}
    return {**slot, **({"annotations": gone} if gone else {})}
