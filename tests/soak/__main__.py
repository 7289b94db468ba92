"""Hours in virtual time, then minutes of everything for real: `python -m tests.soak [--hours 72] [--minutes 20]`.

Judged by the middle against the end: memory and file handles must be flat once warm. One JSON object is the last line
of standard output; the exit code is 1 where something grew.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autoscaler.planner import checkpoint
from tests.scenarios.faults import started

BIN = Path(sys.prefix) / "bin"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
EVERY_S = 5.0
RATE_RPS = 8.0
"""What eight simulated engines carry on one core that they share: a backlog would grow, and be taken for a leak."""
MOST_GROWTH_RATIO = 1.05
SPARE_BYTES = 16 << 20  # an allocator's own steps
SPARE_HANDLES = 16
DAY_S = 86_400.0


def virtual(hours: float) -> dict[str, object]:
    """The planner through days of rising and falling load, held to every promise at each tick."""
    world, seen = started(), []
    ticks = round(hours * 240)
    for number in range(ticks):
        # A replica dies each half hour; the load is a day's wave.
        world.tokens_per_s = 1500.0 * (1.0 + math.sin(2 * math.pi * world.now_s / DAY_S))
        if number % 120 == 119 and (names := sorted(world.replicas)):
            world.forget(names[number % len(names)])
        world.step()
        world.log.clear()
        world.attempts.clear()
        if number % 40 == 0:
            seen.append((_rss_bytes(os.getpid()), len(checkpoint(world.memory)), 0))
    return {"hours": hours, "ticks": ticks, **judged(seen)}


def real(minutes: float, port_base: int) -> dict[str, object]:
    """The demo: engines, Envoy, traffic, controller, API; its processes are looked at from outside."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "steady.csv"
        trace.write_text(steady(minutes * 60))
        argv = [BIN / "lora-autoscaler", "demo", "--no-dashboard", "--json", "--duration", str(minutes * 60)]
        return _watched([*argv, "--trace", trace, "--scale", "1", "--port-base", str(port_base)], minutes)


def steady(seconds: float) -> str:
    """Requests at random moments and of random lengths, as a trace; the same each time."""
    drawn = random.Random(1)
    at, lines = datetime(2026, 11, 29, tzinfo=UTC), ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for _ in range(round(seconds * RATE_RPS)):
        at += timedelta(seconds=drawn.expovariate(RATE_RPS))
        lines.append(f"{at:%Y-%m-%d %H:%M:%S.%f},{drawn.randint(20, 400)},{drawn.randint(20, 200)}")
    return "\n".join(lines) + "\n"


def _watched(argv: Sequence[str | Path], minutes: float) -> dict[str, object]:
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as demo:
        seen = []
        while demo.poll() is None:
            time.sleep(EVERY_S)
            tree = _tree(demo.pid)
            seen.append((sum(map(_rss_bytes, tree)), 0, sum(map(_handles, tree))))
        assert demo.stdout is not None
        lines = demo.stdout.read().decode().splitlines()
    managed = json.loads(lines[-1])["phases"]["managed"] if demo.returncode == 0 and lines else {}
    # The last looks saw it end.
    return {
        "minutes": minutes, "exit_code": demo.returncode, "requests": managed.get("requests"),
        "errors": managed.get("errors"), "ttft_p99_s": managed.get("ttft_p99_s"),
        **judged(seen[: -max(1, len(seen) // 20)]),
    }  # fmt: skip


def judged(seen: list[tuple[int, int, int]]) -> dict[str, object]:
    """The third quarter against the last: bytes of memory, bytes of the checkpoint, file handles."""
    quarter = max(len(seen) // 4, 1)
    middle, end = seen[2 * quarter : 3 * quarter], seen[3 * quarter :]
    names = ("rss_bytes", "checkpoint_bytes", "handles")
    spare = (SPARE_BYTES, 1024, SPARE_HANDLES)
    result: dict[str, object] = {}
    flat = bool(middle and end)
    for column, (name, more) in enumerate(zip(names, spare, strict=True)):
        before, after = (statistics.median(row[column] for row in part) for part in (middle or seen, end or seen))
        result[name] = [round(before), round(after)]
        flat &= after <= before * MOST_GROWTH_RATIO + more
    return {**result, "flat": flat}


def _tree(pid: int) -> list[int]:
    """A process and all that it started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(found for child in children for found in _tree(int(child)))]


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _handles(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def main() -> int:
    """Both parts, and what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=72.0, help="of virtual time; 0: none (default: %(default)g)")
    parser.add_argument("--minutes", type=float, default=20.0, help="of real time; 0: none (default: %(default)g)")
    parser.add_argument("--port-base", type=int, default=21_080, help="first port of the demo")
    told = parser.parse_args()
    found = {}
    if told.hours:
        found["virtual"] = virtual(told.hours)
    if told.minutes:
        found["real"] = real(told.minutes, told.port_base)
    print(json.dumps(found))
    return 0 if all(part["flat"] and not part.get("exit_code") for part in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
