"""Nodes for the control plane: binds pods, runs an engine for each on a loopback address of its own, reports."""

import asyncio
import contextlib
import itertools
import json
import random
import socket
import ssl
import threading
import uuid
from collections.abc import Callable
from typing import Any, Self

import aiohttp

from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.podlife import Engine, Json, PodLife, StartEngine, condition

STRATEGIC = "application/strategic-merge-patch+json"
AWAY = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)  # of which TimeoutError is one
"""The API server does not answer, or not now: try again. Any other refusal is a fault of the test kubelet."""


def _claim_loopback_network() -> tuple[int, socket.socket]:
    """The N of a 127.N.0.0/16 that no other test kubelet of this machine has; the socket holds the claim."""
    for second in random.sample(range(1, 255), 254):
        claim = socket.socket()
        with contextlib.suppress(OSError):
            claim.bind((f"127.{second}.255.254", 19_999))
            return second, claim
        claim.close()
    raise OSError("every loopback network is claimed by some test kubelet; end the old ones")


def choose_node(pod: Json, nodes: list[Json], bound: list[Json]) -> str | None:
    """The schedulable node with the fewest pods that has room and the labels that the pod selects, or None."""
    selector = pod["spec"].get("nodeSelector") or {}

    def fits(node: Json) -> bool:
        labels = node["metadata"].get("labels") or {}
        on_it = [other for other in bound if other["spec"]["nodeName"] == node["metadata"]["name"]]
        free_gpus = int(node["status"]["allocatable"]["nvidia.com/gpu"]) - sum(map(_gpus, on_it))
        return (
            not node["spec"].get("unschedulable")
            and selector.items() <= labels.items()
            and len(on_it) < int(node["status"]["allocatable"]["pods"])
            and _gpus(pod) <= free_gpus
        )

    def crowd(node: Json) -> int:
        return sum(other["spec"]["nodeName"] == node["metadata"]["name"] for other in bound)

    best = min(filter(fits, nodes), key=crowd, default=None)
    return best["metadata"]["name"] if best else None


