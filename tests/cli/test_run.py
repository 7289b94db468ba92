"""`run`, as an operator starts and ends it: a process of its own, simulated engines, a real API."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from autoscaler.cli.run import done_before, unused
from autoscaler.cli.settings import FleetWiring, Settings
from tests.cli.serving import free_port

slow = pytest.mark.slow

POLICY = """apiVersion: lora-autoscaler.io/v1alpha1
kind: FleetPolicy
metadata: {name: chat}
spec:
  baseModel: base
  mode: enforce
  tickInterval: 500ms
  adapters: {list: [{id: a, tenant: acme, source: /x/a}, {id: b, source: /x/b}]}
  engine: {limits: {maxLoras: 8, maxCpuLoras: 16}}
  scaling: {startup: 10m}
"""


def start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    (folder / "settings.yaml").write_text(f"listen: {{port: {port}}}\nlog: {{format: json}}\nfleets: {{caht: {{}}}}\n")
    command = [sys.executable, "-c", "import sys; from autoscaler.cli import main; sys.exit(main(sys.argv[1:]))"]
    words = ["run", "--policies", str(folder / "policies"), "--settings", str(folder / "settings.yaml")]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([*command, *words], stderr=log, stdout=log, cwd=folder)


def until(true, process: subprocess.Popen[bytes], folder: Path, timeout_s: float = 240.0):
    """Wait for what a busy machine may take minutes for; the process must not end meanwhile."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            if found := true():
                return found
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError((folder / "log").read_text()[-3000:])


@slow
def test_run_serves_reloads_survives_a_kill_and_ends_cleanly(tmp_path: Path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "zz-copy.yaml").write_text(POLICY)
    file = tmp_path / "policies" / "chat.yaml"
    file.write_text(POLICY)
    port = free_port()
    process = start(tmp_path, port)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: httpx.get(f"{url}/readyz").status_code == 200, process, tmp_path)
        headers = {"Authorization": f"Bearer {_token(tmp_path)}"}

        def fleet() -> dict:
            return httpx.get(f"{url}/v1/fleets/chat", headers=headers).json()

        epoch = until(lambda: fleet()["epoch"], process, tmp_path)
        assert fleet()["mode"] == "enforce"
        names = {c["name"] for c in fleet()["conditions"]}
        assert names >= {"PolicyRefused/zz-copy.yaml", "SettingsUnused/caht"}, (
            "who looks sees it, not only at the start"
        )
        file.write_text(POLICY.replace("maxLoras: 8", "maxLoras: -8"))
        until(lambda: [c for c in fleet()["conditions"] if c["name"] == "PolicyInvalid"], process, tmp_path)
        file.write_text(POLICY.replace("mode: enforce", "mode: advise"))
        until(lambda: fleet()["mode"] == "advise", process, tmp_path)
        body = {"tier": "cold", "reason": "load test", "ttl_s": 3600}
        answer = httpx.put(f"{url}/v1/fleets/chat/tenants/acme/override", json=body, headers=headers)
        assert answer.status_code == 200
        process.kill()
        process.wait()
        process = start(tmp_path, port)
        until(lambda: httpx.get(f"{url}/readyz").status_code == 200, process, tmp_path)
        headers = {"Authorization": f"Bearer {_token(tmp_path)}"}
        kept = httpx.get(f"{url}/v1/fleets/chat/overrides", headers=headers).json()["items"]
        assert [o["tenant"] for o in kept] == ["acme"], "what was answered is not lost"
        assert fleet()["epoch"] >= epoch
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert '"subject": "group/warm"' in log
    assert log.count("`fleets.caht` of the settings") == 2, "a start warns once"
    assert log.count("fleet chat is already claimed by") >= 2


async def test_an_end_that_is_asked_for_while_a_fleet_starts_is_not_waited_for():
    ends, ended = asyncio.Event(), []

    async def start() -> None:
        asyncio.get_running_loop().call_soon(ends.set)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("let go")

    assert not await done_before(ends, start())
    assert ended == ["let go"]
    assert await done_before(asyncio.Event(), asyncio.sleep(0))


async def test_what_goes_wrong_while_a_fleet_starts_is_raised():
    async def start() -> None:
        raise ValueError("no port")

    with pytest.raises(ValueError, match="no port"):
        await done_before(asyncio.Event(), start())


def test_settings_of_a_fleet_that_no_policy_has_are_a_condition_with_the_nearest_name():
    settings = Settings(fleets={"chatt": FleetWiring(), "chat": FleetWiring()})
    found = unused(settings, {"chat", "mail"})
    assert list(found) == ["SettingsUnused/chatt"]
    assert "no valid policy has this fleet; did you mean 'chat'?" in found["SettingsUnused/chatt"]


def _token(folder: Path) -> str:
    lines = [line for line in (folder / "log").read_text().splitlines() if line.startswith("tokens of this process")]
    return lines[-1].split("operator ")[1].split()[0]
