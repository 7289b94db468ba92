"""Between two ticks a reader who has the answer gets none again; what others change at once has no such tag."""

import pytest

from tests.api.conftest import Api, client

FLEET = "/v1/fleets/fleet"
OF_TICKS = (
    "/v1/fleets", FLEET, f"{FLEET}/tenants", f"{FLEET}/tenants/t003", f"{FLEET}/adapters", f"{FLEET}/adapters/t003",
    f"{FLEET}/groups", f"{FLEET}/explain?subject=tenant/t003", f"{FLEET}/noisy-neighbours", f"{FLEET}/adapter-thrash",
    f"{FLEET}/residency", f"{FLEET}/costs",
)  # fmt: skip


@pytest.mark.parametrize("path", OF_TICKS)
async def test_an_answer_is_given_once_a_tick(api: Api, path: str):
    async with client(api, "rob") as reader:
        first = await reader.get(path)
        tag = first.headers["ETag"]
        again = await reader.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert (await reader.get(path, headers={"If-None-Match": f'"other", W/{tag}'})).status_code == 304
        api.tick()
        newer = await reader.get(path, headers={"If-None-Match": tag})
        assert newer.status_code == 200
        assert newer.headers["ETag"] != tag


@pytest.mark.parametrize("part", ["overrides", "decisions", "proposals"])
async def test_what_operators_change_between_ticks_is_always_answered(api: Api, part: str):
    async with client(api, "rob") as reader:
        assert "ETag" not in (await reader.get(f"{FLEET}/{part}")).headers


async def test_a_tag_opens_nothing_without_a_token_and_for_another_fleet(api: Api):
    async with client(api, "rob") as reader:
        tag = (await reader.get(FLEET)).headers["ETag"]
    async with client(api, None) as nobody:
        assert (await nobody.get(FLEET, headers={"If-None-Match": tag})).status_code == 401
