"""The clients in Go: their own tests, and the endpoint picker behind real Envoy with a ring that our API serves."""

import asyncio
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from autoscaler.connectors.envoy.process import envoy_binary
from autoscaler.domain.decisions import Applied
from autoscaler.ring import Fairness, HotGroup, Member, Overflow, Ring, RingSnapshot, Unknown, encode
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.http import AdapterTable, EngineOptions, Pump, SimulatedEngine
from tests.api.conftest import Api, _api
from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port

ROOT = Path(__file__).resolve().parents[2]
GO = ROOT / "clients" / "go"
ADAPTERS = tuple(f"a{i:02d}" for i in range(24))
OPTIONS = EngineOptions(
    limits=EngineLimits(max_loras=8, max_cpu_loras=64),
    files=AdapterTable({f"/adapters/{name}": 16 for name in ADAPTERS}),
    resolver=True,
    shutdown_timeout_s=5.0,
)


def go(folder: Path, *argv: str, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    return subprocess.run(["go", *argv], cwd=folder, env=env, capture_output=True, text=True, timeout=timeout_s)


@pytest.fixture(scope="module")
def modules() -> None:
    """Go and the modules of the picker; skips where either cannot be had."""
    if not shutil.which("go"):
        pytest.skip("Go is not here: clients/go/go.mod says which version")
    got = go(GO / "picker", "mod", "download")
    if got.returncode:
        pytest.skip(f"the picker's modules cannot be had: {got.stderr.strip()[-300:]}")


@pytest.fixture(scope="module")
def picker(modules: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built picker."""
    binary = tmp_path_factory.mktemp("go") / "picker"
    built = go(GO / "picker", "build", "-o", str(binary), ".")
    assert built.returncode == 0, built.stderr
    return binary


@pytest.mark.parametrize("folder", [GO, GO / "picker"], ids=["ring", "picker"])
def test_the_clients_pass_their_own_tests(modules: None, folder: Path) -> None:
    for argv in (("vet", "./..."), ("test", "-count=1", "./...")):
        done = go(folder, *argv)
        assert done.returncode == 0, done.stdout + done.stderr
    formatted = subprocess.run(["gofmt", "-l", str(folder)], capture_output=True, text=True, check=True)
    assert formatted.stdout == ""


@dataclass
class Gateway:
    """Envoy, the picker, our API and engines by replica name."""

    url: str
    api: Api
    engines: dict[str, SimulatedEngine]
    session: aiohttp.ClientSession
    picker: Server

    def snapshot(self, epoch: int, **changes: Any) -> RingSnapshot:
        warm = [name for name in self.engines if name.startswith("r")]
        members = tuple(Member(name, self.engines[name].address, slot=f"s{i:04d}") for i, name in enumerate(warm))
        ring = RingSnapshot("fleet", epoch, "2026-11-29T12:00:00Z", 2, members, warm=ADAPTERS, base_models=("base",))
        return replace(ring, **changes)

    async def publish(self, snapshot: RingSnapshot) -> None:
        """Publish, and wait until the picker says that it applies this epoch."""
        assert isinstance(await self.api.hub.publish(snapshot.epoch, encode(snapshot)), Applied)
        for _ in range(1000):
            if [(r.id, r.epoch) for r in await self.api.hub.routers(self.api.now_s)] == [("gateway", snapshot.epoch)]:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"epoch {snapshot.epoch} is not acknowledged: {self.picker.log_tail()}")

    async def ask(self, body: Any, tokens: int = 1, **headers: str) -> tuple[int, str]:
        """One completion: its status and its text."""
        data = body if isinstance(body, bytes) else json.dumps({"prompt": "hi", "max_tokens": tokens, **body}).encode()
        headers = {"Content-Type": "application/json"} | headers
        async with self.session.post(f"{self.url}/v1/completions", data=data, headers=headers) as answer:
            return answer.status, await answer.text()

    async def answer(self, model: str, tokens: int) -> tuple[int, str | None]:
        """One completion: its status and its `Retry-After`."""
        body = {"model": model, "prompt": "hi", "max_tokens": tokens}
        async with self.session.post(f"{self.url}/v1/completions", json=body) as answer:
            await answer.read()
            return answer.status, answer.headers.get("Retry-After")

    def taken(self) -> Counter[str]:
        """Requests that each engine has taken."""
        counts = {name: engine.calls.live.model.gauges().submitted for name, engine in self.engines.items()}
        return Counter({name: count for name, count in counts.items() if count})

    async def asked(self, model: str, times: int = 1, **headers: str) -> Counter[str]:
        """Who took `times` calm requests for a model, all of which were answered."""
        before = self.taken()
        for _ in range(times):
            status, text = await self.ask({"model": model}, **headers)
            assert status == 200, text
        return self.taken() - before


def bootstrap(port: int, admin_port: int, picker_port: int, body_mode: str) -> dict[str, Any]:
    """Envoy that asks the picker and sends where it says; the header `x-subset` stands for the gateway's candidates."""
    types = "type.googleapis.com/envoy.extensions"
    subset = {
        "header": "x-subset",
        "on_header_present": {
            "metadata_namespace": "envoy.lb.subset_hint", "key": "x-gateway-destination-endpoint-subset",
        },
        "remove": True,
    }  # fmt: skip
    modes = {"request_header_mode": "SEND", "request_body_mode": body_mode, "response_trailer_mode": "SEND"}
    if body_mode == "FULL_DUPLEX_STREAMED":
        modes |= {"request_trailer_mode": "SEND", "response_body_mode": "FULL_DUPLEX_STREAMED"}
    filters = [
        {"name": "subset", "typed_config": {
            "@type": f"{types}.filters.http.header_to_metadata.v3.Config", "request_rules": [subset]}},
        {"name": "picker", "typed_config": {
            "@type": f"{types}.filters.http.ext_proc.v3.ExternalProcessor", "failure_mode_allow": False,
            "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "60s"}, "message_timeout": "60s",
            "processing_mode": modes,
            "metadata_options": {"forwarding_namespaces": {"untyped": ["envoy.lb.subset_hint"]}}}},
        {"name": "router", "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"}},
    ]  # fmt: skip
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in",
        "http_filters": filters, "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "engines", "timeout": "0s"}}]}]},
    }  # fmt: skip
    http2 = {"@type": f"{types}.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {
        "http2_protocol_options": {}}}  # fmt: skip
    picker = {"address": {"socket_address": {"address": LOOPBACK, "port_value": picker_port}}}
    clusters = [
        {"name": "engines", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "original_dst_lb_config": {
            "use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"}},
        {"name": "picker", "type": "STATIC", "load_assignment": {"cluster_name": "picker", "endpoints": [
            {"lb_endpoints": [{"endpoint": picker}]}]},
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2}},
    ]  # fmt: skip
    listener = {"name": "in", "address": {"socket_address": {"address": LOOPBACK, "port_value": port}},
                "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}  # fmt: skip
    admin = {"address": {"socket_address": {"address": LOOPBACK, "port_value": admin_port}}}
    return {"admin": admin, "static_resources": {"listeners": [listener], "clusters": clusters}}


@asynccontextmanager
async def serving(api: Api) -> AsyncIterator[int]:
    """Our API on a port of its own."""
    config = uvicorn.Config(api.app, host=LOOPBACK, port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    sockets = [config.bind_socket()]
    task = asyncio.create_task(server.serve(sockets))
    try:
        yield sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task


@asynccontextmanager
async def gateway(api: Api, binary: Path, folder: Path, body_mode: str) -> AsyncIterator[Gateway]:
    pump = Pump()
    engines = {name: SimulatedEngine(OPTIONS, pump) for name in ("r0", "r1", "r2", "r3", "hot")}
    for engine in engines.values():
        await engine.start()
    ports = free_port(), free_port(), free_port()
    (folder / "token").write_text("rob\n")
    (folder / "bootstrap.json").write_text(json.dumps(bootstrap(*ports, body_mode)))
    async with serving(api) as api_port:
        argv = [
            *(str(binary), "-listen", f"{LOOPBACK}:{ports[2]}", "-router", "gateway"),
            *("-ring-url", f"http://{LOOPBACK}:{api_port}/v1/fleets/fleet/ring"),
            *("-token-file", str(folder / "token"), "-state-file", str(folder / "ring.json")),
        ]
        envoy = [envoy_binary(), "-c", str(folder / "bootstrap.json"), "--disable-hot-restart", "--concurrency", "1"]
        admin = f"http://{LOOPBACK}:{ports[1]}/ready"
        told = Server("picker", argv, folder, lambda: "picks endpoints" in told.log_tail())
        proxy = Server("envoy", [str(a) for a in envoy], folder, lambda: answers_200(admin))
        with told, proxy:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                yield Gateway(f"http://{LOOPBACK}:{ports[0]}", api, engines, session, told)
    for engine in engines.values():
        await engine.crash()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    yield from _api(tmp_path, 12)


@pytest.mark.parametrize("body_mode", ["BUFFERED", "FULL_DUPLEX_STREAMED"])
async def test_envoy_sends_where_the_ring_says_and_within_the_candidates(
    api: Api, picker: Path, tmp_path: Path, body_mode: str
) -> None:
    async with gateway(api, picker, tmp_path, body_mode) as bench:
        hot = {"a23": HotGroup("hot-a23", (Member("hot", bench.engines["hot"].address),))}
        overflow = {"overflow": Overflow.STANDBYS, "standby_count": 1, "unknown": Unknown.REJECT}
        snapshot = bench.snapshot(1, hot=hot, **overflow)
        await bench.publish(snapshot)
        ring = Ring(snapshot)
        for name in ADAPTERS[:8]:
            assert await bench.asked(name, 2) == {ring.owners(name).members[0].replica: 2}
        assert await bench.asked("a23") == {"hot": 1}
        assert sum((await bench.asked("base", 4)).values()) == 4
        # A client that names a destination itself is not believed.
        forged = {"x-gateway-destination-endpoint": bench.engines["hot"].address}
        assert await bench.asked("a00", **forged) == {ring.owners("a00").members[0].replica: 1}
        owners = ring.owners("a00")
        second, standby = owners.members[1], owners.standbys[0]
        others = [m.address for m in snapshot.members if m not in (*owners.members, standby)]
        assert await bench.asked("a00", **{"x-subset": f"{second.address},{others[0]}"}) == {second.replica: 1}
        assert await bench.asked("a00", **{"x-subset": standby.address}) == {standby.replica: 1}
        assert (await bench.ask({"model": "a00"}, **{"x-subset": others[0]}))[0] == 503
        assert (await bench.ask({"model": "nobody"}))[0] == 404
        assert (await bench.ask(b"{"))[0] == 400
        assert (await bench.ask({"MODEL": "a00"}))[0] == 400
        assert await bench.asked("a00", **{"x-padding": "x"}) == {owners.members[0].replica: 1}
        long = json.dumps({"model": "a01", "prompt": "x" * 300_000, "max_tokens": 1}).encode()
        assert (await bench.ask(long))[0] in (200, 400), (
            "a prompt longer than the engine's context is the engine's to judge"
        )


async def test_a_burst_stays_within_the_bound_and_counts_fall_when_answers_end(
    api: Api, picker: Path, tmp_path: Path
) -> None:
    async with gateway(api, picker, tmp_path, "BUFFERED") as bench:
        snapshot = bench.snapshot(1, overflow=Overflow.STANDBYS, standby_count=1)
        await bench.publish(snapshot)
        owners = Ring(snapshot).owners("a00")
        before = bench.taken()
        answers = await asyncio.gather(*(bench.ask({"model": "a00"}, 40) for _ in range(24)))
        assert {status for status, _ in answers} == {200}
        took = bench.taken() - before
        candidates = {m.replica for m in (*owners.members, *owners.standbys)}
        # 24 of 24 requests, 4 members: nobody may have more than ceil(1.25 * 24 / 4) = 8, until all three are there.
        assert took == dict.fromkeys(candidates, 8)
        assert await bench.asked("a00", 3) == {owners.members[0].replica: 3}, "the burst is over and forgotten"


async def test_a_tenant_beyond_its_bound_is_told_when_to_come_again_and_its_neighbour_is_served(
    api: Api, picker: Path, tmp_path: Path
) -> None:
    async with gateway(api, picker, tmp_path, "BUFFERED") as bench:
        fairness = Fairness(4, 1500, {"a00": "greedy", "a01": "greedy"})
        await bench.publish(bench.snapshot(1, fairness=fairness))
        burst = [asyncio.create_task(bench.answer(name, 150)) for name in ("a00", "a01") for _ in range(10)]
        calm = await asyncio.gather(*(bench.answer(name, 1) for name in ADAPTERS[2:12]))
        told = Counter(await asyncio.gather(*burst))
        assert set(told) == {(200, None), (429, "2")}
        assert 4 <= told[200, None] < 20, "as many as fit, and again as they end"
        assert set(calm) == {(200, None)}
        assert await bench.answer("a00", 1) == (200, None), "the burst is over"


async def test_the_picker_goes_on_from_its_last_good_ring_while_the_controller_is_away(
    api: Api, picker: Path, tmp_path: Path
) -> None:
    async with gateway(api, picker, tmp_path, "BUFFERED") as bench:
        snapshot = bench.snapshot(5)
        await bench.publish(snapshot)
        first = {name: Ring(snapshot).owners(name).members[0].replica for name in ADAPTERS[:4]}
        bench.picker.stop()
        argv = list(bench.picker.argv)
        argv[argv.index("-ring-url") + 1] = f"http://{LOOPBACK}:9/gone"
        alone = Server("picker-alone", argv, tmp_path, lambda: "picks endpoints" in alone.log_tail())
        with alone:
            assert {name: dict(await bench.asked(name)) for name in first} == {n: {r: 1} for n, r in first.items()}
