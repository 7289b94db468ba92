"""A simulated engine answers as vLLM was seen to answer, and its page has vLLM's names."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.http import AdapterFolder, AdapterTable, EngineOptions, Pump, SimulatedEngine

FILES = AdapterTable({f"/adapters/a{i}": 16 for i in range(6)} | {"/adapters/big": 64})
OPTIONS = EngineOptions(limits=EngineLimits(max_loras=2, max_cpu_loras=4, max_num_seqs=8), files=FILES)


class Client:
    def __init__(self, engine: SimulatedEngine, session: aiohttp.ClientSession) -> None:
        self.engine, self._session = engine, session

    async def post(self, path: str, body: Any) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self._session.post(self.engine.url + path, data=data) as answer:
            return answer.status, await answer.text()

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(self.engine.url + path) as answer:
            return answer.status, await answer.text()

    async def load(self, name: str, path: str = "", **more: Any) -> tuple[int, str]:
        return await self.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **more})

    async def complete(self, model: str = "base", tokens: int = 3, **more: Any) -> tuple[int, str]:
        return await self.post("/v1/completions", {"model": model, "prompt": "a b c", "max_tokens": tokens, **more})

    async def models(self) -> list[dict[str, Any]]:
        return json.loads((await self.get("/v1/models"))[1])["data"]  # type: ignore[no-any-return]

    async def until_in_flight(self) -> None:
        for _ in range(500):
            if self.engine.in_flight:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("no request came")

    async def metric(self, start: str) -> float:
        lines = (await self.get("/metrics"))[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


@asynccontextmanager
async def running(options: EngineOptions = OPTIONS) -> AsyncIterator[Client]:
    engine = SimulatedEngine(options, Pump())
    await engine.start()
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Client(engine, session)
    finally:
        await engine.crash()


def error(answer: tuple[int, str]) -> tuple[int, str]:
    status, text = answer
    body = json.loads(text)["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert body["code"] == status
    return status, body["type"]


async def test_adapter_endpoints_answer_with_the_recorded_statuses_and_bodies() -> None:
    async with running() as engine:
        assert await engine.load("a0", "/adapters/a0") == (200, "Success: LoRA adapter 'a0' added successfully.")
        assert error(await engine.load("a0", "/adapters/a0")) == (400, "InvalidUserInput")
        assert (await engine.load("a0", "/adapters/a0", load_inplace=True))[0] == 200
        assert error(await engine.load("x", "/nowhere")) == (404, "NotFoundError")
        assert error(await engine.load("big", "/adapters/big")) == (500, "InternalServerError")
        assert error(await engine.load("base", "/adapters/a0")) == (400, "InvalidUserInput")
        assert error(await engine.load("", "")) == (400, "InvalidUserInput")
        assert error(await engine.post("/v1/load_lora_adapter", {"lora_name": "x"})) == (400, "Bad Request")
        assert error(await engine.post("/v1/load_lora_adapter", b"{")) == (400, "Bad Request")
        gone = await engine.post("/v1/unload_lora_adapter", {"lora_name": "a0"})
        assert gone == (200, "Success: LoRA adapter 'a0' removed successfully.")
        assert error(await engine.post("/v1/unload_lora_adapter", {"lora_name": "a0"})) == (404, "NotFoundError")


async def test_without_runtime_updates_the_adapter_endpoints_are_not_there() -> None:
    async with running(replace(OPTIONS, runtime_updates=False)) as engine:
        assert (await engine.load("a0", "/adapters/a0"))[0] == 404


async def test_an_unknown_adapter_answers_404_and_with_a_resolver_only_where_it_has_no_folder() -> None:
    async with running() as engine:
        assert error(await engine.complete("a1")) == (404, "NotFoundError")
    async with running(replace(OPTIONS, resolver=True)) as engine:
        assert (await engine.complete("a1"))[0] == 200
        assert error(await engine.complete("a9")) == (404, "NotFoundError")
        assert [(m["id"], m["root"], m["parent"]) for m in await engine.models()] == [
            ("base", "base", None),
            ("a1", "/adapters/a1", "base"),
        ]


async def test_registered_is_not_resident() -> None:
    async with running(replace(OPTIONS, residency_metrics=True)) as engine:
        for i in range(6):
            assert (await engine.load(f"a{i}", f"/adapters/a{i}"))[0] == 200
        assert [m["id"] for m in await engine.models()][1:] == [f"a{i}" for i in range(6)]
        assert await engine.metric("vllm:num_cpu_loaded_lora_adapters") == 4
        assert await engine.metric("vllm:num_gpu_loaded_lora_adapters") == 2
        assert (await engine.complete("a0"))[0] == 200, "an evicted adapter is loaded again by the engine itself"
        assert await engine.metric('vllm:lora_adapter_loaded{adapter_name="a0"') == 1


async def test_unload_takes_the_name_and_leaves_the_weights() -> None:
    async with running(replace(OPTIONS, residency_metrics=True)) as engine:
        await engine.load("a0", "/adapters/a0")
        await engine.post("/v1/unload_lora_adapter", {"lora_name": "a0"})
        assert error(await engine.complete("a0")) == (404, "NotFoundError")
        assert await engine.metric('vllm:lora_adapter_loaded{adapter_name="a0"') == 1


async def test_a_whole_answer_counts_its_tokens() -> None:
    async with running() as engine:
        status, text = await engine.complete(tokens=5)
        body = json.loads(text)
        assert status == 200
        assert body["usage"] == {"prompt_tokens": 3, "total_tokens": 8, "completion_tokens": 5}
        assert body["choices"][0]["text"].split() == ["word"] * 5
        messages = [{"role": "user", "content": "a b"}]
        chat = json.loads((await engine.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2}))[1])
        assert chat["choices"][0]["message"] == {"role": "assistant", "content": " word word"}
        ids = await engine.post("/v1/completions", {"prompt": [1, 2, 3, 4], "max_tokens": 1})
        assert json.loads(ids[1])["usage"]["prompt_tokens"] == 4


@pytest.mark.parametrize("chat", [False, True])
async def test_a_stream_has_events_of_several_tokens_and_ends_with_its_usage_when_asked(chat: bool) -> None:
    async with running() as engine:
        body: dict[str, Any] = {"max_tokens": 100, "stream": True, "stream_options": {"include_usage": True}}
        body |= {"messages": [{"role": "user", "content": "a"}]} if chat else {"prompt": "a"}
        _, text = await engine.post("/v1/chat/completions" if chat else "/v1/completions", body)
        silent = (await engine.complete(tokens=2, stream=True))[1]
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    parsed = [json.loads(event) for event in events[:-1]]
    assert parsed[-1]["choices"] == []
    assert parsed[-1]["usage"]["completion_tokens"] == 100
    pieces = [choice["delta"].get("content", "") if chat else choice["text"] for p in parsed for choice in p["choices"]]
    assert "".join(pieces).count("word") == 100
    assert len(pieces) < 20, "tokens travel in groups"
    assert '"usage"' not in silent


async def test_a_forced_usage_needs_no_asking() -> None:
    async with running(replace(OPTIONS, force_usage=True)) as engine:
        assert '"completion_tokens": 2' in (await engine.complete(tokens=2, stream=True))[1]


@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens": 0, "prompt": "a"},
        {"max_tokens": 3},
        {"prompt": 7},
        {"prompt": "a", "max_tokens": 99_999},
        [1],
        b"{",
    ],
)
async def test_what_cannot_be_served_is_refused_with_400(body: Any) -> None:
    async with running() as engine:
        assert error(await engine.post("/v1/completions", body)) == (400, "BadRequestError")
        assert (await engine.complete())[0] == 200


async def test_a_full_queue_refuses_with_503_and_counts_it() -> None:
    async with running(replace(OPTIONS, max_queued_requests=2)) as engine:
        asked = [asyncio.create_task(engine.complete(tokens=60)) for _ in range(20)]
        statuses = sorted([(await task)[0] for task in asked])
        refused = statuses.count(503)
        assert set(statuses) == {200, 503}
        assert await engine.metric("vllm:admission_rejections_total") == refused


async def test_embeddings_and_health_answer() -> None:
    async with running() as engine:
        status, text = await engine.post("/v1/embeddings", {"model": "base", "input": ["a b", "c"]})
        assert (status, len(json.loads(text)["data"][0]["embedding"])) == (200, 8)
        assert (await engine.get("/health"))[0] == 200
        assert (await engine.get("/nowhere"))[0] == 404


async def test_waiting_for_an_adapter_slot_is_shown_as_deferred() -> None:
    async with running(replace(OPTIONS, resolver=True)) as engine:
        for i in range(6):
            await engine.complete(f"a{i}", tokens=1)
        asked = [asyncio.create_task(engine.complete(f"a{i % 6}", tokens=60)) for i in range(24)]
        deferred = 0.0
        while not deferred and not all(task.done() for task in asked):
            deferred = await engine.metric('vllm:num_requests_waiting_by_reason{engine="0",model_name="base",reason="d')
        assert deferred > 0
        assert await engine.metric("vllm:kv_cache_usage_perc") < 0.1
        assert {(await task)[0] for task in asked} == {200}
        assert await engine.metric("vllm:request_success_total") == 30
        assert await engine.metric("vllm:time_to_first_token_seconds_count") == 30
        assert await engine.metric("vllm:generation_tokens_total") == 6 + 24 * 60


async def test_a_client_that_leaves_frees_its_place() -> None:
    async with running() as engine:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.complete(tokens=4000, stream=True), 0.5)
        for _ in range(200):
            if await engine.metric("vllm:num_requests_running") == 0:
                break
            await asyncio.sleep(0.02)
        assert await engine.metric("vllm:num_requests_running") == 0
        assert await engine.metric('vllm:request_success_total{engine="0",finished_reason="abort"') == 1


async def test_faults_happen_on_demand() -> None:
    async with running() as engine:
        engine.engine.faults.completion_status = 500
        assert error(await engine.complete()) == (500, "InternalServerError")
        engine.engine.faults.completion_status = None
        assert (await engine.complete())[0] == 200
        engine.engine.faults.load_status = 500
        assert error(await engine.load("a0", "/adapters/a0")) == (500, "InternalServerError")
        engine.engine.faults.load_status = None
        engine.engine.faults.hang_loads = True
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.load("a0", "/adapters/a0"), 0.3)


async def test_a_restart_forgets_everything_and_keeps_the_address() -> None:
    async with running() as engine:
        await engine.load("a0", "/adapters/a0")
        waiting = asyncio.create_task(engine.complete(tokens=4000))
        await engine.until_in_flight()
        address = engine.engine.address
        await engine.engine.crash()
        with pytest.raises(aiohttp.ClientError):
            await waiting
        with pytest.raises(aiohttp.ClientError):
            await engine.get("/health")
        await engine.engine.start()
        assert engine.engine.address == address
        assert [m["id"] for m in await engine.models()] == ["base"]
        assert await engine.metric("vllm:generation_tokens_total") == 0


@pytest.mark.parametrize(("timeout_s", "survives"), [(0.0, False), (10.0, True)])
async def test_a_stop_aborts_what_is_in_flight_unless_it_has_time(timeout_s: float, survives: bool) -> None:
    async with running(replace(OPTIONS, shutdown_timeout_s=timeout_s)) as engine:
        waiting = asyncio.create_task(engine.complete(tokens=40))
        await engine.until_in_flight()
        await engine.engine.stop()
        result = (await asyncio.gather(waiting, return_exceptions=True))[0]
    assert (not isinstance(result, BaseException)) == survives


def shape(page: str) -> set[tuple[str, ...]]:
    """Names with their label names, bucket edges and kinds, of vLLM's own metrics."""
    found: set[tuple[str, ...]] = set(re.findall(r"^# TYPE (vllm:\S+) (\S+)$", page, re.M))
    for name, labels in re.findall(r"^(vllm:[^ {]+)\{(.*)\} ", page, re.M):
        pairs = re.findall(r'(\w+)="([^"]*)"', labels)
        fixed = [f"{k}={v}" for k, v in pairs if k in ("le", "reason", "finished_reason", "source", "sleep_state")]
        keys = [] if name == "vllm:cache_config_info" else sorted(k for k, _ in pairs)
        found.add((name, *keys, *fixed))
    return found


