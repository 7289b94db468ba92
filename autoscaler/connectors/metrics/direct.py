"""Metrics by direct scraping: no Prometheus between the controller, the engines and the routers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from autoscaler.connectors.bodies import bounded_text
from autoscaler.connectors.metrics.conditions import (
    engine_conditions,
    router_conditions,
    silent_router,
    traffic_conditions,
)
from autoscaler.connectors.metrics.engine_signals import (
    ReplicaSeries,
    replica_signals,
    resident_adapters,
    seen_limits,
)
from autoscaler.connectors.metrics.exposition import ACCEPT, Wanted, labels_of, metric_names, series_parts
from autoscaler.connectors.metrics.presets import EnginePreset
from autoscaler.connectors.metrics.router_counters import RouterCounters
from autoscaler.connectors.metrics.router_presets import RouterPreset
from autoscaler.connectors.metrics.router_traffic import (
    adapter_rows,
    answered_names,
    in_flight_of,
    pair_traffic,
    traffic,
)
from autoscaler.connectors.metrics.samples import Series
from autoscaler.domain.fleet import Replica, ReplicaSignals, ReplicaState
from autoscaler.domain.observation import Catalogue, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Missing, Signal, value_or
from autoscaler.ports import Clock, Metrics

# A page of a router with 10,000 adapters on two owners each is 37 MB.
MOST_PAGE_BYTES = 512 * 1024 * 1024
AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How engines and routers are scraped.

    Attributes:
        engine: names of the engine's series.
        router: names of the routers' series.
        router_urls: router id -> the address of its metrics page.
        base_models: names under which requests ask for the base model.
        window_s: what rates are taken over.
        max_age_s: an older scrape is missing, not fresh.
        timeout_s: the longest that one page may take.
        engine_path: path of an engine's metrics page.
    """

    engine: EnginePreset
    router: RouterPreset
    router_urls: Mapping[str, str] = field(default_factory=dict)
    base_models: frozenset[str] = frozenset()
    window_s: float = 60.0
    max_age_s: float = 60.0
    timeout_s: float = 5.0
    engine_path: str = "/metrics"


@dataclass(slots=True)
class _EngineScrapes:
    """An engine's last scrapes, of one process: a replica that restarts begins anew."""

    started_at_s: float
    pages: deque[tuple[float, dict[str, float]]] = field(default_factory=deque)
    names: frozenset[str] = frozenset()
    failure: str = "not scraped yet"


