"""How much a large fleet asks of the API server when nothing changes: `python -m tests.e2e.kubernetes.large --json`.

Real control plane; the pods are bound and reported ready by this script, and one server answers for all their engines.
"""

import argparse
import asyncio
import json
import re
import ssl
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from kubernetes import client

from tests.e2e.kubernetes.running import Controller
from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.processes import free_port, wait_until

WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
METRICS = """vllm:num_requests_running{model_name="base",engine="0"} 0
vllm:num_requests_waiting{model_name="base",engine="0"} 0
vllm:kv_cache_usage_perc{model_name="base",engine="0"} 0.1
"""


def requests(plane: ControlPlane) -> Counter[tuple[str, str]]:
    """(verb, resource) -> how many requests the API server has answered, by its own count."""
    call = urllib.request.Request(f"{plane.url}/metrics", headers={"Authorization": f"Bearer {plane.admin_token}"})
    trust = ssl.create_default_context(cafile=str(plane.authority.certificate))
    with urllib.request.urlopen(call, timeout=30, context=trust) as answer:
        text = answer.read().decode()
    found: Counter[tuple[str, str]] = Counter()
    for labels, value in re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        subresource = f"/{told['subresource']}" if told.get("subresource") else ""
        found[told["verb"], told["resource"] + subresource] += int(float(value))
    return found


def written(before: Counter[tuple[str, str]], after: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """What was written between the two."""
    return Counter({key: n for key, n in (after - before).items() if key[0] in WRITES})


class Engines:
    """One server for every address of 127.0.0.0/8: each has adapters of its own, by the address that was asked."""

    def __init__(self, port: int) -> None:
        self.port, self.loaded = port, 0
        self._adapters: dict[str, dict[str, str]] = {}
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait(10)

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/load_lora_adapter", self._load)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", self.port, backlog=1024).start()
        self._ready.set()
        await asyncio.Event().wait()

    def _own(self, request: web.Request) -> dict[str, str]:
        assert request.transport is not None
        return self._adapters.setdefault(request.transport.get_extra_info("sockname")[0], {})

    async def _models(self, request: web.Request) -> web.Response:
        listed = [{"id": "base", "root": "base", "parent": None}]
        listed += [{"id": name, "root": path, "parent": "base"} for name, path in self._own(request).items()]
        return web.json_response({"object": "list", "data": listed})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._own(request)[body["lora_name"]] = body["lora_path"]
        self.loaded += 1
        return web.Response(text="Success")


def pods(core: Any, namespace: str, count: int) -> None:
    """Bind every pod to a node, and report it ready at an address of its own."""
    for number, pod in enumerate(core.list_namespaced_pod(namespace).items):
        name, now = pod.metadata.name, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        target = client.V1ObjectReference(kind="Node", name="node-large")
        meta = client.V1ObjectMeta(name=name)
        core.create_namespaced_pod_binding(
            name, namespace, client.V1Binding(metadata=meta, target=target), _preload_content=False
        )
        yes = [{"type": kind, "status": "True", "lastTransitionTime": now}
               for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]  # fmt: skip
        address = f"127.{100 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
        running = {"running": {"startedAt": now}}
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now,
                  "conditions": yes, "containerStatuses": [
                      {"name": "engine", "image": "engine:test", "imageID": "x", "ready": True, "started": True,
                       "restartCount": 0, "state": running}]}  # fmt: skip
        core.patch_namespaced_pod_status(name, namespace, {"status": status})


def deploy(plane: ControlPlane, namespace: str, count: int, port: int, slots: int) -> None:
    """A Deployment of `count` pods that are all ready."""
    api = plane.client()
    core: Any = client.CoreV1Api(api)
    core.create_node({"metadata": {"name": "node-large"}})
    container = {"name": "engine", "image": "engine:test", "ports": [{"name": "http", "containerPort": port}],
                 "args": ["--max-loras", str(slots), "--max-cpu-loras", str(slots)]}  # fmt: skip
    template = {"metadata": {"labels": {"app": "warm"}}, "spec": {"containers": [container]}}
    spec = {"replicas": count, "selector": {"matchLabels": {"app": "warm"}}, "template": template}
    body = {"metadata": {"name": "warm"}, "spec": spec}
    client.AppsV1Api(api).create_namespaced_deployment(namespace, body)
    wait_until("the pods are made", lambda: len(core.list_namespaced_pod(namespace).items) == count, 180)
    pods(core, namespace, count)


