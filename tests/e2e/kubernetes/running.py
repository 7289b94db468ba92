"""The controller as it is run in a cluster: a process of its own with a kubeconfig, policies and settings."""

import base64
import gzip
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from kubernetes import client

from autoscaler.ring import MemberState, Ring, RingSnapshot, decode
from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port, wait_until

ADAPTERS = [f"a{number:02d}" for number in range(12)]
ENGINE = (
    "--max-loras",
    "16",
    "--max-cpu-loras",
    "16",
    *(w for a in ADAPTERS for w in ("--adapter", f"/adapters/{a}=16")),
)


def policy(
    least: int, most: int, mode: str = "enforce", target: dict[str, str] | None = None, **groups: Any
) -> dict[str, Any]:
    """A policy for the workload `warm`, and other `groups`, with times of seconds."""
    spec = {
        "baseModel": "base",
        "mode": mode,
        "tickInterval": "1s",
        "adapters": {"pathTemplate": "/adapters/{id}", "list": ADAPTERS},
        "engine": {"loading": {"timeout": "10s", "backoff": "1s"}},
        "signals": {"window": "10s", "maxAge": "10s"},
        "groups": {
            "warm": {"target": {"name": "warm", **(target or {})}, "minReplicas": least, "maxReplicas": most},
            **{"hot": "none", **groups},
        },
        "budget": {"maxReplicasTotal": 16, "maxChangesPerHour": 600},
        "scaling": {"startup": "2s", "scaleIn": {"stabilisation": "2s", "horizon": "1m"}},
        "ring": {
            "slotGrace": "10m", "ackTimeout": "2s", "routerTtl": "5s", "residencyDeadline": "20s",
            "drainTimeout": "10s",
        },
        "forecast": {
            "horizon": "20s", "horizons": ["20s", "1m", "2m"], "bucket": "10s", "halfLives": ["5s", "15s", "1m"],
            "day": "10m", "history": "0s", "learned": False,
        },
        "diagnosis": {"window": "10s"},
    }  # fmt: skip
    return {
        "apiVersion": "lora-autoscaler.io/v1alpha1",
        "kind": "FleetPolicy",
        "metadata": {"name": "fleet"},
        "spec": spec,
    }


class Controller(Server):
    """`lora-autoscaler run` against the control plane, as whoever the kubeconfig is."""

    def __init__(
        self, directory: Path, kubeconfig: Path, namespace: str, lease_s: float = 3.0, **cluster: object
    ) -> None:
        """`cluster`: more of the settings' `kubernetes`. Envoys ask at `discovery`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.port, self.discovery, self.policies = free_port(), free_port(), directory / "policies"
        self.policies.mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "platform": "kubernetes",
            "listen": {"port": self.port},
            "lease": f"{lease_s:g}s",
            "kubernetes": {"kubeconfig": str(kubeconfig), "namespace": namespace, "checkpointEvery": "1s", **cluster},
            "fleets": {"fleet": {"discovery": {"port": self.discovery}}},
        }
        self._settings, self._file = settings, directory / "settings.yaml"
        self._file.write_text(yaml.safe_dump(settings))
        program = str(Path(sys.executable).with_name("lora-autoscaler"))
        argv = [program, "run", "--policies", str(self.policies), "--settings", str(self._file)]
        super().__init__("controller", argv, directory, lambda: answers_200(f"http://{LOOPBACK}:{self.port}/readyz"))

    def wants(self, found: dict[str, Any]) -> Self:
        """Give it a policy, now or while it runs."""
        partial = self.policies / "fleet.partial"
        partial.write_text(yaml.safe_dump(found))
        partial.replace(self.policies / "fleet.yaml")
        return self

    def counts_by(self, envoy: str) -> Self:
        """Let it count requests at an Envoy, whose administration address is given, before it starts."""
        fleet: dict[str, Any] = self._settings["fleets"]["fleet"]
        fleet["routers"] = {"envoy": f"{envoy}/stats/prometheus"}
        self._file.write_text(yaml.safe_dump(self._settings))
        return self

    def token(self) -> str:
        """The operator's token, as the process printed it last."""
        *_, last = self.log.read_text().split("tokens of this process: operator ")
        return last.split()[0]

    def ask(
        self,
        path: str,
        body: dict[str, Any] | None = None,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """An answer of its API; as the operator whose token it printed, unless `headers` say otherwise."""
        told = {"Content-Type": "application/json", **(headers or {})}
        if "Authorization" not in told:
            told["Authorization"] = f"Bearer {self.token()}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{LOOPBACK}:{self.port}{path}", content, told, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            refused.add_note(refused.read().decode(errors="replace"))
            raise

    def group(self, name: str = "warm") -> Any:
        """A group as its API shows it."""
        return next(g for g in self.ask("/v1/fleets/fleet/groups")["items"] if g["group"] == name)


class Rings:
    """Every epoch that the ConfigMap has shown, in order; `at_epoch` is called when one appears."""

    def __init__(self, fleet: FleetUnderTest, at_epoch: Callable[[RingSnapshot], None] = lambda ring: None) -> None:
        self._core, self._namespace, self._at_epoch = fleet.core, fleet.namespace, at_epoch
        self.seen: list[RingSnapshot] = []
        self.failures: list[BaseException] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)

    def _follow(self) -> None:
        while not self._ended.wait(0.03):
            try:
                found = self.now()
                if found is not None and (not self.seen or found.epoch != self.seen[-1].epoch):
                    self.seen.append(found)
                    self._at_epoch(found)
            except Exception as failure:
                self.failures.append(failure)

    def now(self) -> RingSnapshot | None:
        """What is published."""
        try:
            found = self._core.read_namespaced_config_map("fleet-ring", self._namespace)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise
        if found.binary_data:
            return decode(gzip.decompress(base64.b64decode(found.binary_data["ring.json.gz"])))
        return decode(found.data["ring.json"].encode()) if found.data else None

    def wait(self, what: str, condition: Callable[[RingSnapshot], bool], timeout_s: float = 60) -> RingSnapshot:
        """The first ring from now on that is so."""

        def found() -> RingSnapshot | None:
            ring = self.now()
            return ring if ring is not None and condition(ring) else None

        ring = wait_until(what, found, timeout_s)
        assert ring is not None
        return ring


def active(ring: RingSnapshot) -> dict[str, str]:
    """Pod -> slot of those that routers may send to."""
    return {m.replica: m.slot for m in ring.members if m.state is MemberState.ACTIVE}


def owned(ring: RingSnapshot, slot: str) -> set[str]:
    """The adapters that a slot owns."""
    look = Ring(ring)
    return {a for a in ADAPTERS if slot in look.assigned(a)}


def models(url: str) -> set[str]:
    """What an engine lists."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
        return {m["id"] for m in json.load(answer)["data"]}


def complete(url: str, model: str) -> Any:
    """An engine's answer to a short completion."""
    body = json.dumps({"model": model, "prompt": "hello", "max_tokens": 4}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def still(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether something stays true for a while."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if not holds():
            return False
        time.sleep(0.1)
    return True
