"""The chart renders what Kubernetes accepts, gives no right unasked, and starts what the product reads."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from autoscaler.cli.settings import Platform, Settings, parse_settings
from autoscaler.policy.loading import parse_policy
from autoscaler.policy.model import FleetPolicy
from tests.e2e.parts.chart_files import BOOTSTRAP, bootstrap
from tests.e2e.parts.commands import CommandFailedError, helm

CHART = Path(__file__).resolve().parents[2] / "helm" / "lora-autoscaler"
CHAT = {"chat": {"baseModel": "llama", "groups": {"warm": {"target": {"name": "chat-warm"}}}}}
RIGHTS = ("scale", "slots", "readinessGate", "declaredHotGroups", "crds", "events", "authDelegator")
VALUES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "advice": {"policies": CHAT},
    "everything": {
        "policies": CHAT,
        "rbac": dict.fromkeys(RIGHTS, True),
        "replicas": 2,
        "router": {"enabled": True},
        "dashboard": {"enabled": True, "tokenSecret": {"name": "reader"}},
        "networkPolicy": {"enabled": True, "apiFrom": [{"namespaceSelector": {}}]},
    },
    "own account": {
        "policies": CHAT,
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "mine"},
        "imagePullSecrets": [{"name": "pull"}],
        "priorityClassName": "system-cluster-critical",
    },
    "other namespaces": {
        "policies": CHAT | {"code": {"baseModel": "coder", "mode": "enforce"}},
        "rbac": {
            "scale": True,
            "namespaces": ["models"],
            "catalogues": ["chat-adapters"],
            "targets": [{"apiGroup": "leaderworkerset.x-k8s.io", "resource": "leaderworkersets"}],
        },
    },
    "images by digest": {
        "policies": CHAT,
        "tokensSecret": "tokens",
        "image": {"digest": "sha256:" + "0" * 64},
        "settings": {"metrics": {"source": "prometheus", "prometheus": {"url": "http://prometheus:9090"}}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
    },
}


def write(folder: Path, values: dict[str, Any]) -> str:
    path = folder / "values.json"
    path.write_text(json.dumps(values))
    return str(path)


def rendered(folder: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifests; twice the same."""
    command = ("template", "release", str(CHART), "--namespace", "serving", "--values", write(folder, values))
    first = helm(*command)
    assert helm(*command) == first
    return [found for found in yaml.safe_load_all(first) if found]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [found for found in manifests if found["kind"] == kind]


def test_lint_finds_nothing(tmp_path: Path) -> None:
    for values in VALUES.values():
        helm("lint", "--strict", str(CHART), "--values", write(tmp_path, values))


@pytest.mark.parametrize("name", VALUES)
def test_every_manifest_is_valid(name: str, tmp_path: Path) -> None:
    manifests = rendered(tmp_path, VALUES[name])
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.37", strict=True)
    named = [m["metadata"]["name"] for m in of_kind(manifests, "Deployment")]
    more = ["release-chat-router", "release-dashboard"] if name == "everything" else []
    assert sorted(named) == sorted(["release", *more])


@pytest.mark.parametrize("name", VALUES)
def test_settings_and_policies_are_what_the_product_reads(name: str, tmp_path: Path) -> None:
    maps = {m["metadata"]["name"]: m.get("data") or {} for m in of_kind(rendered(tmp_path, VALUES[name]), "ConfigMap")}
    settings = parse_settings(maps["release-settings"]["settings.yaml"].encode(), tmp_path / "settings.yaml")
    assert isinstance(settings, Settings), settings
    assert settings.platform is Platform.KUBERNETES
    assert settings.kubernetes.namespace == "serving"
    for file, text in maps["release-policies"].items():
        assert isinstance(parse_policy(text.encode(), file), FleetPolicy)


