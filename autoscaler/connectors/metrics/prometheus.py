"""`MetricsSource` by Prometheus: raw samples of the engines, rates of the routers, and the policy's own queries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.connectors.metrics.conditions import engine_conditions, silent_router, traffic_conditions
from autoscaler.connectors.metrics.connection import Answer, PrometheusConnection
from autoscaler.connectors.metrics.engine_signals import (
    ReplicaSeries,
    replica_signals,
    resident_adapters,
    seen_limits,
)
from autoscaler.connectors.metrics.own_queries import OwnQueries
from autoscaler.connectors.metrics.presets import EnginePreset
from autoscaler.connectors.metrics.queries import Scope, engine_samples, in_flight, newest_age, pair_rate, ttft_p99
from autoscaler.connectors.metrics.router_presets import RouterPreset
from autoscaler.connectors.metrics.router_traffic import (
    PairRates,
    adapter_rows,
    answered_names,
    in_flight_of,
    pair_traffic,
    traffic,
)
from autoscaler.connectors.metrics.samples import Series
from autoscaler.domain.fleet import Replica, ReplicaSignals, ReplicaState
from autoscaler.domain.observation import Catalogue, Floats, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.steps import Signals
from autoscaler.ports import Metrics

SKEW_S = 5.0
NAMES_EVERY_S = 600.0


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What is read.

    Attributes:
        engine, router: names of their series.
        signals: the policy's matchers, labels, window, greatest age and own queries.
        base_models: names under which requests ask for the base model.
        replay: evaluate at the time that `read` is given, for recorded history, instead of the server's present.
    """

    engine: EnginePreset
    router: RouterPreset
    signals: Signals = field(default_factory=Signals)
    base_models: frozenset[str] = frozenset()
    replay: bool = False


@dataclass(frozen=True, slots=True)
class _Routers:
    """What was read of the routers in one tick."""

    age: Signal
    columns: Mapping[str, Answer | Missing]
    p99: Answer | Missing
    in_flight: Answer | Missing

    @property
    def partial(self) -> str:
        """What the server said is missing from an answer."""
        answers = (*self.columns.values(), self.p99)
        return next((a.partial for a in answers if isinstance(a, Answer) and a.partial), "")


