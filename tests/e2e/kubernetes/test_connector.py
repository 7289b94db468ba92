"""The connector's parts against the real API server, without a controller around them."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from kubernetes import client

from autoscaler.connectors.kubernetes.cluster import Cluster, RefusedError
from autoscaler.connectors.kubernetes.config_map import ConfigMapRing, OneConfigMap
from autoscaler.connectors.kubernetes.fleet import KubernetesFleet
from autoscaler.connectors.kubernetes.hot_groups import HotTemplate
from autoscaler.connectors.kubernetes.lease import FREEZE, KubernetesLease
from autoscaler.connectors.kubernetes.state import ConfigMapState
from autoscaler.connectors.kubernetes.targets import GroupTarget
from autoscaler.connectors.kubernetes.tokens import shared_tokens
from autoscaler.connectors.kubernetes.watch import Watched
from autoscaler.domain.decisions import Applied, Failed, Grow, Shrink, Skipped
from autoscaler.domain.fleet import Tier
from autoscaler.policy.groups import MergedCheckpoints, PodPatch
from autoscaler.ports import TemporaryError
from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.processes import wait_until

WARM = "warm"


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[Cluster]:
    made = Cluster(control_plane.kubeconfig)
    yield made
    made.close()


@pytest.fixture
def config_map(cluster: Cluster, namespace: str) -> Iterator[OneConfigMap]:
    made = OneConfigMap(cluster, namespace, "fleet-ring")
    made.first()
    yield made
    made.close()


@pytest.fixture
def left() -> list[float]:
    """When somebody else began to take a pod away."""
    return []


@pytest.fixture
def actuator(cluster: Cluster, namespace: str, left: list[float]) -> Iterator[KubernetesFleet]:
    counts = OneConfigMap(cluster, namespace, "fleet-state")
    counts.first()
    targets = tuple(
        GroupTarget("apps/v1", "Deployment", namespace, name, tier, group)
        for name, tier, group in ((WARM, Tier.WARM, "warm"), ("spare", Tier.HOT, ""))
    )
    made = KubernetesFleet(
        cluster, lambda: targets, ConfigMapState(counts), None, leaving=lambda: left.append(time.monotonic())
    )
    yield made
    made.close()
    counts.close()


async def eventually(look: Callable[[], Awaitable[object]]) -> None:
    """Until it is so: watches need a moment."""
    async with asyncio.timeout(20):
        while not await look():  # noqa: ASYNC110 - the API server tells nobody of it
            await asyncio.sleep(0.1)


class TestTargets:
    async def test_one_that_does_not_exist_blocks_its_group_and_says_so(self, actuator: KubernetesFleet) -> None:
        assert "does not exist" in (await actuator.groups())[WARM].blocked
        assert await actuator.replicas() == ()

    async def test_counts_change_only_from_what_was_planned_on(
        self, fleet: FleetUnderTest, actuator: KubernetesFleet, left: list[float]
    ) -> None:
        pods = await asyncio.to_thread(fleet.deploy, 2, pre_stop_sleep_s=0)
        await actuator.replicas()
        assert isinstance(await actuator.apply(Grow(WARM, 3)), Applied)
        assert await actuator.apply(Grow(WARM, 3)) == Skipped(f"Deployment {fleet.namespace}/warm has 3 already")
        await asyncio.to_thread(fleet.scale, 5)
        victim = pods[0].metadata.name
        assert "changed from 3 to 5" in str(await actuator.apply(Shrink(WARM, 2, (victim,))))
        await asyncio.to_thread(fleet.wait_ready, 5)
        assert not left
        await asyncio.to_thread(fleet.scale, 3)
        victim = (await asyncio.to_thread(fleet.wait_ready, 3))[0].metadata.name
        await asyncio.to_thread(wait_until, "a pod that was not marked to go is told", lambda: len(left) == 1)
        assert isinstance(await actuator.apply(Shrink(WARM, 2, (victim,))), Applied)
        stay = await asyncio.to_thread(fleet.wait_ready, 2)
        assert victim not in {pod.metadata.name for pod in stay}
        assert len(left) == 1, "what this controller takes itself is no news"

    async def test_an_autoscaler_and_a_pause_are_named(self, fleet: FleetUnderTest, actuator: KubernetesFleet) -> None:
        await asyncio.to_thread(fleet.deploy, 1)
        assert (await actuator.groups())[WARM].foreign_actor == ""
        target = client.V2CrossVersionObjectReference(kind="Deployment", name=WARM, api_version="apps/v1")
        spec = client.V2HorizontalPodAutoscalerSpec(max_replicas=3, scale_target_ref=target)
        body = client.V2HorizontalPodAutoscaler(metadata=client.V1ObjectMeta(name="theirs"), spec=spec)
        client.AutoscalingV2Api(fleet.core.api_client).create_namespaced_horizontal_pod_autoscaler(
            fleet.namespace, body
        )
        fleet.apps.patch_namespaced_deployment(WARM, fleet.namespace, {"spec": {"paused": True}})

        async def seen() -> bool:
            warm = (await actuator.groups())[WARM]
            return bool(warm.foreign_actor and warm.blocked)

        await eventually(seen)
        group = (await actuator.groups())[WARM]
        assert group.foreign_actor == "HorizontalPodAutoscaler theirs"
        assert "is paused" in group.blocked

    async def test_a_declared_target_is_given_to_a_hot_group_and_taken_back(
        self, control_plane: ControlPlane, namespace: str, actuator: KubernetesFleet
    ) -> None:
        with FleetUnderTest(control_plane, namespace, "spare") as spare:
            await asyncio.to_thread(spare.deploy, 1, pre_stop_sleep_s=0)
            await asyncio.to_thread(spare.scale, 0)
            await asyncio.to_thread(wait_until, "it is at 0", lambda: not spare.pods())
            assert set(await actuator.groups()) == {WARM}
            assert isinstance(await actuator.apply(Grow("hot-acme", 1, "acme")), Applied)
            (pod,) = await asyncio.to_thread(spare.wait_ready, 1)

            async def given() -> bool:
                return "hot-acme" in await actuator.groups()

            async def taken_back() -> bool:
                return not await given()

            await eventually(given)
            await eventually(actuator.replicas)
            hot = (await actuator.groups())["hot-acme"]
            assert (hot.tier, hot.tenant) == (Tier.HOT, "acme")
            assert [(r.id, r.group) for r in await actuator.replicas()] == [(pod.metadata.name, "hot-acme")]
            full = await actuator.apply(Grow("hot-other", 1, "other"))
            assert isinstance(full, Failed)
            assert "declare more" in full.error
            assert isinstance(await actuator.apply(Shrink("hot-acme", 0, (pod.metadata.name,), remove=True)), Applied)
            await asyncio.to_thread(wait_until, "no pod is left", lambda: not spare.pods())
            await eventually(taken_back)


async def test_letting_go_leaves_hot_groups_that_routers_send_to(
    fleet: FleetUnderTest, cluster: Cluster, namespace: str
) -> None:
    counts = OneConfigMap(cluster, namespace, "fleet-state")
    warm = GroupTarget("apps/v1", "Deployment", namespace, WARM, Tier.WARM, "warm")
    template = HotTemplate("fleet", warm, PodPatch(), MergedCheckpoints(), lambda tenant: (tenant,), 1.0)
    made = KubernetesFleet(cluster, lambda: (warm,), ConfigMapState(counts), None, lambda: template)
    try:
        await asyncio.to_thread(fleet.deploy, 1, pre_stop_sleep_s=0)
        await made.groups()
        assert isinstance(await made.apply(Grow("hot-acme", 1, "acme")), Applied)
        await eventually(lambda: made_group(made))
        (told,) = await made.detach()
        assert told.startswith("left 1 Deployments of hot groups")
        assert fleet.apps.read_namespaced_deployment("fleet-hot-acme", namespace).spec.replicas == 1
        assert isinstance(await made.apply(Shrink("hot-acme", 0, (), remove=True)), Applied)
        await eventually(lambda: no_longer(made))
    finally:
        made.close()
        counts.close()


async def made_group(fleet: KubernetesFleet) -> bool:
    return "hot-acme" in await fleet.groups()


async def no_longer(fleet: KubernetesFleet) -> bool:
    return not await made_group(fleet)


class TestRing:
    async def test_epochs_only_grow_and_an_earlier_leader_is_refused(
        self, cluster: Cluster, config_map: OneConfigMap
    ) -> None:
        first, second = ConfigMapRing(config_map, lambda: "lease/1"), ConfigMapRing(config_map, lambda: "lease/2")
        assert await first.last() is None
        assert isinstance(await first.publish(1, b'{"epoch": 1}'), Applied)
        assert isinstance(await second.publish(2, b'{"epoch": 2}'), Applied)
        assert "epoch never goes back" in str(await second.publish(1, b'{"epoch": 1}'))
        assert "a later leader" in str(await first.publish(3, b'{"epoch": 3}'))
        assert await second.last() == (2, b'{"epoch": 2}')

    async def test_a_large_one_is_compressed_and_one_too_large_refused(
        self, config_map: OneConfigMap, namespace: str, control_plane: ControlPlane
    ) -> None:
        ring = ConfigMapRing(config_map, lambda: "lease/1")
        large = b'{"epoch": 1, "x": "' + b"a" * 2_000_000 + b'"}'
        assert isinstance(await ring.publish(1, large), Applied)
        assert await ring.last() == (1, large)
        found = client.CoreV1Api(control_plane.client()).read_namespaced_config_map("fleet-ring", namespace)
        assert list(found.binary_data or {}) == ["ring.json.gz"]
        assert not found.data
        noise = b"".join(b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64) for number in range(200_000))
        refused = await ring.publish(2, b'{"epoch": 2, "x": "' + noise + b'"}')
        assert isinstance(refused, Failed)
        assert "a ConfigMap holds" in refused.error
        assert await ring.last() == (1, large)

    async def test_state_is_there_for_the_next_instance(self, cluster: Cluster, namespace: str) -> None:
        one = OneConfigMap(cluster, namespace, "fleet-state")
        state = ConfigMapState(one)
        state.save("fleet", '{"memory": 1}')
        await state.flush()
        await state.remember("Deployment x/warm", 4)
        other = OneConfigMap(cluster, namespace, "fleet-state")
        other.first()
        assert ConfigMapState(other).load("fleet") == '{"memory": 1}'
        assert ConfigMapState(other).counts() == {"Deployment x/warm": 4}
        one.close()
        other.close()


class TestLease:
    def test_one_holds_it_until_it_is_over_or_given_back(self, cluster: Cluster, namespace: str) -> None:
        def made(holder: str) -> KubernetesLease:
            return KubernetesLease(cluster, namespace, "lora-autoscaler", holder, 15.0)

        first, second, now_s = made("first"), made("second"), time.time()
        assert first.renew(now_s)
        assert not second.renew(now_s)
        assert first.held(now_s + 9)
        assert not first.held(now_s + 10), "two thirds of the duration"
        assert not second.renew(now_s + 14)
        assert second.renew(now_s + 16), "unchanged for longer than its duration on its own clock"
        assert not first.renew(now_s + 17)
        assert not first.held(now_s + 17)
        assert first.fence().rpartition("/")[0] == second.fence().rpartition("/")[0]
        assert int(second.fence().rpartition("/")[2]) > int(first.fence().rpartition("/")[2])
        second.release()
        assert first.renew(now_s + 18)

    def test_its_annotation_freezes_everybody(
        self, cluster: Cluster, namespace: str, control_plane: ControlPlane
    ) -> None:
        leader = KubernetesLease(cluster, namespace, "lora-autoscaler", "first", 15.0)
        follower = KubernetesLease(cluster, namespace, "lora-autoscaler", "second", 15.0)
        leader.renew(0.0)
        assert leader.frozen() == ""
        note = {"metadata": {"annotations": {FREEZE: "game night"}}}
        api: Any = client.CoordinationV1Api(control_plane.client())
        api.patch_namespaced_lease("lora-autoscaler", namespace, note)
        assert leader.renew(1.0)
        follower.renew(1.0)
        assert "game night" in leader.frozen()
        assert "game night" in follower.frozen()


def test_instances_share_tokens_where_there_is_a_secret_for_them(
    cluster: Cluster, namespace: str, control_plane: ControlPlane
) -> None:
    numbers = itertools.count()

    def started() -> dict[str, str] | None:
        return shared_tokens(cluster, namespace, "lora-tokens", ("operator", "reader"), lambda: f"t{next(numbers)}")

    assert started() is None, "without the chart's Secret each makes its own"
    core: Any = client.CoreV1Api(control_plane.client())
    core.create_namespaced_secret(namespace, {"metadata": {"name": "lora-tokens"}})
    assert started() == started() == {"operator": "t0", "reader": "t1"}
    core.patch_namespaced_secret("lora-tokens", namespace, {"data": {"reader": None}})
    assert started() == {"operator": "t0", "reader": "t2"}, "one that was taken out is made anew"


class TestWatch:
    def test_it_goes_on_over_an_api_server_that_was_away(
        self, cluster: Cluster, namespace: str, control_plane: ControlPlane
    ) -> None:
        core: Any = client.CoreV1Api(control_plane.client())

        def make(name: str) -> None:
            core.create_namespaced_config_map(namespace, {"metadata": {"name": name}})

        watched = Watched(cluster, f"/api/v1/namespaces/{namespace}/configmaps", stale_s=0.5)
        watched.first()
        make("before")
        wait_until("the new one is seen", lambda: "before" in watched.objects())
        control_plane.apiserver.close()

        def unknown() -> bool:
            try:
                watched.objects()
            except TemporaryError:
                return True
            return False

        wait_until("what may be old is not told", unknown)
        control_plane.apiserver.start()
        make("after")
        wait_until("it goes on", lambda: not unknown() and {"before", "after"} <= watched.objects().keys())
        core.delete_namespaced_config_map("before", namespace)
        wait_until("what is deleted is gone", lambda: "before" not in watched.objects())
        watched.close()

    def test_without_the_right_it_says_which_is_missing(self, control_plane: ControlPlane, namespace: str) -> None:
        nobody = Cluster(control_plane.kubeconfig_for_user("nobody"))
        watched = Watched(nobody, f"/api/v1/namespaces/{namespace}/pods")
        watched.first()
        with pytest.raises(RefusedError, match=r'"nobody" cannot list resource "pods"'):
            watched.objects()
        watched.close()
