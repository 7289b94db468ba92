"""What earlier releases left behind is loaded, and what a newer one left is refused with a sentence that helps."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.domain.fleet import PauseMode, Tier
from autoscaler.planner import restored
from autoscaler.ports import PermanentError
from autoscaler.ring import UnsupportedSnapshotError, decode
from tests.scenarios.schedules import settle, started
from tests.upgrade.make_fixtures import NOW_S

RELEASES = sorted(path for path in Path(__file__).parent.iterdir() if (path / "checkpoint.json").is_file())
each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


def test_there_is_a_release_to_come_from():
    assert [path.name for path in RELEASES] == ["0.1.0"]


@each_release
def test_a_controller_goes_on_from_an_earlier_releases_checkpoint_and_ring(release: Path):
    """The same fleet, whose new leader has only the files: nothing is published anew, and the promises hold."""
    world = started()
    world.tokens_per_s = 4000.0
    world.steps(6, 60.0)
    body = (release / "ring.json").read_bytes()
    world.ring = decode(body).epoch, body
    world.highest_epoch = world.router_epoch = world.applied = world.ring[0]
    world.memory = restored((release / "checkpoint.json").read_text())
    slots = {s.slot for s in world.memory.ring.slots.slots}
    world.step()
    assert {s.slot for s in world.memory.ring.slots.slots} >= slots
    assert world.ring[0] >= decode(body).epoch
    settle(world)


@each_release
def test_an_earlier_releases_database_is_opened_with_everything_in_it(release: Path, tmp_path: Path):
    path = _database(release, tmp_path)
    stores = SqliteStores(path, lambda: NOW_S)
    (told,) = stores.overrides.overrides("fleet")
    assert (told.tenant, told.tier, told.actor, told.reason) == ("t001", Tier.HOT, "ann", "launch day")
    assert stores.overrides.pauses("fleet") == {"warm": (PauseMode.SCALE_IN, "load test", NOW_S + 600.0)}
    assert stores.detachments.read("other") is not None
    kept = stores.checkpoints.load("fleet")
    assert kept is not None
    assert restored(kept).ring.slots.slots
    assert len(stores.audit.read()) == 3
    stores.close()


@each_release
def test_what_a_newer_release_left_is_refused_and_stays_as_it_is(release: Path, tmp_path: Path):
    newer = json.loads((release / "checkpoint.json").read_text()) | {"version": 99}
    with pytest.raises(ValueError, match="has version 99, this release reads 1; run the release that wrote it"):
        restored(json.dumps(newer))
    ring = (release / "ring.json").read_text().replace('"version":1', '"version":99')
    with pytest.raises(UnsupportedSnapshotError, match="snapshot version 99 is unknown; this reads 1"):
        decode(ring)
    path = _database(release, tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = _dump(path)
    with pytest.raises(PermanentError, match="has schema version 99, this program knows up to"):
        SqliteStores(path, lambda: NOW_S)
    assert _dump(path) == before


def _dump(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    lines = [f"version {version}", *connection.iterdump()]
    connection.close()
    return lines


def _database(release: Path, folder: Path) -> Path:
    path = folder / "state.db"
    connection = sqlite3.connect(path)
    connection.executescript((release / "state.sql").read_text())
    connection.close()
    return path
