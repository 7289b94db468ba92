"""The parts are real: the control plane, its clients, both Prometheus releases and Envoy behave as in production."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.e2e.parts.commands import CommandFailedError, helm, kubectl
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.envoy import EnvoyProcess
from tests.e2e.parts.kubelet import TestKubelet
from tests.e2e.parts.processes import LOOPBACK, answers_200, free_port, wait_until
from tests.e2e.parts.prometheus import PrometheusServer, Targets, pods_scrape_config

Json = dict[str, Any]
PORT = 8000
TYPES = "type.googleapis.com/envoy.extensions.filters"
GATE = "lora-autoscaler.io/adapters-resident"


class Answers(BaseHTTPRequestHandler):
    """Answers every GET with one metric, which Prometheus and a probe both take."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"engine_up 1\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class TinyEngine:
    """As little as runs in a pod: a web server on the pod's address."""

    def __init__(self, pod: Json, address: str, port: int = PORT) -> None:
        self.exit_code: int | None = None
        self.terminated = False
        self._server = ThreadingHTTPServer((address, port), Answers)
        threading.Thread(target=partial(self._server.serve_forever, poll_interval=0.05), daemon=True).start()

    def terminate(self) -> None:
        self.terminated = True
        self.close()

    def close(self) -> None:
        if self.exit_code is None:
            self.exit_code = 0
            self._server.shutdown()
            self._server.server_close()


def deployment(name: str, replicas: int, **pod_spec: Any) -> Json:
    """A Deployment of engines; further fields of the pod's spec as given."""
    probe = {"httpGet": {"path": "/health", "port": "http"}}
    ports = [{"name": "http", "containerPort": PORT}]
    container = {"name": "engine", "image": "engine:test", "ports": ports, "readinessProbe": probe}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **pod_spec}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def core(control_plane: ControlPlane) -> Iterator[Any]:
    with control_plane.client() as api:
        yield client.CoreV1Api(api)


@pytest.fixture
def apps(control_plane: ControlPlane) -> Iterator[Any]:
    with control_plane.client() as api:
        yield client.AppsV1Api(api)


@pytest.fixture
def kubelet(control_plane: ControlPlane, namespace: str) -> Iterator[TestKubelet]:
    with TestKubelet(control_plane, TinyEngine, namespace=namespace) as running:
        yield running


def ready_pods(core: Any, namespace: str) -> list[Any]:
    """The pods whose condition Ready is true and that are not on their way out."""
    return [
        pod
        for pod in core.list_namespaced_pod(namespace).items
        if condition_of(pod, "Ready") == "True" and pod.metadata.deletion_timestamp is None
    ]


def condition_of(pod: Any, kind: str) -> str | None:
    return next((each.status for each in pod.status.conditions or [] if each.type == kind), None)


def wait_for_ready(core: Any, namespace: str, count: int) -> list[Any]:
    def exactly() -> list[Any]:
        found = ready_pods(core, namespace)
        return found if len(found) == count else []

    return wait_until(f"{count} pods are ready", exactly)


def scale(apps: Any, namespace: str, name: str, replicas: int) -> None:
    apps.patch_namespaced_deployment_scale(name, namespace, {"spec": {"replicas": replicas}})


