"""What pods and targets say, as values of the domain."""

from typing import Any

import pytest

from autoscaler.connectors.kubernetes import readings
from autoscaler.connectors.kubernetes.readings import DRAINING, GATE, SLOT
from autoscaler.domain.fleet import EngineLimits, ReplicaState

SETTLED = {"replicas": 4, "currentRevision": "a", "updateRevision": "a"}
READY = ("PodScheduled", "ContainersReady")


def pod(
    name: str,
    *holds: str,
    age: int = 0,
    revision: str = "r1",
    slot: str = "",
    leaving: bool = False,
    draining: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """A pod that was created `age` minutes ago."""
    labels = {"pod-template-hash": revision} | ({SLOT: slot} if slot else {})
    meta = {"name": name, "uid": name, "labels": labels, "creationTimestamp": f"2026-01-01T00:{59 - age:02d}:00Z"}
    if leaving:
        meta["deletionTimestamp"] = "2026-01-01T00:59:30Z"
    if draining:
        meta["annotations"] = {DRAINING: "true"}
    ports = more.get("ports", [{"name": "http", "containerPort": 8000}])
    spec = {"containers": [{"name": "engine", "ports": ports}], "readinessGates": more.get("gates", [])}
    conditions = [{"type": kind, "status": "True"} for kind in holds]
    status = {"phase": more.get("phase", "Running"), "conditions": conditions, **more.get("status", {})}
    return {"metadata": meta, "spec": spec, "status": status}


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "engine", "state": {"waiting": {"reason": reason}}}]}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (pod("p"), ReplicaState.PENDING),
        (pod("p", "PodScheduled"), ReplicaState.STARTING),
        (pod("p", *READY), ReplicaState.READY),
        (pod("p", *READY, leaving=True), ReplicaState.DRAINING),
        (pod("p", *READY, draining=True), ReplicaState.DRAINING),
        (pod("p", "PodScheduled", status=waiting("CrashLoopBackOff")), ReplicaState.FAILED),
        (pod("p", "PodScheduled", status=waiting("ImagePullBackOff")), ReplicaState.FAILED),
        (pod("p", "PodScheduled", status=waiting("ContainerCreating")), ReplicaState.STARTING),
        (pod("p", *READY, phase="Unknown"), ReplicaState.FAILED),
    ],
)
def test_a_pod_is_in_the_state_that_its_platform_says(found: dict[str, Any], state: ReplicaState) -> None:
    assert readings.replica_of(found, "warm", None).state is state


def test_pods_that_have_ended_are_no_replicas() -> None:
    seen = readings.replicas_of(
        [pod("a", *READY), pod("b", phase="Failed"), pod("c", phase="Succeeded")], "warm", 1, None
    )
    assert [r.id for r in seen] == ["a"]


@pytest.mark.parametrize(
    ("ip", "ports", "port", "address"),
    [
        ("10.0.0.1", [{"name": "http", "containerPort": 8001}], None, "10.0.0.1:8001"),
        ("10.0.0.1", [{"name": "grpc", "containerPort": 9}, {"name": "http", "containerPort": 8}], None, "10.0.0.1:8"),
        ("10.0.0.1", [{"name": "api", "containerPort": 7}], None, "10.0.0.1:7"),
        ("10.0.0.1", [], None, "10.0.0.1:8000"),
        ("10.0.0.1", [{"name": "http", "containerPort": 8001}], 9000, "10.0.0.1:9000"),
        ("fd00::1", [], None, "[fd00::1]:8000"),
        ("", [], None, ""),
    ],
)
def test_an_engine_answers_on_the_pods_own_port(ip: str, ports: list[Any], port: int | None, address: str) -> None:
    found = pod("p", *READY, ports=ports, status={"podIP": ip})
    assert readings.replica_of(found, "warm", port).address == address


def test_a_restarted_process_is_a_new_one() -> None:
    status = {"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [
        {"name": "other", "state": {"running": {"startedAt": "2026-01-01T00:09:00Z"}}},
        {"name": "engine", "state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}}},
    ]}  # fmt: skip
    started_s = readings.seconds("2026-01-01T00:00:00Z")
    assert readings.replica_of(pod("p", status=status), "warm", None).started_at_s == started_s + 10


@pytest.mark.parametrize(
    ("container", "limits"),
    [
        ({"args": ["--max-loras", "8", "--max-cpu-loras=32", "--max-num-seqs", "64"]}, EngineLimits(8, 32, 16, 64)),
        ({"command": ["sh", "-c", "exec vllm serve m --max-loras 4 --max-lora-rank 64"]}, EngineLimits(4, 4, 64)),
        ({"args": ["--max-loras-per-batch", "8", "--max-running-requests=32"]}, EngineLimits(8, 8, 16, 32)),
        ({"args": ["--max-loras", "$(SLOTS)"]}, EngineLimits()),
        ({}, EngineLimits()),
    ],
)
def test_an_engines_limits_are_those_of_its_command_line(container: dict[str, Any], limits: EngineLimits) -> None:
    found = pod("p", *READY)
    found["spec"]["containers"][0] |= container
    assert readings.replica_of(found, "warm", None).limits == limits


