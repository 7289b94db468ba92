"""The fleet that the tests of the Kubernetes connector act on behaves as a vLLM fleet in a cluster does."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.fleet import FleetUnderTest, url_of
from tests.e2e.parts.commands import kubectl
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.podlife import Json
from tests.e2e.parts.processes import Server, wait_until


def post(url: str, body: dict[str, Any]) -> bytes:
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=20) as answer:
        return bytes(answer.read())


def test_pods_serve_the_adapters_that_their_command_line_gives_them(fleet: FleetUnderTest) -> None:
    (pod,) = fleet.deploy(1, "--max-loras", "2", "--adapter", "/adapters/a=16", "--enable-lora")
    post(f"{url_of(pod)}/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/adapters/a"})
    answer = json.loads(post(f"{url_of(pod)}/v1/completions", {"model": "a", "prompt": "hello", "max_tokens": 4}))
    assert answer["usage"]["completion_tokens"] == 4
    assert fleet.engine(pod.metadata.name).options.limits.max_loras == 2


@pytest.mark.parametrize(("kind", "max_surge"), [("Deployment", 1), ("Deployment", 0), ("StatefulSet", 0)])
def test_a_rolling_restart_replaces_every_pod_and_keeps_all_but_one_ready(
    fleet: FleetUnderTest, kind: Any, max_surge: int
) -> None:
    old = {pod.metadata.uid for pod in fleet.deploy(3, kind=kind, max_surge=max_surge, pre_stop_sleep_s=0)}
    fleet.restart()
    fewest, left, deadline_s = 3, old, time.monotonic() + 60
    while left and time.monotonic() < deadline_s:
        ready = {pod.metadata.uid for pod in fleet.ready()}
        fewest, left = min(fewest, len(ready)), {pod.metadata.uid for pod in fleet.pods()} & old
    assert not left, "every pod was replaced"
    assert fewest >= (3 if max_surge else 2)
    fleet.wait_ready(3)


def test_an_engine_that_crashes_comes_back_without_its_adapters(fleet: FleetUnderTest) -> None:
    (pod,) = fleet.deploy(1, "--adapter", "/adapters/a=16")
    post(f"{url_of(pod)}/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/adapters/a"})
    fleet.kubelet.engine(pod.metadata.name).close()

    def restarted() -> list[Any]:
        return [each for each in fleet.ready() if each.status.container_statuses[0].restart_count == 1]

    (again,) = wait_until("the engine runs again", restarted)
    assert again.metadata.uid == pod.metadata.uid
    with urllib.request.urlopen(f"{url_of(again)}/v1/models", timeout=5) as answer:
        assert [model["id"] for model in json.load(answer)["data"]] == ["base"]


def test_a_job_that_is_no_engine_runs_to_its_end(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    def start(pod: Json, address: str) -> Server:
        return Server("job", pod["spec"]["containers"][0]["command"], tmp_path, lambda: True).launch()

    job = ("create", "job", "once", "--image=job:test", "-n", namespace, "--", "sh", "-c", "echo done")
    with FleetUnderTest(control_plane, namespace, programs={"job:test": start}):
        kubectl(*job, kubeconfig=control_plane.kubeconfig)
        complete = ("wait", "--for=condition=complete", "job/once", "-n", namespace, "--timeout=30s")
        kubectl(*complete, kubeconfig=control_plane.kubeconfig)
    assert (tmp_path / "job.log").read_text() == "done\n"
