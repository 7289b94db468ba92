"""`doctor` in a cluster: as the account that it is given, with a remedy for each fault."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.kubernetes.running import ENGINE, policy
from tests.e2e.parts.controlplane import ControlPlane

pytestmark = pytest.mark.slow


def doctor(folder: Path, kubeconfig: Path, namespace: str, *more: str) -> tuple[int, dict[tuple[str, str], str]]:
    """(exit code, (check, subject) -> state and message)."""
    (folder / "fleet.yaml").write_text(yaml.safe_dump(policy(1, 2)))
    settings = {"platform": "kubernetes", "kubernetes": {"kubeconfig": str(kubeconfig), "namespace": namespace}}
    (folder / "settings").mkdir(exist_ok=True)
    (folder / "settings" / "settings.yaml").write_text(yaml.safe_dump({**settings, "state": str(folder)}))
    program = str(Path(sys.executable).with_name("lora-autoscaler"))
    words = ("doctor", "--json", "--policies", str(folder), "--settings", str(folder / "settings" / "settings.yaml"))
    done = subprocess.run([program, *words, *more], capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert all(f["remedy"] for f in found if f["state"] == "wrong")
    return done.returncode, {(f["check"], f["subject"]): f"{f['state']}: {f['message']}" for f in found}


def test_it_names_each_right_that_is_missing_and_each_target_that_is_not_there(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    code, found = doctor(tmp_path, control_plane.kubeconfig_for_user("nobody"), namespace)
    assert code == 1
    assert "may not" in found["right", "fleet"]
    assert "may not" in found["right", "lease"]
    assert "Deployment" in " ".join(subject for check, subject in found if check == "target")
    _, found = doctor(tmp_path, control_plane.kubeconfig, namespace)
    assert found["right", "fleet"].startswith("fine")
    assert found["target", f"Deployment {namespace}/warm"] == "wrong: it does not exist"
    assert found["clock", "API server"].startswith("fine")


def test_an_uninstall_is_refused_while_a_template_carries_the_gate(
    fleet: FleetUnderTest, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    fleet.deploy(1, *ENGINE, gate=True)
    code, found = doctor(tmp_path, control_plane.kubeconfig, namespace, "--uninstall")
    assert code == 1
    assert "new pods would never be ready" in found["gate", f"Deployment {namespace}/warm"]
    _, found = doctor(tmp_path, control_plane.kubeconfig, namespace)
    assert found["gate", f"Deployment {namespace}/warm"].startswith("note")
    without = {"spec": {"template": {"spec": {"readinessGates": None}}}}
    fleet.apps.patch_namespaced_deployment("warm", namespace, without)
    code, found = doctor(tmp_path, control_plane.kubeconfig, namespace, "--uninstall")
    assert (code, found["gate", f"Deployment {namespace}/warm"].partition(":")[0]) == (0, "fine")