class TestControlPlane:
    def test_a_deployment_gets_ready_pods_that_answer_on_addresses_of_their_own(
        self, core: Any, apps: Any, kubelet: TestKubelet, namespace: str
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 3))
        pods = wait_for_ready(core, namespace, 3)
        addresses = {pod.status.pod_ip for pod in pods}
        assert len(addresses) == 3
        assert all(answers_200(f"http://{address}:{PORT}/health") for address in addresses)
        assert len({pod.spec.node_name for pod in pods}) == 3, "pods spread over the nodes"

    def test_the_scale_subresource_grows_and_shrinks_and_the_engines_end_by_sigterm(
        self, core: Any, apps: Any, kubelet: TestKubelet, namespace: str
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 1))
        (first,) = wait_for_ready(core, namespace, 1)
        scale(apps, namespace, "warm", 4)
        wait_for_ready(core, namespace, 4)
        engine = kubelet.engine(first.metadata.name)
        assert isinstance(engine, TinyEngine)
        scale(apps, namespace, "warm", 0)
        wait_until("the pods are gone", lambda: not core.list_namespaced_pod(namespace).items)
        assert engine.terminated

    def test_pod_deletion_cost_chooses_the_victim(
        self, core: Any, apps: Any, kubelet: TestKubelet, namespace: str
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 3))
        names = sorted(pod.metadata.name for pod in wait_for_ready(core, namespace, 3))
        for name, cost in zip(names, ("5", "-100", "7"), strict=True):
            annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
            core.patch_namespaced_pod(name, namespace, {"metadata": {"annotations": annotations}})
        scale(apps, namespace, "warm", 2)
        assert {pod.metadata.name for pod in wait_for_ready(core, namespace, 2)} == {names[0], names[2]}

    def test_a_readiness_gate_holds_ready_back_until_it_is_patched(
        self, core: Any, apps: Any, kubelet: TestKubelet, namespace: str
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 1, readinessGates=[{"conditionType": GATE}]))

        def pods_with_ready_containers() -> list[Any]:
            pods = core.list_namespaced_pod(namespace).items
            return [pod for pod in pods if condition_of(pod, "ContainersReady") == "True"]

        (pod,) = wait_until("the containers are ready", pods_with_ready_containers)
        assert condition_of(pod, "Ready") == "False"
        status = {"conditions": [{"type": GATE, "status": "True"}]}
        core.patch_namespaced_pod_status(pod.metadata.name, namespace, {"status": status})
        wait_for_ready(core, namespace, 1)

    def test_an_engine_that_ends_is_started_again(
        self, core: Any, apps: Any, kubelet: TestKubelet, namespace: str
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 1))
        (pod,) = wait_for_ready(core, namespace, 1)
        kubelet.engine(pod.metadata.name).close()

        def restarts() -> int:
            statuses = core.read_namespaced_pod(pod.metadata.name, namespace).status.container_statuses
            return sum(each.restart_count for each in statuses)

        wait_until("the restart is counted", lambda: restarts() == 1)
        assert wait_for_ready(core, namespace, 1)[0].metadata.name == pod.metadata.name

    def test_a_drained_node_loses_its_pods_to_the_others(
        self,
        core: Any,
        apps: Any,
        kubelet: TestKubelet,
        namespace: str,
        control_plane: ControlPlane,
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 3))
        wait_for_ready(core, namespace, 3)
        node = kubelet.node_names[0]
        kubectl("drain", node, "--timeout=60s", kubeconfig=control_plane.kubeconfig)
        assert node not in {pod.spec.node_name for pod in wait_for_ready(core, namespace, 3)}

    def test_a_pod_without_room_is_reported_unschedulable(
        self, core: Any, control_plane: ControlPlane, apps: Any, namespace: str
    ) -> None:
        with TestKubelet(control_plane, TinyEngine, namespace=namespace, nodes=1, pods_per_node=1):
            apps.create_namespaced_deployment(namespace, deployment("warm", 2))
            wait_for_ready(core, namespace, 1)

            def unscheduled() -> list[Any]:
                pods = core.list_namespaced_pod(namespace).items
                return [pod for pod in pods if condition_of(pod, "PodScheduled") == "False"]

            (pod,) = wait_until("one pod is unschedulable", unscheduled)
            assert pod.status.conditions[0].reason == "Unschedulable"

    def test_pods_live_through_an_api_server_that_is_away(
        self,
        core: Any,
        apps: Any,
        kubelet: TestKubelet,
        namespace: str,
        control_plane: ControlPlane,
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 2))
        before = {pod.metadata.name for pod in wait_for_ready(core, namespace, 2)}
        address = core.list_namespaced_pod(namespace).items[0].status.pod_ip
        control_plane.apiserver.close()
        assert answers_200(f"http://{address}:{PORT}/health")
        control_plane.apiserver.start()
        scale(apps, namespace, "warm", 3)
        assert before < {pod.metadata.name for pod in wait_for_ready(core, namespace, 3)}


class TestWhoMayDoWhat:
    def test_a_service_account_may_do_nothing_until_a_role_lets_it(
        self, core: Any, control_plane: ControlPlane, namespace: str
    ) -> None:
        core.create_namespaced_service_account(namespace, {"metadata": {"name": "reader"}})
        kubeconfig = control_plane.kubeconfig_for_service_account(namespace, "reader")
        with pytest.raises(CommandFailedError, match=r"serviceaccount:.*:reader.*cannot list resource \"pods\""):
            kubectl("get", "pods", kubeconfig=kubeconfig)
        admin = ("-n", namespace, "create")
        kubectl(*admin, "role", "reader", "--verb=list", "--resource=pods", kubeconfig=control_plane.kubeconfig)
        binding = ("rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader")
        kubectl(*admin, *binding, kubeconfig=control_plane.kubeconfig)
        assert kubectl("get", "pods", "-o", "name", kubeconfig=kubeconfig) == ""

    def test_a_user_is_known_by_name_and_groups(self, control_plane: ControlPlane) -> None:
        kubeconfig = control_plane.kubeconfig_for_user("alice", "sre")
        whoami = json.loads(kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig))["status"]["userInfo"]
        assert whoami["username"] == "alice"
        assert "sre" in whoami["groups"]


