"""What can be read: pages that survive change, tenants, adapters, groups, ring, decisions, explanations."""

import asyncio
import gzip
import json
from dataclasses import replace

import httpx
import numpy as np
import pytest

from autoscaler.domain.diagnosis import Basis, Cure, Place, PushedOut
from autoscaler.policy.groups import Groups, HotGroups, WarmGroup
from autoscaler.ring import decode, ring_diff
from tests.api.conftest import Api, client

FLEET = "/v1/fleets/fleet"


async def walk(caller: httpx.AsyncClient, path: str, between=lambda: None, **query: object) -> list[dict]:
    items: list[dict] = []
    cursor = ""
    while True:
        page = (await caller.get(path, params=query | ({"cursor": cursor} if cursor else {}))).json()
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items
        between()


async def test_a_thousand_tenants_are_walked_once_each_in_order(crowd: Api):
    columns = {"tenant": "tenant", "rate": "rate_tokens_per_s", "forecast": "forecast_p90_tokens_per_s"}
    async with client(crowd, "rob") as reader:
        for sort in ("tenant", "-tenant", "rate", "-rate", "-forecast", "-ttft"):
            items = await walk(reader, f"{FLEET}/tenants", sort=sort, limit=137)
            assert len({i["tenant"] for i in items}) == len(items) == 1000, sort
            values = [i[columns.get(sort.lstrip("-"), "ttft_p99_s")] for i in items]
            assert values == sorted(values, reverse=sort.startswith("-")), sort


async def test_tenants_whose_values_change_between_pages_are_neither_lost_nor_shown_twice(crowd: Api):
    """Names do not move, and a walk by name sees every tenant once, whatever the ticks between its pages decide."""

    def churn() -> None:
        crowd.world.tokens_per_s *= 1.3
        crowd.tick()

    async with client(crowd, "rob") as reader:
        items = await walk(reader, f"{FLEET}/tenants", churn, sort="tenant", limit=250)
        by_rate = await walk(reader, f"{FLEET}/tenants", churn, sort="-rate", limit=250)
    assert [i["tenant"] for i in items] == sorted(crowd.world.catalogue.tenants)
    # Rates keep their order here, so a walk by rate is whole as well.
    assert {i["tenant"] for i in by_rate} == set(crowd.world.catalogue.tenants)


async def test_a_tier_and_a_search_narrow_the_list(api: Api):
    async with client(api, "rob") as reader:
        everyone = (await reader.get(f"{FLEET}/tenants")).json()
        warm = (await reader.get(f"{FLEET}/tenants", params={"tier": "warm"})).json()
        found = (await reader.get(f"{FLEET}/tenants", params={"search": "t01"})).json()
    assert everyone["total"] == 12
    assert warm["total"] == sum(1 for t in everyone["items"] if t["tier"] == "warm")
    assert {t["tenant"] for t in found["items"]} == {"t010", "t011"}


@pytest.mark.parametrize("cursor", ["x", "e30", "W10", "\u00e9", "A" * 1100])
async def test_a_damaged_cursor_is_refused(ann: httpx.AsyncClient, cursor: str):
    answer = await ann.get(f"{FLEET}/tenants", params={"cursor": cursor})
    assert answer.status_code in (400, 422)
    assert "cursor" in answer.json()["detail"]


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 1001}, {"sort": "colour"}, {"tier": "tepid"}])
async def test_pages_have_bounds_and_sorts_are_known(ann: httpx.AsyncClient, query: dict):
    assert (await ann.get(f"{FLEET}/tenants", params=query)).status_code == 422


async def test_a_fleet_says_its_mode_epoch_groups_tiers_freshness_and_conditions(ann: httpx.AsyncClient, api: Api):
    status = (await ann.get(FLEET)).json()
    assert (status["mode"], status["epoch"], status["frozen"]) == ("enforce", api.world.ring[0], None)
    assert [g["group"] for g in status["groups"]] == ["warm"]
    assert sum(status["tenants"].values()) == 12
    assert {"traffic", "engines", "replicas", "publisher"} <= set(status["signals"])
    assert (await ann.get("/v1/fleets")).json()["items"] == [status]


