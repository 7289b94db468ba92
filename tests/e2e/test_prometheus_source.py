"""Recorded pages of vLLM through a real Prometheus give exact signals; scraped directly, the same."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.direct import DirectScrape, ScrapeSettings
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.connectors.metrics.prometheus import PrometheusSource, SourceSettings
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.steps import Signals
from autoscaler.ports import Metrics, MetricsSource
from tests.e2e.parts.processes import free_port
from tests.e2e.parts.prometheus import PrometheusServer, Targets

HOSTILE = 'we"ird\\ad{ap}ter,le="5'
CATALOGUE = Catalogue.of({a: (a, f"/adapters/{a}", "", 8) for a in ("a1", "a2", HOSTILE)})
WINDOW_S = 6.0
ENGINE = VLLM.timed(10.0)  # a later first token is late
PAGES = ("idle", "adapter-slot-contention", "after-load", "after-preemptions", "after-rejections")


@dataclass
class Pages:
    """One HTTP server per name, each on a port of its own, whose `/metrics` a test sets."""

    text: dict[str, str] = field(default_factory=dict)
    address: dict[str, str] = field(default_factory=dict)
    runners: list[web.AppRunner] = field(default_factory=list)

    async def serve(self, name: str, text: str) -> None:
        self.text[name] = text
        app = web.Application()

        async def answer(_: web.Request) -> web.Response:
            return web.Response(text=self.text[name])

        app.router.add_get("/metrics", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.runners.append(runner)
        self.address[name] = f"127.0.0.1:{port}"

    def replica(self, name: str) -> Replica:
        return Replica(name, "warm", None, self.address[name], ReplicaState.READY)


Start = Callable[..., Awaitable[MetricsSource]]


class RealClock:
    def now_s(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    served = Pages()
    yield served
    for runner in served.runners:
        await runner.cleanup()


@pytest.fixture
def recorded(shared_data: Path) -> dict[str, str]:
    return {name: (shared_data / "vllm-0.32.0-cpu" / f"{name}.prom").read_text() for name in PAGES}


@pytest.fixture(params=["prometheus-2", "prometheus-3", "direct"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def source(way: str, tmp_path: Path, pages: Pages) -> AsyncIterator[Start]:
    """Starts what reads the pages that are served by then, as replicas or, for `envoy`, as a router."""
    stops: list[Callable[[], Awaitable[None]]] = []

    async def start(window_s: float = 300.0) -> MetricsSource:
        if way == "direct":
            session = aiohttp.ClientSession()
            stops.append(session.close)
            urls = {n: f"http://{a}/metrics" for n, a in pages.address.items() if n == "envoy"}
            told = ScrapeSettings(ENGINE, ENVOY, urls, frozenset({"base"}), window_s)
            return DirectScrape(told, session, RealClock())
        targets = Targets(tmp_path / "targets.json")
        targets.write({a: {"pod": n} for n, a in pages.address.items()})
        server = PrometheusServer(tmp_path / "prometheus", [targets.scrape_config()], version=way[-1])  # type: ignore[arg-type]
        await asyncio.to_thread(server.__enter__)
        connection = PrometheusConnection(PrometheusSettings(server.url))

        async def stop() -> None:
            connection.close()
            await asyncio.to_thread(server.__exit__, None, None, None)

        stops.append(stop)
        settings = SourceSettings(ENGINE, ENVOY, Signals(window_s=window_s), frozenset({"base"}))
        return PrometheusSource(settings, connection)

    yield start
    for stop in stops:
        await stop()


async def until(
    source: MetricsSource, replicas: list[Replica], done: Callable[[Metrics], bool], timeout_s: float = 30.0
) -> Metrics:
    """Read again and again, as ticks do, until what was served has arrived."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = await source.read(time.time(), CATALOGUE, replicas)
        if done(seen) or time.monotonic() > deadline:
            assert done(seen), seen
            return seen
        await asyncio.sleep(0.3)


def value(signal: Signal) -> float | str:
    return signal.value if isinstance(signal, Fresh) else signal.why


def has_two_scrapes(seen: Metrics) -> bool:
    return all(isinstance(r.requests_per_s, Fresh) for r in seen.replicas.values())


async def test_five_recorded_pages_give_exact_values(pages: Pages, source: Start, recorded: dict[str, str]) -> None:
    for name in PAGES:
        await pages.serve(name, recorded[name])
    seen = await until(await source(), [pages.replica(n) for n in PAGES], has_two_scrapes)
    gauges = {
        n: tuple(value(s) for s in (r.running, r.waiting, r.deferred, r.kv_usage_ratio))
        for n, r in seen.replicas.items()
    }
    assert gauges == {
        "idle": (0.0, 0.0, 0.0, 0.0),
        "adapter-slot-contention": (8.0, 16.0, 13.0, 0.0019536019536019467),
        "after-load": (0.0, 0.0, 0.0, 0.0),
        "after-preemptions": (0.0, 0.0, 0.0, 0.0),
        "after-rejections": (0.0, 0.0, 0.0, 0.0),
    }
    for signals in seen.replicas.values():
        rates = (signals.requests_per_s, signals.prompt_tokens_per_s, signals.preemptions_per_s)
        assert [value(s) for s in rates] == [0.0, 0.0, 0.0]
        assert value(signals.ttft_mean_s) == value(signals.ttft_p99_s) == "no traffic"
        assert value(signals.adapter_loads_per_s) == "no series named vllm:lora_adapter_load_seconds_count"
    assert seen.limits["after-preemptions"]["kv_tokens"] < seen.limits["idle"]["kv_tokens"] == 524288
    assert seen.limits["after-load"]["max_loras"] == 2
    assert "DuplicatedSeries" not in seen.conditions
    assert not [c for c in seen.conditions if c.startswith("MetricMissing")]


