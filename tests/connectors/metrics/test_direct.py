"""Direct scraping: recorded pages become exact signals, and what is absent says why."""

from pathlib import Path

import aiohttp
import numpy as np
import pytest

from autoscaler.connectors.metrics.direct import DirectScrape, ScrapeSettings
from autoscaler.connectors.metrics.presets import SGLANG, VLLM
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.domain.fleet import ReplicaState
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Fresh, Missing
from tests.connectors.conftest import SetClock
from tests.connectors.metrics.conftest import Pages

CATALOGUE = Catalogue.of({a: (a, f"/adapters/{a}", "", 8) for a in ("a1", "a2")})


@pytest.fixture
def recorded(shared_data: Path) -> dict[str, str]:
    return {page.stem: page.read_text() for page in (shared_data / "vllm-0.32.0-cpu").glob("*.prom")}


def scraper(session: aiohttp.ClientSession, clock: SetClock, **changed: object) -> DirectScrape:
    settings: dict[str, object] = {"engine": VLLM.timed(15.0), "router": ENVOY, "base_models": frozenset({"base"})}
    return DirectScrape(ScrapeSettings(**(settings | changed)), session, clock)  # type: ignore[arg-type]


async def test_gauges_of_a_queue_for_adapter_slots_are_exact(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock, recorded: dict[str, str]
) -> None:
    pages.by_path["/r1/metrics"] = recorded["adapter-slot-contention"]
    seen = await scraper(session, clock).read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    signals = seen.replicas["r1"]
    assert (signals.running, signals.waiting, signals.deferred) == (Fresh(8.0), Fresh(16.0), Fresh(13.0))
    assert signals.kv_usage_ratio == Fresh(0.0019536019536019467)
    assert signals.prompt_tokens_per_s == Missing("one sample in the window, a rate needs two")
    assert seen.limits["r1"] == {"max_loras": 2, "kv_tokens": 524288}
    assert seen.resident == {}
    assert seen.freshness["engines"] == Fresh(0.0)
    assert seen.freshness["traffic"] == Missing("no router is configured")


async def test_rates_and_means_are_taken_between_own_scrapes(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock, recorded: dict[str, str]
) -> None:
    source = scraper(session, clock)
    pages.by_path["/r1/metrics"] = recorded["idle"]
    await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    clock.at_s += 10
    pages.by_path["/r1/metrics"] = recorded["after-load"]
    signals = (await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])).replicas["r1"]
    assert signals.prompt_tokens_per_s == Fresh(176.4)
    assert signals.generation_tokens_per_s == Fresh(1402.1)
    assert signals.requests_per_s == Fresh(7.7)
    assert signals.preemptions_per_s == Fresh(0.0)
    assert signals.ttft_mean_s == Fresh(286.06230211257935 / 77)
    assert signals.queue_time_mean_s == Fresh(278.1571606610114 / 77)
    # 72 of the 77 requests were answered within 10 s, all within 20 s.
    assert signals.late_ratio.value == pytest.approx(2.5 / 77)
    assert signals.adapter_loads_per_s == Missing("no series named vllm:lora_adapter_load_seconds_count")


async def test_no_traffic_is_not_unknown(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock, recorded: dict[str, str]
) -> None:
    source = scraper(session, clock)
    pages.by_path["/r1/metrics"] = recorded["after-load"]
    for _ in range(2):
        clock.at_s += 10
        seen = await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    signals = seen.replicas["r1"]
    assert signals.requests_per_s == Fresh(0.0)
    assert signals.ttft_mean_s == signals.ttft_p99_s == Missing("no traffic")


async def test_a_restarted_process_counts_from_zero(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock, recorded: dict[str, str]
) -> None:
    source = scraper(session, clock)
    pages.by_path["/r1/metrics"] = recorded["after-load"]
    await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    clock.at_s += 10
    pages.by_path["/r1/metrics"] = recorded["after-preemptions"]
    signals = (await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])).replicas["r1"]
    assert signals.preemptions_per_s == Fresh(6.5)
    assert signals.prompt_tokens_per_s == Fresh(51.8)


async def test_a_replica_that_does_not_answer_keeps_its_last_sample_until_it_is_too_old(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock, recorded: dict[str, str]
) -> None:
    source = scraper(session, clock, max_age_s=30.0)
    pages.by_path["/r1/metrics"] = recorded["adapter-slot-contention"]
    await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    del pages.by_path["/r1/metrics"]
    clock.at_s += 20
    seen = await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    assert seen.replicas["r1"].waiting == Fresh(16.0, 20.0)
    clock.at_s += 20
    seen = await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    assert seen.replicas["r1"].waiting == Missing("stale by 40 s")


