"""One pod's life as its kubelet sees it: start the engine, probe it, report, restart it, and end it with grace."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import aiohttp

Json = dict[str, Any]
STEP_S = 0.2  # probes run this often, whatever their period, so that tests are quick


class Engine(Protocol):
    """What runs in a pod. A `Server` that was launched is one."""

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs."""

    def terminate(self) -> None:
        """SIGTERM: finish what is in flight, then end."""

    def close(self) -> None:
        """SIGKILL."""


StartEngine = Callable[[Json, str], Engine]
"""(pod, its address) -> what runs in it. Returns at once: readiness is for the pod's probes to find out."""


def condition(kind: str, holds: bool, **fields: str) -> Json:
    """A pod condition."""
    return {"type": kind, "status": "True" if holds else "False", **fields}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _gates_open(pod: Json) -> bool:
    """Whether every readiness gate's condition, which others patch, is true."""
    states = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", [])}
    gates = pod["spec"].get("readinessGates") or []
    return all(states.get(gate["conditionType"]) == "True" for gate in gates)


class PodLife:
    """The life of one pod that is bound to one of our nodes; `pod` is kept as the API server last showed it.

    Of the containers only the first is really there; the others share its state. Of the probes `httpGet` is made, of
    the hooks `preStop.sleep`; what else a pod may ask for counts as passed.
    """

    def __init__(self, pod: Json, address: str, host: str, start_engine: StartEngine) -> None:
        self.pod, self.address, self.host = pod, address, host
        self.engine: Engine | None = None
        self.wake = asyncio.Event()
        self.gone = False  # from the API: there is nobody left to report to
        self._start_engine = start_engine
        self._restarts = 0
        self._start_again_at_s = 0.0
        self._started_at = _now()
        self._why_waiting = "ContainerCreating"
        self._probe_failures = 0
        self._has_started = self._is_ready = False
        self._terminate_at_s = self._kill_at_s = float("inf")
        self._since: dict[str, tuple[str, str]] = {}
        self._reported: Json = {}

    async def live(self, http: aiohttp.ClientSession, report: Callable[[Json], Awaitable[bool]]) -> None:
        """Until the pod is gone from the API, or has ended and may be deleted. `report` says whether it arrived."""
        try:
            while not self.gone and await self._step(http):
                if (status := self._status()) != self._reported and await report(status):
                    self._reported = status
                self.wake.clear()
                # Not wait_for, which in Python 3.11 may lose a cancellation.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STEP_S):
                        await self.wake.wait()
        finally:
            if self.engine:
                await asyncio.to_thread(self.engine.close)

    async def _step(self, http: aiohttp.ClientSession) -> bool:
        """One look; False when the pod may go."""
        now_s = time.monotonic()
        if self.pod["metadata"].get("deletionTimestamp"):
            return await self._end(now_s)
        if self.engine is None:
            if now_s >= self._start_again_at_s and not self._phase_is_final():
                await self._start()
        elif self.engine.exit_code is not None:
            self._ended(now_s)
        await self._probe(http)
        return True

    async def _start(self) -> None:
        try:
            self.engine = await asyncio.to_thread(self._start_engine, self.pod, self.address)
        except Exception as error:
            self._fell(f"CrashLoopBackOff: {error}", time.monotonic())
        self._started_at, self._probe_failures, self._has_started = _now(), 0, False

    def _ended(self, now_s: float) -> None:
        assert self.engine is not None
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if policy == "Always" or (policy == "OnFailure" and self.engine.exit_code != 0):
            self._fell("CrashLoopBackOff", now_s)

    def _fell(self, why: str, now_s: float) -> None:
        """To be started again, at first soon, then less often."""
        self.engine, self._why_waiting = None, why
        self._start_again_at_s = now_s + min(5.0, 0.1 * 2**self._restarts)
        self._restarts += 1

    def _phase_is_final(self) -> bool:
        return self.engine is not None and self.engine.exit_code is not None

    async def _end(self, now_s: float) -> bool:
        """preStop, SIGTERM, and at the latest when the grace period is over SIGKILL (by the caller's `close`)."""
        if self._kill_at_s == float("inf"):
            grace_s = float(self.pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            hook = (self.pod["spec"]["containers"][0].get("lifecycle") or {}).get("preStop") or {}
            sleep_s = float((hook.get("sleep") or {}).get("seconds", 0))
            self._terminate_at_s, self._kill_at_s = now_s + min(sleep_s, grace_s), now_s + grace_s
        if self.engine is None or self.engine.exit_code is not None or now_s >= self._kill_at_s:
            return False
        if now_s >= self._terminate_at_s:
            self._terminate_at_s, self._is_ready = float("inf"), False
            await asyncio.to_thread(self.engine.terminate)
        return True

    # Probes

    async def _probe(self, http: aiohttp.ClientSession) -> None:
        if self.engine is None or self._phase_is_final():
            self._is_ready = False
            return
        self._has_started = self._has_started or await self._passes(http, "startupProbe")
        self._is_ready = self._has_started and await self._passes(http, "readinessProbe")
        alive = not self._has_started or await self._passes(http, "livenessProbe")
        self._probe_failures = 0 if alive else self._probe_failures + 1
        if self._probe_failures >= (self._named("livenessProbe").get("failureThreshold") or 3):
            await asyncio.to_thread(self.engine.close)
            self._is_ready = False
            self._fell("CrashLoopBackOff", time.monotonic())

    def _named(self, kind: str) -> Json:
        return self.pod["spec"]["containers"][0].get(kind) or {}

    async def _passes(self, http: aiohttp.ClientSession, kind: str) -> bool:
        probe = self._named(kind)
        if not (get := probe.get("httpGet")):
            return True
        ports = {port.get("name"): port["containerPort"] for port in self.pod["spec"]["containers"][0].get("ports", [])}
        url = f"http://{get.get('host') or self.address}:{ports.get(get['port'], get['port'])}{get.get('path', '/')}"
        timeout = aiohttp.ClientTimeout(total=probe.get("timeoutSeconds") or 1)
        try:
            async with http.get(url, timeout=timeout, allow_redirects=False) as answer:
                return answer.status < 400
        except (aiohttp.ClientError, TimeoutError):
            return False

    # What the API is told

    def _phase(self) -> str:
        if self.engine is None:
            return "Running" if self._restarts else "Pending"
        code = self.engine.exit_code
        if code is None or self.pod["spec"].get("restartPolicy", "Always") == "Always":
            return "Running"
        return "Succeeded" if code == 0 else "Failed"

    def _state(self) -> Json:
        if self.engine is None:
            return {"waiting": {"reason": self._why_waiting.split(":")[0], "message": self._why_waiting}}
        if (code := self.engine.exit_code) is not None:
            why = "Completed" if code == 0 else "Error"
            return {"terminated": {"exitCode": code, "reason": why, "startedAt": self._started_at}}
        return {"running": {"startedAt": self._started_at}}

    def _status(self) -> Json:
        state = self._state()
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": f"tests://{container['image']}",
                "ready": self._is_ready,
                "started": self._has_started and "running" in state,
                "restartCount": self._restarts,
                "state": state,
            }
            for container in self.pod["spec"]["containers"]
        ]
        conditions = [
            condition("PodReadyToStartContainers", True),
            condition("Initialized", True),
            condition("ContainersReady", self._is_ready),
            self._ready_condition(),
        ]
        return {
            "phase": self._phase(),
            "hostIP": self.host,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [self._dated(each) for each in conditions],
            "containerStatuses": containers,
        }

    def _ready_condition(self) -> Json:
        if not self._is_ready:
            return condition("Ready", False, reason="ContainersNotReady", message="the engine does not answer yet")
        if not _gates_open(self.pod):
            return condition("Ready", False, reason="ReadinessGatesNotReady", message="a readiness gate is not true")
        return condition("Ready", True, reason="", message="")

    def _dated(self, state: Json) -> Json:
        """With the time since when the condition is as it is."""
        value, since = self._since.get(state["type"], ("", ""))
        if value != state["status"]:
            since = _now()
            self._since[state["type"]] = (state["status"], since)
        return state | {"lastTransitionTime": since}
