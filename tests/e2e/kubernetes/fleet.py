"""A fleet in the real control plane: a Deployment or StatefulSet whose pods are simulated vLLM engines."""

import asyncio
import copy
import threading
import uuid
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, Self

from kubernetes import client

from autoscaler.simulator.http import Pump, SimulatedEngine
from autoscaler.simulator.http.__main__ import options_from
from autoscaler.simulator.http.server import compile_model
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.kubelet import TestKubelet
from tests.e2e.parts.podlife import Engine, Json, StartEngine
from tests.e2e.parts.processes import wait_until

GATE = "lora-autoscaler.io/adapters-resident"
PORT = 8000


class HostedEngine:
    """One simulated engine as its pod's kubelet sees it."""

    def __init__(self, host: "EngineHost", engine: SimulatedEngine) -> None:
        self.engine = engine
        self.exit_code: int | None = None
        self._host = host
        self._starting = host.run(self._start())

    async def _start(self) -> None:
        try:
            await self.engine.start()
        except OSError:
            self.exit_code = 2

    def terminate(self) -> None:
        """SIGTERM: what is in flight has the engine's shutdown timeout."""
        self._host.run(self._stop())

    async def _stop(self) -> None:
        self._starting.cancel()
        await self.engine.stop()
        self.exit_code = 0

    def close(self) -> None:
        """SIGKILL."""
        self._starting.cancel()
        self._host.run(self.engine.crash()).result(10)
        self.exit_code = 137 if self.exit_code is None else self.exit_code


class EngineHost:
    """Runs the engines of all pods in one thread. A container's `args` are its engine's command line."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engines", daemon=True)
        self._pump = Pump()

    def __enter__(self) -> Self:
        compile_model()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, None]) -> Any:
        """Let the engines' thread do it; gives the future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def start(self, pod: Json, address: str) -> HostedEngine:
        """What a test kubelet starts for a pod."""
        options = options_from(pod["spec"]["containers"][0].get("args") or [])
        return HostedEngine(self, SimulatedEngine(options, self._pump, address, PORT))