class DirectScrape:
    """`MetricsSource` that scrapes engines and routers itself; rates are taken between its own scrapes.

    `answered` are the names that the catalogue lacks and that routers saw answered in the last window.
    """

    def __init__(self, settings: ScrapeSettings, session: aiohttp.ClientSession, clock: Clock) -> None:
        self._settings = settings
        self._session = session
        self._clock = clock
        self._wanted = Wanted(settings.engine.metric_names() or ("none",))
        self._labels: dict[str, tuple[str, dict[str, str]]] = {}
        self._engines: dict[str, _EngineScrapes] = {}
        self._routers = RouterCounters(settings.router, settings.window_s, settings.max_age_s)
        self._router_failures: dict[str, str] = {}
        self._router_names: frozenset[str] = frozenset()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self.answered: frozenset[str] = frozenset()

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        """Scrape every live replica and every router once, at the same time. Never raises for absence."""
        self._forget_the_dead(replicas)
        await asyncio.gather(
            *(self._scrape_engine(replica) for replica in replicas if _answers(replica)),
            *(self._scrape_router(router, url) for router, url in self._settings.router_urls.items()),
        )
        return self._metrics(max(now_s, self._clock.now_s()), catalogue, replicas)

    def _forget_the_dead(self, replicas: Sequence[Replica]) -> None:
        started = {r.id: r.started_at_s for r in replicas}
        self._engines = {i: e for i, e in self._engines.items() if started.get(i) == e.started_at_s}
        self._routers.forget(tuple(self._settings.router_urls))

    async def _scrape_engine(self, replica: Replica) -> None:
        scrapes = self._engines.setdefault(replica.id, _EngineScrapes(replica.started_at_s))
        page = await self._page(f"http://{replica.address}{self._settings.engine_path}")
        if isinstance(page, Missing):
            scrapes.failure = page.why
            return
        at_s = self._clock.now_s()
        scrapes.pages.append((at_s, dict(self._wanted.samples(page))))
        scrapes.names, scrapes.failure = metric_names(page), ""
        while len(scrapes.pages) > 2 and scrapes.pages[1][0] <= at_s - self._settings.window_s:
            scrapes.pages.popleft()

    async def _scrape_router(self, router: str, url: str) -> None:
        page = await self._page(url)
        if isinstance(page, Missing):
            self._router_failures[router] = page.why
            return
        self._router_failures.pop(router, None)
        if not await asyncio.to_thread(self._routers.read, router, page, self._clock.now_s()):
            self._router_names = await asyncio.to_thread(metric_names, page)

    async def _page(self, url: str) -> str | Missing:
        try:
            async with (
                self._at_once,
                asyncio.timeout(self._settings.timeout_s),
                self._session.get(url, headers={"Accept": ACCEPT}, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    return Missing(f"{url} answered {answer.status}")
                return await bounded_text(answer, MOST_PAGE_BYTES)
        except TimeoutError:
            return Missing(f"{url} took longer than {self._settings.timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Missing(f"{url} cannot be read: {error}")

    def _metrics(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        preset = self._settings.engine
        series = {r.id: self._series(r, now_s) for r in replicas}
        signals = {i: replica_signals(preset, s) if s.by_name else self._failed(i) for i, s in series.items()}
        seen, pairs, router_signal, conditions = self._traffic(now_s, catalogue, replicas, signals)
        names = frozenset(name for e in self._engines.values() for name in e.names)
        ages = [s.newest_age_s for s in series.values() if s.by_name]
        in_flight = self._routers.in_flight(now_s)
        age_s = max(0.0, min(ages, default=float("inf")))
        return Metrics(
            replicas=signals,
            traffic=seen,
            pairs=pairs,
            freshness={
                "engines": Fresh(age_s, age_s) if ages else Missing("no replica could be scraped"),
                "traffic": router_signal,
            },
            conditions=conditions | engine_conditions(preset, series, signals, names),
            resident={i: held for i, s in series.items() if (held := resident_adapters(preset, s)) is not None},
            limits={i: limits for i, s in series.items() if (limits := seen_limits(preset, s))},
            in_flight=in_flight_of(replicas, in_flight),
        )

    def _series(self, replica: Replica, now_s: float) -> ReplicaSeries:
        scrapes = self._engines.get(replica.id)
        samples: dict[str, tuple[list[float], list[float]]] = {}
        for at_s, page in scrapes.pages if scrapes else ():
            for written, value in page.items():
                times, values = samples.setdefault(written, ([], []))
                times.append(at_s)
                values.append(value)
        by_name: dict[str, list[Series]] = {}
        for written, (times, values) in samples.items():
            name, labels = self._taken_apart(written)
            by_name.setdefault(name, []).append(Series(labels, times, values))
        return ReplicaSeries(by_name, now_s, self._settings.max_age_s)

    def _taken_apart(self, written: str) -> tuple[str, dict[str, str]]:
        known = self._labels.get(written)
        if known is None:
            if len(self._labels) > 100_000:
                self._labels.clear()
            name, text = series_parts(written)
            known = self._labels[written] = name, labels_of(text)
        return known

    def _failed(self, replica: str) -> ReplicaSignals:
        scrapes = self._engines.get(replica)
        why = Missing("not started" if scrapes is None else scrapes.failure or "no series that the preset knows")
        return ReplicaSignals(*(why for _ in ReplicaSignals.__slots__))

    def _traffic(
        self,
        now_s: float,
        catalogue: Catalogue,
        replicas: Sequence[Replica],
        signals: Mapping[str, ReplicaSignals],
    ) -> tuple[Traffic, PairTraffic, Signal, dict[str, str]]:
        conditions = router_conditions(self._router_failures)
        rates = self._routers.rates(now_s)
        silent = self._routers.silent(self._settings.router_urls, now_s)
        if rates is None or silent:
            why = "no router is configured" if not silent else f"router {silent[0]} was not scraped twice"
            why = self._router_failures.get(silent[0], why) if silent else why
            return Traffic.unknown(len(catalogue.ids)), PairTraffic.none(), Missing(why), conditions
        if not self._routers.shows_requests and _busy(signals.values()):
            conditions |= silent_router(self._settings.router.requests, self._router_names)
            why = f"routers show no {self._settings.router.requests} while engines have requests"
            return Traffic.unknown(len(catalogue.ids)), PairTraffic.none(), Missing(why), conditions
        rows = adapter_rows(rates.adapters, catalogue, self._settings.base_models)
        self.answered = answered_names(rates, rows, self._settings.router.unknown_name)
        p99 = self._routers.ttft_quantile(now_s, rows, len(catalogue.ids), 0.99)
        seen = traffic(rates, rows, len(catalogue.ids), p99)
        conditions |= traffic_conditions(seen)
        return seen, pair_traffic(rates, rows, replicas), Fresh(rates.age_s, rates.age_s), conditions


def _answers(replica: Replica) -> bool:
    return bool(replica.address) and replica.state not in (ReplicaState.PENDING, ReplicaState.STARTING)


def _busy(signals: Iterable[ReplicaSignals]) -> bool:
    return any(value_or(s, 0.0) > 0 for r in signals for s in (r.running, r.waiting, r.requests_per_s))
