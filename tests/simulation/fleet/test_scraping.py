"""What is scraped is what happened, as late and as full of holes as it was asked to be."""

import asyncio

import numpy as np
import pytest

from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.ports import Metrics
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.platform import Platform, PlatformSettings
from autoscaler.simulator.fleet.ports import SimulatedPlatform
from autoscaler.simulator.fleet.scraping import ScrapedMetrics, ScrapeSettings
from autoscaler.simulator.fleet.stream import ArrivalStream
from tests.simulation.fleet.builders import LIMITS, arrivals, fleet

NAMES = tuple(f"adapter-{i}" for i in range(6))
CATALOGUE = Catalogue.of({name: (name, "", "", 0) for name in NAMES})


def scraped(until_s: float, **settings: float) -> tuple[ScrapedMetrics, Metrics]:
    """Two replicas under 10 requests/s, of which adapter 2 has all: 3 prompt and 5 answer tokens each."""
    requests = arrivals((np.arange(2_000) / 10.0).tolist(), 2, 3, 5)
    one = Platform(fleet(0, limits=LIMITS), ArrivalStream([requests]), PlatformSettings(0.0), LIMITS)
    one.resize("pool", 2, now=True)
    one.engines.route(tables.round_robin([0, 1], 6))
    metrics = ScrapedMetrics(one, ScrapeSettings(**settings), np.arange(6))  # type: ignore[arg-type]
    one.run(until_s)
    replicas = asyncio.run(SimulatedPlatform(one).replicas())
    return metrics, asyncio.run(metrics.read(0.0, CATALOGUE, replicas))


def test_rates_are_those_of_the_traffic() -> None:
    _, seen = scraped(121.0)
    assert seen.traffic.requests_per_s == pytest.approx([0, 0, 10, 0, 0, 0], abs=0.2)
    assert seen.traffic.prompt_tokens_per_s[2] == pytest.approx(30, rel=0.03)
    assert seen.traffic.completion_tokens_per_s[2] == pytest.approx(50, rel=0.03)
    assert seen.traffic.ttft_mean_s[2] == pytest.approx(0.012, abs=0.01)
    assert sorted(seen.pairs.replica.tolist()) == [0, 1]
    assert seen.pairs.requests_per_s == pytest.approx([5, 5], abs=0.2)


def test_engines_show_their_own_signals() -> None:
    _, seen = scraped(121.0)
    signals = seen.replicas["pool-0000"]
    assert isinstance(signals.requests_per_s, Fresh)
    assert signals.requests_per_s.value == pytest.approx(5, abs=0.1)
    assert signals.requests_per_s.age_s == pytest.approx(1.0)
    assert isinstance(signals.itl_mean_s, Fresh)
    assert signals.itl_mean_s.value == pytest.approx(0.010, rel=0.05)
    assert isinstance(signals.kv_usage_ratio, Fresh)
    assert isinstance(signals.waiting, Fresh)


def test_before_the_first_scrape_nothing_is_known() -> None:
    _, seen = scraped(10.0)
    assert np.isnan(seen.traffic.requests_per_s).all()
    assert isinstance(seen.freshness["traffic"], Missing)
    assert isinstance(seen.replicas["pool-0000"].running, Missing)


def test_a_scrape_can_be_read_only_after_its_delay() -> None:
    metrics, _ = scraped(120.5)
    late = metrics.engine("pool-0000", 120.5)
    assert late is not None
    assert late.at_s == 105.0


def test_lost_scrapes_leave_older_samples_or_none() -> None:
    _, seen = scraped(121.0, loss_ratio=1.0)
    assert isinstance(seen.freshness["engines"], Missing)
    metrics, some = scraped(121.0, loss_ratio=0.4, seed=3)
    sample = metrics.engine("pool-0001", 121.0)
    assert sample is None or sample.at_s <= 120.0
    if isinstance(some.freshness["traffic"], Fresh):
        assert some.traffic.requests_per_s[2] == pytest.approx(10, rel=0.1)
