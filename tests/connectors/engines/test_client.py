"""Loads and unloads over HTTP against an engine that gives the recorded answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from autoscaler.connectors.engines.client import EngineSettings, HttpEngines
from autoscaler.connectors.engines.dialects import SGLANG, VLLM
from autoscaler.connectors.engines.ledger import LoadEntry
from autoscaler.domain.decisions import Applied, Failed, LoadAdapter, Reason, Skipped, UnloadAdapter
from autoscaler.domain.fleet import LoadFailure, Replica, ReplicaState
from autoscaler.domain.observation import Catalogue
from tests.connectors.conftest import SetClock


@dataclass
class Engine:
    """Registers adapters as vLLM does; `answers` are given first, one a call, None = never answer."""

    address: str = ""
    adapters: dict[str, str] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[int, str] | None] = field(default_factory=list)
    inplace: bool = True
    in_flight: int = 0
    most_in_flight: int = 0

    async def load(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.01)
        self.in_flight -= 1
        if self.answers:
            answer = self.answers.pop(0)
            if answer is None:
                self.adapters[body["lora_name"]] = body["lora_path"]
                await asyncio.sleep(60)
            return web.Response(status=answer[0], text=answer[1]) if answer else web.Response()
        name = body["lora_name"]
        if name in self.adapters and not (self.inplace and body.get("load_inplace")):
            return error(400, f"The lora adapter '{name}' has already been loaded.", "InvalidUserInput")
        self.adapters[name] = body["lora_path"]
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if self.adapters.pop(name, None) is None:
            return error(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    async def models(self, _: web.Request) -> web.Response:
        entries = [{"id": a, "root": r, "parent": "base"} for a, r in self.adapters.items()]
        return web.json_response({"data": [{"id": "base", "root": "/base", "parent": None}, *entries]})


def error(status: int, message: str, kind: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)


class Kept:
    """`LoadMemory` in a list."""

    def __init__(self) -> None:
        self.entries: list[LoadEntry] = []

    def loads(self, fleet: str) -> list[LoadEntry]:
        return list(self.entries)

    def remember_load(self, fleet: str, entry: LoadEntry) -> None:
        self.forget_loads(fleet, entry.replica, entry.adapter)
        self.entries.append(entry)

    def forget_loads(self, fleet: str, replica: str, adapter: str = "") -> None:
        self.entries = [e for e in self.entries if e.replica != replica or (adapter and e.adapter != adapter)]


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    served = Engine()
    app = web.Application()
    for prefix in ("/v1", ""):
        app.router.add_post(f"{prefix}/load_lora_adapter", served.load)
        app.router.add_post(f"{prefix}/unload_lora_adapter", served.unload)
    app.router.add_get("/v1/models", served.models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    served.address = f"{host}:{port}"
    yield served
    await runner.cleanup()


def replica(engine: Engine, started_at_s: float = 1.0, group: str = "warm") -> Replica:
    return Replica("r1", group, "s0000", engine.address, ReplicaState.READY, started_at_s)


def load(adapter: str, source: str = "/a", revision: str = "1") -> LoadAdapter:
    return LoadAdapter("r1", adapter, source, revision, Reason.REBALANCED)


def client(session: aiohttp.ClientSession, clock: SetClock, memory: Kept | None = None, **changed: Any) -> HttpEngines:
    return HttpEngines("fleet", EngineSettings(**({"dialect": VLLM} | changed)), session, clock, memory)


async def test_a_load_is_applied_and_entered(engine: Engine, session: aiohttp.ClientSession, clock: SetClock) -> None:
    engines = client(session, clock)
    outcome = await engines.load(replica(engine), load("a1"))
    assert outcome == Applied("Success: LoRA adapter 'a1' added successfully.")
    assert engine.bodies == [{"lora_name": "a1", "lora_path": "/a"}]
    assert engines.ledger().loaded == {"r1": {"a1": "1"}}
    assert await engines.registered(replica(engine)) == {"a1"}
    assert engines.ledger().foreign == {}


async def test_the_same_load_again_is_applied(engine: Engine, session: aiohttp.ClientSession, clock: SetClock) -> None:
    engines = client(session, clock)
    await engines.load(replica(engine), load("a1"))
    assert isinstance(await engines.load(replica(engine), load("a1")), Applied)
    assert engines.ledger().loaded == {"r1": {"a1": "1"}}


async def test_a_new_revision_takes_the_old_ones_place_in_one_call(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock)
    await engines.load(replica(engine), load("a1"))
    assert isinstance(await engines.load(replica(engine), load("a1", "/a-2", "2")), Applied)
    assert engine.bodies[-1] == {"lora_name": "a1", "lora_path": "/a-2", "load_inplace": True}
    assert engine.adapters == {"a1": "/a-2"}
    assert engines.ledger().loaded == {"r1": {"a1": "2"}}


@pytest.mark.parametrize("dialect", [VLLM, SGLANG])
async def test_an_engine_that_cannot_replace_in_place_is_unloaded_first(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock, dialect: Any
) -> None:
    engine.inplace = False
    engines = client(session, clock, dialect=dialect)
    await engines.load(replica(engine), load("a1"))
    assert isinstance(await engines.load(replica(engine), load("a1", "/a-2", "2")), Applied)
    assert engine.adapters == {"a1": "/a-2"}
    assert engines.ledger().loaded == {"r1": {"a1": "2"}}


async def test_a_replacement_that_failed_leaves_the_old_revision_in_the_ledger(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock)
    await engines.load(replica(engine), load("a1"))
    engine.answers = [(503, "busy")]
    assert await engines.load(replica(engine), load("a1", "/a-2", "2")) == Failed("503: busy", retry_after_s=10.0)
    await engines.registered(replica(engine))
    assert engines.ledger().loaded == {"r1": {"a1": "1"}}


async def test_a_permanent_refusal_is_not_tried_again_until_the_adapter_changes(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock)
    body = json.dumps({"error": {"message": "LoRA rank 64 is greater than max_lora_rank 16.", "code": 500}})
    engine.answers = [(500, body)]
    refused = Failed("500: LoRA rank 64 is greater than max_lora_rank 16.")
    assert await engines.load(replica(engine), load("a1")) == refused
    assert await engines.load(replica(engine), load("a1")) == refused
    assert len(engine.bodies) == 1
    assert engines.ledger().failed["r1"]["a1"] == LoadFailure(1, float("inf"), refused.error)
    engines.reconsider(Catalogue.of({"a1": ("a1", "/a", "1", 8)}))
    assert "r1" in engines.ledger().failed
    engines.reconsider(Catalogue.of({"a1": ("a1", "/a", "2", 8)}))
    assert engines.ledger().failed == {}
    assert isinstance(await engines.load(replica(engine), load("a1", revision="2")), Applied)


async def test_what_may_pass_is_tried_again_after_a_wait_that_doubles(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock)
    engine.answers = [(503, "starting"), (503, "starting")]
    assert await engines.load(replica(engine), load("a1")) == Failed("503: starting", retry_after_s=10.0)
    assert await engines.load(replica(engine), load("a1")) == Skipped("the next attempt is in 10 s: 503: starting")
    clock.at_s += 10
    assert await engines.load(replica(engine), load("a1")) == Failed("503: starting", retry_after_s=20.0)
    clock.at_s += 20
    assert isinstance(await engines.load(replica(engine), load("a1")), Applied)
    assert engines.ledger().failed == {}


async def test_an_engine_without_runtime_updating_says_the_remedy(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engine.answers = [(404, '{"detail":"Not Found"}')]
    outcome = await client(session, clock).load(replica(engine), load("a1"))
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_s is None
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True" in outcome.error


async def test_a_load_is_bounded_in_time_and_a_late_success_is_still_ours(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock, load_timeout_s=0.2)
    engine.answers = [None]
    outcome = await engines.load(replica(engine), load("a1"))
    assert isinstance(outcome, Failed)
    assert outcome.error.endswith("took longer than 0.2 s")
    assert await engines.registered(replica(engine)) == {"a1"}
    assert engines.ledger().loaded == {"r1": {"a1": "1"}}
    assert engines.ledger().foreign == {}


async def test_loads_on_one_replica_are_bounded_and_not_doubled(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock)
    outcomes = await asyncio.gather(*(engines.load(replica(engine), load(f"a{i}")) for i in (*range(8), 0)))
    assert engine.most_in_flight == 2
    assert outcomes[-1] == Skipped("a load of it is under way on this replica")
    assert all(isinstance(o, Applied) for o in outcomes[:-1])


async def test_what_others_loaded_is_foreign_and_is_never_unloaded(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engine.adapters = {"theirs": "/t"}
    engines = client(session, clock)
    await engines.registered(replica(engine))
    assert engines.ledger().foreign == {"r1": {"theirs"}}
    assert engines.listed() == {"theirs": "/t"}
    outcome = await engines.load(replica(engine), load("theirs"))
    assert isinstance(outcome, Applied)
    assert outcome.detail.startswith("registered already, and not by this controller")
    unload = await engines.unload(replica(engine), UnloadAdapter("r1", "theirs"))
    assert unload == Skipped("this controller did not load it")
    assert engine.adapters == {"theirs": "/t"}


async def test_what_the_engine_resolved_by_itself_is_not_foreign(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engine.adapters = {"a1": "/cache/a1", "other": "/somewhere/else"}
    engines = client(session, clock, resolver=True)
    await engines.registered(replica(engine))
    assert engines.ledger().foreign == {"r1": {"other"}}


async def test_an_unload_of_an_unknown_name_is_applied(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock)
    await engines.load(replica(engine), load("a1"))
    engine.adapters.clear()
    assert isinstance(await engines.unload(replica(engine), UnloadAdapter("r1", "a1")), Applied)
    assert engines.ledger().loaded == {}


async def test_a_new_process_has_nothing_loaded(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    memory = Kept()
    engines = client(session, clock, memory)
    await engines.load(replica(engine), load("a1"))
    engine.adapters.clear()
    assert await engines.registered(replica(engine, started_at_s=99.0)) == frozenset()
    assert engines.ledger().loaded == {}
    assert memory.entries == []


async def test_the_ledger_survives_the_controller(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    memory = Kept()
    await client(session, clock, memory).load(replica(engine), load("a1"))
    again = client(session, clock, memory)
    await again.registered(replica(engine))
    assert again.ledger().loaded == {"r1": {"a1": "1"}}
    assert isinstance(await again.unload(replica(engine), UnloadAdapter("r1", "a1")), Applied)
    assert memory.entries == []


async def test_an_adapter_that_keeps_vanishing_is_reloaded_ever_more_slowly(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engines = client(session, clock)
    for _ in range(2):
        clock.at_s += 5
        assert isinstance(await engines.load(replica(engine), load("a1")), Applied)
        engine.adapters.clear()
        clock.at_s += 5
        await engines.registered(replica(engine))
        assert engines.ledger().loaded == {}
    failure = engines.ledger().failed["r1"]["a1"]
    assert (failure.attempts, failure.retry_at_s) == (2, clock.at_s + 10)
    assert "gone from the engine's list, 2 times so far" in failure.error
    assert isinstance(await engines.load(replica(engine), load("a1")), Skipped)


async def test_an_engine_that_does_not_answer_is_no_empty_list(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    gone = Replica("r2", "warm", None, "127.0.0.1:1", ReplicaState.READY)
    engines = client(session, clock)
    assert await engines.registered(gone) is None
    outcome = await engines.load(gone, load("a1"))
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_s == 10.0
    assert "cannot be reached" in outcome.error


async def test_sglang_is_asked_in_its_own_words_and_pins_hot_adapters(
    engine: Engine, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    engine.answers = [(400, '{"success": false, "error_message": "max_lora_rank 8 < 64", "loaded_adapters": {}}')]
    outcome = await client(session, clock, dialect=SGLANG).load(replica(engine, group="hot-a1"), load("a1"))
    assert outcome == Failed("400: max_lora_rank 8 < 64")
    assert engine.bodies == [{"lora_name": "a1", "lora_path": "/a", "pinned": True}]
