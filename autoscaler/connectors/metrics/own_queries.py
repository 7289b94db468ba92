"""The policy's own PromQL per signal, for engines and routers that no preset knows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from autoscaler.connectors.metrics.connection import Answer, PrometheusConnection
from autoscaler.connectors.metrics.engine_signals import NO_TRAFFIC
from autoscaler.connectors.metrics.router_traffic import BASE, UNKNOWN, adapter_rows
from autoscaler.domain.fleet import Replica, ReplicaSignals
from autoscaler.domain.observation import Catalogue, Traffic
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.steps import Signals
from autoscaler.policy.words import ADAPTER_SIGNALS, REPLICA_SIGNALS, SignalName

# An average over nothing is NaN; whether there was nothing is for the count to say.
AVERAGES = frozenset(
    {"ttft_mean_s", "ttft_p99_s", "late_ratio", "queue_time_mean_s", "itl_mean_s", "adapter_load_mean_s"}
)


class OwnQueries:
    """What the policy's queries answered in one tick. A sample's age is not known to them; it counts as 0."""

    def __init__(self, signals: Signals, answers: Mapping[SignalName, Answer | Missing]) -> None:
        self._signals = signals
        self._answers = answers

    @classmethod
    async def ask(cls, connection: PrometheusConnection, signals: Signals, at_s: float) -> OwnQueries:
        """Ask all of them at once."""
        names = list(signals.queries)
        answers = await asyncio.gather(*(connection.query(signals.queries[name], at_s) for name in names))
        return cls(signals, dict(zip(names, answers, strict=True)))

    @property
    def states_requests(self) -> bool:
        """Whether the policy counts requests per adapter by itself."""
        return SignalName.ADAPTER_REQUESTS in self._answers

    @property
    def partial(self) -> str:
        """What the server said is missing from an answer, empty where all are whole."""
        return next((a.partial for a in self._answers.values() if isinstance(a, Answer) and a.partial), "")

    def replica_signals(self, replica: Replica, preset: ReplicaSignals) -> ReplicaSignals:
        """The preset's signals with the policy's own in their place."""
        own = {
            REPLICA_SIGNALS[name]: self._of_replica(name, replica)
            for name in self._answers.keys() & REPLICA_SIGNALS.keys()
        }
        requests = own.get("requests_per_s", preset.requests_per_s)
        idle = requests == 0 or (isinstance(requests, Fresh) and requests.value == 0)
        return replace(preset, **{f: _without_nan(f, value, idle=idle) for f, value in own.items()})

    def resident(self, replicas: Sequence[Replica]) -> dict[str, frozenset[str]]:
        """Adapters in memory by replica id, where the policy has a query for it."""
        answer = self._answers.get(SignalName.RESIDENT)
        if not isinstance(answer, Answer) or not answer.rows:
            return {}
        held: dict[str, set[str]] = {r.id: set() for r in replicas}
        for row in answer.rows:
            of_replica = held.get(row["metric"].get(self._signals.replica_label, ""))
            if of_replica is not None and _value(row) >= 1:
                of_replica.add(row["metric"].get(self._signals.adapter_label, ""))
        return {r: frozenset(adapters) for r, adapters in held.items()}

    def traffic(
        self, seen: Traffic, catalogue: Catalogue, base_models: frozenset[str]
    ) -> tuple[Traffic, Signal | None]:
        """Traffic with the policy's own columns, and how fresh it is where the requests are among them."""
        freshness: Signal | None = None
        for name in ADAPTER_SIGNALS.keys() & self._answers.keys():
            answer = self._answers[name]
            if isinstance(answer, Answer) and not answer.rows:
                answer = Missing(f"the policy's query for {name} found nothing")
            if name is SignalName.ADAPTER_REQUESTS:
                freshness = answer if isinstance(answer, Missing) else Fresh(0.0)
            seen = self._with_column(seen, name, answer, catalogue, base_models)
        return seen, freshness

    def _with_column(
        self,
        seen: Traffic,
        name: SignalName,
        answer: Answer | Missing,
        catalogue: Catalogue,
        base_models: frozenset[str],
    ) -> Traffic:
        column, adapters = ADAPTER_SIGNALS[name], len(catalogue.ids)
        if isinstance(answer, Missing):
            return replace(seen, **cast(dict[str, Any], {column: np.full(adapters, np.nan)}))
        names = [row["metric"].get(self._signals.adapter_label, "") for row in answer.rows]
        rows = adapter_rows(names, catalogue, base_models)
        values = np.array([_value(row) for row in answer.rows])
        # A rate that is not reported is zero where the query reports others; an average is not.
        filled = np.full(adapters, np.nan if column in AVERAGES else 0.0)
        filled[rows[rows >= 0]] = values[rows >= 0]
        changed: dict[str, Any] = {column: filled}
        if name is SignalName.ADAPTER_REQUESTS:
            changed["base_requests_per_s"] = Fresh(float(np.nansum(values[rows == BASE])))
            changed["unknown_requests_per_s"] = Fresh(float(np.nansum(values[rows == UNKNOWN])))
        return replace(seen, **changed)

    def _of_replica(self, name: SignalName, replica: Replica) -> Signal | float:
        answer = self._answers[name]
        if isinstance(answer, Missing):
            return answer
        label = self._signals.replica_label
        values = {_value(row) for row in answer.rows if _names(row["metric"], label, replica)}
        if len(values) > 1:
            return Missing(f"{len(values)} different series of this replica: let the query for {name} sum by ({label})")
        return values.pop() if values else Missing(f"the policy's query for {name} found nothing of this replica")


def _names(labels: Mapping[str, str], label: str, replica: Replica) -> bool:
    """A series names its replica by the policy's label; only where it has none, by the scraped address."""
    return labels[label] == replica.id if label in labels else labels.get("instance") == replica.address


def _without_nan(field: str, value: Signal | float, *, idle: bool) -> Signal:
    if not isinstance(value, float):
        return value
    if float("-inf") < value < float("inf"):
        return Fresh(value)
    if value == value or field not in AVERAGES:
        return Missing(f"the query says {value}")
    return NO_TRAFFIC if idle else Missing("NaN without a count")


def _value(row: Mapping[str, Any]) -> float:
    return float(row["value"][1])
