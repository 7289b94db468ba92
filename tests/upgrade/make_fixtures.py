"""Write what this release leaves behind, for later releases to load: `python -m tests.upgrade.make_fixtures FOLDER`.

Run it once a release, into a folder named after it, and never again for that folder: a fixture that is made anew proves
nothing.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path

from autoscaler.connectors.engines.ledger import LoadEntry
from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.domain.fleet import Override, PauseMode, Tier
from autoscaler.planner import checkpoint
from tests.scenarios.faults import FaultyWorld
from tests.scenarios.schedules import started

NOW_S = 2_000_000.0


def write(folder: Path) -> None:
    """The checkpoint, the ring and the database of a fleet that has lived for a while."""
    world = started()
    world.tokens_per_s = 4000.0
    world.steps(6, 60.0)
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(checkpoint(world.memory))
    assert world.ring is not None
    (folder / "ring.json").write_bytes(world.ring[1])
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "state.db"
        _fill(path, world)
        with sqlite3.connect(path) as connection:
            pragmas = [
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            ]
            dump = "\n".join(connection.iterdump())
    header = f"PRAGMA application_id = {pragmas[0]};\nPRAGMA user_version = {pragmas[1]};\n"
    (folder / "state.sql").write_text(header + dump + "\n")


def _fill(path: Path, world: FaultyWorld) -> None:
    stores = SqliteStores(path, lambda: NOW_S)
    launch = Override("t001", Tier.HOT, "launch day", "ann", NOW_S, NOW_S + 3600.0)
    stores.overrides.put("fleet", launch)
    stores.overrides.pause("fleet", "warm", PauseMode.SCALE_IN, "load test", NOW_S + 600.0, "ann")
    stores.checkpoints.save("fleet", checkpoint(world.memory))
    stores.detachments.detach("other", "ann", "uninstalling")
    stores.loads.remember_load("fleet", LoadEntry("warm-000", NOW_S, "t001", ""))
    stores.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
