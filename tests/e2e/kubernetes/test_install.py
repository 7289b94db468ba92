"""`helm install` starts the controller with the chart's own account, and no more rights than its values give."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.kubernetes.running import ENGINE, Rings, active, policy, still
from tests.e2e.parts.commands import helm, kubectl
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.podlife import Json
from tests.e2e.parts.processes import Server, wait_until

pytestmark = pytest.mark.slow
CHART = Path(__file__).resolve().parents[3] / "helm" / "lora-autoscaler"
RELEASE = "lora"


class ControllerImage:
    """Runs what the chart's pod says, from this checkout: ConfigMaps as files, the account by kubeconfig."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self._plane, self._namespace, self._folder = plane, namespace, folder
        self._core: Any = client.CoreV1Api(plane.client())

    def __call__(self, pod: Json, address: str) -> Server:
        folder = self._folder / pod["metadata"]["name"]
        places = {}
        for volume in pod["spec"]["volumes"]:
            place = places[volume["name"]] = folder / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                found = self._core.read_namespaced_config_map(volume["configMap"]["name"], self._namespace)
                for name, text in (found.data or {}).items():
                    (place / name).write_text(text)
        container = pod["spec"]["containers"][0]
        mounts = {m["mountPath"]: str(places[m["name"]]) for m in container["volumeMounts"] if m["name"] != "tmp"}
        settings = places["settings"] / "settings.yaml"
        told = yaml.safe_load(settings.read_text())
        account = self._plane.kubeconfig_for_service_account(self._namespace, pod["spec"]["serviceAccountName"])
        told["kubernetes"]["kubeconfig"] = str(account)
        told["listen"]["host"] = address
        told["state"] = mounts[told["state"]]
        settings.write_text(yaml.safe_dump(told))
        words = [*container["command"], *container["args"]]
        words[0] = str(Path(sys.executable).with_name(words[0]))
        for inside, outside in mounts.items():
            words = [outside + word.removeprefix(inside) if word.startswith(inside) else word for word in words]
        return Server("controller", words, folder, lambda: True).launch()


@pytest.fixture
def installed(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[FleetUnderTest]:
    programs = {"lora-autoscaler:0.1.0": ControllerImage(control_plane, namespace, tmp_path)}
    with FleetUnderTest(control_plane, namespace, programs=programs) as running:
        yield running


def release(
    verb: str, control_plane: ControlPlane, namespace: str, folder: Path, mode: str = "advise", **rbac: bool
) -> None:
    values = {
        "policies": {"fleet": policy(3, 4, mode)["spec"]},
        "rbac": rbac,
        "leaseDuration": "3s",
        "settings": {"kubernetes": {"checkpointEvery": "1s"}},
    }
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    words = (verb, RELEASE, str(CHART), "--namespace", namespace, "--values", str(file))
    helm(*words, kubeconfig=control_plane.kubeconfig)


def test_advice_changes_nothing_and_enforcing_needs_the_right(
    installed: FleetUnderTest, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    def up() -> bool:
        words = ("get", "deployment", RELEASE, "-n", namespace, "-o", "jsonpath={.status.readyReplicas}")
        return kubectl(*words, kubeconfig=control_plane.kubeconfig).strip() == "1"

    ring = ("get", "configmap", "fleet-ring", "-n", namespace, "-o", "json")

    def objects(kinds: str) -> set[str]:
        words = ("get", kinds, "-n", namespace, "-o", "name")
        return set(kubectl(*words, kubeconfig=control_plane.kubeconfig).split())

    everything = (
        "configmaps,leases,services,serviceaccounts,roles,rolebindings,deployments,poddisruptionbudgets,networkpolicies,"
        "jobs,secrets"
    )
    before = objects(everything)
    installed.deploy(2, *ENGINE)
    release("install", control_plane, namespace, tmp_path)
    wait_until("the controller is ready", up, 90)
    assert still(4, lambda: len(installed.pods()) == 2), "the policy asks for 3, and advice does nothing"
    assert "data" not in json.loads(kubectl(*ring, kubeconfig=control_plane.kubeconfig)), "no ring was published"

    release("upgrade", control_plane, namespace, tmp_path, "enforce", scale=True, slots=True, crds=True, events=True)
    kubectl("rollout", "restart", f"deployment/{RELEASE}", "-n", namespace, kubeconfig=control_plane.kubeconfig)
    with Rings(installed) as rings:
        rings.wait("three pods are on the ring", lambda ring: len(active(ring)) == 3, 120)

    helm("rollback", RELEASE, "1", "--namespace", namespace, kubeconfig=control_plane.kubeconfig)
    kept = json.loads(kubectl(*ring, kubeconfig=control_plane.kubeconfig))["data"]
    assert "ring.json" in kept, "a rollback leaves the state as it is"
    helm("uninstall", RELEASE, "--namespace", namespace, kubeconfig=control_plane.kubeconfig)
    wait_until("nothing of it is left", lambda: objects(everything) - before == {"deployment.apps/warm"})
    assert len(installed.ready()) == 3
