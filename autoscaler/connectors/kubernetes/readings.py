"""What pods and targets say, as replicas and groups. Pure: an object as JSON in, a value of the domain out."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autoscaler.domain.fleet import EngineLimits, Replica, ReplicaState

Json = dict[str, Any]
PREFIX = "lora-autoscaler.io/"
GATE = f"{PREFIX}adapters-resident"
SLOT = f"{PREFIX}slot"
DRAINING = f"{PREFIX}draining"
ACCEPT = f"{PREFIX}accept-replicas"
GROUP = f"{PREFIX}group"
TENANT = f"{PREFIX}tenant"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
VICTIM_COST = "-2000000000"
"""Ours alone: what a person sets is not so low, so that `detach` can tell the two."""

_ENDED = ("Succeeded", "Failed")
_BROKEN = frozenset(
    {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError"}
)
_FLAGS = {
    "--max-loras": "max_loras", "--max-cpu-loras": "max_cpu_loras", "--max-lora-rank": "max_lora_rank",
    "--max-num-seqs": "max_num_seqs",
    "--max-loras-per-batch": "max_loras", "--max-loaded-loras": "max_cpu_loras",
    "--max-running-requests": "max_num_seqs",
}  # fmt: skip
"""Of vLLM and SGLang -> field of `EngineLimits`."""
_REVISIONS = ("pod-template-hash", "controller-revision-hash")


def labels(found: Json) -> dict[str, str]:
    """An object's labels."""
    return found["metadata"].get("labels") or {}


def notes_on(found: Json) -> dict[str, str]:
    """An object's annotations."""
    return found["metadata"].get("annotations") or {}


def replicas_of(pods: Iterable[Json], group: str, wanted: int, port: int | None) -> tuple[Replica, ...]:
    """A group's pods as replicas, ascending by id; those that have ended are gone. `wanted`: the target's count."""
    alive = [p for p in pods if p.get("status", {}).get("phase") not in _ENDED]
    heirs = replaced(alive, wanted)
    return tuple(
        dataclasses.replace(replica_of(p, group, port), replaces=heirs.get(p["metadata"]["name"], ""))
        for p in sorted(alive, key=lambda p: str(p["metadata"]["name"]))
    )


def replica_of(pod: Json, group: str, port: int | None) -> Replica:
    """One pod as a replica."""
    status = pod.get("status", {})
    return Replica(
        id=pod["metadata"]["name"],
        group=group,
        slot=labels(pod).get(SLOT),
        address=_address(pod, port),
        state=_state(pod),
        started_at_s=_started_at_s(pod, status),
        revision=next((labels(pod)[name] for name in _REVISIONS if name in labels(pod)), ""),
        limits=limits_of(pod),
        gated=gated(pod),
        recallable=DRAINING in notes_on(pod) and not _leaving(pod),
    )


def limits_of(pod: Json) -> EngineLimits:
    """The engine's limits as its command line says, so that a pod counts in full before it shows any metric."""
    container = pod["spec"]["containers"][0]
    told = " ".join(map(str, (*(container.get("command") or ()), *(container.get("args") or ()))))
    words = told.replace("=", " ").split()
    found = {
        _FLAGS[flag]: int(value) for flag, value in itertools.pairwise(words) if flag in _FLAGS and value.isdecimal()
    }
    if "max_loras" in found:
        found["max_cpu_loras"] = max(found["max_loras"], found.get("max_cpu_loras", 0))
    return EngineLimits(**found)


def gated(pod: Json) -> bool:
    """Whether the pod has our readiness gate and it is not open."""
    gates = pod["spec"].get("readinessGates") or []
    return any(g["conditionType"] == GATE for g in gates) and not _holds(pod, GATE)


def opened(resident: bool) -> Json:
    """The gate's condition once it is open, with the reason."""
    reason, text = ("AdaptersResident", "every adapter of its slot is resident") if resident else (
        "Opened", "opened before every adapter was resident: the deadline is over, or the fleet was detached"
    )  # fmt: skip
    return {"type": GATE, "status": "True", "reason": reason, "message": text}


