"""The metrics source that settings and policy ask for; made anew when the policy's part of it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

import aiohttp

from autoscaler.cli.settings import Prometheus, Settings, Source
from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.direct import DirectScrape, ScrapeSettings
from autoscaler.connectors.metrics.history import request_history
from autoscaler.connectors.metrics.presets import PRESETS
from autoscaler.connectors.metrics.prometheus import PrometheusSource, SourceSettings
from autoscaler.connectors.metrics.queries import Scope
from autoscaler.connectors.metrics.router_presets import ROUTERS
from autoscaler.domain.fleet import Replica
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import SignalName
from autoscaler.ports import Clock, HistoryPiece, Metrics, MetricsSource


class FollowingSource:
    """`MetricsSource` and `HistorySource` that follow the policy's `signals`, `engine.preset` and `baseModel`.

    Args:
        settings: of this process.
        routers: router -> URL of its metrics page, for scraping.
        policy: the last valid one, now.
    """

    def __init__(
        self,
        settings: Settings,
        routers: Mapping[str, str],
        policy: Callable[[], FleetPolicy],
        session: aiohttp.ClientSession,
        clock: Clock,
    ) -> None:
        self._settings, self._routers, self._policy = settings, routers, policy
        self._session, self._clock = session, clock
        self._made_for: object = None
        self._source: MetricsSource | None = None

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        """Read everything for one tick."""
        policy = self._policy()
        wanted = (policy.signals, policy.engine.preset, policy.base_model)
        if self._source is None or wanted != self._made_for:
            self._source, self._made_for = self._make(policy), wanted
        return await self._source.read(now_s, catalogue, replicas)

    def history(
        self, catalogue: Catalogue, start_s: float, end_s: float, step_s: float
    ) -> AsyncIterator[HistoryPiece] | None:
        """Recorded request rates, where metrics come from a Prometheus."""
        told = self._settings.metrics.prometheus
        if self._settings.metrics.source is not Source.PROMETHEUS or told is None:
            return None
        reached = prometheus_settings(self._settings, told)
        return recorded_rates(
            reached, self._settings.metrics.router, self._policy(), catalogue, (start_s, end_s, step_s)
        )

    def _make(self, policy: FleetPolicy) -> MetricsSource:
        engine, router = (
            PRESETS[policy.engine.preset].timed(policy.ttft_target_s),
            ROUTERS[self._settings.metrics.router],
        )
        base = frozenset({policy.base_model})
        told = self._settings.metrics.prometheus
        if self._settings.metrics.source is Source.PROMETHEUS and told is not None:
            connection = PrometheusConnection(prometheus_settings(self._settings, told))
            return PrometheusSource(SourceSettings(engine, router, policy.signals, base), connection)
        window_s, max_age_s = policy.signals.window_s, policy.signals.max_age_s
        scrape = ScrapeSettings(engine, router, self._routers, base, window_s=window_s, max_age_s=max_age_s)
        return DirectScrape(scrape, self._session, self._clock)


async def recorded_rates(
    reached: PrometheusSettings,
    router: str,
    policy: FleetPolicy,
    catalogue: Catalogue,
    span_s: tuple[float, float, float],
    counter: str = "",
) -> AsyncIterator[HistoryPiece]:
    """Request rates per adapter by a connection of its own, so that no tick waits behind a long query.

    `span_s`: start, end and step in seconds, as in `HistorySource.history`. `counter`: another counter of the router's
    than its requests, such as its tokens.
    """
    signals, preset = policy.signals, ROUTERS[router]
    scope = Scope(reached.matchers, signals.matchers, reached.replica_labels, signals.window_s)
    own = "" if counter else signals.queries.get(SignalName.ADAPTER_REQUESTS, "")
    if counter:
        preset = replace(preset, requests=counter)
    if own or signals.adapter_label != type(signals)().adapter_label:
        preset = replace(preset, adapter_label=signals.adapter_label)
    connection = PrometheusConnection(reached)
    try:
        async for piece in request_history(connection, preset, scope, catalogue, *span_s, own=own):
            yield piece
    finally:
        connection.close()


def prometheus_settings(settings: Settings, told: Prometheus) -> PrometheusSettings:
    """How Prometheus is reached, with file names from the settings' folder."""
    files = {
        name: settings.path(value) if (value := getattr(told, name)) is not None else None
        for name in ("bearer_token_file", "password_file", "ca_file", "cert_file", "key_file")
    }
    return PrometheusSettings(
        told.url, username=told.username, headers=told.headers, matchers=told.matchers,
        replica_labels=told.replica_labels, timeout_s=told.timeout_s, retries=told.retries, **files,
    )  # fmt: skip
