"""A hot group's Deployment, made from the warm group's pod template. Pure: JSON in, JSON or a refusal out.

Its labels are its own, so that no Service, budget or selector of the warm group takes its pods for theirs; what GitOps
and Helm track by is left out, so that they do not prune it. It belongs to the warm target and goes with it.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.connectors.kubernetes.readings import GATE, GROUP, TENANT, Json, notes_on
from autoscaler.connectors.kubernetes.targets import GroupTarget
from autoscaler.domain.decisions import Failed
from autoscaler.policy.groups import MergedCheckpoints, PodPatch

MADE = "lora-autoscaler.io/made-for"
"""The label of what was made, on the Deployment and its pods: its value is the fleet."""
MADE_GROUP = "lora-autoscaler.io/hot-group"
MADE_FROM = "lora-autoscaler.io/made-from"
"""The annotation that says by a digest what it was made from, so that what has changed since is seen."""
_TRACKING = ("argocd.argoproj.io/", "meta.helm.sh/", "kubectl.kubernetes.io/", "kustomize.toolkit.fluxcd.io/",
             "helm.toolkit.fluxcd.io/", "helm.sh/", "deployment.kubernetes.io/")  # fmt: skip
_RESTARTED = "kubectl.kubernetes.io/restartedAt"  # a restart of the warm group is one of those made from it too
_PROGRESS_S = 600  # what the API server gives a rollout without a word of its own


@dataclass(frozen=True, slots=True)
class HotTemplate:
    """What hot groups are made of.

    Attributes:
        fleet: its name.
        warm: the target whose pods are copied.
        patch: what a hot group's pods have different.
        merged: whether and where merged checkpoints lie.
        adapters: a tenant's adapters, by the catalogue.
        loading_s: how long a new pod may take to load them before an old one goes for it.
    """

    fleet: str
    warm: GroupTarget
    patch: PodPatch
    merged: MergedCheckpoints
    adapters: Callable[[str], tuple[str, ...]]
    loading_s: float

    def name(self, group: str) -> str:
        """Of the Deployment of a group."""
        return f"{self.fleet}-{group}"[:63].rstrip("-.")

    def deployment(self, warm: Json, group: str, tenant: str, replicas: int) -> Json | Failed:
        """The Deployment of one group; a failure where there is no template to copy, or the patch cannot hold."""
        template = copy.deepcopy(warm.get("spec", {}).get("template"))
        if not isinstance(template, dict) or "spec" not in template:
            return Failed(f"{self.warm} has no pod template to copy: declare targets (`groups.hot.source: declared`)")
        containers = template["spec"]["containers"]
        wanted = self.patch.container or containers[0]["name"]
        container = next((c for c in containers if c["name"] == wanted), None)
        if container is None:
            return Failed(f"{self.warm} has no container {wanted}: correct `groups.hot.template.container`")
        arguments = self._arguments(tenant)
        if isinstance(arguments, Failed):
            return arguments
        if arguments:
            container["args"] = [*(container.get("args") or []), *arguments]
        labels = {
            "app.kubernetes.io/name": "lora-autoscaler-hot",
            MADE: self.fleet,
            MADE_GROUP: group[:63].rstrip("-."),
        }
        notes = {k: v for k, v in notes_on({"metadata": template.get("metadata") or {}}).items() if not _tracks(k)}
        owner = {"apiVersion": self.warm.api_version, "kind": self.warm.kind, "name": self.warm.name}
        pods = {
            "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": template["spec"]},
            **self._rolling(warm),
        }
        return {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": self.name(group), "namespace": self.warm.namespace, "labels": labels,
                "annotations": {GROUP: group, TENANT: tenant, MADE_FROM: _digest(pods)},
                "ownerReferences": [{**owner, "uid": warm["metadata"]["uid"]}],
            },
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, **pods},
        }  # fmt: skip

    def _rolling(self, warm: Json) -> Json:
        """How its rollouts go: as the warm Deployment's.

        Without the gate a new pod is ready before it has its adapters, so an old one stays until they had time to load.
        """
        spec = warm["spec"] if self.warm.kind == "Deployment" else {}
        held = any(g["conditionType"] == GATE for g in warm["spec"]["template"]["spec"].get("readinessGates") or [])
        wait_s = max(spec.get("minReadySeconds", 0), 0 if held else math.ceil(self.loading_s))
        most_s = max(spec.get("progressDeadlineSeconds", _PROGRESS_S), wait_s + _PROGRESS_S if wait_s else 0)
        strategy = {"strategy": spec["strategy"]} if "strategy" in spec else {}
        return {**strategy, "minReadySeconds": wait_s, "progressDeadlineSeconds": most_s}

    def _arguments(self, tenant: str) -> list[str] | Failed:
        adapters = self.adapters(tenant)
        alone = adapters[0] if len(adapters) == 1 else ""
        told = " ".join(self.patch.args)
        checkpoint = (self.merged.path_template or "").replace("{id}", alone) if self.merged.allowed and alone else ""
        for word, meant in (("{checkpoint}", checkpoint), ("{adapter}", alone)):
            if word in told and not meant:
                return Failed(
                    f"`groups.hot.template.args` name {word}, and {tenant} has none: it takes exactly one adapter"
                    + (" and `groups.hot.mergedCheckpoints`" if word == "{checkpoint}" else "")
                )
        meanings = {"{maxLoras}": str(max(1, len(adapters))), "{checkpoint}": checkpoint, "{adapter}": alone}
        return [functools.reduce(lambda text, m: text.replace(*m), meanings.items(), word) for word in self.patch.args]


def _tracks(key: str) -> bool:
    return key.startswith(_TRACKING) and key != _RESTARTED


def _digest(found: Json) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
