"""What operators change: overrides, pauses, proposals, detachment. Each is audited with who did it."""

from dataclasses import replace

import httpx

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Tier
from autoscaler.policy.groups import Groups, HotGroups, WarmGroup
from tests.api.conftest import Api, client

FLEET = "/v1/fleets/fleet"
COLD = {"tier": "cold", "reason": "load test", "ttl_s": 600}


async def test_an_override_is_decided_at_the_next_tick_and_its_expiry_moves_the_tenant_back(
    ann: httpx.AsyncClient, api: Api
):
    assert api.views["fleet"].plan.tiers.tier("t002") is Tier.WARM
    answer = await ann.put(f"{FLEET}/tenants/t002/override", json=COLD)
    kept = answer.json()
    assert (kept["actor"], kept["displaces_tier"], kept["revision"], kept["active"]) == ("ann", "warm", 1, True)
    assert answer.headers["etag"] == '"1"'
    api.world.now_s = api.now_s
    decided = api.tick().plan.tiers.explain("t002")
    assert (decided.after, decided.reason) == (Tier.COLD, Reason.OVERRIDE)
    api.now_s += 601
    api.world.now_s = api.now_s
    decided = api.tick().plan.tiers.explain("t002")
    assert (decided.after, decided.reason) == (Tier.WARM, Reason.OVERRIDE_EXPIRED)
    listed = (await ann.get(f"{FLEET}/overrides")).json()["items"]
    assert [(o["tenant"], o["active"]) for o in listed] == [("t002", False)]


async def test_if_match_changes_exactly_the_revision_that_was_read(ann: httpx.AsyncClient):
    path = f"{FLEET}/tenants/t003/override"
    assert (await ann.put(path, json=COLD, headers={"If-Match": '"0"'})).status_code == 200
    lost = await ann.put(path, json=COLD, headers={"If-Match": '"0"'})
    assert (lost.status_code, lost.json()["current_revision"], lost.headers["etag"]) == (412, 1, '"1"')
    assert "is at revision 1, not 0" in lost.json()["detail"]
    assert (await ann.put(path, json=COLD, headers={"If-Match": '"1"'})).json()["revision"] == 2
    assert (await ann.put(path, json=COLD, headers={"If-Match": "2"})).status_code == 400
    assert (await ann.delete(path, headers={"If-Match": '"1"'})).status_code == 412
    assert (await ann.delete(path, headers={"If-Match": '"2"'})).json()["tenant"] == "t003"
    again = await ann.put(path, json=COLD)
    assert again.json()["revision"] > 2, "a revision is never given twice"


async def test_clearing_what_is_not_there_answers_404_with_the_nearest(ann: httpx.AsyncClient):
    await ann.put(f"{FLEET}/tenants/t003/override", json=COLD)
    answer = await ann.delete(f"{FLEET}/tenants/t0033/override")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "'t0033' has no override; did you mean 't003'?"


async def test_hot_is_refused_where_the_policy_has_no_hot_groups(tmp_path, api: Api):
    view = api.views["fleet"]
    bare = replace(view.policy, groups=replace(view.policy.groups, hot=None))
    api.views["fleet"] = replace(view, policy=bare)
    async with client(api, "ann") as operator:
        answer = await operator.put(f"{FLEET}/tenants/t003/override", json=COLD | {"tier": "hot"})
    assert answer.status_code == 409
    assert "groups.hot: none" in answer.json()["detail"]


async def test_a_hot_override_beyond_what_there_may_be_says_so_at_once_and_in_the_list(
    ann: httpx.AsyncClient, api: Api
):
    groups = replace(api.world.policy.groups, hot=HotGroups(max_groups=1))
    api.world.policy = replace(api.world.policy, groups=groups)
    api.world.now_s = api.now_s
    api.tick()
    hot = COLD | {"tier": "hot"}
    first = (await ann.put(f"{FLEET}/tenants/t002/override", json=hot)).json()
    assert (first["note"], first["decided_tier"]) == (None, None), "no tick has seen it"
    api.tick()
    second = (await ann.put(f"{FLEET}/tenants/t003/override", json=hot)).json()
    assert second["note"].startswith("HotGroupsFull: the hot groups that there may be (`groups.hot.maxGroups` is 1)")
    api.tick()
    listed = {o["tenant"]: o for o in (await ann.get(f"{FLEET}/overrides")).json()["items"]}
    assert sorted(o["decided_tier"] for o in listed.values()) == ["hot", "warm"]
    (out,) = (o for o in listed.values() if o["decided_tier"] == "warm")
    assert out["active"]
    assert out["note"].startswith("it is WARM, HotGroupsFull: ")
    (kept,) = (o for o in listed.values() if o["decided_tier"] == "hot")
    assert kept["note"] is None