@pytest.mark.parametrize(
    "recorded", ["idle", "adapter-slot-contention", "after-load", "after-preemptions", "after-rejections"]
)
async def test_the_page_has_the_names_labels_and_buckets_of_the_recorded_ones(shared_data: Path, recorded: str) -> None:
    page = (shared_data / "vllm-0.32.0-cpu" / f"{recorded}.prom").read_text()
    async with running(replace(OPTIONS, resolver=True)) as engine:
        if recorded != "idle":
            await engine.complete("a0")
        own = (await engine.get("/metrics"))[1]
    assert shape(own) == shape(page)


def test_a_real_folder_tells_the_rank_and_never_leads_outside(tmp_path: Path) -> None:
    (tmp_path / "in" / "a0").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for folder in ("in/a0", "out"):
        (tmp_path / folder / "adapter_config.json").write_text('{"r": 32}')
    disk = AdapterFolder(tmp_path / "in")
    assert disk.resolve("a0") == str(tmp_path / "in" / "a0")
    assert disk.rank(str(tmp_path / "in" / "a0")) == 32
    assert [disk.resolve("../out"), disk.resolve("nobody"), disk.rank("/nowhere")] == [None, None, None]


@pytest.mark.slow
async def test_an_engine_of_its_own_process_starts_answers_and_ends_on_sigterm() -> None:
    command = [
        sys.executable,
        "-m",
        "autoscaler.simulator.http",
        "--port",
        "0",
        "--adapter",
        "/adapters/a0=8",
        "--resolver",
    ]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        ready = (await asyncio.wait_for(process.stderr.readline(), 60)).decode()
        url = ready.split()[-1]
        async with aiohttp.ClientSession() as session:
            body = {"model": "a0", "prompt": "a", "max_tokens": 1}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
