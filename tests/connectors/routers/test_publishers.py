"""Rings by file, by hub and by several places: an epoch never goes back, and nobody stays behind."""

import asyncio
import json
from pathlib import Path

import pytest

from autoscaler.connectors.routers.fanout import Publishers
from autoscaler.connectors.routers.file import FilePublisher
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.domain.decisions import Applied, Failed
from autoscaler.domain.fleet import Router
from autoscaler.ports import RingPublisher, TemporaryError


def body(epoch: int, note: str = "") -> bytes:
    return json.dumps({"epoch": epoch, "note": note}).encode()


@pytest.fixture(params=["file", "hub", "several"])
def publisher(request: pytest.FixtureRequest, tmp_path: Path) -> RingPublisher:
    file, hub = FilePublisher(tmp_path / "ring.json"), RingHub(60.0)
    several = Publishers(file, [hub])
    return {"file": file, "hub": hub, "several": several}[request.param]


async def test_a_lower_epoch_is_refused_and_not_written(publisher: RingPublisher) -> None:
    assert await publisher.last() is None
    assert isinstance(await publisher.publish(5, body(5)), Applied)
    assert await publisher.publish(4, body(4)) == Failed(
        "epoch 4 is refused: epoch 5 is published, and an epoch never goes back"
    )
    assert await publisher.last() == (5, body(5))


async def test_the_same_snapshot_again_is_applied_and_another_of_that_epoch_refused(publisher: RingPublisher) -> None:
    await publisher.publish(5, body(5))
    assert isinstance(await publisher.publish(5, body(5)), Applied)
    assert isinstance(await publisher.publish(5, body(5, "other")), Failed)
    assert await publisher.last() == (5, body(5))


async def test_a_file_outlives_its_publisher_and_leaves_nothing_partial(tmp_path: Path) -> None:
    await FilePublisher(tmp_path / "ring.json").publish(7, body(7))
    assert await FilePublisher(tmp_path / "ring.json").last() == (7, body(7))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ring.json", "ring.json.lock"]  # noqa: ASYNC240


async def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "ring.json").write_bytes(b"{")
    publisher = FilePublisher(tmp_path / "ring.json")
    with pytest.raises(TemporaryError, match="holds no ring snapshot"):
        await publisher.last()
    outcome = await publisher.publish(1, body(1))
    assert isinstance(outcome, Failed)
    assert "move it away" in outcome.error
    assert (tmp_path / "ring.json").read_bytes() == b"{"


async def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    outcome = await FilePublisher(tmp_path / "gone" / "ring.json").publish(1, body(1))
    assert isinstance(outcome, Failed)
    assert "cannot be written" in outcome.error


async def test_who_waits_is_woken_by_the_next_epoch() -> None:
    hub = RingHub(60.0)
    await hub.publish(1, body(1))
    waiting = [asyncio.create_task(hub.newer(1, 30.0)) for _ in range(3)]
    await asyncio.sleep(0)
    await hub.publish(2, body(2))
    assert await asyncio.gather(*waiting) == [(2, body(2))] * 3
    assert await hub.newer(1, 0.0) == (2, body(2))
    assert await hub.newer(2, 0.0) is None


async def test_acknowledgements_end() -> None:
    hub = RingHub(60.0)
    assert not hub.acknowledge("r1", 1, 0.0)
    await hub.publish(2, body(2))
    assert hub.acknowledge("r1", 1, 0.0)
    assert hub.acknowledge("r0", 2, 30.0)
    assert not hub.acknowledge("r2", 3, 30.0)
    assert await hub.routers(40.0) == (Router("r0", 2, 10.0), Router("r1", 1, 40.0))
    assert await hub.routers(61.0) == (Router("r0", 2, 31.0),)


async def test_places_that_forgot_are_caught_up(tmp_path: Path) -> None:
    file = FilePublisher(tmp_path / "ring.json")
    await Publishers(file, [RingHub(60.0)]).publish(9, body(9))
    hub = RingHub(60.0)
    assert await Publishers(file, [hub]).last() == (9, body(9))
    assert await hub.last() == (9, body(9))


async def test_a_lost_file_does_not_lower_the_epoch(tmp_path: Path) -> None:
    hub = RingHub(60.0)
    await hub.publish(9, body(9))
    file = FilePublisher(tmp_path / "ring.json")
    assert await Publishers(file, [hub]).last() == (9, body(9))
    assert await file.last() == (9, body(9))


async def test_a_router_heard_in_two_places_counts_with_its_lower_epoch(tmp_path: Path) -> None:
    one, two = RingHub(60.0), RingHub(60.0)
    both = Publishers(FilePublisher(tmp_path / "ring.json"), [one, two])
    await both.publish(2, body(2))
    one.acknowledge("r", 2, 0.0)
    two.acknowledge("r", 1, 0.0)
    assert await both.routers(0.0) == (Router("r", 1, 0.0),)
