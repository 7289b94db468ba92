"""`lora-autoscaler run` drives a fleet in the real control plane."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.connectors.kubernetes.readings import ACCEPT, SLOT
from autoscaler.ring import RingSnapshot
from tests.e2e.kubernetes.fleet import FleetUnderTest, url_of
from tests.e2e.kubernetes.running import ENGINE, Controller, Rings, active, models, owned, policy, still
from tests.e2e.parts.commands import kubectl
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.processes import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def controller(tmp_path: Path, control_plane: ControlPlane, namespace: str) -> Iterator[Controller]:
    made = Controller(tmp_path / "controller", control_plane.kubeconfig, namespace)
    yield made
    made.stop()


def slots(fleet: FleetUnderTest) -> dict[str, str]:
    return {p.metadata.name: (p.metadata.labels or {}).get(SLOT, "") for p in fleet.pods()}


@pytest.mark.parametrize("gate", [False, True])
def test_a_scale_out_is_named_only_once_its_adapters_are_resident(
    fleet: FleetUnderTest, controller: Controller, gate: bool
) -> None:
    first = {p.metadata.name for p in fleet.deploy(2, *ENGINE, gate=gate)}
    missing: set[str] = set()

    def look(ring: RingSnapshot) -> None:
        for pod in fleet.pods():
            if (slot := active(ring).get(pod.metadata.name)) is not None:
                missing.update(owned(ring, slot) - models(url_of(pod)))

    def owns_some(ring: RingSnapshot) -> bool:
        return any(owned(ring, slot) for pod, slot in active(ring).items() if pod not in first)

    with Rings(fleet, look) as rings:
        controller.wants(policy(2, 4)).start()
        rings.wait("both pods are on the ring", lambda ring: set(active(ring)) == first)
        controller.wants(policy(3, 4))
        ring = rings.wait("a third pod is on the ring and owns adapters", owns_some)
        fleet.wait_ready(3)
    assert not rings.failures
    assert missing == set(), "no epoch names a pod before it has what it owns"
    assert len(active(ring)) == 3
    assert slots(fleet) == active(ring)
    epochs = [ring.epoch for ring in rings.seen]
    assert epochs == sorted(set(epochs))


def test_a_scale_in_takes_the_pod_that_left_the_ring(fleet: FleetUnderTest, controller: Controller) -> None:
    fleet.deploy(3, *ENGINE, pre_stop_sleep_s=0)
    alive_when_left: list[set[str]] = []

    def look(ring: RingSnapshot) -> None:
        if len(active(ring)) == 2 and not alive_when_left:
            alive_when_left.append({p.metadata.name for p in fleet.pods() if p.metadata.deletion_timestamp is None})

    with Rings(fleet, look) as rings:
        controller.wants(policy(2, 4)).start()
        before = active(rings.wait("three pods are on the ring", lambda ring: len(active(ring)) == 3))
        controller.wants(policy(2, 2))
        after = active(rings.wait("two pods are on the ring", lambda ring: len(active(ring)) == 2))
        wait_until("one pod is gone", lambda: len(fleet.pods()) == 2, 60)
        stays = {p.metadata.name for p in fleet.pods()}
    assert alive_when_left == [set(before)], "the pod was deleted only after its epoch"
    assert stays == set(after)
    assert after.items() <= before.items(), "the others keep their slots"


def test_a_count_set_by_hand_is_seen_held_and_handed_back(
    fleet: FleetUnderTest, controller: Controller, control_plane: ControlPlane, namespace: str
) -> None:
    def by_hand(*arguments: str) -> None:
        kubectl(*arguments, "--namespace", namespace, kubeconfig=control_plane.kubeconfig)

    def count() -> int:
        return int(fleet.apps.read_namespaced_deployment_scale("warm", namespace).spec.replicas)

    fleet.deploy(2, *ENGINE, pre_stop_sleep_s=0)
    controller.wants(policy(3, 3)).start()
    wait_until("the bound is met", lambda: count() == 3)
    by_hand("scale", "deployment", "warm", "--replicas=4")
    wait_until("it is seen", lambda: "kubectl changed the replicas" in str(controller.ask("/v1/fleets/fleet")))
    assert still(4, lambda: count() == 4), "and not fought over"
    assert "ForeignActor" in str(controller.group()["trail"])
    by_hand("annotate", "deployment", "warm", f"{ACCEPT}=4")
    wait_until("it goes on once it is handed back", lambda: count() == 3, 60)


def test_a_freeze_on_the_lease_stops_every_effect(
    fleet: FleetUnderTest, controller: Controller, control_plane: ControlPlane, namespace: str
) -> None:
    def lease(note: str) -> None:
        words = ("annotate", "--overwrite", "lease", "lora-autoscaler", note, "--namespace", namespace)
        kubectl(*words, kubeconfig=control_plane.kubeconfig)

    fleet.deploy(2, *ENGINE)
    controller.wants(policy(2, 4)).start()
    lease("lora-autoscaler.io/freeze=game night")
    wait_until("it is frozen", lambda: "game night" in str(controller.ask("/v1/fleets/fleet")["frozen"]))
    controller.wants(policy(3, 4))
    assert still(4, lambda: len(fleet.pods()) == 2)
    lease("lora-autoscaler.io/freeze-")
    fleet.wait_ready(3)


def test_detach_opens_gates_and_takes_every_mark_away(fleet: FleetUnderTest, controller: Controller) -> None:
    fleet.deploy(2, *ENGINE, gate=True)
    with Rings(fleet) as rings:
        controller.wants(policy(2, 4)).start()
        rings.wait("both pods are on the ring", lambda ring: len(active(ring)) == 2)
        fleet.wait_ready(2)
        done = controller.ask("/v1/fleets/fleet/detach", {"reason": "uninstalling"})["done"]
    assert any("2 pods" in line and "removed" in line for line in done)
    assert set(slots(fleet).values()) == {""}
    fleet.scale(3)
    fleet.wait_ready(3)
    assert set(slots(fleet).values()) == {""}
