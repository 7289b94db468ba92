"""Real Envoy in front of simulated engines: each request goes where the ring says, and no change of it costs one."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.connectors.envoy import UNKNOWN_NAME, EnvoyFilePublisher, EnvoyProcess, EnvoySettings, Mode
from autoscaler.domain.decisions import Failed
from autoscaler.ports import PermanentError
from autoscaler.ring.codec import encode
from autoscaler.ring.owners import Ring
from autoscaler.ring.snapshot import Choice, Fairness, HotGroup, MemberState, Overflow, Unknown
from tests.e2e.envoy_bench import ADAPTERS, BASE, keep_asking, move_under_load, running
from tests.e2e.parts.processes import free_port


async def test_each_adapter_goes_to_exactly_its_owners(tmp_path: Path) -> None:
    async with running(tmp_path, 6) as bench:
        ring = bench.snapshot(1, list(bench.engines), choice=Choice.LEAST)
        await bench.publish(ring)
        statuses = await asyncio.gather(*(bench.ask(name, 8) for name in ADAPTERS for _ in range(12)))
        served = await bench.hits()
        owners = {name: {m.replica for m in Ring(ring).owners(name).members} for name in ADAPTERS}
    assert Counter(statuses) == {200: 12 * len(ADAPTERS)}
    strays = {name: set(served[name]) - owners[name] for name in ADAPTERS}
    assert not any(strays.values()), strays
    assert any(set(served[name]) == owners[name] for name in ADAPTERS), "least requests: both owners are used"
    assert set().union(*served.values()) == set(bench.engines)


async def test_a_calm_adapter_stays_with_its_first_owner(tmp_path: Path) -> None:
    async with running(tmp_path, 6) as bench:
        moved = {"a00": ("s0003", "s0001"), "a01": ("s0000",)}
        overflow = {"overflow": Overflow.STANDBYS, "standby_count": 1}
        ring = bench.snapshot(1, list(bench.engines), exceptions=moved, **overflow)
        await bench.publish(ring)
        for name in ADAPTERS:
            assert [await bench.ask(name) for _ in range(3)] == [200] * 3
        served = await bench.hits()
        first = {name: Ring(ring).owners(name).members[0].replica for name in ADAPTERS}
    calm = [name for name in ADAPTERS if name != "a00"]
    assert {name: dict(served[name]) for name in calm} == {name: {first[name]: 3} for name in calm}
    assert set(served["a00"]) <= {"r3", "r1"}, "its load made it an exception: either owner"
    assert first["a01"] == "r0"


async def test_a_burst_spreads_over_its_candidates_and_leaves_the_others_where_they_are(tmp_path: Path) -> None:
    async with running(tmp_path, 6) as bench:
        ring = bench.snapshot(1, list(bench.engines), overflow=Overflow.STANDBYS, standby_count=1)
        await bench.publish(ring)
        look_up = Ring(ring)
        allowed = look_up.owners("a00")
        candidates = [member.replica for member in (*allowed.members, *allowed.standbys)]
        neighbours = [name for name in ADAPTERS[1:] if look_up.owners(name).members[0].replica not in candidates]
        # Connections first: a request counts as in flight only once its connection stands.
        await asyncio.gather(*(bench.ask("a00", 20) for _ in range(60)))
        await bench.new_hits()
        burst = []
        for _ in range(60):
            burst.append(asyncio.create_task(bench.ask("a00", 150)))
            await asyncio.sleep(0.003)
        calm = [await bench.ask(name) for name in neighbours]
        assert Counter(await asyncio.gather(*burst)) == {200: 60}
        served = await bench.new_hits()
    assert set(calm) == {200}
    # 60 in flight over three candidates, a factor of 100 %: 20 or 21 each, the first one to the last place.
    assert set(served["a00"]) == set(candidates)
    assert max(served["a00"].values()) <= 60 // 2
    assert all(set(served[name]) == {look_up.owners(name).members[0].replica} for name in neighbours)


async def test_moving_an_adapter_is_one_update_and_costs_no_request(tmp_path: Path) -> None:
    async with running(tmp_path, 4) as bench:
        await bench.publish(bench.snapshot(1, list(bench.engines), exceptions={"a00": ("s0000", "s0001")}))
        statuses, served = await move_under_load(bench, 2)
    assert set(statuses) == {200}, statuses
    assert set(served) <= {"r0", "r1"}
    assert sum(served.values()) >= 20


async def test_a_draining_replica_gets_nothing_new_and_finishes_what_it_has(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as bench:
        await bench.publish(bench.snapshot(1, list(bench.engines)))
        going = Ring(bench.snapshot(1, list(bench.engines))).owners("a00").members[0].replica
        long = asyncio.create_task(bench.ask("a00", 80, stream=True))
        await bench.until_in_flight(going)
        members = tuple(
            bench.member(name, f"s{i:04d}", MemberState.DRAINING if name == going else MemberState.ACTIVE)
            for i, name in enumerate(bench.engines)
        )
        await bench.publish(bench.snapshot(2, list(bench.engines), members=members))
        before = bench.submitted(going)
        statuses = await asyncio.gather(*(bench.ask(name) for name in (*ADAPTERS, BASE) for _ in range(3)))
        after = bench.submitted(going)
        assert await long == 200, "what it had is finished"
    assert set(statuses) == {200}
    assert after == before == 1, "nothing new came"


async def test_a_killed_replica_costs_no_request_that_had_no_answer_yet(tmp_path: Path) -> None:
    async with running(tmp_path, 4) as bench:
        await bench.publish(bench.snapshot(1, list(bench.engines), overflow=Overflow.STANDBYS, standby_count=1))
        # In flight when it dies: whole answers, of which no byte has come. They are asked for again elsewhere.
        waiting = [asyncio.create_task(bench.ask(name, 40)) for name in ADAPTERS]
        await bench.until_in_flight("r1")
        await bench.engines["r1"].crash()
        after = await asyncio.gather(*(bench.ask(name, 2, stream=True) for name in ADAPTERS for _ in range(5)))
        before = await asyncio.gather(*waiting)
    assert Counter(before) == {200: len(ADAPTERS)}
    assert Counter(after) == {200: 5 * len(ADAPTERS)}


async def test_a_full_fleet_refuses_the_aggressor_and_nobody_else(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as bench:
        # Two adapters of one tenant are the aggressor; the bound is 6 requests in flight.
        bound = Fairness(6, 1500, {"a00": "greedy", "a01": "greedy"})
        calm = [name for name in ADAPTERS if name not in ("a00", "a01")]
        await bench.publish(bench.snapshot(1, list(bench.engines)))
        before = await asyncio.gather(*(bench.refused(name) for name in ("a00", "a01") for _ in range(20)))
        assert before == [None] * 40, "nobody is bounded while the ring says nothing of it"
        await bench.publish(bench.snapshot(2, list(bench.engines), fairness=bound))
        await bench.until_bounded("a00", 6)
        burst = [asyncio.create_task(bench.refused(name, 200)) for name in ("a00", "a01") for _ in range(60)]
        await asyncio.sleep(0)
        neighbours = await asyncio.gather(*(bench.ask(name, 2, stream=True) for name in calm for _ in range(3)))
        answers = await asyncio.gather(*burst)
        streams = await bench.hits("streams")
        await bench.publish(bench.snapshot(3, list(bench.engines)))
        await bench.until_bounded("a00", None)
        after = await asyncio.gather(*(bench.refused("a00") for _ in range(40)))
    assert set(neighbours) == {200}, "a neighbour's requests pass, streams among them"
    assert all(sum(streams[name].values()) == 3 for name in calm), "and are measured as before"
    assert set(answers) == {None, "2"}, "429 says when to come again, in whole seconds"
    assert 6 <= answers.count(None) < 60, "its bound is for both of its adapters together"
    assert after == [None] * 40, "the bound ends with the epoch that no longer has it"


async def test_a_dedicated_group_is_not_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as bench:
        hot = {"a05": HotGroup("hot-a05", (bench.member("r2"),))}
        ring = bench.snapshot(1, ["r0", "r1"], hot=hot, fairness=Fairness(2, 1000))
        await bench.publish(ring)
        await bench.until_bounded("a06", 2)
        answers = await asyncio.gather(*(bench.refused("a05", 20) for _ in range(30)))
    assert answers == [None] * 30


async def test_clients_reach_inference_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as bench:
        await bench.publish(bench.snapshot(1, list(bench.engines)))
        denied = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1//load_lora_adapter", "/metrics", "/health"]
        denied += ["/v1/completions/../load_lora_adapter", "/v1%2Fload_lora_adapter", "/"]
        answers = {}
        for path in denied:
            body = {"lora_name": "x", "lora_path": "/adapters/a00"}
            async with bench.session.post(f"{bench.settings.url}{path}", json=body) as answer:
                answers[path] = answer.status
        async with bench.session.get(f"{bench.settings.url}/v1/models") as answer:
            models = await answer.json()
        async with bench.session.post(f"{bench.settings.url}/v1/chat/completions", json=_chat("a00")) as answer:
            chat = answer.status
        registered = [engine.calls.registry.number("x") for engine in bench.engines.values()]
    assert set(answers.values()) <= {403, 400}, answers
    assert answers["/v1/load_lora_adapter"] == 403
    assert models["data"][0]["id"] == BASE
    assert chat == 200
    assert registered == [None, None]


def _chat(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}


async def test_the_base_model_spreads_over_the_warm_replicas_by_least_requests(tmp_path: Path) -> None:
    async with running(tmp_path, 4) as bench:
        warm = list(bench.engines)[:3]
        ring = bench.snapshot(1, warm, cold=(bench.member("r3"),), overflow=Overflow.STANDBYS, standby_count=1)
        await bench.publish(ring)
        asked = []
        for i in range(200):
            asked.append(asyncio.create_task(bench.ask(BASE if i % 10 < 3 else ADAPTERS[i % 24], 30)))
            await asyncio.sleep(0.004)
        statuses = await asyncio.gather(*asked)
        served = await bench.hits()
    assert Counter(statuses) == {200: 200}
    assert set(served[BASE]) == set(warm), "the cold replica serves no base model"
    assert sum(served[BASE].values()) == 60
    assert max(served[BASE].values()) <= 26, served[BASE]


async def test_what_is_in_no_list_goes_to_the_cold_group_or_is_answered_404(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as bench:
        warm = ["r0", "r1"]
        await bench.publish(bench.snapshot(1, warm, cold=(bench.member("r2"),)))
        assert [await bench.ask("cold-one"), await bench.ask("nobody")] == [200, 404]
        assert set((await bench.new_hits())[UNKNOWN_NAME]) == {"r2"}
        await bench.publish(bench.snapshot(2, warm, cold=()))
        assert await bench.ask("cold-one") == 200, "no cold replica: the warm ones serve"
        assert set((await bench.new_hits())[UNKNOWN_NAME]) <= set(warm)
        await bench.publish(bench.snapshot(3, warm, unknown=Unknown.REJECT))
        async with bench.session.post(f"{bench.settings.url}/v1/completions", json={"model": "nobody"}) as answer:
            body = await answer.json()
        assert [answer.status, body["error"]["type"]] == [404, "NotFoundError"]
        assert "" in (await bench.new_hits())[UNKNOWN_NAME], "no replica was asked"
        assert await bench.ask("a00") == 200


async def test_a_hot_adapter_has_its_group_and_falls_back_to_its_ring_owners(tmp_path: Path) -> None:
    async with running(tmp_path, 4) as bench:
        warm = ["r0", "r1", "r2"]
        hot = {"a00": HotGroup("hot-a00", (bench.member("r3"),))}
        ring = bench.snapshot(1, warm, hot=hot)
        await bench.publish(ring)
        owners = {member.replica for member in Ring(ring).owners("a00", skip_hot=True).members}
        assert [await bench.ask("a00") for _ in range(4)] == [200] * 4
        assert set((await bench.new_hits())["a00"]) == {"r3"}
        assert [await bench.ask(name) for name in ADAPTERS[1:]] == [200] * 23
        assert "r3" not in sum((await bench.new_hits()).values(), Counter()), "others never reach the hot group"
        bench.engines["r3"].faults.completion_status = 503
        assert [await bench.ask("a00") for _ in range(4)] == [200] * 4, "full: its ring owners take over"
        assert set((await bench.new_hits())["a00"]) <= owners
        await bench.engines["r3"].crash()
        assert [await bench.ask("a00") for _ in range(4)] == [200] * 4, "down: its ring owners take over"
        assert set((await bench.new_hits())["a00"]) <= owners


@pytest.mark.parametrize("start", [Mode.SPRAY, Mode.LEAST_REQUESTS])
async def test_modes_and_choices_change_under_load_without_a_failed_request(tmp_path: Path, start: Mode) -> None:
    async with running(tmp_path, 4, mode=start) as bench:
        await bench.publish(bench.snapshot(1, list(bench.engines)))
        stop = asyncio.Event()
        load = asyncio.create_task(keep_asking(bench, ADAPTERS, stop))
        await bench.until_served(200)
        blind = await bench.new_hits()
        await bench.publisher.set_mode(Mode.RING)
        for epoch, choice in enumerate((Choice.LEAST, Choice.PREFERRED, Choice.LEAST, Choice.PREFERRED), 2):
            await bench.publish(bench.snapshot(epoch, list(bench.engines), choice=choice))
            await asyncio.sleep(0.3)
        await bench.publisher.set_mode(start)
        await asyncio.sleep(0.3)
        stop.set()
        statuses = await load
    assert set(statuses) == {200}, statuses
    spread = Counter(sum(blind.values(), Counter()))
    assert set(spread) == set(bench.engines)
    assert max(spread.values()) < 2 * min(spread.values()), spread


async def test_a_ring_that_must_not_be_used_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as bench:
        good = bench.snapshot(5, list(bench.engines))
        await bench.publish(good)
        damaged = encode(replace(good, epoch=6)).replace(b'"epoch":6', b'"epoch":7')
        nobody = tuple(replace(member, state=MemberState.DRAINING) for member in good.members)
        refused = {
            "already there": (5, encode(good)),
            "digest": (7, damaged),
            "says that it is epoch": (9, encode(replace(good, epoch=8))),
            "none of its 2 members": (8, encode(replace(good, epoch=8, members=nobody))),
        }
        for words, (epoch, body) in refused.items():
            outcome = await bench.publisher.publish(epoch, body)
            assert isinstance(outcome, Failed)
            assert words in outcome.error
            assert outcome.retry_after_s is None
        assert await bench.publisher.last() == (5, encode(good))
        assert [router.epoch for router in await bench.publisher.routers(0.0)] == [5]
        assert await bench.ask("a00") == 200


async def test_a_publisher_that_starts_again_goes_on_from_its_files(tmp_path: Path) -> None:
    async with running(tmp_path, 2) as bench:
        ring = bench.snapshot(41, list(bench.engines))
        await bench.publish(ring)
        again = EnvoyFilePublisher(bench.settings)
        again.prepare()
        assert await again.last() == (41, encode(ring))
        assert isinstance(await again.publish(40, encode(replace(ring, epoch=40))), Failed)
        assert [(r.id, r.epoch, r.age_s) for r in await again.routers(100.0)] == [("envoy", 41, 0.0)]
        settings = replace(bench.settings, admin_port=free_port())
        deaf = EnvoyFilePublisher(settings)
        assert await deaf.routers(0.0) == (), "an Envoy that was never heard is no router"


async def test_every_metric_of_the_documentation_is_emitted_with_its_tags(tmp_path: Path) -> None:
    async with running(tmp_path, 2, known=lambda: ("cold-one",)) as bench:
        await bench.publish(bench.snapshot(1, list(bench.engines)))
        assert await bench.ask("a00", 20, stream=True, prompt="one two three") == 200
        assert await bench.ask("a01", 7, prompt="one two") == 200
        assert await bench.ask("cold-one") == 200
        unknown = [f"made-up-{i}" for i in range(30)] + ["a00\r\nx-evil: 1", "(models)", 'quo"te']
        assert {await bench.ask(name) for name in unknown} == {404}
        await asyncio.sleep(1.5)  # histograms are merged once a second
        pairs = {name: await bench.hits(name) for name in ("requests", "prompt_tokens", "completion_tokens", "streams")}
        ttft_ms = await bench.hits("stream_ttft_ms")
        errors = await bench.series("envoy_llm_errors")
        counts = await bench.series("envoy_llm_ttft_ms_count")
        active = await bench.series("envoy_cluster_endpoint_rq_active")
    assert {name: sum(c.values()) for name, c in pairs["requests"].items()} == {
        "a00": 1,
        "a01": 1,
        "cold-one": 1,
        UNKNOWN_NAME: len(unknown),
    }
    assert sum(pairs["prompt_tokens"]["a00"].values()) == 3
    assert sum(pairs["completion_tokens"]["a00"].values()) == 20
    assert sum(pairs["completion_tokens"]["a01"].values()) == 7
    assert {name: sum(c.values()) for name, c in pairs["streams"].items()} == {"a00": 1}
    # An adapter's first request loads it from disk, 75 ms at the least; the headers of its stream came at once.
    assert sum(ttft_ms["a00"].values()) >= 75
    assert counts == {(("adapter", "a00"),): 1.0}
    assert {dict(labels)["adapter"] for labels in errors} == {UNKNOWN_NAME}
    assert {dict(labels)["code"] for labels in errors} == {"404"}
    assert {dict(labels)["envoy_endpoint_address"] for labels in active} == {
        engine.address for engine in bench.engines.values()
    }


async def test_no_name_of_a_client_becomes_a_header_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as bench:
        await bench.publish(bench.snapshot(1, ["r0"]))
        headers = {"x-lora-adapter": "a01"}
        body = json.dumps({"model": "a00", "prompt": "x", "max_tokens": 1})
        call = bench.session.post(
            f"{bench.settings.url}/v1/completions", data=body, headers={**headers, "content-type": "application/json"}
        )
        async with call as answer:
            assert answer.status == 200
        assert set(await bench.hits()) == {"a00"}, "the body's name counts, not the client's header"


async def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    try:
        settings = EnvoySettings(tmp_path, port, free_port())
        EnvoyFilePublisher(settings).prepare()
        with pytest.raises(PermanentError, match=f"127.0.0.1:{port} is not free .*give another port"):
            await EnvoyProcess(settings).start()
    finally:
        taken.close()


async def test_a_configuration_that_envoy_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    settings = EnvoySettings(tmp_path, free_port(), free_port())
    (tmp_path / "bootstrap.json").write_text('{"no_such_field": 1}')
    with pytest.raises(PermanentError, match="no_such_field"):
        await EnvoyProcess(settings).start()
