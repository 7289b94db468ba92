"""The control plane and its clients are the real ones, and our nodes behave as nodes do."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.fleet import GATE, FleetUnderTest, url_of
from tests.e2e.parts.commands import CommandFailedError, helm, kubectl
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.processes import answers_200, wait_until
from tests.e2e.parts.prometheus import PrometheusServer, pods_scrape_config


def names(pods: list[Any]) -> set[str]:
    return {pod.metadata.name for pod in pods}


class TestPods:
    def test_they_answer_on_addresses_of_their_own_and_spread_over_the_nodes(self, fleet: FleetUnderTest) -> None:
        pods = fleet.deploy(3)
        assert len({pod.status.pod_ip for pod in pods}) == 3
        assert all(answers_200(f"{url_of(pod)}/health") for pod in pods)
        assert {pod.spec.node_name for pod in pods} == set(fleet.kubelet.node_names)

    def test_the_scale_subresource_grows_and_shrinks_and_engines_end_by_sigterm(self, fleet: FleetUnderTest) -> None:
        (first,) = fleet.deploy(1, pre_stop_sleep_s=0)
        fleet.scale(4)
        fleet.wait_ready(4)
        engine = fleet.kubelet.engine(first.metadata.name)
        fleet.scale(0)
        wait_until("the pods are gone", lambda: not fleet.pods())
        assert engine.exit_code == 0

    def test_pod_deletion_cost_chooses_the_victim(self, fleet: FleetUnderTest) -> None:
        first, second, third = sorted(names(fleet.deploy(3)))
        for name, cost in ((first, "5"), (second, "-100"), (third, "7")):
            annotations = {"controller.kubernetes.io/pod-deletion-cost": cost}
            fleet.core.patch_namespaced_pod(name, fleet.namespace, {"metadata": {"annotations": annotations}})
        fleet.scale(2)
        assert names(fleet.wait_ready(2)) == {first, third}

    def test_a_readiness_gate_holds_ready_back_until_it_is_patched(self, fleet: FleetUnderTest) -> None:
        (pod,) = fleet.deploy(1, gate=True)
        assert not fleet.ready()
        opened = {"status": {"conditions": [{"type": GATE, "status": "True"}]}}
        fleet.core.patch_namespaced_pod_status(pod.metadata.name, fleet.namespace, opened)
        assert names(fleet.wait_ready(1)) == {pod.metadata.name}

    def test_a_drained_node_loses_its_pods_to_the_others(
        self, fleet: FleetUnderTest, control_plane: ControlPlane
    ) -> None:
        fleet.deploy(3)
        node = fleet.kubelet.node_names[0]
        kubectl("drain", node, "--timeout=60s", kubeconfig=control_plane.kubeconfig)
        assert node not in {pod.spec.node_name for pod in fleet.wait_ready(3)}

    def test_one_that_fits_nowhere_is_reported_unschedulable(self, control_plane: ControlPlane, namespace: str) -> None:
        with FleetUnderTest(control_plane, namespace, nodes=1, pods_per_node=1) as fleet:
            fleet.deploy(1)
            fleet.scale(2)

            def reasons() -> list[str]:
                conditions = [each for pod in fleet.pods() for each in pod.status.conditions or []]
                return [each.reason for each in conditions if each.type == "PodScheduled" and each.status == "False"]

            assert wait_until("one pod is not scheduled", reasons) == ["Unschedulable"]

    def test_they_live_through_an_api_server_that_is_away(
        self, fleet: FleetUnderTest, control_plane: ControlPlane
    ) -> None:
        before = fleet.deploy(2)
        control_plane.apiserver.close()
        assert all(answers_200(f"{url_of(pod)}/health") for pod in before)
        control_plane.apiserver.start()
        fleet.scale(3)
        assert names(before) < names(fleet.wait_ready(3))


class TestWhoMayDoWhat:
    def test_a_service_account_may_do_nothing_until_a_role_lets_it(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        def as_admin(*arguments: str) -> None:
            kubectl("--namespace", namespace, "create", *arguments, kubeconfig=control_plane.kubeconfig)

        as_admin("serviceaccount", "reader")
        kubeconfig = control_plane.kubeconfig_for_service_account(namespace, "reader")
        with pytest.raises(CommandFailedError, match=r"serviceaccount:.*:reader.*cannot list resource \"pods\""):
            kubectl("get", "pods", kubeconfig=kubeconfig)
        as_admin("role", "reader", "--verb=list", "--resource=pods")
        as_admin("rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader")
        assert kubectl("get", "pods", "--output=name", kubeconfig=kubeconfig) == ""

    def test_a_user_is_known_by_name_and_groups(self, control_plane: ControlPlane) -> None:
        kubeconfig = control_plane.kubeconfig_for_user("team/alice", "sre")
        who = json.loads(kubectl("auth", "whoami", "--output=json", kubeconfig=kubeconfig))["status"]["userInfo"]
        assert who["username"] == "team/alice"
        assert "sre" in who["groups"]


class TestCommands:
    def test_kubectl_is_of_the_servers_version(self, control_plane: ControlPlane) -> None:
        versions = json.loads(kubectl("version", "--output=json", kubeconfig=control_plane.kubeconfig))
        assert versions["serverVersion"]["gitVersion"] == "v1.37.2"
        assert versions["clientVersion"]["minor"] == "37"

    def test_helm_installs_a_chart_and_takes_it_away(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        def config_maps() -> str:
            return kubectl("get", "configmaps", "-n", namespace, "-o", "name", kubeconfig=control_plane.kubeconfig)

        assert helm("version", "--short").startswith("v4.")
        (tmp_path / "templates").mkdir()
        (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: trivial\nversion: 0.1.0\n")
        template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}"}}
        (tmp_path / "templates" / "map.yaml").write_text(json.dumps(template))
        helm("install", "mine", str(tmp_path), "--namespace", namespace, kubeconfig=control_plane.kubeconfig)
        assert "configmap/mine" in config_maps()
        helm("uninstall", "mine", "--namespace", namespace, kubeconfig=control_plane.kubeconfig)
        assert "configmap/mine" not in config_maps()


def test_prometheus_3_finds_the_pods_by_itself(
    fleet: FleetUnderTest, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    pods = fleet.deploy(2)
    scrape = pods_scrape_config(control_plane.kubeconfig, namespace, port_name="http")
    with PrometheusServer(tmp_path, [scrape], version="3") as prometheus:

        def scraped() -> set[str]:
            samples = prometheus.query('vllm:num_requests_running{app="warm"}')
            return {sample["metric"]["pod"] for sample in samples}

        wait_until("both pods are scraped", lambda: scraped() == names(pods))