class PrometheusSource:
    """`MetricsSource` by Prometheus; 11 queries a tick and one for each query of the policy's own.

    `answered` are the names that the catalogue lacks and that routers saw answered in the last window.
    """

    def __init__(self, settings: SourceSettings, connection: PrometheusConnection) -> None:
        signals, own = settings.signals, connection.settings
        self._settings = settings
        self._connection = connection
        self._scope = Scope(own.matchers, signals.matchers, own.replica_labels, signals.window_s)
        label = signals.adapter_label
        standard = Signals().adapter_label
        self._router = settings.router if label == standard else replace(settings.router, adapter_label=label)
        self._names: frozenset[str] = frozenset()
        self._names_at_s = float("-inf")
        self.answered: frozenset[str] = frozenset()

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        """Read everything at one moment of the server's clock. Never raises for absence."""
        at_s = now_s if self._settings.replay else await self._connection.now_s()
        if isinstance(at_s, Missing):
            return _unreachable(at_s, catalogue, replicas)
        engines, routers, own = await asyncio.gather(
            self._read_engines(at_s),
            self._read_routers(at_s),
            OwnQueries.ask(self._connection, self._settings.signals, at_s),
        )
        series = self._by_replica(engines, at_s, replicas)
        signals = {r.id: own.replica_signals(r, self._signals(engines, series[r.id])) for r in replicas}
        conditions = await self._conditions(now_s, at_s, engines, routers, own, series, signals)
        traffic, pairs, heard = self._traffic(routers, own, catalogue, replicas, signals, conditions)
        preset = self._settings.engine
        resident = {i: held for i, s in series.items() if (held := resident_adapters(preset, s)) is not None}
        return Metrics(
            replicas=signals,
            traffic=traffic,
            pairs=pairs,
            freshness={"engines": _newest(engines, series), "traffic": heard},
            conditions=conditions,
            resident=resident | own.resident(replicas),
            limits={i: limits for i, s in series.items() if (limits := seen_limits(preset, s))},
            in_flight=self._in_flight(routers, replicas),
        )

    async def _read_engines(self, at_s: float) -> Answer | Missing:
        preset = self._settings.engine
        return await self._connection.query(engine_samples(preset, self._scope), at_s) if preset.sources else Answer(())

    async def _read_routers(self, at_s: float) -> _Routers:
        router, query = self._router, self._connection.query
        by = [label for label in (router.adapter_label, router.upstream_label) if label]
        counters = [name for name in router.counters() if name]
        age, p99, in_flight_now, *columns = await asyncio.gather(
            query(newest_age(router.requests, self._scope), at_s),
            query(ttft_p99(router, self._scope), at_s),
            query(in_flight(router, self._scope), at_s) if router.in_flight else _nothing(),
            *(query(pair_rate(name, by, self._scope), at_s) for name in counters),
        )
        return _Routers(
            age=_age(age, router.requests, self._settings.signals.max_age_s),
            columns=dict(zip(counters, columns, strict=True)),
            p99=p99,
            in_flight=in_flight_now,
        )

    def _by_replica(
        self, answer: Answer | Missing, at_s: float, replicas: Sequence[Replica]
    ) -> dict[str, ReplicaSeries]:
        """Series by live replica; those of the dead, which linger, belong to nobody."""
        by_name: dict[str, dict[str, list[Series]]] = {r.id: {} for r in replicas}
        by_address = {r.address: r.id for r in replicas if r.address}
        label = self._settings.signals.replica_label
        for row in answer.rows if isinstance(answer, Answer) else ():
            labels = row["metric"]
            # An address is given anew to the next pod, a name is not: the name decides where there is one.
            replica = labels[label] if label in labels else by_address.get(labels.get("instance", ""), "")
            if replica in by_name:
                times, values = zip(*row["values"], strict=True)
                one = Series(labels, times, tuple(map(float, values)))
                by_name[replica].setdefault(labels["__name__"], []).append(one)
        max_age_s = self._settings.signals.max_age_s
        started = {r.id: r.started_at_s for r in replicas}
        return {r: ReplicaSeries(_of_process(many, started[r]), at_s, max_age_s) for r, many in by_name.items()}

    def _signals(self, answer: Answer | Missing, series: ReplicaSeries) -> ReplicaSignals:
        if isinstance(answer, Missing):
            return ReplicaSignals(*(answer for _ in ReplicaSignals.__slots__))
        return replica_signals(self._settings.engine, series)

    def _traffic(
        self,
        routers: _Routers,
        own: OwnQueries,
        catalogue: Catalogue,
        replicas: Sequence[Replica],
        signals: Mapping[str, ReplicaSignals],
        conditions: dict[str, str],
    ) -> tuple[Traffic, PairTraffic, Signal]:
        seen, pairs, heard = self._router_traffic(routers, catalogue, replicas, signals)
        seen, own_heard = own.traffic(seen, catalogue, self._settings.base_models)
        heard = own_heard or heard
        if isinstance(heard, Missing) and not own.states_requests and _busy(signals):
            conditions |= silent_router(self._router.requests, self._names)
        if partial := routers.partial or own.partial:
            # A sum over a part is too low, which would look like a fleet that may shrink.
            why = Missing(f"partial answer: {partial}")
            return Traffic.unknown(len(catalogue.ids)), PairTraffic.none(), why
        conditions |= traffic_conditions(seen)
        return seen, pairs, heard

    def _router_traffic(
        self,
        routers: _Routers,
        catalogue: Catalogue,
        replicas: Sequence[Replica],
        signals: Mapping[str, ReplicaSignals],
    ) -> tuple[Traffic, PairTraffic, Signal]:
        heard = routers.age
        if isinstance(heard, Missing) and _idle(replicas, signals):
            # Routers show an adapter from its first request on: none of theirs and idle engines are no traffic.
            heard = Fresh(0.0)
        missing = [c for c in (routers.columns[self._router.requests],) if isinstance(c, Missing)]
        if isinstance(heard, Missing) or missing:
            why = missing[0] if missing else heard
            return Traffic.unknown(len(catalogue.ids)), PairTraffic.none(), why
        rates = self._rates(routers, heard.value)
        rows = adapter_rows(rates.adapters, catalogue, self._settings.base_models)
        self.answered = answered_names(rates, rows, self._router.unknown_name)
        p99 = self._p99(routers.p99, catalogue)
        return traffic(rates, rows, len(catalogue.ids), p99), pair_traffic(rates, rows, replicas), heard

    def _rates(self, routers: _Routers, age_s: float) -> PairRates:
        router = self._router
        pair_of: dict[tuple[str, str], int] = {}
        found: dict[str, list[tuple[int, float]]] = {}
        for name, answer in routers.columns.items():
            for row in answer.rows if isinstance(answer, Answer) else ():
                labels = row["metric"]
                key = labels.get(router.adapter_label, ""), labels.get(router.upstream_label, "")
                pair = pair_of.setdefault(key, len(pair_of))
                found.setdefault(name, []).append((pair, float(row["value"][1])))

        def column(name: str, absent: float) -> Floats:
            values = np.full(len(pair_of), absent)
            if name and name in found:
                pairs, rates = zip(*found[name], strict=True)
                values[list(pairs)] = rates
            return values

        return PairRates(
            adapters=[adapter for adapter, _ in pair_of],
            upstreams=[upstream for _, upstream in pair_of],
            requests_per_s=column(router.requests, 0.0),
            errors_per_s=column(router.errors, 0.0 if router.errors else np.nan),
            prompt_tokens_per_s=column(router.prompt_tokens, np.nan),
            completion_tokens_per_s=column(router.completion_tokens, np.nan),
            ttft_s_per_s=column(router.ttft_sum, 0.0) * router.ttft_unit_s,
            ttfts_per_s=column(router.ttft_count, 0.0),
            window_s=self._scope.window_s,
            age_s=age_s,
        )

    def _p99(self, answer: Answer | Missing, catalogue: Catalogue) -> Floats:
        values = np.full(len(catalogue.ids), np.nan)
        for row in answer.rows if isinstance(answer, Answer) else ():
            at = catalogue.row.get(row["metric"].get(self._router.adapter_label, ""))
            if at is not None:
                values[at] = float(row["value"][1]) * self._router.ttft_unit_s
        return values

    def _in_flight(self, routers: _Routers, replicas: Sequence[Replica]) -> dict[str, Signal]:
        if isinstance(routers.in_flight, Missing):
            return {}
        label = self._router.in_flight_label
        values = {row["metric"].get(label, ""): float(row["value"][1]) for row in routers.in_flight.rows}
        return in_flight_of(replicas, values)

    async def _conditions(
        self,
        now_s: float,
        at_s: float,
        engines: Answer | Missing,
        routers: _Routers,
        own: OwnQueries,
        series: Mapping[str, ReplicaSeries],
        signals: Mapping[str, ReplicaSignals],
    ) -> dict[str, str]:
        conditions = {}
        if abs(at_s - now_s) > SKEW_S:
            conditions["ClockSkew"] = (
                f"Prometheus' clock is {at_s - now_s:+.0f} s from the controller's: set both by NTP"
            )
        if isinstance(engines, Missing):
            conditions["MetricsUnreachable"] = engines.why
        if partial := (engines.partial if isinstance(engines, Answer) else "") or routers.partial or own.partial:
            conditions["PartialAnswer"] = f"Prometheus answered with a part of the data: {partial}"
        await self._look_for_names(at_s, routers, series, signals)
        return conditions | engine_conditions(self._settings.engine, series, signals, self._names)

    async def _look_for_names(
        self,
        at_s: float,
        routers: _Routers,
        series: Mapping[str, ReplicaSeries],
        signals: Mapping[str, ReplicaSignals],
    ) -> None:
        """Every name there is, asked for seldom and only while something is missing: they can be very many."""
        lacking = isinstance(routers.age, Missing) or any(isinstance(signals[r].waiting, Missing) for r in series)
        if lacking and abs(at_s - self._names_at_s) > NAMES_EVERY_S:
            names = await self._connection.metric_names()
            if not isinstance(names, Missing):
                self._names, self._names_at_s = names, at_s


