"""What a thousand routers that wait for the ring cost the controller: seconds of a tick with them and without.

`python -m benchmarks.router_polls --routers 1000 --json`. The controller is a process of its own (`run`, four simulated
engines, no traffic, a tick each second); routers are connections of this one, which wait, and acknowledge their epoch.
Rounds with and without them take turns, and the medians are compared, so that a busy machine hurts both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

POLICY = """apiVersion: lora-autoscaler.io/v1alpha1
kind: FleetPolicy
metadata: {{name: chat}}
spec:
  baseModel: base
  mode: enforce
  tickInterval: 1s
  adapters: {{list: [{adapters}]}}
  engine: {{limits: {{maxLoras: 64, maxCpuLoras: 4096}}}}
  groups: {{warm: {{minReplicas: 4, maxReplicas: 4}}}}
  scaling: {{startup: 100ms}}
"""
COMMAND = "import sys; from autoscaler.cli import main; sys.exit(main(sys.argv[1:]))"
WAIT_S = 25
STEADY_S = 10.0
RING = "/v1/fleets/chat/ring"


@asynccontextmanager
async def controller(folder: Path, adapters: int, port: int) -> AsyncIterator[tuple[str, str]]:
    """A controller that has published a ring: its address and a reader's token."""
    (folder / "policies").mkdir()
    listed = ", ".join(f"{{id: a{i:05d}, source: /x/a{i:05d}}}" for i in range(adapters))
    (folder / "policies" / "chat.yaml").write_text(POLICY.format(adapters=listed))
    (folder / "settings.yaml").write_text(f"listen: {{port: {port}}}\n")
    told = ["--policies", str(folder / "policies"), "--settings", str(folder / "settings.yaml")]
    url = f"http://127.0.0.1:{port}"
    process = _started(folder, told)
    try:
        async with asyncio.timeout(300), aiohttp.ClientSession() as session:
            epoch, since_s = "", 0.0
            # While adapters are loaded each tick has an epoch, and routers fetch it: that is not waiting.
            while not epoch or since_s < STEADY_S:
                if process.poll() is not None:
                    raise RuntimeError((folder / "log").read_text()[-2000:])
                token = _token(folder / "log")
                now = await _epoch(session, url, token) if token else ""
                since_s = since_s + 0.5 if now == epoch else 0.0
                epoch = now
                await asyncio.sleep(0.5)
        yield url, token
    finally:
        process.terminate()
        process.wait(60)


def _started(folder: Path, told: list[str]) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-c", COMMAND, "run", *told], stderr=log, stdout=log, cwd=folder)


def _token(log: Path) -> str:
    found = re.search(r"reader (\S+)", log.read_text())
    return found[1] if found else ""


async def _epoch(session: aiohttp.ClientSession, url: str, token: str) -> str:
    """The ring's epoch as its tag says it; empty where there is none yet."""
    try:
        async with session.get(f"{url}{RING}", headers={"Authorization": f"Bearer {token}"}) as answer:
            return answer.headers.get("ETag", "") if answer.status == 200 else ""
    except aiohttp.ClientError:
        return ""


async def _tick(session: aiohttp.ClientSession, url: str) -> tuple[float, int]:
    """Seconds of all steps of all ticks so far, and the number of ticks."""
    async with session.get(f"{url}/metrics") as answer:
        page = await answer.text()
    name = r"tick_duration_seconds_{}{{[^}}]*}} (\S+)"
    total = sum(float(x) for x in re.findall(name.format("sum"), page))
    return total, round(max((float(x) for x in re.findall(name.format("count"), page)), default=0.0))


async def _per_tick_s(session: aiohttp.ClientSession, url: str, seconds: float) -> float:
    before = await _tick(session, url)
    await asyncio.sleep(seconds)
    after = await _tick(session, url)
    return (after[0] - before[0]) / max(1, after[1] - before[1])


async def _router(session: aiohttp.ClientSession, url: str, name: str, refused: list[int], have: set[str]) -> None:
    epoch = ""
    while True:
        headers = {"If-None-Match": epoch} if epoch else {}
        async with session.get(f"{url}{RING}", params={"wait_s": str(WAIT_S)}, headers=headers) as answer:
            await answer.read()
            if answer.status == 200:
                epoch = answer.headers["ETag"]
            elif answer.status != 304:
                refused.append(answer.status)
                await asyncio.sleep(1.0)
        if epoch:
            said = {"router": name, "epoch": int(epoch.strip('"'))}
            async with session.post(f"{url}{RING}/acks", json=said) as answer:
                await answer.read()
            have.add(name)


async def measured(routers: int, adapters: int, rounds: int, seconds: float, port: int) -> dict[str, object]:
    """Medians over the rounds, in milliseconds."""
    alone, beside, refused = [], [], list[int]()
    with tempfile.TemporaryDirectory() as folder:
        async with controller(Path(folder), adapters, port) as (url, token):
            headers = {"Authorization": f"Bearer {token}"}
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as session:
                for _ in range(rounds):
                    alone.append(await _per_tick_s(session, url, seconds))
                    have = set[str]()
                    tasks = [asyncio.create_task(_router(session, url, f"r{i}", refused, have)) for i in range(routers)]
                    while len(have) < routers:  # noqa: ASYNC110 - the first greeting is not what is measured
                        await asyncio.sleep(0.5)
                    await asyncio.sleep(5.0)
                    beside.append(await _per_tick_s(session, url, seconds))
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                    await asyncio.sleep(5.0)
    without_ms, with_ms = (1000 * statistics.median(x) for x in (alone, beside))
    return {
        "routers": routers, "adapters": adapters, "rounds": rounds, "refused": len(refused),
        "tick_without_ms": round(without_ms, 2), "tick_with_ms": round(with_ms, 2),
        "slower_percent": round(100 * (with_ms / without_ms - 1), 1),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.router_polls", description=__doc__)
    parser.add_argument("--routers", type=int, default=1000)
    parser.add_argument("--adapters", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each half of a round (default: %(default)g)")
    parser.add_argument("--port", type=int, default=21_190)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    found = asyncio.run(measured(told.routers, told.adapters, told.rounds, told.seconds, told.port))
    print(json.dumps(found) if told.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