async def test_a_tenant_in_full_has_forecast_trail_and_owners(ann: httpx.AsyncClient):
    found = (await ann.get(f"{FLEET}/tenants/t000")).json()
    assert found["trail"]
    assert {"horizon_s", "mean_tokens_per_s", "p50_tokens_per_s", "p90_tokens_per_s"} == set(found["forecast"][0])
    assert found["adapters"][0]["adapter"] == "t000"
    assert found["adapters"][0]["owners"]
    assert found["slo_ttft_s"] == 1.0


async def test_an_adapter_says_where_it_is_registered_and_assigned(ann: httpx.AsyncClient, api: Api):
    found = (await ann.get(f"{FLEET}/adapters/t003")).json()
    assert found["source"] == "/adapters/t003"
    assert found["assigned_to"] == found["registered_on"]
    listed = await walk(ann, f"{FLEET}/adapters", limit=5)
    assert [a["adapter"] for a in listed] == list(api.world.catalogue.ids)


async def test_groups_decisions_scores_and_costs_are_there(ann: httpx.AsyncClient):
    group = (await ann.get(f"{FLEET}/groups")).json()["items"][0]
    assert (group["current_replicas"], group["ready_replicas"], group["group"]) == (3, 3, "warm")
    decisions = (await ann.get(f"{FLEET}/decisions")).json()["items"]
    assert {d["step"] for d in decisions} >= {"scale", "ring"}
    later = (await ann.get(f"{FLEET}/decisions", params={"since": decisions[0]["id"], "limit": 1})).json()
    assert later["items"][0]["id"] == decisions[1]["id"] == later["next_cursor"]
    only = (await ann.get(f"{FLEET}/decisions", params={"subject": "group/warm"})).json()["items"]
    assert {d["subject"] for d in only} == {"group/warm"}
    for part in ("noisy-neighbours", "adapter-thrash", "overrides", "proposals"):
        assert isinstance((await ann.get(f"{FLEET}/{part}")).json()["items"], list)
    costs = (await ann.get(f"{FLEET}/costs")).json()
    assert costs["replica_hours_per_hour"] == {"warm": 3}
    assert costs["deployment_per_tenant_replicas"] == 12


async def test_thrash_says_who_is_pushed_out_by_whom_and_what_would_cure_it(ann: httpx.AsyncClient, api: Api):
    view = api.views["fleet"]
    pushed = PushedOut("t003", Place.SLOT, Basis.ESTIMATED, 120.0, 600.0, ("warm-000",), (("t004", 0.75), ("", 0.25)),
                       (500.0, 300.0))  # fmt: skip
    cure = Cure("slots", 500.0, 20.0, "12 adapter slots a replica instead of 8")
    group = replace(view.plan.diagnosis.groups["warm"], cures=(cure,))
    found = replace(view.plan.diagnosis, groups={"warm": group}, pushed_out=(pushed,))
    api.views["fleet"] = replace(view, plan=replace(view.plan, id="fleet-later", diagnosis=found))
    answer = (await ann.get(f"{FLEET}/adapter-thrash")).json()
    assert answer["pushed_out"] == [
        {
            "adapter": "t003", "tenant": "t003", "place": "slot", "basis": "estimated", "per_hour": 120.0,
            "requests_per_hour": 600.0, "replicas": ["warm-000"],
            "by": [{"adapter": "t004", "share_ratio": 0.75}, {"adapter": None, "share_ratio": 0.25}],
            "loads_per_hour": 500.0, "loads_per_hour_without": 300.0,
        }
    ]  # fmt: skip
    assert answer["cures"] == [
        {"group": "warm", "kind": "slots", "message": cure.message, "loads_per_hour": 500.0,
         "loads_per_hour_after": 20.0}
    ]  # fmt: skip
    told = (await ann.get(f"{FLEET}/explain", params={"subject": "adapter/t003"})).json()["facts"]
    assert told[-1] == (
        "Pushed out of adapter slots about 120 times an hour (estimated from request rates and adapter slots), by t004 "
        "75%, one of several at once 25%. Served elsewhere, 500 loads an hour on its replicas would be 300."
    )
    group_facts = (await ann.get(f"{FLEET}/explain", params={"subject": "group/warm"})).json()["facts"]
    assert "Slots: 12 adapter slots a replica instead of 8." in group_facts
    replica_facts = (await ann.get(f"{FLEET}/explain", params={"subject": "replica/warm-000"})).json()["facts"]
    assert replica_facts[-1].startswith("t003: Pushed out of adapter slots about 120 times an hour")