class TestCommands:
    def test_kubectl_is_of_the_servers_version(self, control_plane: ControlPlane) -> None:
        versions = json.loads(kubectl("version", "-o", "json", kubeconfig=control_plane.kubeconfig))
        assert versions["serverVersion"]["gitVersion"] == "v1.37.2"
        assert versions["clientVersion"]["minor"] == "37"

    def test_helm_installs_a_chart_and_takes_it_away(
        self, control_plane: ControlPlane, core: Any, namespace: str, tmp_path: Path
    ) -> None:
        assert helm("version", "--short").startswith("v4.")
        chart = tmp_path / "chart"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: trivial\nversion: 0.1.0\n")
        template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}"}}
        (chart / "templates" / "map.yaml").write_text(json.dumps(template))
        install = ("install", "mine", str(chart), "--namespace", namespace)
        helm(*install, kubeconfig=control_plane.kubeconfig)
        assert core.read_namespaced_config_map("mine", namespace).metadata.labels == {
            "app.kubernetes.io/managed-by": "Helm"
        }
        helm("uninstall", "mine", "--namespace", namespace, kubeconfig=control_plane.kubeconfig)
        assert "mine" not in {each.metadata.name for each in core.list_namespaced_config_map(namespace).items}


class TestPrometheus:
    @pytest.mark.parametrize("version", ["2", "3"])
    def test_both_releases_scrape_what_a_file_names(self, version: Any, tmp_path: Path) -> None:
        port = free_port()
        engine = TinyEngine({}, LOOPBACK, port)
        targets = Targets(tmp_path / "targets.json")
        targets.write({f"{LOOPBACK}:{port}": {"replica": "r0"}})
        try:
            with PrometheusServer(tmp_path, [targets.scrape_config()], version=version) as prometheus:
                (sample,) = wait_until("a sample is there", lambda: prometheus.query("engine_up"))
                with urllib.request.urlopen(f"{prometheus.url}/api/v1/status/buildinfo") as answer:
                    build = json.load(answer)["data"]
        finally:
            engine.close()
        assert sample["metric"]["replica"] == "r0"
        assert sample["value"][1] == "1"
        assert build["version"].startswith(f"{version}.")

    def test_release_3_finds_pods_by_itself(
        self,
        core: Any,
        apps: Any,
        kubelet: TestKubelet,
        namespace: str,
        control_plane: ControlPlane,
        tmp_path: Path,
    ) -> None:
        apps.create_namespaced_deployment(namespace, deployment("warm", 2))
        names = {pod.metadata.name for pod in wait_for_ready(core, namespace, 2)}
        pods = pods_scrape_config(control_plane.kubeconfig, namespace, "http")
        with PrometheusServer(tmp_path, [pods], version="3") as prometheus:

            def scraped() -> set[str]:
                return {sample["metric"]["pod"] for sample in prometheus.query('engine_up{app="warm"}')}

            wait_until("both pods are scraped", lambda: scraped() == names)


class TestEnvoy:
    def test_two_start_side_by_side_with_static_configurations(self, tmp_path: Path) -> None:
        ports = free_port(), free_port()
        with (
            EnvoyProcess(tmp_path / "a", answering(ports[0], "from a")) as one,
            EnvoyProcess(tmp_path / "b", answering(ports[1], "from b")),
        ):
            bodies = [urllib.request.urlopen(f"http://{LOOPBACK}:{port}/", timeout=5).read() for port in ports]
            assert bodies == [b"from a", b"from b"]
            assert "http.tests.downstream_rq_2xx: 1" in one.admin("/stats")


def answering(port: int, body: str) -> Json:
    """A bootstrap in which one listener answers every request with `body`."""
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}}
    router = {"@type": f"{TYPES}.http.router.v3.Router"}
    manager = {
        "@type": f"{TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "tests",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    address = {"socket_address": {"address": LOOPBACK, "port_value": port}}
    return {"static_resources": {"listeners": [{"name": "in", "address": address, "filter_chains": [chain]}]}}
