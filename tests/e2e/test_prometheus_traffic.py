"""Real Envoy before simulated engines, seen directly and through a real Prometheus: the same traffic and owners."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.direct import DirectScrape, ScrapeSettings
from autoscaler.connectors.metrics.history import recorded_replicas, request_history
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.connectors.metrics.prometheus import PrometheusSource, SourceSettings
from autoscaler.connectors.metrics.queries import Scope
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.steps import Signals
from autoscaler.policy.words import SignalName
from autoscaler.ports import Metrics
from tests.e2e.envoy_bench import ADAPTERS, BASE, Bench, running
from tests.e2e.parts.prometheus import PrometheusServer, Targets

CATALOGUE = Catalogue.of({a: (a, f"/adapters/{a}", "", 16) for a in ADAPTERS})
WINDOW_S = 12.0
STREAMS = {"a00": 12, "a01": 5}


class RealClock:
    def now_s(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def envoy_scrape(bench: Bench, copy: str = "") -> dict[str, object]:
    """Envoy's admin page, as often as is asked for: with a copy's name, as a second Prometheus would have it."""
    job: dict[str, object] = {
        "job_name": f"envoy{copy}",
        "metrics_path": "/stats/prometheus",
        "static_configs": [{"targets": [bench.settings.admin_url.removeprefix("http://")]}],
    }
    if copy:
        job["relabel_configs"] = [
            {"target_label": "prometheus_replica", "replacement": copy},
            {"target_label": "job", "replacement": "envoy"},
        ]
    return job


async def ask_all(bench: Bench) -> None:
    asked = [bench.ask(a, 8, stream=True) for a, n in STREAMS.items() for _ in range(n)]
    asked += [bench.ask("a02", 8), bench.ask(BASE, 8), bench.ask("nobody", 8)]
    assert set(await asyncio.gather(*asked)) <= {200, 404}


async def until(read: Callable[[], object], done: Callable[[Metrics], bool]) -> Metrics:
    for _ in range(100):
        seen: Metrics = await read()  # type: ignore[misc]
        if done(seen):
            return seen
        await asyncio.sleep(0.3)
    raise AssertionError(f"after 30 s still not: {seen}")


async def test_both_ways_see_the_same_traffic_of_a_real_envoy(tmp_path: Path) -> None:
    async with running(tmp_path / "envoy", 3) as bench:
        await bench.publish(bench.snapshot(1, ["r0", "r1", "r2"]))
        await bench.ask("a00", 8, stream=True)
        replicas = [Replica(r, "warm", None, e.address, ReplicaState.READY) for r, e in sorted(bench.engines.items())]
        engines = Targets(tmp_path / "engines.json")
        engines.write({e.address: {"pod": r} for r, e in bench.engines.items()})
        scrapes = [engines.scrape_config(), envoy_scrape(bench, "a"), envoy_scrape(bench, "b")]
        with PrometheusServer(tmp_path / "prometheus", scrapes) as server:
            connection = PrometheusConnection(PrometheusSettings(server.url))
            base = frozenset({BASE})
            page = f"{bench.settings.admin_url}/stats/prometheus"
            direct = DirectScrape(ScrapeSettings(VLLM, ENVOY, {"envoy": page}, base), bench.session, RealClock())
            signals = Signals(
                window_s=WINDOW_S,
                queries={
                    SignalName.ITL_MEAN: "sum by (pod) (rate(vllm:inter_token_latency_seconds_sum[3s])) / "
                    "sum by (pod) (rate(vllm:inter_token_latency_seconds_count[3s]))"
                },
            )
            source = PrometheusSource(SourceSettings(VLLM, ENVOY, signals, base), connection)
            # Later than a step of the history that is read below, so that births within it are known for such.
            await asyncio.sleep(WINDOW_S + 2)
            before = await direct.read(time.time(), CATALOGUE, replicas)
            assert isinstance(before.freshness["traffic"], Missing)
            start_s = time.time()
            await ask_all(bench)
            await bench.until_served(sum(STREAMS.values()) + 4)

            owned = sum(STREAMS.values()) + 1
            exact = await direct.read(time.time(), CATALOGUE, replicas)
            span_s = exact.traffic.window_s
            counted = {a: exact.traffic.requests_per_s[CATALOGUE.row[a]] * span_s for a in ("a00", "a01", "a02", "a03")}
            assert counted == pytest.approx({"a00": 12, "a01": 5, "a02": 1, "a03": 0}, abs=1e-6)
            assert exact.traffic.completion_tokens_per_s[CATALOGUE.row["a00"]] * span_s == pytest.approx(12 * 8)
            assert isinstance(exact.traffic.base_requests_per_s, Fresh)
            assert exact.traffic.base_requests_per_s.value * span_s == pytest.approx(1)
            assert isinstance(exact.traffic.unknown_requests_per_s, Fresh)
            assert exact.traffic.unknown_requests_per_s.value * span_s == pytest.approx(1)
            assert float(exact.pairs.requests_per_s.sum()) * span_s == pytest.approx(owned)
            assert exact.in_flight == {r.id: Fresh(0.0) for r in replicas}
            assert direct.answered == frozenset()

            async def read() -> Metrics:
                return await source.read(time.time(), CATALOGUE, replicas)

            def all_arrived(seen: Metrics) -> bool:
                return float(np.nansum(seen.traffic.requests_per_s)) * WINDOW_S > owned * 0.9

            seen = await until(read, all_arrived)
            # The copy is not counted: twice the traffic would be 2.
            assert float(np.nansum(seen.traffic.requests_per_s)) * WINDOW_S / owned == pytest.approx(1, rel=0.3)
            np.testing.assert_allclose(
                seen.traffic.ttft_mean_s[: len(STREAMS)], exact.traffic.ttft_mean_s[: len(STREAMS)], rtol=0.35
            )
            assert set(zip(seen.pairs.adapter.tolist(), seen.pairs.replica.tolist(), strict=True)) == set(
                zip(exact.pairs.adapter.tolist(), exact.pairs.replica.tolist(), strict=True)
            )
            assert "PartialAnswer" not in seen.conditions

            idle = await until(read, lambda m: m.replicas["r0"].itl_mean_s == Missing("no traffic"))
            assert idle.replicas["r0"].requests_per_s == Fresh(0.0, idle.replicas["r0"].requests_per_s.age_s)  # type: ignore[union-attr]

            scope = Scope({}, {}, ("prometheus_replica",), WINDOW_S)
            end_s = float(int(start_s) + 20)
            pieces = [p async for p in request_history(connection, ENVOY, scope, CATALOGUE, end_s - 60, end_s, 10.0)]
            total = np.nansum(np.concatenate([p.requests_per_s for p in pieces]), axis=0) * 10.0
            assert total[CATALOGUE.row["a00"]] == pytest.approx(12, rel=0.5)
            assert total[CATALOGUE.row["a03"]] == 0.0
            then = await recorded_replicas(connection, VLLM, scope, "pod", start_s)
            assert not isinstance(then, Missing)
            assert [r.id for r in then] == ["r0", "r1", "r2"]
            connection.close()