def _gpus(pod: Json) -> int:
    limits = [(each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"]]
    return sum(int(limit.get("nvidia.com/gpu", 0)) for limit in limits)


class TestKubelet:
    """`nodes` nodes, run by one thread. `start_engine` is called once a pod start.

    Pods of every namespace are served, or of `namespace` alone. A pod that fits nowhere is reported unschedulable.
    """

    __test__ = False  # for pytest, which takes the name for a test's

    def __init__(
        self,
        control_plane: ControlPlane,
        start_engine: StartEngine,
        *,
        namespace: str | None = None,
        nodes: int = 3,
        pods_per_node: int = 110,
        gpus_per_node: int = 8,
    ) -> None:
        self._plane, self._start_engine = control_plane, start_engine
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._network, self._claim = _claim_loopback_network()
        self._numbers = itertools.count()
        run = uuid.uuid4().hex[:6]
        self.node_names = [f"node-{run}-{number}" for number in range(nodes)]
        self._capacity = {
            "cpu": "256",
            "memory": "4Ti",
            "pods": str(pods_per_node),
            "nvidia.com/gpu": str(gpus_per_node),
        }
        self._pods: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._lives: dict[str, PodLife] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._up, self._down = threading.Event(), asyncio.Event()
        self._changed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="test-kubelet", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        came_up = self._up.wait(30)
        self._raise_failures()
        if not came_up:
            raise TimeoutError("after 30 s the test kubelet still has no nodes; the API server may not answer")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join(30)
        self._claim.close()
        self._raise_failures()
        if self._thread.is_alive():
            raise TimeoutError("after 30 s the test kubelet still has not ended; an engine's `close` may hang")

    def _raise_failures(self) -> None:
        if self._failures:
            raise ExceptionGroup("the test kubelet failed", [e for e in self._failures if isinstance(e, Exception)])

    # For tests

    def engine(self, pod_name: str) -> Engine:
        """What runs in a pod now. KeyError where nothing does."""
        for life in list(self._lives.values()):
            if life.pod["metadata"]["name"] == pod_name and life.engine:
                return life.engine
        raise KeyError(f"no engine runs for a pod {pod_name!r}")

    # The thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve())
            except Exception as failure:
                self._failures.append(failure)
            finally:
                self._up.set()

    async def _serve(self) -> None:
        trust = ssl.create_default_context(cafile=str(self._plane.authority.certificate))
        async with (
            aiohttp.ClientSession(
                self._plane.url,
                headers={"Authorization": f"Bearer {self._plane.admin_token}"},
                connector=aiohttp.TCPConnector(ssl=trust, limit=50),
                read_bufsize=2**22,  # one watch event is one line, and a pod may be large
            ) as self._api,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as self._probes,
        ):
            for number, name in enumerate(self.node_names):
                await self._make_node(name, f"127.{self._network}.255.{number + 1}")
            for work in (
                self._follow("/api/v1/nodes", self._nodes, lambda node: self._changed.set()),
                self._follow(self._pods_path, self._pods, self._pod_seen),
                self._bind(),
            ):
                self._spawn(work)
            self._up.set()
            await self._down.wait()
            await self._leave()

    async def _leave(self) -> None:
        """End every engine, then take the pods and nodes out of the API, where it still answers."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(*AWAY):
            for life in self._lives.values():
                await self._delete(life.pod)
            for name in self.node_names:
                await self._call("DELETE", f"/api/v1/nodes/{name}")

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            self._failures.append(failure)

    # The API

    async def _call(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """One request. What is not found, or meanwhile another's (409), is answered by an empty object."""
        timeout = aiohttp.ClientTimeout(total=10)
        data = None if body is None else json.dumps(body)
        async with self._api.request(method, path, data=data, headers={"Content-Type": kind}, timeout=timeout) as got:
            if got.status in (404, 409):
                return {}
            if got.status >= 400:
                busy = got.status == 429 or got.status >= 500
                raise (aiohttp.ClientConnectionError if busy else aiohttp.ClientError)(
                    f"{method} {path}: {got.status} {await got.text()}"
                )
            answer: Json = await got.json()
            return answer

    async def _follow(self, path: str, known: dict[str, Json], seen: Callable[[Json], None]) -> None:
        """Keep `known` (by uid) as the API has it: list, watch, list anew when the watch is lost. `seen` sees each."""
        while True:
            try:
                listed = await self._call("GET", path)
                now = {item["metadata"]["uid"]: item for item in listed["items"]}
                for vanished in known.keys() - now.keys():
                    self._take(known, "DELETED", known[vanished], seen)
                for item in now.values():
                    self._take(known, "MODIFIED", item, seen)
                query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                async with self._api.get(path, params=query, timeout=aiohttp.ClientTimeout(total=None)) as lines:
                    async for line in lines.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        self._take(known, event["type"], event["object"], seen)
            except AWAY:
                await asyncio.sleep(0.2)

    @staticmethod
    def _take(known: dict[str, Json], kind: str, item: Json, seen: Callable[[Json], None]) -> None:
        uid = item["metadata"]["uid"]
        if kind == "DELETED":
            known.pop(uid, None)
        else:
            known[uid] = item
        seen(item)

    async def _make_node(self, name: str, address: str) -> None:
        await self._call(
            "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
        )
        # Admission taints a new node as not ready, and the controller that would lift it is not run.
        await self._call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, STRATEGIC)
        status = {
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [condition("Ready", True, reason="KubeletReady", message="the test kubelet runs")],
        }
        await self._call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC)

    # Pods

    def _pod_seen(self, pod: Json) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        life = self._lives.get(uid)
        if life is not None:
            life.pod, life.gone = pod, uid not in self._pods
            life.wake.set()
        elif node in self.node_names and uid in self._pods:
            number = next(self._numbers)
            address = f"127.{self._network}.{number // 250 % 250}.{number % 250 + 1}"
            host = f"127.{self._network}.255.{self.node_names.index(node) + 1}"
            self._lives[uid] = PodLife(pod, address, host, self._start_engine)
            self._spawn(self._live(uid, self._lives[uid]))
        self._changed.set()

    async def _live(self, uid: str, life: PodLife) -> None:
        await life.live(self._probes, lambda status: self._report(life.pod, status))
        while not life.gone and not await self._delete(life.pod):  # noqa: ASYNC110 - the API server is what is waited for
            await asyncio.sleep(0.2)
        del self._lives[uid]

    async def _report(self, pod: Json, status: Json) -> bool:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await self._call("PATCH", f"{_path(pod)}/status", body, STRATEGIC)
        except AWAY:
            return False
        return True

    async def _delete(self, pod: Json) -> bool:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        try:
            await self._call("DELETE", _path(pod), options)
        except AWAY:
            return False
        return True

    # Scheduling

    async def _bind(self) -> None:
        """Put each pending pod on a node whenever pods or nodes changed; try again soon where the API was away."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            ours = [node for node in self._nodes.values() if node["metadata"]["name"] in self.node_names]
            pending = [pod for pod in self._pods.values() if _wants_node(pod)]
            for pod in sorted(pending, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
                bound = [other for other in self._pods.values() if other["spec"].get("nodeName")]
                try:
                    await self._place(pod, choose_node(pod, ours, bound))
                except AWAY:
                    asyncio.get_running_loop().call_later(0.2, self._changed.set)

    async def _place(self, pod: Json, node: str | None) -> None:
        if node:
            target = {"target": {"kind": "Node", "name": node}, "metadata": {"name": pod["metadata"]["name"]}}
            await self._call("POST", f"{_path(pod)}/binding", target)
            pod["spec"]["nodeName"] = node  # so that the next pod is placed with this one in view
        elif not any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", [])):
            why = condition("PodScheduled", False, reason="Unschedulable", message="no node has room for the pod")
            await self._report(pod, {"conditions": [why]})


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _wants_node(pod: Json) -> bool:
    spec = pod["spec"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or pod["metadata"].get("deletionTimestamp"))
