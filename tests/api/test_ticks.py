"""Between two ticks a reader who has the answer gets none again; what others change at once has no such tag."""

import httpx
import pytest

from autoscaler.api.ticks import MOST_KEPT, KeptAnswers
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


@pytest.mark.parametrize("path", OF_TICKS)
async def test_who_asks_later_gets_the_same_bytes_until_the_next_tick(api: Api, path: str):
    async with client(api, "rob") as reader, client(api, "ann") as operator:
        first = await reader.get(path)
        api.app.state.kept.keep(_asked(first), first.headers["ETag"], b'{"kept": true}')
        other = await operator.get(path)
        assert other.json() == {"kept": True}, "made once, whoever asks"
        assert other.headers["ETag"] == first.headers["ETag"]
        assert other.headers["Content-Type"] == first.headers["Content-Type"]
        api.tick()
        assert (await reader.get(path)).json().keys() == first.json().keys()


def _asked(response: httpx.Response) -> str:
    return f"{response.url.path}?{response.url.query.decode()}"


async def test_an_answer_is_kept_for_those_who_may_have_it_and_as_it_was_asked_for(api: Api):
    async with client(api, "rob") as reader, client(api, None) as nobody, client(api, "olga") as elsewhere:
        two = (await reader.get(f"{FLEET}/tenants", params={"limit": 2})).json()["items"]
        three = (await reader.get(f"{FLEET}/tenants", params={"limit": 3})).json()["items"]
        assert (len(two), len(three)) == (2, 3)
        assert (await nobody.get(f"{FLEET}/tenants", params={"limit": 2})).status_code == 401
        assert (await elsewhere.get(f"{FLEET}/tenants", params={"limit": 2})).status_code in (403, 404)
        assert (await elsewhere.get("/v1/fleets")).json()["items"] == []
        assert (await reader.get(f"{FLEET}/tenants/nobody")).status_code == 404
        assert (await reader.get(f"{FLEET}/tenants/nobody")).status_code == 404


def test_kept_answers_are_bounded_and_the_longest_unasked_goes():
    kept = KeptAnswers()
    for i in range(MOST_KEPT):
        kept.keep(str(i), "t", b"")
    assert kept.of("0", "t") == b""
    kept.keep("one more", "t", b"")
    assert (kept.of("0", "t"), kept.of("1", "t"), kept.of("0", "u")) == (b"", None, None)


@pytest.mark.parametrize("part", ["overrides", "decisions", "proposals"])
async def test_what_operators_change_between_ticks_is_always_answered(api: Api, part: str):
    async with client(api, "rob") as reader:
        assert "ETag" not in (await reader.get(f"{FLEET}/{part}")).headers


async def test_a_tag_opens_nothing_without_a_token_and_for_another_fleet(api: Api):
    async with client(api, "rob") as reader:
        tag = (await reader.get(FLEET)).headers["ETag"]
    async with client(api, None) as nobody:
        assert (await nobody.get(FLEET, headers={"If-None-Match": tag})).status_code == 401
