"""A hot group's Deployment: the warm group's pods, under labels of its own."""

import copy
from typing import Any

import pytest

from autoscaler.connectors.kubernetes.hot_groups import MADE, MADE_FROM, HotTemplate
from autoscaler.connectors.kubernetes.readings import GATE, GROUP, TENANT, budget_used_up, rolled_out, selects
from autoscaler.connectors.kubernetes.targets import GroupTarget
from autoscaler.domain.decisions import Failed
from autoscaler.domain.fleet import Tier
from autoscaler.policy.groups import MergedCheckpoints, PodPatch

WARM = GroupTarget("apps/v1", "Deployment", "serving", "warm", Tier.WARM, "warm")
OBJECT: dict[str, Any] = {
    "metadata": {"name": "warm", "uid": "u1", "labels": {"app.kubernetes.io/instance": "argo"}},
    "spec": {
        "replicas": 4,
        "selector": {"matchLabels": {"app": "warm"}},
        "template": {
            "metadata": {
                "labels": {"app": "warm", "argocd.argoproj.io/instance": "x"},
                "annotations": {"prometheus.io/scrape": "true", "argocd.argoproj.io/tracking-id": "x"},
            },
            "spec": {
                "containers": [{"name": "proxy"}, {"name": "engine", "args": ["--enable-lora", "--max-loras", "8"]}],
                "volumes": [{"name": "adapters"}],
            },
        },
    },
}


def template(patch: PodPatch | None = None, merged: MergedCheckpoints | None = None, *adapters: str) -> HotTemplate:
    found = adapters or ("acme",)
    return HotTemplate("chat", WARM, patch or PodPatch(), merged or MergedCheckpoints(), lambda tenant: found, 60.0)


def made(found: HotTemplate) -> dict[str, Any]:
    body = found.deployment(OBJECT, "hot-acme", "acme", 2)
    assert not isinstance(body, Failed), body
    return body


def test_nothing_that_selects_the_warm_group_selects_it() -> None:
    body = made(template())
    labels = body["spec"]["template"]["metadata"]["labels"]
    assert not selects(OBJECT["spec"]["selector"], labels)
    assert selects(body["spec"]["selector"], labels)
    assert labels[MADE] == "chat"
    assert body["spec"]["template"]["metadata"]["annotations"] == {"prometheus.io/scrape": "true"}
    assert body["metadata"]["annotations"].items() >= {GROUP: "hot-acme", TENANT: "acme"}.items()
    assert not [key for key in (*body["metadata"]["labels"], *labels) if "argo" in key or "helm" in key]


def test_it_goes_with_the_warm_target() -> None:
    body = made(template())
    assert [(o["name"], o["uid"]) for o in body["metadata"]["ownerReferences"]] == [("warm", "u1")]
    assert (body["metadata"]["name"], body["spec"]["replicas"]) == ("chat-hot-acme", 2)
    assert OBJECT["spec"]["template"]["metadata"]["labels"]["app"] == "warm", "the original is left alone"


def test_arguments_follow_the_containers_own_with_as_many_slots_as_the_tenant_has_adapters() -> None:
    patch = PodPatch(container="engine", args=("--max-loras", "{maxLoras}"))
    body = made(template(patch, None, "a", "b", "c"))
    engine = body["spec"]["template"]["spec"]["containers"][1]
    assert engine["args"] == ["--enable-lora", "--max-loras", "8", "--max-loras", "3"]


def test_a_merged_checkpoint_needs_consent_and_one_adapter() -> None:
    patch = PodPatch(container="engine", args=("--model={checkpoint}",))
    merged = MergedCheckpoints(allowed=True, path_template="/merged/{id}")
    engine = made(template(patch, merged))["spec"]["template"]["spec"]["containers"][1]
    assert engine["args"][-1] == "--model=/merged/acme"
    for refused in (template(patch), template(patch, merged, "a", "b")):
        failed = refused.deployment(OBJECT, "hot-acme", "acme", 1)
        assert isinstance(failed, Failed)
        assert "exactly one adapter" in failed.error