def _holds(found: Json, condition: str) -> bool:
    conditions = found.get("status", {}).get("conditions") or []
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def _state(pod: Json) -> ReplicaState:
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp") or DRAINING in notes_on(pod):
        return ReplicaState.DRAINING
    statuses = status.get("containerStatuses") or []
    if any((s.get("state", {}).get("waiting") or {}).get("reason") in _BROKEN for s in statuses):
        return ReplicaState.FAILED
    if status.get("phase") == "Unknown":
        return ReplicaState.FAILED
    if _holds(pod, "ContainersReady"):
        return ReplicaState.READY
    return ReplicaState.STARTING if _holds(pod, "PodScheduled") else ReplicaState.PENDING


def _address(pod: Json, port: int | None) -> str:
    host = pod.get("status", {}).get("podIP", "")
    if not host:
        return ""
    ports = [p for c in pod["spec"]["containers"] for p in c.get("ports") or [] if p.get("protocol", "TCP") == "TCP"]
    named = [p for p in ports if p.get("name") == "http"]
    number = port or next((p["containerPort"] for p in (*named, *ports)), 8000)
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


def _started_at_s(pod: Json, status: Json) -> float:
    """When the first container's process started: a restart of it empties the engine."""
    first = pod["spec"]["containers"][0]["name"]
    running = (s["state"].get("running") for s in status.get("containerStatuses") or [] if s["name"] == first)
    at = next((r["startedAt"] for r in running if r and r.get("startedAt")), status.get("startTime"))
    return seconds(at) if at else 0.0


def seconds(at: str) -> float:
    """An API time as seconds since the Unix epoch."""
    return datetime.datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def replaced(pods: Sequence[Json], wanted: int) -> dict[str, str]:
    """Which older pod each newcomer replaces: newcomer -> older pod.

    A pod on its way out is replaced first. A living one is replaced only by a pod that is more than the target asks
    for, as a rolling update with surge makes: other newcomers fill places that are empty already. Pods that share a
    slot label are paired for good; else the newest newcomer takes the oldest pod.
    """
    by_age = sorted(pods, key=_age)
    pairs = _labelled_pairs(by_age)
    taken = set(pairs.values())
    holders = [p for p in by_age if SLOT in labels(p) and _name(p) not in pairs and _name(p) not in taken]
    newcomers = [p for p in by_age if SLOT not in labels(p) and not _leaving(p)]
    living = sum(not _leaving(p) for p in pods)
    leaving = {_name(p) for p in pods if _leaving(p)}
    unfinished = sum(1 for pair in pairs.items() if leaving.isdisjoint(pair))
    surplus = max(living - wanted - unfinished, 0)
    going = [p for p in holders if _leaving(p) and not _on_purpose(p)]
    for newcomer in newcomers:
        older = [p for p in going if _age(p) <= _age(newcomer)]
        if older:
            old = older[0]
            going.remove(old)
        elif surplus and (old_ones := [p for p in holders if not _leaving(p) and _older_revision(p, newcomer)]):
            old, surplus = old_ones[0], surplus - 1
        else:
            continue
        holders.remove(old)
        pairs[_name(newcomer)] = _name(old)
    return pairs


def _labelled_pairs(by_age: Sequence[Json]) -> dict[str, str]:
    first: dict[str, Json] = {}
    pairs = {}
    for pod in by_age:
        slot = labels(pod).get(SLOT)
        if slot and slot in first:
            pairs[_name(pod)] = _name(first[slot])
        elif slot:
            first[slot] = pod
    return pairs


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def _age(pod: Json) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), _name(pod)