async def _nothing() -> Missing:
    return Missing("the router does not show it")


def _age(answer: Answer | Missing, metric: str, max_age_s: float) -> Signal:
    if isinstance(answer, Missing):
        return answer
    if not answer.rows:
        return Missing(f"no series named {metric}")
    age_s = max(0.0, float(answer.rows[0]["value"][1]))
    return Fresh(age_s, age_s) if age_s <= max_age_s else Missing(f"{metric} is stale by {age_s:.0f} s")


def _of_process(by_name: Mapping[str, list[Series]], started_at_s: float) -> dict[str, list[Series]]:
    """Without series whose newest sample was taken before the process started: they are its predecessor's."""
    kept = {n: [s for s in many if s.last_s >= started_at_s - SKEW_S] for n, many in by_name.items()}
    return {name: many for name, many in kept.items() if many}


def _newest(answer: Answer | Missing, series: Mapping[str, ReplicaSeries]) -> Signal:
    if isinstance(answer, Missing):
        return answer
    age_s = min((s.newest_age_s for s in series.values()), default=float("inf"))
    return Fresh(max(0.0, age_s), max(0.0, age_s)) if age_s < float("inf") else Missing("no series of any live replica")


def _busy(signals: Mapping[str, ReplicaSignals]) -> bool:
    """Whether any engine is known to have requests."""
    return any(isinstance(s, Fresh) and s.value > 0 for r in signals.values() for s in (r.running, r.waiting))


def _idle(replicas: Sequence[Replica], signals: Mapping[str, ReplicaSignals]) -> bool:
    """Whether every serving engine is known to have none, and to have had none over the window."""
    serving = [signals[r.id] for r in replicas if r.state in (ReplicaState.READY, ReplicaState.DRAINING)]
    return bool(serving) and all(
        isinstance(s, Fresh) and s.value == 0 for r in serving for s in (r.running, r.waiting, r.requests_per_s)
    )


def _unreachable(why: Missing, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
    nothing = ReplicaSignals(*(why for _ in ReplicaSignals.__slots__))
    return Metrics(
        replicas={r.id: nothing for r in replicas},
        traffic=Traffic.unknown(len(catalogue.ids)),
        pairs=PairTraffic.none(),
        freshness={"engines": why, "traffic": why},
        conditions={"MetricsUnreachable": why.why},
    )
