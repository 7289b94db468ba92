"""What a fleet needs of its cluster: rights, kinds, targets, gates, clocks; and what an uninstall leaves."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterable, Iterator

from autoscaler.cli.findings import Finding, fine, note, wrong
from autoscaler.cli.platform_kubernetes import targets
from autoscaler.cli.settings import Settings
from autoscaler.connectors.kubernetes.cluster import Cluster, GoneError, Json, config_maps
from autoscaler.connectors.kubernetes.readings import GATE, blocked, scaled_by
from autoscaler.connectors.kubernetes.targets import GroupTarget
from autoscaler.connectors.kubernetes.tier_overrides import collection
from autoscaler.domain.fleet import Tier
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Actuation, HotSource, Mode
from autoscaler.ports import PermanentError, TemporaryError

_SKEW_S = 5.0
Right = tuple[str, str, str, str, str]
"""(API group, resource, verb, namespace, name): an empty name is every name."""


def check_cluster(settings: Settings, policies: Iterable[FleetPolicy]) -> Iterator[Finding]:
    """Every check, as the account that the settings name."""
    try:
        cluster = _cluster(settings)
        yield _clock(cluster)
    except (TemporaryError, PermanentError) as error:
        yield wrong("cluster", "API server", str(error), "Run doctor in the controller's pod, or name a kubeconfig.")
        return
    namespace = settings.kubernetes.namespace or cluster.namespace
    yield from _rights(cluster, "lease", _lease_rights(cluster, namespace, settings.kubernetes.lease))
    yield _overrides(cluster, namespace)
    for policy in policies:
        held = targets(policy, namespace)
        found = [(target, *_read(cluster, target)) for target in held]
        gated = [target for target, body, _ in found if body is not None and carries_gate(body)]
        yield from _rights(cluster, policy.name, _fleet_rights(cluster, policy, namespace, held, gated=bool(gated)))
        for target, body, trouble in found:
            yield _target(cluster, target, body, trouble)
        for target in gated:
            yield note(
                "gate", str(target), "its pods become ready only while a controller is alive",
                f"Before an uninstall take `{GATE}` out of its template and roll it out.",
            )  # fmt: skip
    cluster.close()


def check_uninstall(settings: Settings, policies: Iterable[FleetPolicy]) -> Iterator[Finding]:
    """What would keep pods from becoming ready once no controller is there."""
    try:
        cluster = _cluster(settings)
    except PermanentError as error:
        yield wrong("cluster", "API server", str(error), "Uninstall with `--no-hooks` once no template has the gate.")
        return
    namespace = settings.kubernetes.namespace or cluster.namespace
    for target in dict.fromkeys(t for policy in policies for t in targets(policy, namespace)):
        body, trouble = _read(cluster, target)
        if body is not None and carries_gate(body):
            yield wrong(
                "gate", str(target), f"its template carries the readiness gate {GATE}: new pods would never be ready",
                "Take it out of the template, wait for the rollout, and uninstall again.",
            )  # fmt: skip
        elif trouble and body is None:
            yield note("gate", str(target), trouble)
        else:
            yield fine("gate", str(target), "its template does not carry the readiness gate")
    cluster.close()


def carries_gate(target: Json) -> bool:
    """Whether a target makes pods that wait for us. Also of kinds that hold their template deeper."""
    return GATE in str(target.get("spec", {}))


def _cluster(settings: Settings) -> Cluster:
    file = settings.kubernetes.kubeconfig
    return Cluster(None if file is None else settings.path(file))


def _clock(cluster: Cluster) -> Finding:
    answer = cluster.open("GET", "/version")
    answer.read()
    said = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
    skew_s = said - time.time()
    if abs(skew_s) > _SKEW_S:
        remedy = "Set both clocks by NTP. The Lease does not trust others' clocks; ages of signals do."
        return wrong("clock", "API server", f"it is {skew_s:+.0f} s off this machine's", remedy)
    return fine("clock", "API server", f"answers, {skew_s:+.0f} s off this machine's clock")


def _lease_rights(cluster: Cluster, namespace: str, name: str) -> list[tuple[Right, str]]:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    verbs = ("get", "update", *_create(cluster, f"{leases}/{name}"))
    rights = [
        (("coordination.k8s.io", "leases", v, namespace, "" if v == "create" else name), "to lead") for v in verbs
    ]
    return [*rights, *_map_rights(cluster, namespace, f"{name}-operators")]


def _map_rights(cluster: Cluster, namespace: str, *names: str) -> list[tuple[Right, str]]:
    made: list[tuple[Right, str]] = []
    for name in names:
        verbs = ("get", "list", "watch", "update", *_create(cluster, f"{config_maps(namespace)}/{name}"))
        made += [(("", "configmaps", v, namespace, "" if v == "create" else name), f"to keep {name}") for v in verbs]
    return made


def _create(cluster: Cluster, path: str) -> tuple[str, ...]:
    """The right to create is needed only where the object is not there."""
    try:
        cluster.now("GET", path)
    except GoneError:
        return ("create",)
    except (TemporaryError, PermanentError):
        return ()
    return ()


_HOT = "for hot groups, which `groups.hot: none` does without: `rbac.hotGroups.create`"


def _fleet_rights(
    cluster: Cluster, policy: FleetPolicy, namespace: str, held: tuple[GroupTarget, ...], *, gated: bool
) -> list[tuple[Right, str]]:
    acts, scales = policy.mode is not Mode.ADVISE, policy.actuation is Actuation.SCALE
    made = _map_rights(cluster, namespace, *(f"{policy.name}-{what}" for what in ("ring", "state", "loads", "routers")))
    for target in held:
        group, resource = target.api_version.rpartition("/")[0], f"{target.kind.lower()}s"
        made += [(("", "pods", v, target.namespace, ""), "to see pods") for v in ("list", "watch")]
        made += [((group, resource, v, target.namespace, ""), "to see targets") for v in ("list", "watch")]
        made.append(((group, f"{resource}/scale", "get", target.namespace, ""), "to see counts"))
        made.append((("autoscaling", "horizontalpodautoscalers", "list", target.namespace, ""), "to see other scalers"))
        if acts:
            made.append((("", "pods", "patch", target.namespace, ""), "`rbac.slots`: slots survive a lost state"))
        if acts and scales:
            made.append(((group, f"{resource}/scale", "update", target.namespace, ""), "`rbac.scale`"))
        if gated:
            made.append((("", "pods/status", "patch", target.namespace, ""), "`rbac.readinessGate`: to open gates"))
        hot = policy.groups.hot
        if acts and hot is not None and hot.source is HotSource.DECLARED and not target.group:
            made.append(((group, resource, "patch", target.namespace, ""), "`rbac.declaredHotGroups`"))
        if acts and hot is not None and hot.source is HotSource.TEMPLATE and target.tier is Tier.WARM:
            verbs = ("create", "update", "delete")
            made += [(("apps", "deployments", v, target.namespace, ""), _HOT) for v in verbs]
    return list(dict.fromkeys(made))


def _rights(cluster: Cluster, subject: str, rights: list[tuple[Right, str]]) -> Iterator[Finding]:
    missing = [(right, why) for right, why in rights if not _may(cluster, right)]
    for (group, resource, verb, namespace, name), why in missing:
        what = f"{verb} {resource}{f'.{group}' if group else ''}{f' {name}' if name else ''} in {namespace}"
        yield wrong(
            "right", subject, f"this account may not {what}", f"It is needed {why}; the chart's `rbac` gives it."
        )
    if not missing:
        yield fine("right", subject, f"{len(rights)} rights are there")


def _may(cluster: Cluster, right: Right) -> bool:
    group, resource, verb, namespace, name = right
    of, _, part = resource.partition("/")
    attributes = {"group": group, "resource": of, "verb": verb, "namespace": namespace, "name": name}
    body = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes | {"subresource": part}},
    }  # fmt: skip
    answer = cluster.now("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(answer["status"].get("allowed"))


def _overrides(cluster: Cluster, namespace: str) -> Finding:
    try:
        found = cluster.now("GET", collection(namespace))["items"]
    except GoneError:
        remedy = "Install the chart lora-autoscaler-crds; without it there are no overrides."
        return note("kind", "TierOverride", "the cluster does not have it", remedy)
    except (TemporaryError, PermanentError) as error:
        return note("kind", "TierOverride", str(error), "`rbac.crds` gives the right.")
    return fine("kind", "TierOverride", f"{len(found)} in {namespace}")


def _read(cluster: Cluster, target: GroupTarget) -> tuple[Json | None, str]:
    """The target and why it cannot be scaled now; None with the reason where it cannot be read."""
    group = target.api_version
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    try:
        kinds = [r["name"] for r in cluster.now("GET", root)["resources"] if r["kind"] == target.kind]
        plural = next((name for name in kinds if "/" not in name), "")
        if not plural:
            return None, f"the cluster has no kind {target.kind} in {group}"
        found = cluster.now("GET", f"{root}/namespaces/{target.namespace}/{plural}/{target.name}")
    except GoneError:
        return None, "it does not exist"
    except (TemporaryError, PermanentError) as error:
        return None, str(error)
    return found, blocked(found, target.kind, str(target))


def _target(cluster: Cluster, target: GroupTarget, body: Json | None, trouble: str) -> Finding:
    if body is None:
        return wrong("target", str(target), trouble, "Create it, or correct the policy's `target`.")
    if trouble:
        return note("target", str(target), trouble)
    try:
        path = f"/apis/autoscaling/v2/namespaces/{target.namespace}/horizontalpodautoscalers"
        other = scaled_by(cluster.now("GET", path)["items"], target.api_version, target.kind, target.name)
    except (TemporaryError, PermanentError):
        other = ""
    if other:
        remedy = "Remove it, or let it act on the exported counts (`actuation: export`)."
        return note("target", str(target), f"{other} scales it too, so this controller holds", remedy)
    return fine("target", str(target), f"{body.get('spec', {}).get('replicas', 0)} replicas, free to be scaled")
