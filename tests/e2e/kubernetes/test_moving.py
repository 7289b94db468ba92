"""A fleet goes from one release of the chart to another with what it has published and remembers."""

import json
from pathlib import Path

import pytest
from kubernetes import client

from tests.e2e.kubernetes.running import policy
from tests.e2e.parts.commands import helm, kubectl
from tests.e2e.parts.controlplane import ControlPlane

pytestmark = pytest.mark.slow
CHART = Path(__file__).resolve().parents[3] / "helm" / "lora-autoscaler"
KEPT = tuple(f"chat-{what}" for what in ("ring", "state", "loads", "routers"))


def test_a_fleet_goes_to_another_release_with_its_ring(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    config = control_plane.kubeconfig
    core = client.CoreV1Api(control_plane.client())

    def release(verb: str, name: str, *fleets: str) -> None:
        values = tmp_path / f"{name}.json"
        values.write_text(json.dumps({"policies": {fleet: policy(3, 4, "advise")["spec"] for fleet in fleets}}))
        helm(verb, name, str(CHART), "--namespace", namespace, "--values", str(values), kubeconfig=config)

    def annotate(*told: str) -> None:
        kubectl("annotate", "configmap", *KEPT, *told, "--overwrite", "-n", namespace, kubeconfig=config)

    release("install", "lora-a", "chat", "code")
    core.patch_namespaced_config_map("chat-ring", namespace, {"data": {"ring.json": "what was published"}})
    annotate("helm.sh/resource-policy=keep", "meta.helm.sh/release-name=lora-b")
    release("upgrade", "lora-a", "code")
    release("install", "lora-b", "chat")
    annotate("helm.sh/resource-policy-")
    helm("uninstall", "lora-a", "--namespace", namespace, "--no-hooks", kubeconfig=config)
    ring = core.read_namespaced_config_map("chat-ring", namespace)
    assert ring.data == {"ring.json": "what was published"}
    left = {found.metadata.name for found in core.list_namespaced_config_map(namespace).items}
    assert set(KEPT) <= left
    assert not {name for name in left if name.startswith("code-")}
    release("upgrade", "lora-b", "chat")
    assert core.read_namespaced_config_map("chat-ring", namespace).data == ring.data
    helm("uninstall", "lora-b", "--namespace", namespace, "--no-hooks", kubeconfig=config)
    assert not {n for n in (c.metadata.name for c in core.list_namespaced_config_map(namespace).items) if n in KEPT}
