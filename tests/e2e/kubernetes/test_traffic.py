"""Nothing that happens to pods, nodes, controllers or the API server costs a client a request."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from autoscaler.connectors.kubernetes.readings import DRAINING, SLOT
from autoscaler.ring import RingSnapshot
from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.kubernetes.running import ENGINE, Controller, Rings, active, owned, policy, still
from tests.e2e.kubernetes.traffic import Clients, router
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.slow
SIX = 6
GOES_S = 5  # a pod's preStop: a tick, an epoch and its acknowledgement must fit in


@pytest.fixture
def controllers(tmp_path: Path, control_plane: ControlPlane, namespace: str) -> Iterator[list[Controller]]:
    made = [Controller(tmp_path / name, control_plane.kubeconfig, namespace) for name in ("first", "second")]
    yield made
    for each in made:
        each.stop()


@contextmanager
def served(folder: Path, controllers: list[Controller]) -> Iterator[Clients]:
    """Clients through an Envoy that has its ring from a controller; none of their requests may fail."""
    envoy, url = router(folder / "envoy", [(LOOPBACK, c.discovery) for c in controllers])
    with envoy, Clients(url) as clients:
        wait_until("requests are answered", lambda: clients.ended["200"] > 20)
        yield clients
    assert clients.failed == {}


def one_by_one(before: RingSnapshot, rings: Rings) -> None:
    """What each slot owns has never changed, and no slot was added."""
    wanted = {slot: owned(before, slot) for slot in active(before).values()}
    after = [ring for ring in rings.seen if ring.epoch >= before.epoch]
    assert {m.slot for ring in after for m in ring.members} == set(wanted)
    assert all({slot: owned(ring, slot) for slot in wanted} == wanted for ring in after)
    assert [ring.epoch for ring in after] == sorted({ring.epoch for ring in after})


@pytest.mark.parametrize(("kind", "max_surge"), [("Deployment", 1), ("Deployment", 0), ("StatefulSet", 0)])
def test_a_rolling_restart_of_six_costs_no_request_and_moves_nothing(
    fleet: FleetUnderTest, controllers: list[Controller], tmp_path: Path, kind: Any, max_surge: int
) -> None:
    pods = fleet.deploy(SIX, *ENGINE, kind=kind, max_surge=max_surge, gate=True, pre_stop_sleep_s=GOES_S)
    old = {p.metadata.uid for p in pods}

    def new() -> list[str]:
        return sorted(p.metadata.name for p in fleet.ready() if p.metadata.uid not in old)

    with Rings(fleet) as rings:
        controllers[0].wants(policy(SIX, SIX, target={"kind": kind})).start()
        first = rings.wait("six pods are on the ring", lambda ring: len(active(ring)) == SIX)
        fleet.wait_ready(SIX)
        with served(tmp_path, controllers[:1]):
            fleet.restart()
            wait_until("six new pods are ready", lambda: len(new()) == SIX, 240, 0.2)
            rings.wait("they are on the ring", lambda ring: sorted(active(ring)) == new(), 60)
    assert not rings.failures
    one_by_one(first, rings)
    fewest = min(len(active(ring)) for ring in rings.seen if ring.epoch >= first.epoch)
    assert fewest == (SIX if max_surge else SIX - 1), "a slot goes over in one epoch, or one at a time is vacant"


def test_a_drained_node_costs_no_request_and_moves_nothing(
    fleet: FleetUnderTest, controllers: list[Controller], tmp_path: Path, namespace: str
) -> None:
    fleet.deploy(SIX, *ENGINE, gate=True, pre_stop_sleep_s=GOES_S)
    with Rings(fleet) as rings:
        controllers[0].wants(policy(SIX, SIX)).start()
        first = rings.wait("six pods are on the ring", lambda ring: len(active(ring)) == SIX)
        node = fleet.wait_ready(SIX)[0].spec.node_name
        with served(tmp_path, controllers[:1]):
            fleet.core.patch_node(node, {"spec": {"unschedulable": True}})
            going = [p for p in fleet.pods() if p.spec.node_name == node]
            for pod in going:
                eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod.metadata.name))
                fleet.core.create_namespaced_pod_eviction(pod.metadata.name, namespace, eviction)
            names = {p.metadata.name for p in going}

            def elsewhere(ring: RingSnapshot) -> bool:
                return len(active(ring)) == SIX and names.isdisjoint(active(ring))

            rings.wait("their slots are held by others", elsewhere, 120)
    one_by_one(first, rings)


def test_a_leader_that_dies_between_any_two_effects_is_followed_within_two_leases(
    fleet: FleetUnderTest, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    lease_s = 5.0
    controllers = [Controller(tmp_path / n, control_plane.kubeconfig, namespace, lease_s) for n in ("one", "other")]
    fleet.deploy(2, *ENGINE, pre_stop_sleep_s=GOES_S)
    most_pods, took_s = 0, []

    def leader() -> Controller | None:
        alive = (c for c in controllers if c.exit_code is None)
        return next((c for c in alive if c.ask("/v1/fleets/fleet")["leader"]), None)

    def slots() -> set[str]:
        return {(p.metadata.labels or {}).get(SLOT, "") for p in fleet.pods()} - {""}

    def count() -> int:
        return int(fleet.apps.read_namespaced_deployment_scale("warm", fleet.namespace).spec.replicas)

    def wants(least: int, most: int) -> None:
        for each in controllers:
            each.wants(policy(least, most))

    def kill_when(what: str, happened: Any) -> None:
        nonlocal most_pods
        wait_until(what, happened, 60, 0.01)
        dead = wait_until("one leads", leader)
        dead.close()
        died_s = time.monotonic()
        most_pods = max(most_pods, len(fleet.pods()))
        wait_until("the other leads", leader, 60)
        took_s.append(time.monotonic() - died_s)
        dead.start()

    with Rings(fleet) as rings, ExitStack() as stack:
        wants(2, 4)
        for each in controllers:
            stack.callback(each.stop)
            each.start()
        rings.wait("two pods are on the ring", lambda ring: len(active(ring)) == 2)
        with served(tmp_path, controllers):
            wants(3, 4)
            kill_when("the count is raised", lambda: count() == 3)
            kill_when("the newcomer has its slot", lambda: len(slots()) == 3)
            rings.wait("three pods are on the ring", lambda ring: len(active(ring)) == 3)
            wants(2, 2)
            kill_when("one leaves the ring", lambda: len(active(rings.seen[-1])) == 2)
            kill_when(
                "it drains or is gone",
                lambda: count() == 2 or any(DRAINING in (p.metadata.annotations or {}) for p in fleet.pods()),
            )
            wait_until("two pods are left", lambda: len(fleet.pods()) == 2 and count() == 2, 90)
            stays = {p.metadata.name for p in fleet.pods()}
            assert still(3, lambda: count() == 2)
    assert max(took_s) < 2 * lease_s, took_s
    assert most_pods <= 3, "nothing is done twice"
    epochs = [ring.epoch for ring in rings.seen]
    assert epochs == sorted(set(epochs))
    assert set(active(rings.seen[-1])) == stays


def test_a_rolling_upgrade_of_both_instances_costs_no_request_and_changes_nothing(
    fleet: FleetUnderTest, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """As a Deployment of two does it: one comes, one goes; what they know is in the cluster."""
    names = ("old-one", "old-other", "new-one", "new-other")
    each = [Controller(tmp_path / name, control_plane.kubeconfig, namespace) for name in names]
    fleet.deploy(3, *ENGINE, pre_stop_sleep_s=GOES_S)

    def leads() -> bool:
        return any(c.exit_code is None and c.ask("/v1/fleets/fleet")["leader"] for c in running)

    with Rings(fleet) as rings, ExitStack() as stack:
        for controller in each:
            stack.callback(controller.wants(policy(3, 4)).stop)
        running = each[:2]
        for controller in running:
            controller.start()
        first = rings.wait("three pods are on the ring", lambda ring: len(active(ring)) == 3)
        with served(tmp_path, each) as clients:
            for leaves, comes in zip(each[:2], each[2:], strict=True):
                comes.start()
                running = [c for c in running if c is not leaves] + [comes]
                leaves.stop()
                wait_until("one of those that stay leads", leads, 60)
            assert still(5, lambda: clients.failed == {})
            one_by_one(first, rings)
            for controller in running:
                controller.wants(policy(4, 4))
            last = rings.wait("the new ones act", lambda ring: len(active(ring)) == 4, 90)
    assert active(first).items() <= active(last).items(), "slots stay"
    epochs = [ring.epoch for ring in rings.seen]
    assert epochs == sorted(set(epochs))


def test_an_api_server_that_is_away_hurts_no_traffic_and_takes_nothing_in(
    fleet: FleetUnderTest, controllers: list[Controller], control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Away for a minute, which is twenty durations of the lease here."""
    fleet.deploy(3, *ENGINE, pre_stop_sleep_s=GOES_S)
    with Rings(fleet) as rings:
        controllers[0].wants(policy(2, 4)).start()
        first = rings.wait("three pods are on the ring", lambda ring: len(active(ring)) == 3)
        with served(tmp_path, controllers[:1]) as clients:
            control_plane.apiserver.close()
            try:
                before = clients.ended["200"]
                controllers[0].wants(policy(4, 4))
                assert still(60, lambda: clients.failed == {})
                assert clients.ended["200"] > before
            finally:
                control_plane.apiserver.start()
            ring = rings.wait("what was wanted meanwhile is done", lambda ring: len(active(ring)) == 4, 120)
    assert active(first).items() <= active(ring).items(), "nobody was taken in, and slots stay"
    epochs = [ring.epoch for ring in rings.seen]
    assert epochs == sorted(set(epochs))