@pytest.mark.parametrize("subject", ["tenant/t000", "adapter/t000", "group/warm", "replica/warm-000", "signal/traffic"])
async def test_every_kind_of_subject_is_explained_in_sentences(ann: httpx.AsyncClient, subject: str):
    found = (await ann.get(f"{FLEET}/explain", params={"subject": subject})).json()
    assert found["subject"] == subject
    assert found["summary"].endswith(".")
    assert {"why", "facts", "to_change"} <= set(found)


async def test_the_ring_has_its_epoch_as_etag_and_answers_304_until_it_changes(ann: httpx.AsyncClient, api: Api):
    assert (await ann.get(f"{FLEET}/ring")).status_code == 503
    await api.publish()
    answer = await ann.get(f"{FLEET}/ring", headers={"Accept-Encoding": "identity"})
    epoch = api.world.ring[0]
    assert answer.headers["etag"] == f'"{epoch}"'
    assert answer.headers["content-type"] == "application/vnd.lora-autoscaler.ring.v1+json"
    assert decode(answer.content).epoch == epoch
    same = await ann.get(f"{FLEET}/ring", headers={"If-None-Match": f'"{epoch}"'})
    assert (same.status_code, same.content) == (304, b"")
    for tag in ('"0"', f'W/"{epoch - 1}"', "nonsense", '"9999999999999999999999"'):
        assert (await ann.get(f"{FLEET}/ring", headers={"If-None-Match": tag})).status_code == 200, tag


async def test_a_large_ring_is_compressed_for_those_who_take_it(crowd: Api):
    await crowd.publish()
    async with client(crowd, "rob") as reader, reader.stream("GET", f"{FLEET}/ring") as answer:
        raw = b"".join([part async for part in answer.aiter_raw()])
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert gzip.decompress(raw) == crowd.world.ring[1]


async def test_a_long_poll_is_answered_by_the_next_epoch_and_ends_without_one(ann: httpx.AsyncClient, api: Api):
    await api.publish()
    tag = {"If-None-Match": f'"{api.world.ring[0]}"'}
    nothing = await ann.get(f"{FLEET}/ring", params={"wait_s": 0.05}, headers=tag)
    assert nothing.status_code == 304
    waiting = asyncio.create_task(ann.get(f"{FLEET}/ring", params={"wait_s": 30}, headers=tag))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    before = api.world.ring[0]
    api.world.start("warm", 1)
    api.tick(4)
    assert api.world.ring[0] > before
    await api.publish()
    assert (await waiting).headers["etag"] == f'"{api.world.ring[0]}"'


async def test_events_bring_each_epoch_and_go_on_after_the_last_one_seen(api: Api):
    """Read from the application itself: the in-process transport waits for the end of a stream that has none."""
    await api.publish()
    epoch = api.world.ring[0]
    sent: list[dict] = []
    enough = asyncio.Event()

    async def send(message: dict) -> None:
        sent.append(message)
        if message.get("body"):
            enough.set()

    asked = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict:
        if asked:
            return asked.pop()
        await enough.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http", "method": "GET", "path": f"{FLEET}/ring/events", "raw_path": b"", "query_string": b"",
        "headers": [(b"authorization", b"Bearer rob"), (b"last-event-id", b"%d" % (epoch - 1))], "http_version": "1.1",
        "scheme": "http", "server": ("api", 80), "client": ("test", 1), "root_path": "",
    }  # fmt: skip
    async with asyncio.timeout(5):
        await api.app(scope, receive, send)
    assert sent[0]["status"] == 200
    event = next(m["body"] for m in sent if m.get("body")).decode()
    head, _, data = event.partition("data: ")
    assert head == f"id: {epoch}\nevent: ring\n"
    assert json.loads(data)["epoch"] == epoch