def test_only_our_own_gate_holds_a_pod_back() -> None:
    assert readings.gated(pod("p", *READY, gates=[{"conditionType": GATE}]))
    assert not readings.gated(pod("p", *READY, GATE, gates=[{"conditionType": GATE}]))
    assert not readings.gated(pod("p", *READY, gates=[{"conditionType": "another/gate"}]))


class TestWhoReplacesWhom:
    def test_with_surge_the_newcomer_takes_the_oldest_pods_place(self) -> None:
        old = [pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001")]
        assert readings.replaced([*old, pod("n", revision="r2")], wanted=2) == {"n": "a"}

    def test_pods_that_share_a_slot_stay_paired(self) -> None:
        old = [pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001")]
        assert readings.replaced([*old, pod("n", revision="r2", slot="s0001")], wanted=2) == {"n": "b"}

    def test_a_second_newcomer_takes_another_place(self) -> None:
        pods = [
            pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001"), pod("c", age=7, slot="s0002"),
            pod("n", age=1, revision="r2", slot="s0000"), pod("m", revision="r2"),
        ]  # fmt: skip
        assert readings.replaced(pods, wanted=3) == {"n": "a", "m": "b"}

    def test_without_surge_it_takes_that_of_the_pod_which_goes(self) -> None:
        pods = [pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001", leaving=True), pod("n", revision="r2")]
        assert readings.replaced(pods, wanted=2) == {"n": "b"}

    def test_after_a_node_drain_too_where_the_revision_is_the_same(self) -> None:
        pods = [pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001", leaving=True), pod("n")]
        assert readings.replaced(pods, wanted=2) == {"n": "b"}

    def test_a_scale_out_replaces_nobody(self) -> None:
        pods = [pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001"), pod("n")]
        assert readings.replaced(pods, wanted=3) == {}

    def test_a_newcomer_during_a_rollout_fills_an_empty_place_first(self) -> None:
        pods = [pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001"), pod("n", revision="r2")]
        assert readings.replaced(pods, wanted=3) == {}

    def test_nobody_takes_the_place_of_one_that_we_drain(self) -> None:
        pods = [pod("a", age=9, slot="s0000"), pod("b", age=8, slot="s0001", leaving=True, draining=True), pod("n")]
        assert readings.replaced(pods, wanted=2) == {}


@pytest.mark.parametrize(
    ("kind", "target", "says"),
    [
        ("Deployment", None, "does not exist"),
        ("Deployment", {"metadata": {"deletionTimestamp": "x"}}, "being deleted"),
        ("Deployment", {"metadata": {}, "spec": {"paused": True}}, "paused"),
        ("Deployment", {"metadata": {}, "status": {"updatedReplicas": 1, "replicas": 4}}, "1 of 4"),
        ("Deployment", {"metadata": {}, "status": {"updatedReplicas": 4, "replicas": 4}}, ""),
        ("StatefulSet", {"metadata": {}, "status": SETTLED}, ""),
        ("StatefulSet", {"metadata": {}, "status": SETTLED | {"updateRevision": "b"}}, "0 of 4"),
        (
            "Deployment",
            {"metadata": {}, "status": {"conditions": [
                {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"},
            ]}},
            "exceeded quota: gpus",
        ),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be_scaled_says_why(kind: str, target: dict[str, Any] | None, says: str) -> None:
    why = readings.blocked(target, kind, "Deployment x/warm")
    assert (says in why) if says else not why


def test_who_set_the_count_is_the_newest_owner_of_it() -> None:
    def entry(manager: str, at: str, field: str) -> dict[str, Any]:
        return {"manager": manager, "time": at, "fieldsV1": {"f:spec": {field: {}}}}

    fields = [entry("helm", "1", "f:replicas"), entry("kubectl", "2", "f:replicas"), entry("argocd", "3", "f:template")]
    assert readings.count_owner({"metadata": {"managedFields": fields}}) == "kubectl"
    assert readings.count_owner({"metadata": {}}) == "somebody"


def test_an_autoscaler_is_that_of_the_same_target() -> None:
    def autoscaler(name: str, api_version: str = "apps/v1") -> dict[str, Any]:
        ref = {"kind": "Deployment", "name": name, "apiVersion": api_version}
        return {"metadata": {"name": f"on-{name}"}, "spec": {"scaleTargetRef": ref}}

    seen = [autoscaler("other"), autoscaler("warm", "example.org/v1")]
    assert readings.scaled_by(seen, "apps/v1", "Deployment", "warm") == ""
    found = readings.scaled_by([*seen, autoscaler("warm")], "apps/v1", "Deployment", "warm")
    assert found == "HorizontalPodAutoscaler on-warm"