async def test_growth_between_two_recorded_pages_is_exact(
    pages: Pages, source: Start, recorded: dict[str, str]
) -> None:
    await pages.serve("r1", recorded["idle"])
    reader = await source()
    await until(reader, [pages.replica("r1")], has_two_scrapes)
    pages.text["r1"] = recorded["after-load"]

    def arrived(seen: Metrics) -> bool:
        requests = seen.replicas["r1"].requests_per_s
        return isinstance(requests, Fresh) and requests.value > 0

    signals = (await until(reader, [pages.replica("r1")], arrived)).replicas["r1"]
    assert value(signals.ttft_mean_s) == 286.06230211257935 / 77
    assert value(signals.queue_time_mean_s) == 278.1571606610114 / 77
    # 72 of the 77 requests were answered within 10 s, all within 20 s.
    assert value(signals.ttft_p99_s) == pytest.approx(10 + 10 * (0.99 * 77 - 72) / 5, rel=1e-12)
    assert value(signals.late_ratio) == pytest.approx(5 / 77, rel=1e-12)
    per_request = [
        float(value(s)) / float(value(signals.requests_per_s))
        for s in (signals.prompt_tokens_per_s, signals.generation_tokens_per_s, signals.preemptions_per_s)
    ]
    assert per_request == pytest.approx([1764 / 77, 14021 / 77, 0.0], rel=1e-12)


async def test_a_dead_pods_series_linger_and_belong_to_nobody(
    pages: Pages, source: Start, recorded: dict[str, str]
) -> None:
    await pages.serve("dead", recorded["adapter-slot-contention"])
    await pages.serve("live", recorded["idle"])
    reader = await source()
    await until(reader, [pages.replica("dead"), pages.replica("live")], has_two_scrapes)
    # The next pod was given the dead one's address: its own series are not there yet.
    heir = replace(pages.replica("dead"), id="heir", state=ReplicaState.STARTING)
    seen = await reader.read(time.time(), CATALOGUE, [pages.replica("live"), heir])
    assert value(seen.replicas["live"].waiting) == 0.0
    assert isinstance(seen.replicas["heir"].waiting, Missing)


async def test_routers_traffic_comes_per_adapter_and_owner_with_first_requests_and_hostile_names(
    pages: Pages, source: Start
) -> None:
    await pages.serve("r1", "vllm:num_requests_running 1\n")
    written = HOSTILE.replace("\\", "\\\\").replace('"', '\\"')

    def stats(requests: dict[str, int]) -> str:
        lines = []
        for adapter, n in requests.items():
            tags = f'adapter="{adapter}",upstream="{pages.address["r1"]}"'
            lines += [
                f"envoy_llm_requests{{{tags}}} {n}",
                f"envoy_llm_prompt_tokens{{{tags}}} {n * 10}",
                f"envoy_llm_completion_tokens{{{tags}}} {n * 100}",
                f"envoy_llm_streams{{{tags}}} {n}",
                f"envoy_llm_stream_ttft_ms{{{tags}}} {n * 50}",
                *(f'envoy_llm_ttft_ms_bucket{{adapter="{adapter}",le="{e}"}} {n}' for e in (100, "+Inf")),
            ]
        address = pages.address["r1"]
        lines.append(f'envoy_cluster_endpoint_rq_active{{envoy_endpoint_address="{address}"}} 3')
        return "\n".join(lines) + "\n"

    await pages.serve("envoy", stats({"a1": 100}))
    reader = await source(WINDOW_S)
    replicas = [pages.replica("r1")]
    await until(reader, replicas, lambda seen: isinstance(seen.freshness["traffic"], Fresh))
    await asyncio.sleep(WINDOW_S + 2)
    pages.text["envoy"] = stats({"a1": 300, written: 7, "base": 40, "(unknown)": 9})
    row = CATALOGUE.row
    seen = await until(reader, replicas, lambda seen: seen.traffic.requests_per_s[row["a1"]] > 0)
    traffic = seen.traffic
    assert traffic.requests_per_s[row["a2"]] == 0.0
    # The first requests of a series count, although nothing was there to compare it with.
    assert traffic.requests_per_s[row[HOSTILE]] == pytest.approx(7 / WINDOW_S, rel=0.5)
    assert value(traffic.base_requests_per_s) == pytest.approx(40 / WINDOW_S, rel=0.5)
    assert value(traffic.unknown_requests_per_s) == pytest.approx(9 / WINDOW_S, rel=0.5)
    assert traffic.completion_tokens_per_s[row["a1"]] == pytest.approx(100 * traffic.requests_per_s[row["a1"]])
    np.testing.assert_allclose(traffic.ttft_mean_s[row["a1"]], 0.05, rtol=1e-9)
    np.testing.assert_allclose(traffic.ttft_p99_s[row["a1"]], 0.099, rtol=1e-9)
    assert np.isnan(traffic.ttft_mean_s[row["a2"]])
    assert seen.pairs.replica.tolist() == [0] * len(seen.pairs.adapter)
    assert value(seen.in_flight["r1"]) == 3.0
