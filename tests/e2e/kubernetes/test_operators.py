"""What operators say in a cluster: TierOverrides by kubectl and by REST are one, and every instance knows them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from kubernetes import client

from autoscaler.ring import RingSnapshot
from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.kubernetes.running import ENGINE, Controller, Rings, active, complete, models, policy, still
from tests.e2e.kubernetes.traffic import Clients, router
from tests.e2e.parts.commands import CommandFailedError, helm, kubectl
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.slow
CRDS = Path(__file__).resolve().parents[3] / "helm" / "lora-autoscaler-crds"
LATER = "2100-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def crds(control_plane: ControlPlane) -> None:
    """Installed once, since they are kept; as a second release would find them."""
    helm("upgrade", "--install", "crds", str(CRDS), "-n", "default", kubeconfig=control_plane.kubeconfig)
    words = ("wait", "--for=condition=Established", "crd/tieroverrides.lora-autoscaler.io", "--timeout=30s")
    kubectl(*words, kubeconfig=control_plane.kubeconfig)


@pytest.fixture
def ann(control_plane: ControlPlane, namespace: str, crds: None) -> Path:
    """A user who may make TierOverrides in the namespace, and no more."""
    rbac: Any = client.RbacAuthorizationV1Api(control_plane.client())
    rule = {"apiGroups": ["lora-autoscaler.io"], "resources": ["tieroverrides"], "verbs": ["*"]}
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "overrides"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "overrides"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "overrides"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    }
    rbac.create_namespaced_role_binding(namespace, binding)
    return control_plane.kubeconfig_for_user("ann")


@pytest.fixture
def account(control_plane: ControlPlane, namespace: str) -> Iterator[Path]:
    """A service account that may do everything, as the controller's may what its chart gives."""
    api = control_plane.client()
    core: Any = client.CoreV1Api(api)
    rbac: Any = client.RbacAuthorizationV1Api(api)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "controller"}})
    binding = {
        "metadata": {"name": f"controller-{namespace}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "controller", "namespace": namespace}],
    }
    rbac.create_cluster_role_binding(binding)
    yield control_plane.kubeconfig_for_service_account(namespace, "controller")
    rbac.delete_cluster_role_binding(f"controller-{namespace}")


@pytest.fixture
def controller(tmp_path: Path, account: Path, namespace: str) -> Iterator[Controller]:
    made = Controller(tmp_path / "controller", account, namespace, events=True)
    yield made
    made.stop()


def override(namespace: str, **changes: object) -> str:
    spec = {"fleet": "fleet", "tenant": "a00", "tier": "warm", "reason": "launch day", "actor": "ann"}
    body = {
        "apiVersion": "lora-autoscaler.io/v1alpha1", "kind": "TierOverride",
        "metadata": {"name": "launch", "namespace": namespace},
        "spec": {**spec, "expiresAt": LATER, **changes},
    }  # fmt: skip
    return json.dumps(body)


class TestTheKind:
    def test_only_who_makes_one_is_its_actor(self, ann: Path, namespace: str, control_plane: ControlPlane) -> None:
        for kubeconfig, me in ((ann, "ann"), (control_plane.kubeconfig, "admin")):
            with pytest.raises(CommandFailedError, match=f"spec.actor is bob, and you are {me}"):
                kubectl("create", "-f", "-", kubeconfig=kubeconfig, stdin=override(namespace, actor="bob"))
        kubectl("apply", "-f", "-", kubeconfig=ann, stdin=override(namespace))
        with pytest.raises(CommandFailedError, match="and you are admin"):
            kubectl("apply", "-f", "-", kubeconfig=control_plane.kubeconfig, stdin=override(namespace, tier="cold"))
        words = ("label", "tieroverride", "launch", "-n", namespace, "ticket=4711")
        kubectl(*words, kubeconfig=control_plane.kubeconfig)

    @pytest.mark.parametrize(
        ("changes", "why"),
        [
            ({"tier": "lukewarm"}, "Unsupported value"),
            ({"reason": "x"}, "should be at least 3 chars"),
            ({"reason": "two\nlines"}, "one line"),
            ({"expiresAt": "soon"}, "date-time"),
            ({"until": LATER}, "unknown field"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(
        self, changes: dict[str, object], why: str, ann: Path, namespace: str
    ) -> None:
        words = ("create", "--validate=strict", "-f", "-")
        with pytest.raises(CommandFailedError, match=why):
            kubectl(*words, kubeconfig=ann, stdin=override(namespace, **changes))

    def test_a_tenant_stays(self, ann: Path, namespace: str) -> None:
        kubectl("apply", "-f", "-", kubeconfig=ann, stdin=override(namespace))
        with pytest.raises(CommandFailedError, match="fleet and tenant stay as they are"):
            kubectl("apply", "-f", "-", kubeconfig=ann, stdin=override(namespace, tenant="a01"))

    def test_it_is_explained(self, ann: Path) -> None:
        assert "at most 90 days" in kubectl("explain", "tieroverride.spec.expiresAt", kubeconfig=ann)


def shown(namespace: str, kubeconfig: Path) -> dict[str, list[str]]:
    """Tenant -> the columns that `kubectl get` prints."""
    lines = kubectl("get", "tieroverrides", "-n", namespace, "--no-headers", kubeconfig=kubeconfig).splitlines()
    return {line.split()[2]: line.split() for line in lines}


def test_kubectl_and_rest_are_one_and_every_instance_knows_it(
    fleet: FleetUnderTest, controller: Controller, ann: Path, account: Path, namespace: str, tmp_path: Path
) -> None:
    def put(to: Controller, tenant: str, match: str = "", reason: str = "load test") -> Any:
        body = {"tier": "cold", "reason": reason, "ttl_s": 600}
        headers = {"If-Match": match} if match else {}
        return to.ask(f"/v1/fleets/fleet/tenants/{tenant}/override", body, "PUT", headers)

    fleet.deploy(2, *ENGINE)
    controller.wants(policy(2, 2)).start()
    kubectl("create", "-f", "-", kubeconfig=ann, stdin=override(namespace, tier="cold"))
    wait_until("it is in force", lambda: shown(namespace, ann)["a00"][4:6] == ["True", "InForce"])
    described = kubectl("describe", "tieroverride", "launch", "-n", namespace, kubeconfig=ann)
    assert "InForce" in described
    assert "a00 is cold until" in described
    words = ("describe", "deployment", "warm", "-n", namespace)
    wait_until("it is told on the target", lambda: "tenant/a00 warm -> cold" in kubectl(*words, kubeconfig=account))
    listed = controller.ask("/v1/fleets/fleet/overrides")["items"]
    assert [(o["tenant"], o["tier"], o["actor"]) for o in listed] == [("a00", "cold", "ann")]
    wait_until("who made it is audited", lambda: "ann" in {e["actor"] for e in controller.ask("/v1/audit")["items"]})

    second = Controller(tmp_path / "second", account, namespace).wants(policy(2, 2))
    with second:
        made = put(second, "a01")
        assert made["displaces_tier"] == "warm"
        wait_until("the follower's word counts", lambda: shown(namespace, ann)["a01"][4:6] == ["True", "InForce"])
        assert shown(namespace, ann)["a01"][7] == "local-operator"
        with pytest.raises(HTTPError, match="412"):
            put(second, "a01", '"1"')
        # Said again within the same second it would be the same object: what changes nothing has no new revision.
        again = put(controller, "a01", f'"{made["revision"]}"', "longer load test")
        assert again["revision"] > made["revision"]
        second.ask("/v1/fleets/fleet/groups/warm/pause", {"mode": "all", "reason": "game night", "ttl_s": 600}, "PUT")
        wait_until("the leader pauses", lambda: "game night" in str(controller.group()))

        kubectl("delete", "tieroverride", "launch", "-n", namespace, kubeconfig=ann)
        wait_until("it is gone everywhere", lambda: len(second.ask("/v1/fleets/fleet/overrides")["items"]) == 1)
        controller.close()
        wait_until("the other leads", lambda: second.ask("/v1/fleets/fleet")["leader"])
        assert "game night" in str(second.group())
        cleared = second.ask("/v1/fleets/fleet/tenants/a01/override", method="DELETE")
        assert cleared["tier"] == "cold"
        assert not shown(namespace, ann)
        told = [e["action"] for e in second.ask("/v1/audit")["items"]]
        assert told[:2] == ["override.clear", "pause.set"]
        assert second.ask("/v1/fleets/fleet/decisions")["items"], "decisions of the leader that died are there"


def test_callers_are_who_the_cluster_says_and_may_what_rbac_gives(
    fleet: FleetUnderTest, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    core: Any = client.CoreV1Api(control_plane.client())
    rbac: Any = client.RbacAuthorizationV1Api(control_plane.client())
    tokens = {}
    for name, verbs in (("reader", ["get"]), ("operator", ["get", "update"]), ("stranger", [])):
        core.create_namespaced_service_account(namespace, {"metadata": {"name": name}})
        words = ("create", "token", name, "-n", namespace, "--audience", "lora-autoscaler")
        tokens[name] = kubectl(*words, kubeconfig=control_plane.kubeconfig).strip()
        if verbs:
            rule = {"apiGroups": ["lora-autoscaler.io"], "resources": ["fleets"], "verbs": verbs}
            rbac.create_namespaced_role(namespace, {"metadata": {"name": name}, "rules": [rule]})
            binding = {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            }
            rbac.create_namespaced_role_binding(namespace, binding)
    fleet.deploy(1, *ENGINE)
    made = Controller(tmp_path / "controller", control_plane.kubeconfig, namespace, tokenReview=True)
    pause = {"mode": "all", "reason": "game night", "ttl_s": 600}

    def command(name: str) -> Any:
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        return made.ask("/v1/fleets/fleet/groups/warm/pause", pause, "PUT", headers)

    with made.wants(policy(1, 1)):
        assert made.ask("/v1/fleets", headers={"Authorization": f"Bearer {tokens['reader']}"})["items"]
        assert command("operator")["actor"] == f"system:serviceaccount:{namespace}:operator"
        for name, status in (("reader", "403"), ("stranger", "403")):
            with pytest.raises(HTTPError, match=status):
                command(name)
        tokens["nobody"] = "x" * 40
        with pytest.raises(HTTPError, match="401"):
            command("nobody")


def test_a_promotion_makes_a_group_that_follows_the_warm_template_until_it_ends(
    fleet: FleetUnderTest, controller: Controller, crds: None, namespace: str
) -> None:
    def deployments() -> dict[str, Any]:
        return {d.metadata.name: d for d in fleet.apps.list_namespaced_deployment(namespace).items}

    def words() -> list[str]:
        return list(deployments()["fleet-hot-a00"].spec.template.spec.containers[0].args)

    def served_by(ring: RingSnapshot) -> set[str]:
        return {m.replica for m in ring.hot["a00"].members} if "a00" in ring.hot else set()

    def anew(what: str, before: RingSnapshot) -> RingSnapshot:
        """Wait until the group's pods have been replaced, and nobody was without one meanwhile."""
        now = rings.wait(what, lambda ring: served_by(ring) and served_by(ring).isdisjoint(served_by(before)), 120)
        assert all(served_by(ring) for ring in rings.seen if before.epoch <= ring.epoch <= now.epoch)
        return now

    def wanted(hot: dict[str, Any]) -> dict[str, Any]:
        found = policy(2, 2, hot=hot)
        found["spec"]["ring"]["residencyDeadline"] = "10s"
        return found

    fleet.deploy(2, *ENGINE, pre_stop_sleep_s=5)
    with Rings(fleet) as rings:
        controller.wants(wanted({"template": {"args": ["--max-num-seqs", "{maxLoras}"]}})).start()
        rings.wait("both pods are on the ring", lambda ring: len(active(ring)) == 2)
        body = {"tier": "hot", "reason": "launch day", "ttl_s": 600}
        controller.ask("/v1/fleets/fleet/tenants/a00/override", body, "PUT")
        first = rings.wait("it has a group of its own", lambda ring: "a00" in ring.hot, 90)
        assert words()[-2:] == ["--max-num-seqs", "1"]
        assert deployments()["fleet-hot-a00"].metadata.owner_references[0].name == "warm"
        assert {p.metadata.name for p in fleet.pods()} == set(active(first)), "no selector of the warm group takes it"

        fleet.arguments(*ENGINE, "--max-model-len", "4096")
        second = anew("the group follows the warm template", first)
        assert words()[-4:] == ["--max-model-len", "4096", "--max-num-seqs", "1"]
        assert set(active(second)).isdisjoint(active(first)), "after the warm group, whose rollout went well"

        merged = {"allowed": True, "pathTemplate": "/merged/{id}"}
        words_for_it = ["--model", "{checkpoint}", "--served-model-name", "{adapter}"]
        controller.wants(wanted({"template": {"args": words_for_it}, "mergedCheckpoints": merged}))
        third = anew("the group serves a merged checkpoint", second)
        assert words()[-4:] == ["--model", "/merged/a00", "--served-model-name", "a00"]
        (pod,) = served_by(third)
        assert models(fleet.address(pod)) == {"a00"}, "nothing is loaded into it"
        assert complete(fleet.address(pod), "a00")["model"] == "a00"

        controller.ask("/v1/fleets/fleet/tenants/a00/override", method="DELETE")
        rings.wait("it is back on the ring", lambda ring: not ring.hot, 90)
        wait_until("its group is gone", lambda: set(deployments()) == {"warm"}, 90)
    assert not rings.failures


def test_a_cold_group_sleeps_until_the_first_request_and_again_after_the_last(
    fleet: FleetUnderTest, controller: Controller, crds: None, tmp_path: Path
) -> None:
    cold = fleet.beside("cold")
    fleet.deploy(2, *ENGINE)
    cold.deploy(0, *ENGINE)
    envoy, url = router(tmp_path / "envoy", [(LOOPBACK, controller.discovery)])

    def ended(clients: Clients) -> None:
        assert clients.failed == {}

    with Rings(fleet) as rings:
        group = {"target": {"name": "cold"}, "idleAfter": "5s"}
        controller.counts_by(envoy.admin_url).wants(policy(2, 2, cold=group)).start()
        rings.wait("both pods are on the ring", lambda ring: len(active(ring)) == 2)
        body = {"tier": "cold", "reason": "contract ended", "ttl_s": 600}
        controller.ask("/v1/fleets/fleet/tenants/a00/override", body, "PUT")
        with envoy:
            assert still(4, lambda: not cold.pods()), "nobody asks for it"
            with Clients(url, ["a00"]) as clients:
                rings.wait("a cold pod serves", lambda ring: bool(ring.cold), 90)
            ended(clients)
            wait_until("it sleeps again", lambda: not cold.pods(), 120)
            rings.wait("nobody is sent there", lambda ring: not ring.cold)
            with Clients(url, ["a00"]) as clients:
                wait_until("it is served while nobody is awake", lambda: clients.ended["200"] > 3)
            ended(clients)
    assert not rings.failures