async def test_a_pause_is_kept_with_who_and_why_and_ends(ann: httpx.AsyncClient, api: Api):
    body = {"mode": "scale-in", "reason": "load test", "ttl_s": 60}
    answer = (await ann.put(f"{FLEET}/groups/warm/pause", json=body)).json()
    assert (answer["mode"], answer["actor"]) == ("scale-in", "ann")
    assert api.stores.overrides.pauses("fleet")["warm"][:2] == ("scale-in", "load test")
    assert (await ann.put(f"{FLEET}/groups/warm/pause", json=body | {"mode": "none"})).status_code == 200
    assert api.stores.overrides.pauses("fleet") == {}
    assert (await ann.put(f"{FLEET}/groups/worm/pause", json=body)).json()["detail"].endswith("did you mean 'warm'?")


def wants_more(api: Api) -> None:
    """A policy whose minimum is above what there is: the plan wants a change, and in propose mode asks for it."""
    groups = Groups(warm=WarmGroup(min_replicas=5, max_replicas=16))
    api.world.policy = replace(api.world.policy, groups=groups)
    api.tick(2)


async def test_a_proposal_waits_is_approved_and_happens(proposing: Api):
    wants_more(proposing)
    async with client(proposing, "ann") as operator:
        items = (await operator.get(f"{FLEET}/proposals")).json()["items"]
        waiting = next(p for p in items if p["subject"].startswith("group/"))
        assert waiting["state"] == "waiting"
        before = proposing.world.groups["warm"].current_replicas
        decided = (await operator.post(f"{FLEET}/proposals/{waiting['id']}/approve")).json()
        assert (decided["state"], decided["actor"]) == ("approved", "ann")
        again = await operator.post(f"{FLEET}/proposals/{waiting['id']}/approve")
        assert again.status_code == 404
        proposing.tick()
        assert proposing.world.groups["warm"].current_replicas > before


async def test_a_rejected_proposal_does_not_happen(proposing: Api):
    wants_more(proposing)
    async with client(proposing, "ann") as operator:
        items = (await operator.get(f"{FLEET}/proposals")).json()["items"]
        for waiting in items:
            await operator.post(f"{FLEET}/proposals/{waiting['id']}/reject")
        before = proposing.world.groups["warm"].current_replicas
        proposing.tick(3)
        assert proposing.world.groups["warm"].current_replicas == before
        assert (await operator.post(f"{FLEET}/proposals/x/approve")).status_code == 404


async def test_every_change_is_audited_newest_first_page_by_page(ann: httpx.AsyncClient, api: Api):
    for tenant in ("t001", "t002", "t003"):
        await ann.put(f"{FLEET}/tenants/{tenant}/override", json=COLD)
    await ann.delete(f"{FLEET}/tenants/t001/override")
    await ann.put(f"{FLEET}/groups/warm/pause", json={"mode": "all", "reason": "load test"})
    await ann.post(f"{FLEET}/detach", json={"reason": "uninstalling"})
    first = (await ann.get("/v1/audit", params={"limit": 4})).json()
    second = (await ann.get("/v1/audit", params={"limit": 4, "cursor": first["next_cursor"]})).json()
    entries = first["items"] + second["items"]
    assert [(e["action"], e["subject"]) for e in entries] == [
        ("fleet.detach", "fleet"),
        ("pause.set", "group/warm"),
        ("override.clear", "tenant/t001"),
        ("override.put", "tenant/t003"),
        ("override.put", "tenant/t002"),
        ("override.put", "tenant/t001"),
    ]
    assert {e["actor"] for e in entries} == {"ann"}
    assert first["reaches_back_to"] == entries[-1]["at"]


async def test_detach_is_kept_lets_go_and_says_what_remains(ann: httpx.AsyncClient, api: Api):
    answer = (await ann.post(f"{FLEET}/detach", json={"reason": "uninstalling"})).json()
    assert api.let_go == ["fleet"]
    assert answer["done"][1] == "opened the gates of 2 replicas"
    assert any(f"ring epoch {api.world.ring[0]} with 3 members" in s for s in answer["remains"])
    assert any("warm 3" in s for s in answer["remains"])
    assert (await ann.post(f"{FLEET}/detach", json={"reason": "again"})).json()["reason"] == "uninstalling"
    assert (await ann.delete(f"{FLEET}/detach")).json()["detached"] is False
    assert (await ann.delete(f"{FLEET}/detach")).status_code == 404
    assert (await ann.post(f"{FLEET}/detach", json={"reason": ""})).status_code == 422


async def test_the_way_out_is_open_before_the_first_tick(ann: httpx.AsyncClient, api: Api):
    answer = await ann.post("/v1/fleets/other/detach", json={"reason": "uninstalling"})
    assert answer.status_code == 200
    assert answer.json()["remains"] == ["the fleet was not observed yet, so what remains is not known"]
