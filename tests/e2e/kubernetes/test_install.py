"""`helm install` starts the controller with the chart's own account, and no more rights than its values give."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.kubernetes.running import ENGINE, Rings, active, policy, still
from tests.e2e.kubernetes.traffic import Clients, router
from tests.e2e.parts.commands import CommandFailedError, helm, kubectl
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.podlife import Json
from tests.e2e.parts.processes import Server, wait_until

pytestmark = pytest.mark.slow
CHART = Path(__file__).resolve().parents[3] / "helm" / "lora-autoscaler"
RELEASE = "lora"
DISCOVERY = 18000


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
        told["state"] = mounts.get(told["state"], str(folder))  # a hook keeps nothing
        for fleet in told.get("fleets", {}).values():
            fleet["discovery"]["host"] = address
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
        "settings": {
            "kubernetes": {"checkpointEvery": "1s"},
            "fleets": {"fleet": {"discovery": {"host": "0.0.0.0", "port": DISCOVERY}}},
        },
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
    secret = ("get", "secret", f"{RELEASE}-tokens", "-n", namespace, "-o", "jsonpath={.data}")

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
    tokens = kubectl(*secret, kubeconfig=control_plane.kubeconfig)
    assert json.loads(tokens).keys() == {"operator", "reader"}

    release("upgrade", control_plane, namespace, tmp_path, "enforce", scale=True, slots=True, crds=True, events=True)
    kubectl("rollout", "restart", f"deployment/{RELEASE}", "-n", namespace, kubeconfig=control_plane.kubeconfig)
    with Rings(installed) as rings:
        rings.wait("three pods are on the ring", lambda ring: len(active(ring)) == 3, 120)

    helm("rollback", RELEASE, "1", "--namespace", namespace, kubeconfig=control_plane.kubeconfig)
    kept = json.loads(kubectl(*ring, kubeconfig=control_plane.kubeconfig))["data"]
    assert "ring.json" in kept, "a rollback leaves the state as it is"
    assert kubectl(*secret, kubeconfig=control_plane.kubeconfig) == tokens
    helm("uninstall", RELEASE, "--namespace", namespace, kubeconfig=control_plane.kubeconfig)
    wait_until("nothing of it is left", lambda: objects(everything) - before == {"deployment.apps/warm"})
    assert len(installed.ready()) == 3


def test_an_uninstall_under_traffic_costs_no_request_and_keeps_no_new_pod_waiting(
    installed: FleetUnderTest, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    def uninstall() -> None:
        helm("uninstall", RELEASE, "--namespace", namespace, kubeconfig=control_plane.kubeconfig)

    def controller() -> str:
        found = installed.core.list_namespaced_pod(namespace, label_selector="app.kubernetes.io/name=lora-autoscaler")
        return next((p.status.pod_ip for p in found.items if p.status.pod_ip), "")

    def marks() -> set[str]:
        notes = [(p.metadata.labels or {}, p.metadata.annotations or {}) for p in installed.pods()]
        return {key for pair in notes for found in pair for key in found if "lora-autoscaler" in key}

    def rolled(old: set[str]) -> bool:
        return len({p.metadata.name for p in installed.ready()} - old) == 3

    installed.deploy(3, *ENGINE, gate=True, pre_stop_sleep_s=5)
    release("install", control_plane, namespace, tmp_path, "enforce", scale=True, slots=True, readinessGate=True)
    with Rings(installed) as rings:
        first = rings.wait("three pods are on the ring", lambda ring: len(active(ring)) == 3, 120)
        address = controller()
        envoy, url = router(tmp_path / "envoy", [(address, DISCOVERY)])
        with envoy, Clients(url) as clients:
            wait_until("requests are answered", lambda: clients.ended["200"] > 20)
            with pytest.raises(CommandFailedError, match="lora-may-go"):
                uninstall()
            installed.without_gate()
            others = rings.wait(
                "pods without the gate are on the ring",
                lambda ring: len(active(ring)) == 3 and set(active(ring)).isdisjoint(active(first)),
                180,
            )
            wait_until("the others are gone", lambda: len(installed.pods()) == 3, 60)
            secret = installed.core.read_namespaced_secret(f"{RELEASE}-tokens", namespace).data
            operator = base64.b64decode(secret["operator"]).decode()
            words = ("detach", "--server", f"http://{address}:8080", "--fleet", "fleet", "--reason", "uninstalling")
            program = str(Path(sys.executable).with_name("lora-autoscaler"))
            subprocess.run([program, *words, "--token", operator], check=True, capture_output=True, timeout=60)
            assert marks() == set()
            uninstall()
            wait_until("the controller is gone", lambda: not controller(), 60)
            before = clients.ended["200"]
            wait_until("requests are answered as before", lambda: clients.ended["200"] > before + 50)
        assert clients.failed == {}
    installed.restart()
    wait_until("new pods are ready without a controller", lambda: rolled(set(active(others))), 120)