def test_the_name_to_be_served_by_needs_one_adapter() -> None:
    patch = PodPatch(container="engine", args=("--served-model-name", "{adapter}"))
    engine = made(template(patch))["spec"]["template"]["spec"]["containers"][1]
    assert engine["args"][-2:] == ["--served-model-name", "acme"]
    failed = template(patch, None, "a", "b").deployment(OBJECT, "hot-acme", "acme", 1)
    assert isinstance(failed, Failed)
    assert "{adapter}" in failed.error


RESTARTED = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, False),
        ({"replicas": 9}, False),
        ({"template": {"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "y"}}}}, False),
        ({"template": RESTARTED}, True),
        ({"strategy": {"type": "Recreate"}}, True),
        ({"template": {"spec": {"containers": [{"name": "engine", "image": "engine:2"}]}}}, True),
    ],
)
def test_what_it_was_made_from_is_told_by_what_its_pods_would_have(change: dict[str, Any], differs: bool) -> None:
    def digest(spec: dict[str, Any]) -> str:
        body = template().deployment({**OBJECT, "spec": spec}, "hot-acme", "acme", 1)
        assert not isinstance(body, Failed)
        return str(body["metadata"]["annotations"][MADE_FROM])

    spec = OBJECT["spec"]
    changed = {**spec, **change}
    if "template" in change:
        merged = {
            **spec["template"]["metadata"]["annotations"],
            **change["template"].get("metadata", {}).get("annotations", {}),
        }
        changed["template"] = {**spec["template"], **change["template"], "metadata": {"annotations": merged}}
    assert (digest(changed) != digest(spec)) is differs


@pytest.mark.parametrize(
    ("changes", "gates", "wait_s", "most_s"),
    [
        ({}, [], 60, 660),
        ({"minReadySeconds": 90, "progressDeadlineSeconds": 2000}, [], 90, 2000),
        ({}, [{"conditionType": GATE}], 0, 600),
    ],
)
def test_an_old_pod_stays_until_a_new_one_had_time_to_load(
    changes: dict[str, Any], gates: list[dict[str, str]], wait_s: int, most_s: int
) -> None:
    spec = {**copy.deepcopy(OBJECT["spec"]), **changes, "strategy": {"type": "RollingUpdate"}}
    spec["template"]["spec"]["readinessGates"] = gates
    body = template().deployment({**OBJECT, "spec": spec}, "hot-acme", "acme", 1)
    assert not isinstance(body, Failed)
    assert (body["spec"]["minReadySeconds"], body["spec"]["progressDeadlineSeconds"]) == (wait_s, most_s)
    assert body["spec"]["strategy"] == {"type": "RollingUpdate"}


@pytest.mark.parametrize(
    ("status", "done"),
    [
        ({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "readyReplicas": 3}, True),
        ({"observedGeneration": 1, "updatedReplicas": 3, "replicas": 3, "readyReplicas": 3}, False),
        ({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4, "readyReplicas": 3}, False),
        ({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "readyReplicas": 2}, False),
        ({}, False),
    ],
)
def test_a_rollout_is_over_once_all_of_it_was_seen_and_is_ready(status: dict[str, Any], done: bool) -> None:
    found = {"metadata": {"name": "warm", "generation": 2}, "spec": {"replicas": 3}, "status": status}
    assert rolled_out(found, "Deployment") is done


@pytest.mark.parametrize(
    ("warm", "patch", "why"),
    [({"spec": {}}, PodPatch(), "no pod template"), (OBJECT, PodPatch(container="gpu"), "no container gpu")],
)
def test_what_cannot_be_copied_is_refused(warm: dict[str, Any], patch: PodPatch, why: str) -> None:
    failed = template(patch).deployment(warm, "hot-acme", "acme", 1)
    assert isinstance(failed, Failed)
    assert why in failed.error


def budget(allowed: int, selector: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "b"}, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}}


@pytest.mark.parametrize(
    ("selector", "takes"),
    [
        ({}, True),
        ({"matchLabels": {"app": "warm"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["warm", "x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["warm"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        (None, False),
    ],
)
def test_a_budget_that_is_used_up_keeps_the_pods_that_it_selects(selector: dict[str, Any], takes: bool) -> None:
    pods = [{"metadata": {"name": "p", "labels": {"app": "warm"}}}]
    assert bool(budget_used_up([budget(0, selector)], pods)) is takes
    assert not budget_used_up([budget(1, selector)], pods)