def policy(pods_count: int, tenants: int, tick: str) -> dict[str, Any]:
    """Advice would not keep state, so it enforces; nothing is left to change once the ring is there."""
    spec = {
        "baseModel": "base", "mode": "enforce", "tickInterval": tick,
        "adapters": {"pathTemplate": "/adapters/{id}", "list": [f"tenant-{i:05d}" for i in range(tenants)]},
        "groups": {"warm": {"target": {"name": "warm"}, "minReplicas": pods_count, "maxReplicas": pods_count},
                   "hot": "none"},
        "budget": {"maxReplicasTotal": pods_count},
        # One server answers for every engine: more at once would only wait in it, beyond the time of a load.
        "engine": {"loading": {"parallelPerReplica": 1}},
        "forecast": {"history": "0s", "learned": False},
    }  # fmt: skip
    meta = {"name": "fleet"}
    return {"apiVersion": "lora-autoscaler.io/v1alpha1", "kind": "FleetPolicy", "metadata": meta, "spec": spec}


def measure(count: int, tenants: int, seconds: float, tick_s: float) -> dict[str, Any]:
    """Run it, wait until nothing changes any more, and count for a while."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder) / "plane") as plane:
        engines = Engines(free_port())
        with plane.namespace() as namespace:
            began = time.monotonic()
            deploy(plane, namespace, count, engines.port, max(8, 3 * tenants // count))
            deployed_s = time.monotonic() - began
            controller = Controller(
                Path(folder) / "controller", plane.kubeconfig, namespace, 15.0, checkpointEvery="30s"
            )
            controller.timeout_s = 300
            with controller.wants(policy(count, tenants, f"{tick_s:g}s")):
                settled_s = _settle(controller, engines)
                view = controller.ask("/v1/fleets/fleet")
                before, began = requests(plane), time.monotonic()
                time.sleep(seconds)
                after, taken_s = requests(plane), time.monotonic() - began
            quiet = requests(plane)
            time.sleep(20)
            own = written(quiet, requests(plane))
        ticks = taken_s / tick_s
        wrote = written(before, after)
        mine = {key: n - own[key] * taken_s / 20 for key, n in wrote.items()}
        reads = Counter({k: n for k, n in (after - before).items() if k[0] in ("GET", "LIST")})
        return {
            "pods": count, "tenants": tenants, "tick_s": tick_s, "seconds": round(taken_s, 1), "deployed_s": deployed_s,
            "settled_s": settled_s, "loads": engines.loaded, "epoch": view["epoch"],
            "writes_per_tick": round(sum(max(0.0, n) for n in mine.values()) / ticks, 2),
            "writes": {" ".join(key): n for key, n in sorted(wrote.items())},
            "reads_per_tick": round(sum(reads.values()) / ticks, 2),
            "reads": {" ".join(key): n for key, n in sorted(reads.items())},
        }  # fmt: skip


def _settle(controller: Controller, engines: Engines) -> float:
    """Until a ring is there, and no adapter was loaded and no epoch was published for a minute."""
    began, since, last = time.monotonic(), time.monotonic(), (-1, -1)
    while last[1] < 1 or time.monotonic() - since < 60:
        now = engines.loaded, controller.ask("/v1/fleets/fleet")["epoch"]
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(2)
    return since - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=512)
    parser.add_argument("--tenants", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--tick-s", type=float, default=15)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    found = measure(told.pods, told.tenants, told.seconds, told.tick_s)
    print(json.dumps(found) if told.json else yaml.safe_dump(found, sort_keys=False))


if __name__ == "__main__":
    main()