async def test_routers_say_what_they_apply_and_cannot_be_ahead(ann: httpx.AsyncClient, api: Api):
    await api.publish()
    epoch = api.world.ring[0]
    path = f"{FLEET}/ring/acks"
    assert (await ann.post(path, json={"router": "envoy-1", "epoch": epoch})).status_code == 204
    assert [(r.id, r.epoch) for r in await api.hub.routers(api.now_s)] == [("envoy-1", epoch)]
    ahead = await ann.post(path, json={"router": "envoy-1", "epoch": epoch + 1})
    assert ahead.status_code == 409
    assert f"the newest is {epoch}" in ahead.json()["detail"]
    assert (await ann.post(path, json={"router": "", "epoch": 1})).status_code == 422


async def test_owners_are_those_of_the_published_ring(ann: httpx.AsyncClient, api: Api):
    found = (await ann.get(f"{FLEET}/ring/owners", params={"adapter": "t005"})).json()
    assert found["via"] in ("hash", "exception")
    assert len(found["owners"]) >= 2
    unknown = (await ann.get(f"{FLEET}/ring/owners", params={"adapter": "who"})).json()
    assert unknown["via"] == "cold"


async def test_lists_name_who_serves_and_are_searched_whatever_the_case(ann: httpx.AsyncClient):
    found = (await ann.get(f"{FLEET}/adapters", params={"search": "T01"})).json()
    assert ([a["adapter"] for a in found["items"]], found["total"]) == (["t010", "t011"], 2)
    alone = (await ann.get(f"{FLEET}/adapters/t010")).json()["owners"]
    assert found["items"][0]["owners"] == [o["replica"] for o in alone]
    tenant = (await ann.get(f"{FLEET}/tenants", params={"search": "T010"})).json()["items"][0]
    assert tenant["owners"] == sorted(o["replica"] for o in alone)
    assert [a["adapter"] for a in await walk(ann, f"{FLEET}/adapters", search="t00", limit=3)] == [
        f"t{i:03d}" for i in range(10)
    ]


async def test_residency_says_what_each_replica_should_hold_and_holds(ann: httpx.AsyncClient):
    everyone = (await ann.get(f"{FLEET}/residency")).json()["items"]
    assert [r["replica"] for r in everyone] == ["warm-000", "warm-001", "warm-002"]
    assert {a for r in everyone for a in r["assigned"]} == {f"t{i:03d}" for i in range(12)}
    assert all(r["missing"] == [] and r["max_loras"] == 8 for r in everyone)
    one = (await ann.get(f"{FLEET}/residency", params={"replica": "warm-001"})).json()["items"]
    assert one == [everyone[1]]


async def test_the_last_epochs_say_what_they_moved(ann: httpx.AsyncClient, api: Api):
    await api.publish()
    assert (await ann.get(f"{FLEET}/ring/moves")).json()["items"] == []
    api.world.policy = replace(api.world.policy, groups=Groups(warm=WarmGroup(min_replicas=5), hot=HotGroups()))
    before = api.world.snapshot()
    for _ in range(4):
        api.tick()
    await api.publish()
    (moved,) = (await ann.get(f"{FLEET}/ring/moves", params={"limit": 2})).json()["items"]
    expected = ring_diff(before, api.world.snapshot())
    assert (moved["epoch"], moved["moves"]) == (api.world.ring[0], len(expected))
    assert [(m["adapter"], m["from"], m["to"]) for m in moved["items"]] == [
        (m.adapter, m.source, m.target) for m in expected[:2]
    ]


async def test_a_fleet_that_misses_its_slo_is_not_called_well(ann: httpx.AsyncClient, api: Api):
    assert (await ann.get(FLEET)).json()["health"]["state"] == "well"
    view = api.views["fleet"]
    late = np.arange(12) < 3
    demand = replace(view.plan.demand, slo_missed=late)
    api.views["fleet"] = replace(view, plan=replace(view.plan, id="fleet-later", demand=demand))
    health = (await ann.get(FLEET)).json()["health"]
    assert health == {"state": "attention", "sentence": "3 of 12 tenants missed their SLO; no cause is known yet"}