async def test_a_restart_in_place_forgets_the_old_process(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock, recorded: dict[str, str]
) -> None:
    source = scraper(session, clock)
    pages.by_path["/r1/metrics"] = recorded["adapter-slot-contention"]
    await source.read(clock.at_s, CATALOGUE, [pages.replica("r1", started_at_s=1.0)])
    del pages.by_path["/r1/metrics"]
    seen = await source.read(clock.at_s, CATALOGUE, [pages.replica("r1", started_at_s=999.0)])
    assert isinstance(seen.replicas["r1"].waiting, Missing)
    assert "answered 503" in seen.replicas["r1"].waiting.why


async def test_a_pending_replica_is_not_scraped(pages: Pages, session: aiohttp.ClientSession, clock: SetClock) -> None:
    replica = pages.replica("r1", address="", state=ReplicaState.PENDING)
    seen = await scraper(session, clock).read(clock.at_s, CATALOGUE, [replica])
    assert seen.replicas["r1"].running == Missing("not started")
    assert seen.freshness["engines"] == Missing("no replica could be scraped")


async def test_old_names_are_aliases(pages: Pages, session: aiohttp.ClientSession, clock: SetClock) -> None:
    pages.by_path["/r1/metrics"] = (
        'vllm:num_requests_running{model_name="base"} 1\nvllm:gpu_cache_usage_perc{model_name="base"} 0.5\n'
    )
    seen = await scraper(session, clock).read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    assert seen.replicas["r1"].kv_usage_ratio == Fresh(0.5)
    assert seen.replicas["r1"].deferred == Missing("no series named vllm:num_requests_waiting_by_reason")