class FleetUnderTest:
    """One workload `name` of engines in a namespace, its nodes and its engines; all of it ends with the `with`.

    `programs` says by image what runs in pods that are no engines, such as a controller: a `Server` that was launched.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        name: str = "warm",
        programs: Mapping[str, StartEngine] | None = None,
        **nodes: int,
    ) -> None:
        self.namespace, self.name, self.kind = namespace, name, "Deployment"
        self.engines = EngineHost()
        self._programs = programs or {}
        self.kubelet = TestKubelet(control_plane, self._start, namespace=namespace, **nodes)
        self._api: Any = control_plane.client()
        self.core: Any = client.CoreV1Api(self._api)
        self.apps: Any = client.AppsV1Api(self._api)

    def __enter__(self) -> Self:
        self.engines.__enter__()
        self.kubelet.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.kubelet.__exit__()
        self.engines.__exit__()
        self._api.close()

    def beside(self, name: str) -> Self:
        """Another workload on the same nodes."""
        other = copy.copy(self)
        other.name = name
        return other

    def _start(self, pod: Json, address: str) -> Engine:
        image = pod["spec"]["containers"][0]["image"]
        return self._programs.get(image, self.engines.start)(pod, address)

    def deploy(
        self,
        replicas: int,
        *arguments: str,
        kind: Literal["Deployment", "StatefulSet"] = "Deployment",
        max_surge: int = 1,
        gate: bool = False,
        pre_stop_sleep_s: int = 1,
        grace_s: int = 30,
    ) -> list[Any]:
        """Create the workload and wait until its pods are ready (with a gate, their containers).

        Without surge a rollout takes one pod away at a time. `arguments` are the engine's command line.
        """
        self.kind = kind
        rolling: Json = {"maxSurge": max_surge, "maxUnavailable": 0 if max_surge else 1}
        strategy: Json = {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": self.name}},
            "template": self._template(arguments, gate, pre_stop_sleep_s, grace_s),
            **(strategy if kind == "Deployment" else {"serviceName": self.name, "podManagementPolicy": "Parallel"}),
        }
        body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": self.name}, "spec": spec}
        self._workload("create", body)
        return self.wait_ready(replicas, "ContainersReady" if gate else "Ready") if replicas else []

    def _template(self, arguments: tuple[str, ...], gate: bool, pre_stop_sleep_s: int, grace_s: int) -> Json:
        # Every engine answers from one thread of this process: on a busy machine a second is nothing.
        health = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 10}
        container = {
            "name": "engine",
            "image": "engine:test",
            "args": list(arguments),
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": health,
            "livenessProbe": health,
            # Routers need a moment to learn that the pod leaves.
            "lifecycle": {"preStop": {"sleep": {"seconds": pre_stop_sleep_s}}} if pre_stop_sleep_s else {},
        }
        spec: Json = {"containers": [container], "terminationGracePeriodSeconds": grace_s}
        if gate:
            spec["readinessGates"] = [{"conditionType": GATE}]
        return {"metadata": {"labels": {"app": self.name}}, "spec": spec}

    def _workload(self, verb: Literal["create", "patch"], body: Json) -> None:
        call = getattr(self.apps, f"{verb}_namespaced_{'deployment' if self.kind == 'Deployment' else 'stateful_set'}")
        call(*((self.name,) if verb == "patch" else ()), self.namespace, body)

    def scale(self, replicas: int) -> None:
        """What `kubectl scale` does, and do not wait."""
        suffix = "deployment" if self.kind == "Deployment" else "stateful_set"
        getattr(self.apps, f"patch_namespaced_{suffix}_scale")(
            self.name, self.namespace, {"spec": {"replicas": replicas}}
        )

    def restart(self) -> None:
        """What `kubectl rollout restart` does: new pods for all, and do not wait."""
        annotations = {"kubectl.kubernetes.io/restartedAt": uuid.uuid4().hex}
        self._workload("patch", {"spec": {"template": {"metadata": {"annotations": annotations}}}})

    def arguments(self, *arguments: str) -> None:
        """Give every pod another command line by a rollout, and do not wait."""
        container = {"name": "engine", "args": list(arguments)}
        self._workload("patch", {"spec": {"template": {"spec": {"containers": [container]}}}})

    def without_gate(self) -> None:
        """Take the readiness gate out of the template, and do not wait for the rollout."""
        self._workload("patch", {"spec": {"template": {"spec": {"readinessGates": None}}}})

    def pods(self) -> list[Any]:
        """All pods of the workload, also those on their way in or out."""
        found: list[Any] = self.core.list_namespaced_pod(self.namespace, label_selector=f"app={self.name}").items
        return found

    def ready(self, condition: str = "Ready") -> list[Any]:
        """Those whose condition is true and that are not on their way out."""
        return [
            pod
            for pod in self.pods()
            if pod.metadata.deletion_timestamp is None
            and any(each.type == condition and each.status == "True" for each in pod.status.conditions or [])
        ]

    def wait_ready(self, count: int, condition: str = "Ready", timeout_s: float = 60) -> list[Any]:
        """Wait until exactly `count` are, and give them."""

        def exactly() -> list[Any]:
            found = self.ready(condition)
            return found if len(found) == count else []

        return wait_until(f"{count} pods of {self.name} are {condition}", exactly, timeout_s)

    def address(self, pod_name: str) -> str:
        """Where any pod's engine of the namespace answers."""
        return url_of(self.core.read_namespaced_pod(pod_name, self.namespace))

    def engine(self, pod_name: str) -> SimulatedEngine:
        """The engine in a pod: its faults may be changed, its inside looked at."""
        hosted = self.kubelet.engine(pod_name)
        assert isinstance(hosted, HostedEngine)
        return hosted.engine


def url_of(pod: Any) -> str:
    """Where a pod's engine answers."""
    return f"http://{pod.status.pod_ip}:{PORT}"
