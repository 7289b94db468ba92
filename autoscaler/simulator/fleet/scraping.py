"""What Prometheus would show of the fleet: scraped at intervals, with delay and loss, rates over a window.

It is a `MetricsSource` of the controller's and what peers' scalers read: nobody sees the simulation itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscaler.connectors.metrics.histograms import beyond, quantiles
from autoscaler.domain.fleet import Replica, ReplicaSignals
from autoscaler.domain.observation import Catalogue, Floats, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.ports import Metrics
from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.layout import NONE, PS_PER_S
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Ints
from autoscaler.simulator.fleet.platform import Platform

_EDGES_S = np.array([*(ms / 1000 for ms in b.ROUTER_EDGES_MS), np.inf])
_COUNTERS = (a.PROMPT_TOKENS, a.GENERATED_TOKENS, a.SUBMITTED, a.PREEMPTIONS, a.GPU_LOADS, a.LOAD_TIME)


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How metrics come.

    Attributes:
        interval_s, window_s, max_age_s: between scrapes; that rates are taken over; of the oldest that counts.
        delay_s: until a scrape can be read.
        loss_ratio: of scrapes, target by target.
        target_s: a later first token is late.
    """

    interval_s: float = 15.0
    window_s: float = 60.0
    max_age_s: float = 60.0
    delay_s: float = 1.0
    loss_ratio: float = 0.0
    target_s: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One scrape of one engine: gauges, then counters (`_COUNTERS`, then integrals), and its histogram."""

    at_s: float
    running: float
    waiting: float
    deferred: float
    kv_usage_ratio: float
    counters: Floats
    first: Ints
    first_s: float


@dataclass(frozen=True, slots=True)
class RouterSample:
    """What routers counted in one interval, sparse: columns of one length, and the histogram by adapter (A, edges)."""

    begins_s: float
    at_s: float
    place: Ints
    adapter: Ints
    counts: Ints  # (n, PAIR_COLUMNS)
    slow: Ints


@dataclass(slots=True)
class _Series:
    started_at_s: float
    samples: deque[EngineSample] = field(default_factory=deque)


class ScrapedMetrics:
    """Scrapes of one fleet. The adapters of the catalogue are the trace's, by `rows`: catalogue row -> trace row."""

    def __init__(self, platform: Platform, settings: ScrapeSettings, rows: Ints) -> None:
        self._platform, self._settings, self._rows = platform, settings, rows
        self._row_of = np.argsort(rows)
        self._engines: dict[str, _Series] = {}
        self._routers: deque[RouterSample] = deque()
        self._heard_s = platform.now_s
        self._rng = np.random.default_rng((settings.seed, 77))
        platform.calendar.every(settings.interval_s, platform.now_s + settings.interval_s, self.scrape)

    def scrape(self) -> None:
        """Scrape everything that answers once."""
        if self._platform.lasts(self._platform.unscraped_until_s):
            return
        now_s, kept_s = self._platform.now_s, self._platform.now_s - self._settings.window_s
        live = {m.name: m for m in self._platform.members.values() if m.place >= 0}
        self._engines = {n: s for n, s in self._engines.items() if n in live}
        for name, member in live.items():
            if self._rng.random() < self._settings.loss_ratio or not self._platform.answers(member):
                continue
            series = self._engines.setdefault(name, _Series(member.ready_at_s))
            series.samples.append(self._sample(member.place, now_s))
            while len(series.samples) > 2 and series.samples[1].at_s <= kept_s - self._settings.delay_s:
                series.samples.popleft()
        if self._rng.random() >= self._settings.loss_ratio:
            self._read_routers(now_s)
            while len(self._routers) > 1 and self._routers[0].at_s <= kept_s - self._settings.delay_s:
                self._routers.popleft()

    def engine(self, name: str, now_s: float) -> EngineSample | None:
        """The newest readable sample of a replica that is fresh enough."""
        series = self._engines.get(name)
        seen = [] if series is None else [s for s in series.samples if s.at_s + self._settings.delay_s <= now_s]
        return seen[-1] if seen and now_s - seen[-1].at_s <= self._settings.max_age_s else None

    def window(self, now_s: float) -> tuple[list[RouterSample], float]:
        """Readable router samples, and the seconds that they cover; empty where the newest is too old."""
        seen = [r for r in self._routers if r.at_s + self._settings.delay_s <= now_s]
        seen = [r for r in seen if r.at_s > now_s - self._settings.window_s - self._settings.interval_s]
        if not seen or now_s - seen[-1].at_s > self._settings.max_age_s:
            return [], 0.0
        return seen, seen[-1].at_s - seen[0].begins_s

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        """All of it for one tick of the controller, whose clock has another zero than the platform's."""
        now_s = self._platform.now_s
        samples, window_s = self.window(now_s)
        traffic, pairs = self._traffic(samples, window_s, catalogue, replicas)
        age = Fresh(1.0, now_s - samples[-1].at_s) if samples else Missing("no fresh scrape of the routers")
        heard = [s.at_s for r in replicas if (s := self.engine(r.id, now_s)) is not None]
        engines: Signal = Fresh(1.0, now_s - max(heard)) if heard else Missing("no fresh scrape of an engine")
        return Metrics(
            replicas={r.id: self._signals(r.id, now_s) for r in replicas},
            traffic=traffic,
            pairs=pairs,
            freshness={"traffic": age, "engines": engines},
            conditions={},
            in_flight={r.id: self._in_flight(r) for r in replicas},
        )

    def _in_flight(self, replica: Replica) -> Signal:
        member = self._platform.members.get(replica.id)
        if member is None or member.place < 0:
            return Missing("it does not serve yet")
        if self._platform.lasts(self._platform.unscraped_until_s):
            return Missing("the routers are not scraped")
        return Fresh(float(self._platform.engines.fleet.in_flight[:, :, member.place].sum()))

    def _sample(self, e: int, now_s: float) -> EngineSample:
        state, fleet = self._platform.engines.engines, self._platform.engines.fleet
        n, r, books = state.number[e], state.real[e], state.adapter[e]
        waiting_s = r[a.WAITING_S] + n[a.WAITING] * max(0.0, now_s - n[a.SINCE] / PS_PER_S)
        deferred = 0.0
        if n[a.WAITING] and n[a.DISTINCT] + n[a.PINNED_IDLE] >= n[a.SLOTS]:
            idle = (books[:-1, a.A_ACTIVE] == NONE) & ((books[:-1, a.A_PINNED] == 0) | (books[:-1, a.A_GPU] == NONE))
            deferred = float(books[:-1, a.A_WAITING][idle].sum())
        return EngineSample(
            at_s=now_s,
            running=float(n[a.RUNNING]),
            waiting=float(n[a.WAITING]),
            deferred=deferred,
            kv_usage_ratio=float((n[a.BLOCKS] - n[a.FREE_BLOCKS]) / n[a.BLOCKS]),
            counters=np.array([*(float(n[c]) for c in _COUNTERS), waiting_s, r[a.RUNNING_S]]),
            first=fleet.first[e].copy(),
            first_s=float(fleet.first_us[e]) / 1e6,
        )

    def _read_routers(self, now_s: float) -> None:
        fleet = self._platform.engines.fleet
        place, adapter = np.nonzero(fleet.pair[:, :, b.P_REQUESTS])
        self._routers.append(
            RouterSample(self._heard_s, now_s, place, adapter, fleet.pair[place, adapter], fleet.slow.copy())
        )
        fleet.pair[place, adapter] = 0
        fleet.slow[:] = 0
        self._heard_s = now_s

    def _traffic(
        self, samples: list[RouterSample], window_s: float, catalogue: Catalogue, replicas: Sequence[Replica]
    ) -> tuple[Traffic, PairTraffic]:
        count = len(catalogue.ids)
        if not samples:
            return Traffic.unknown(count), PairTraffic.none()
        adapter = self._row_of[np.concatenate([s.adapter for s in samples])]
        counts = np.concatenate([s.counts for s in samples]).astype(np.float64)
        requests, prompt, output, ttft_us = (np.bincount(adapter, counts[:, c], count) for c in range(b.PAIR_COLUMNS))
        slow = np.sum([s.slow for s in samples], axis=0)[self._rows]
        with np.errstate(invalid="ignore", divide="ignore"):
            ttft_mean_s = np.where(requests > 0, ttft_us / 1e6 / requests, np.nan)
        zero = Fresh(0.0)
        traffic = Traffic(
            window_s, requests / window_s, prompt / window_s, output / window_s, np.zeros(count), ttft_mean_s,
            quantiles(_EDGES_S, np.cumsum(slow, axis=1).astype(np.float64), 0.99), zero, zero, zero,
        )  # fmt: skip
        return traffic, self._pairs(samples, window_s, adapter, counts, replicas)

    def _pairs(
        self, samples: list[RouterSample], window_s: float, adapter: Ints, counts: Floats, replicas: Sequence[Replica]
    ) -> PairTraffic:
        index = np.full(len(self._platform.engines.fleet.place), -1, np.int64)
        for i, replica in enumerate(replicas):
            member = self._platform.members.get(replica.id)
            if member is not None and member.place >= 0:
                index[member.place] = i
        owner = index[np.concatenate([s.place for s in samples])]
        live = owner >= 0
        key, inverse = np.unique(adapter[live] * len(replicas) + owner[live], return_inverse=True)
        requests, _, output, ttft_us = (np.bincount(inverse, counts[live, c], len(key)) for c in range(b.PAIR_COLUMNS))
        return PairTraffic(
            key // max(1, len(replicas)), key % max(1, len(replicas)), requests / window_s,
            ttft_us / 1e6 / np.maximum(requests, 1), output / window_s,
        )  # fmt: skip

    def _signals(self, name: str, now_s: float) -> ReplicaSignals:
        newest = self.engine(name, now_s)
        if newest is None:
            return ReplicaSignals()
        age = now_s - newest.at_s
        gauges = {
            "running": Fresh(newest.running, age), "waiting": Fresh(newest.waiting, age),
            "deferred": Fresh(newest.deferred, age), "kv_usage_ratio": Fresh(newest.kv_usage_ratio, age),
        }  # fmt: skip
        series = self._engines[name].samples
        oldest = next((s for s in series if s.at_s >= now_s - self._settings.window_s - self._settings.delay_s), newest)
        span = newest.at_s - oldest.at_s
        if span <= 0:
            return ReplicaSignals(**gauges)
        grown = newest.counters - oldest.counters
        prompt, generated, submitted, preemptions, loads, load_ps, waiting_s, running_s = grown.tolist()
        first, first_s = newest.first - oldest.first, newest.first_s - oldest.first_s
        none = Missing("no request in the window")
        answered = int(first.sum())
        below = np.cumsum(first)[None, :].astype(np.float64)
        return ReplicaSignals(
            **gauges,
            ttft_mean_s=Fresh(first_s / answered, age) if answered else none,
            ttft_p99_s=Fresh(float(quantiles(_EDGES_S, below, 0.99)[0]), age) if answered else none,
            late_ratio=Fresh(float(beyond(_EDGES_S, below, self._settings.target_s)[0]), age) if answered else none,
            queue_time_mean_s=Fresh(waiting_s / submitted, age) if submitted > 0 else none,
            itl_mean_s=Fresh(running_s / generated, age) if generated > 0 else none,
            prompt_tokens_per_s=Fresh(prompt / span, age),
            generation_tokens_per_s=Fresh(generated / span, age),
            requests_per_s=Fresh(submitted / span, age),
            preemptions_per_s=Fresh(preemptions / span, age),
            adapter_loads_per_s=Fresh(loads / span, age),
            adapter_load_mean_s=Fresh(load_ps / PS_PER_S / loads, age) if loads > 0 else none,
        )