async def test_a_misspelt_metric_is_named_with_its_nearest(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    pages.by_path["/r1/metrics"] = "vllm_num_requests_waiting 3\nvllm:num_requests_running 1\n"
    seen = await scraper(session, clock).read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    assert seen.replicas["r1"].waiting == Missing("no series named vllm:num_requests_waiting")
    assert seen.conditions["MetricMissing/waiting"] == (
        "no engine shows vllm:num_requests_waiting; the nearest name that exists is vllm_num_requests_waiting"
    )


async def test_kv_use_is_averaged_over_engines_and_queues_are_summed(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    pages.by_path["/r1/metrics"] = "".join(
        f'vllm:kv_cache_usage_perc{{engine="{e}"}} {kv}\nvllm:num_requests_waiting{{engine="{e}"}} {w}\n'
        for e, kv, w in ((0, 0.2, 3), (1, 0.6, 4))
    )
    signals = (await scraper(session, clock).read(clock.at_s, CATALOGUE, [pages.replica("r1")])).replicas["r1"]
    assert signals.kv_usage_ratio == Fresh(0.4)
    assert signals.waiting == Fresh(7.0)


async def test_ranks_of_one_sglang_engine_are_copies(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    pages.by_path["/r1/metrics"] = "".join(
        f'sglang:num_queue_reqs{{engine_type="unified",tp_rank="{rank}"}} {queue}\n' for rank, queue in ((0, 5), (1, 4))
    )
    source = scraper(session, clock, engine=SGLANG)
    seen = await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    assert seen.replicas["r1"].waiting == Fresh(5.0)
    assert seen.replicas["r1"].deferred == Missing("this engine shows no such metric")
    assert "DuplicatedSeries" not in seen.conditions


async def test_residency_is_read_where_the_engine_shows_it(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    pages.by_path["/r1/metrics"] = "".join(
        f'vllm:lora_adapter_loaded{{adapter_name="{a}",level="gpu",pinned="false",rank="8"}} {v}\n'
        for a, v in (("a1", 1), ("a2", 0), ('q"\\\\', 1))
    ).replace('q"', 'q\\"')
    seen = await scraper(session, clock).read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    assert seen.resident["r1"] == frozenset({"a1", 'q"\\'})


async def test_nan_is_missing(pages: Pages, session: aiohttp.ClientSession, clock: SetClock) -> None:
    pages.by_path["/r1/metrics"] = "vllm:kv_cache_usage_perc NaN\n"
    signals = (await scraper(session, clock).read(clock.at_s, CATALOGUE, [pages.replica("r1")])).replicas["r1"]
    assert signals.kv_usage_ratio == Missing("the series says nan")


async def test_traffic_per_adapter_and_owner_comes_from_routers(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    replica = pages.replica("r1")
    source = scraper(session, clock, router_urls={"envoy": f"http://{pages.address}/stats"})

    def stats(requests: int, cold: int) -> str:
        tags = f'adapter="a1",upstream="{replica.address}"'
        buckets = "".join(f'envoy_llm_ttft_ms_bucket{{adapter="a1",le="{le}"}} {requests}\n' for le in (100, "+Inf"))
        return (
            f"envoy_llm_requests{{{tags}}} {requests}\n"
            f'envoy_llm_requests{{adapter="base",upstream="x"}} {requests}\n'
            f'envoy_llm_requests{{adapter="who",upstream="x"}} {cold}\n'
            f"envoy_llm_completion_tokens{{{tags}}} {requests * 100}\n"
            f"envoy_llm_streams{{{tags}}} {requests}\n"
            f"envoy_llm_stream_ttft_ms{{{tags}}} {requests * 50}\n" + buckets
        )

    pages.by_path["/stats"] = stats(10, 0)
    await source.read(clock.at_s, CATALOGUE, [replica])
    clock.at_s += 10
    pages.by_path["/stats"] = stats(30, 5)
    seen = await source.read(clock.at_s, CATALOGUE, [replica])
    np.testing.assert_array_equal(seen.traffic.requests_per_s, [2.0, 0.0])
    np.testing.assert_array_equal(seen.traffic.completion_tokens_per_s, [200.0, 0.0])
    np.testing.assert_array_equal(seen.traffic.prompt_tokens_per_s, [np.nan, 0.0])
    np.testing.assert_allclose(seen.traffic.ttft_mean_s, [0.05, np.nan])
    np.testing.assert_allclose(seen.traffic.ttft_p99_s, [0.099, np.nan])
    assert seen.traffic.base_requests_per_s == Fresh(2.0)
    assert seen.traffic.unknown_requests_per_s == Fresh(0.5)
    assert (seen.pairs.adapter.tolist(), seen.pairs.replica.tolist()) == ([0], [0])
    np.testing.assert_allclose(seen.pairs.ttft_mean_s, [0.05])
    assert seen.freshness["traffic"] == Fresh(0.0)


async def test_routers_that_count_nothing_while_engines_work_are_not_believed(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    pages.by_path["/r1/metrics"] = "vllm:num_requests_running 3\n"
    pages.by_path["/stats"] = 'envoy_llm_request{adapter="a1"} 5\n'
    source = scraper(session, clock, router_urls={"envoy": f"http://{pages.address}/stats"})
    for _ in range(2):
        clock.at_s += 10
        seen = await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    assert np.isnan(seen.traffic.requests_per_s).all()
    assert seen.freshness["traffic"] == Missing("routers show no envoy_llm_requests while engines have requests")
    assert "the nearest name that exists is envoy_llm_request," in seen.conditions["RouterShowsNoRequests"]


async def test_a_silent_router_of_an_idle_fleet_saw_no_traffic(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    pages.by_path["/r1/metrics"] = "vllm:num_requests_running 0\n"
    pages.by_path["/stats"] = "envoy_server_uptime 5\n"
    source = scraper(session, clock, router_urls={"envoy": f"http://{pages.address}/stats"})
    for _ in range(2):
        clock.at_s += 10
        seen = await source.read(clock.at_s, CATALOGUE, [pages.replica("r1")])
    np.testing.assert_array_equal(seen.traffic.requests_per_s, [0.0, 0.0])


async def test_traffic_of_some_routers_is_not_taken_for_that_of_all(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    urls = {name: f"http://{pages.address}/{name}" for name in ("one", "two")}
    source = scraper(session, clock, router_urls=urls)
    for i in range(3):
        clock.at_s += 20
        pages.by_path = {f"/{n}": f'envoy_llm_requests{{adapter="a1",upstream="u"}} {i * 20}\n' for n in urls}
        seen = await source.read(clock.at_s, CATALOGUE, [])
    assert seen.traffic.requests_per_s.tolist() == [2.0, 0.0]
    del pages.by_path["/two"]
    clock.at_s += 20
    still = await source.read(clock.at_s, CATALOGUE, [])
    assert still.traffic.requests_per_s[0] > 0
    clock.at_s += 60
    gone = await source.read(clock.at_s, CATALOGUE, [])
    assert np.isnan(gone.traffic.requests_per_s).all()
    assert gone.freshness["traffic"] == Missing(f"{urls['two']} answered 503")


async def test_a_router_that_does_not_answer_is_named(
    pages: Pages, session: aiohttp.ClientSession, clock: SetClock
) -> None:
    source = scraper(session, clock, router_urls={"envoy": f"http://{pages.address}/gone"})
    seen = await source.read(clock.at_s, CATALOGUE, [])
    assert seen.freshness["traffic"] == Missing(f"http://{pages.address}/gone answered 503")
    assert seen.conditions["RouterUnreachable/envoy"] == f"http://{pages.address}/gone answered 503"
