"""A thousand routers wait for one ring: each gets each epoch once and says so, and the work for it is done once."""

import asyncio
from pathlib import Path

import pytest

from autoscaler.api import ring as ring_routes
from tests.api.conftest import Api, _api, client

ROUTERS = 1000


@pytest.fixture
def api(tmp_path: Path):
    yield from _api(tmp_path, 200)


@pytest.mark.slow
async def test_a_thousand_routers_get_an_epoch_that_is_compressed_once_and_acknowledge_it(api: Api):
    await api.publish()
    epoch, body = api.world.ring or (0, b"")
    ring_routes._packed.cache_clear()
    path = "/v1/fleets/fleet/ring"

    async with client(api, "rob") as caller:

        async def follow(name: str) -> tuple[int, int]:
            news = await caller.get(f"{path}?wait_s=60", headers={"If-None-Match": f'"{epoch}"'})
            said = await caller.post(f"{path}/acks", json={"router": name, "epoch": news.json()["epoch"]})
            return news.json()["epoch"], said.status_code

        waiting = [asyncio.create_task(follow(f"router-{i}")) for i in range(ROUTERS)]
        for _ in range(50):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting), "nothing is new yet"
        later = body.replace(b'"epoch":%d,' % epoch, b'"epoch":%d,' % (epoch + 1))
        await api.hub.publish(epoch + 1, later)
        answers = await asyncio.gather(*waiting)
    assert set(answers) == {(epoch + 1, 204)}
    assert {r.epoch for r in await api.hub.routers(api.now_s)} == {epoch + 1}
    assert len(await api.hub.routers(api.now_s)) == ROUTERS
    assert ring_routes._packed.cache_info().misses == 1