def _leaving(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _on_purpose(pod: Json) -> bool:
    """Taken off the ring by us: nobody takes its place."""
    return DRAINING in notes_on(pod)


def _older_revision(pod: Json, than: Json) -> bool:
    return _age(pod) < _age(than) and any(labels(pod).get(n) != labels(than).get(n) for n in _REVISIONS)


def blocked(target: Json | None, kind: str, name: str) -> str:
    """Why a target's count cannot be changed now, empty where it can."""
    if target is None:
        return f"{name} does not exist: create it, or correct the policy's `target`"
    if target["metadata"].get("deletionTimestamp"):
        return f"{name} is being deleted"
    spec, status = target.get("spec", {}), target.get("status", {})
    if spec.get("paused"):
        return f"{name} is paused: `kubectl rollout resume` lets it go on"
    failing = next((c for c in status.get("conditions") or [] if c["type"] == "ReplicaFailure"), None)
    if failing is not None and failing["status"] == "True":
        return f"{name} cannot create pods: {failing.get('message', failing.get('reason', ''))}"
    updated, total = status.get("updatedReplicas", 0), status.get("replicas", 0)
    # A StatefulSet counts no updated replicas between rollouts; a Deployment counts all of them.
    rolling = kind == "Deployment" or status.get("currentRevision") != status.get("updateRevision")
    if rolling and updated < total:
        return f"{name} is in a rollout: {updated} of {total} replicas are of the new revision"
    return ""


def rolled_out(target: Json, kind: str) -> bool:
    """Whether what a target asks for now was seen by its controller, and all of it runs and is ready."""
    meta, spec, status = target["metadata"], target.get("spec", {}), target.get("status", {})
    seen = status.get("observedGeneration", 0) >= meta.get("generation", 0)
    return seen and not blocked(target, kind, "") and status.get("readyReplicas", 0) >= spec.get("replicas", 1)


def marks(pod: Json) -> dict[str, dict[str, str | None]]:
    """What of ours is on a pod, as the patch that takes it off."""
    notes = notes_on(pod)
    gone: dict[str, str | None] = {DRAINING: None} if DRAINING in notes else {}
    if notes.get(DELETION_COST) == VICTIM_COST:
        gone[DELETION_COST] = None
    slot: dict[str, dict[str, str | None]] = {"labels": {SLOT: None}} if SLOT in labels(pod) else {}
    return {**slot, **({"annotations": gone} if gone else {})}


def taken_by_others(pod: Json) -> bool:
    """Whether a pod is on its way out and we did not ask for it."""
    return _leaving(pod) and not _on_purpose(pod) and notes_on(pod).get(DELETION_COST) != VICTIM_COST


def budget_used_up(budgets: Iterable[Json], pods: Iterable[Json]) -> str:
    """The PodDisruptionBudget over any of these pods that lets none go now, empty where there is none."""
    held = [labels(pod) for pod in pods if not _leaving(pod)]
    for budget in budgets:
        allowed = budget.get("status", {}).get("disruptionsAllowed", 1)
        if allowed < 1 and any(selects(budget["spec"].get("selector"), found) for found in held):
            return f"PodDisruptionBudget {budget['metadata']['name']} lets no pod go now"
    return ""


def selects(selector: Json | None, found: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels; none takes nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = (selector.get("matchLabels") or {}).items()
    return wanted <= found.items() and all(_matches(e, found) for e in selector.get("matchExpressions") or [])


def _matches(expression: Json, found: Mapping[str, str]) -> bool:
    value, values = found.get(expression["key"]), expression.get("values") or []
    return {
        "In": value in values, "NotIn": value not in values, "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]  # fmt: skip


def count_owner(target: Json) -> str:
    """Who set `spec.replicas` last, by its field manager; `somebody` where the server does not say."""
    entries: list[Mapping[str, Any]] = target["metadata"].get("managedFields") or []
    owners = [e for e in entries if "f:replicas" in ((e.get("fieldsV1") or {}).get("f:spec") or {})]
    newest = max(owners, key=lambda e: str(e.get("time", "")), default=None)
    return str(newest["manager"]) if newest else "somebody"


def scaled_by(autoscalers: Iterable[Json], api_version: str, kind: str, name: str) -> str:
    """The HorizontalPodAutoscaler (KEDA makes one for a ScaledObject) on a target, empty where there is none."""
    for found in autoscalers:
        ref = found["spec"]["scaleTargetRef"]
        if ref["kind"] == kind and ref["name"] == name and _group(ref.get("apiVersion", "")) == _group(api_version):
            return f"HorizontalPodAutoscaler {found['metadata']['name']}"
    return ""


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]
