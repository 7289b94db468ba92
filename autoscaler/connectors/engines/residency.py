"""Which adapters are in an engine's memory, modelled, for engines that do not show it.

An engine keeps at most `max_cpu_loras` adapters in host memory and evicts the least recently used. What this controller
loaded and what routers saw used is known, so what is still there can be told, where all traffic passes routers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.domain.fleet import EngineLimits, LoadLedger, Replica
from autoscaler.domain.observation import Catalogue
from autoscaler.ports import Metrics, MetricsSource


@dataclass(slots=True)
class _Lru:
    started_at_s: float
    loaded: frozenset[str] = frozenset()
    used_at_s: dict[str, float] = field(default_factory=dict)


class ModelledResidency:
    """The host-memory LRU of each replica's process."""

    def __init__(self) -> None:
        self._lrus: dict[str, _Lru] = {}

    def observe(self, replica: Replica, loaded: Iterable[str], used: Iterable[str], now_s: float) -> frozenset[str]:
        """Adapters resident at `now_s`.

        Args:
            replica: as it is now; a new process is empty.
            loaded: adapters whose load it has answered with success.
            used: adapters that it has served since the last call.
            now_s: the observation's time.
        """
        lru = self._lrus.get(replica.id)
        if lru is None or lru.started_at_s != replica.started_at_s:
            lru = self._lrus[replica.id] = _Lru(replica.started_at_s)
        loaded = frozenset(loaded)
        lru.used_at_s |= dict.fromkeys(loaded - lru.loaded, now_s) | dict.fromkeys(used, now_s)
        lru.loaded = loaded
        known = [a for a in lru.used_at_s if replica.registered is None or a in replica.registered]
        kept = sorted(known, key=lambda a: (-lru.used_at_s[a], a))[: replica.limits.max_cpu_loras]
        lru.used_at_s = {a: lru.used_at_s[a] for a in kept}
        return frozenset(kept)

    def keep(self, replicas: frozenset[str]) -> None:
        """Forget replicas that are gone."""
        self._lrus = {r: lru for r, lru in self._lrus.items() if r in replicas}


class WithModelledResidency:
    """A `MetricsSource` that adds modelled residency where engines do not show theirs.

    Args:
        source: what is read.
        ledger: what this controller loaded, now.
        limits_of: a replica's limits, from what its engine shows (field of `EngineLimits` -> value).
    """

    def __init__(
        self,
        source: MetricsSource,
        ledger: Callable[[], LoadLedger],
        limits_of: Callable[[Replica, Mapping[str, int]], EngineLimits],
    ) -> None:
        self._source = source
        self._ledger = ledger
        self._limits_of = limits_of
        self._model = ModelledResidency()

    async def read(self, now_s: float, catalogue: Catalogue, replicas: Sequence[Replica]) -> Metrics:
        """What the source reads, with residency of every replica."""
        metrics = await self._source.read(now_s, catalogue, replicas)
        loaded = self._ledger().loaded
        used: dict[int, list[str]] = {}
        for adapter, replica in zip(metrics.pairs.adapter.tolist(), metrics.pairs.replica.tolist(), strict=True):
            used.setdefault(replica, []).append(catalogue.ids[adapter])
        self._model.keep(frozenset(r.id for r in replicas))
        modelled = {
            r.id: self._model.observe(
                replace(r, limits=self._limits_of(r, metrics.limits.get(r.id, {}))),
                loaded.get(r.id, {}),
                used.get(i, ()),
                now_s,
            )
            for i, r in enumerate(replicas)
        }
        return replace(metrics, resident=modelled | metrics.resident)