def rights(manifests: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(resource, verb) of everything that any role gives."""
    rules = [rule for role in of_kind(manifests, "Role") for rule in role["rules"]]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


OWN = {("leases", "update"), ("configmaps", "update"), ("secrets", "update")}
READS = {"get", "list", "watch"}


def test_advice_may_change_nothing_but_its_own_lease_and_state(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, VALUES["advice"])
    assert {right for right in rights(manifests) if right[1] not in READS} == OWN
    named = [
        r.get("resourceNames") for role in of_kind(manifests, "Role") for r in role["rules"] if "update" in r["verbs"]
    ]
    state = ["chat-ring", "chat-state", "chat-loads", "chat-routers", "release-operators"]
    assert named == [["release"], state, ["release-tokens"]]
    assert not of_kind(manifests, "ClusterRole")


@pytest.mark.parametrize(
    ("right", "gives"),
    [
        ("scale", {("pods", "patch"), ("deployments/scale", "update"), ("statefulsets/scale", "update")}),
        ("slots", {("pods", "patch")}),
        ("readinessGate", {("pods/status", "patch")}),
        ("declaredHotGroups", {("deployments", "patch"), ("statefulsets", "patch")}),
        (
            "crds",
            {("tieroverrides", v) for v in ("get", "list", "watch", "create", "update", "delete", "act-for-others")}
            | {("tieroverrides/status", "patch")},
        ),
        ("events", {("events", "create")}),
        ("authDelegator", set()),
    ],
)
def test_each_right_gives_what_it_says(right: str, gives: set[tuple[str, str]], tmp_path: Path) -> None:
    advice = rights(rendered(tmp_path, VALUES["advice"]))
    assert rights(rendered(tmp_path, {"policies": CHAT, "rbac": {right: True}})) - advice == gives


def test_tokens_are_kept_only_where_nobody_else_says_whose_one_is(tmp_path: Path) -> None:
    for told in ({"tokensSecret": "mine"}, {"rbac": {"authDelegator": True}}):
        manifests = rendered(tmp_path, {"policies": CHAT, **told})
        assert not of_kind(manifests, "Secret")
        assert ("secrets", "get") not in rights(manifests)


def test_a_right_beyond_the_namespace_is_bound_only_where_callers_are_to_be_asked_for(tmp_path: Path) -> None:
    (binding,) = of_kind(rendered(tmp_path, {"policies": CHAT, "rbac": {"authDelegator": True}}), "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "system:auth-delegator"
    assert not of_kind(rendered(tmp_path, VALUES["advice"]), "ClusterRoleBinding")


def test_no_role_where_none_is_to_be_made(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, VALUES["own account"])
    assert {m["kind"] for m in manifests} == {"ConfigMap", "Lease", "Service", "Deployment"}
    assert of_kind(manifests, "Deployment")[0]["spec"]["template"]["spec"]["serviceAccountName"] == "mine"


def test_the_pod_runs_with_as_little_as_it_needs(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, VALUES["everything"])
    for found in (*of_kind(manifests, "Deployment"), *of_kind(manifests, "Job")):
        pod = found["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"]
        if found["kind"] == "Deployment":
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
            needs_token = "serviceAccountName" in pod
            assert pod["automountServiceAccountToken"] is needs_token


def test_routers_ask_at_the_port_where_their_fleet_is_served(tmp_path: Path) -> None:
    assert BOOTSTRAP.read_text() == bootstrap(), "run `python -m tests.e2e.parts.chart_files`"
    values = {"policies": {**CHAT, "code": {"baseModel": "coder"}}, "router": {"enabled": True}}
    maps = {m["metadata"]["name"]: m.get("data") for m in of_kind(rendered(tmp_path, values), "ConfigMap")}
    settings = parse_settings(maps["release-settings"]["settings.yaml"].encode(), tmp_path / "settings.yaml")
    assert isinstance(settings, Settings), settings
    for fleet in ("chat", "code"):
        told = json.loads(maps[f"release-{fleet}-router"]["envoy.json"])
        (controller,) = [c for c in told["static_resources"]["clusters"] if c["name"] == "controller"]
        asks = controller["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
        served = settings.fleet(fleet).discovery
        assert served is not None
        assert asks == {"address": "release-discovery.serving.svc", "port_value": served.port}


def test_an_uninstall_is_checked_where_a_gate_may_be_left(tmp_path: Path) -> None:
    assert not of_kind(rendered(tmp_path, VALUES["advice"]), "Job")
    (job,) = of_kind(rendered(tmp_path, {"policies": CHAT, "rbac": {"readinessGate": True}}), "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"


@pytest.mark.parametrize(
    "values",
    [
        {"polices": {}},
        {"policies": {"Chat": {"baseModel": "x"}}},
        {"policies": {"chat": {}}},
        {"policies": {"chat": {"baseModel": "x", "modee": "enforce"}}},
        {"settings": {"metric": {}}},
        {"replicas": -1},
        {"settings": {"platform": "local"}},
        {"image": {"digest": "latest"}},
        {"serviceAccount": {"create": False}},
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError):
        rendered(tmp_path, values)
