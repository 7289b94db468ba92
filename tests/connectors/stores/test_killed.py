"""A controller killed at any moment and started again has lost no override and goes back no epoch."""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autoscaler.connectors.routers.file import FilePublisher
from autoscaler.connectors.stores.sqlite import SqliteStores

WRITER = """
import asyncio, json, sys, time
from pathlib import Path
from autoscaler.connectors.routers.file import FilePublisher
from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.domain.fleet import Override, Tier

async def write(folder):
    stores = SqliteStores(folder / "state.db", time.time)
    ring = FilePublisher(folder / "ring.json")
    last = await ring.last()
    epoch = last[0] if last else 0
    number = len(stores.overrides.overrides("f"))
    print("ready", 0, flush=True)
    while True:
        stores.overrides.put("f", Override(f"t{number}", Tier.HOT, "r", "a", 0.0, 1.0))
        print("override", number, flush=True)
        number, epoch = number + 1, epoch + 1
        outcome = await ring.publish(epoch, json.dumps({"epoch": epoch, "fill": "x" * 5000}).encode())
        print("epoch", epoch, type(outcome).__name__, flush=True)
        stores.checkpoints.save("f", json.dumps({"epoch": epoch}))

asyncio.run(write(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_nothing_that_was_answered_is_lost_by_a_kill(tmp_path: Path) -> None:
    moments = random.Random(7)
    overrides, epoch = 0, 0
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready 0\n"
        time.sleep(moments.uniform(0.0, 0.15))
        writer.kill()
        # A line that was cut by the kill was not yet said.
        said = [line.split() for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.wait()
        writer.stdout.close()
        assert all(words[2] == "Applied" for words in said if words[0] == "epoch")
        overrides = max([overrides] + [int(w[1]) + 1 for w in said if w[0] == "override"])
        epoch = max([epoch] + [int(w[1]) for w in said if w[0] == "epoch"])
        stores = SqliteStores(tmp_path / "state.db", time.time)
        kept = {o.tenant for o in stores.overrides.overrides("f")}
        assert {f"t{n}" for n in range(overrides)} <= kept
        assert stores.conditions == {}
        stores.close()
        last = asyncio.run(FilePublisher(tmp_path / "ring.json").last())
        assert (last[0] if last else 0) >= epoch
    assert epoch > 0
