"""Everything seen of one fleet at one moment: the only thing that decisions are made from, besides memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from autoscaler.domain.fleet import Group, LoadLedger, Replica, Router
from autoscaler.domain.signals import UNSEEN, Signal

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Catalogue:
    """Which adapters exist. Columns of one length A, rows sorted by id; one object is kept while nothing changes.

    Attributes:
        ids: adapter ids (A), unique, ascending by code point.
        tenant_of: tenant id of each adapter (A).
        sources: what goes to the engine as `lora_path` (A).
        revisions: a new one is loaded before the old goes (A); empty where none is given.
        ranks: int64 (A), 0 where unknown.
    """

    ids: tuple[str, ...] = ()
    tenant_of: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    revisions: tuple[str, ...] = ()
    ranks: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @cached_property
    def row(self) -> dict[str, int]:
        """Adapter id -> row."""
        return {adapter: i for i, adapter in enumerate(self.ids)}

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """Tenant ids (T), unique, ascending."""
        return tuple(sorted(set(self.tenant_of)))

    @cached_property
    def tenant_row(self) -> dict[str, int]:
        """Tenant id -> row of `tenants`."""
        return {tenant: i for i, tenant in enumerate(self.tenants)}

    @cached_property
    def tenant_index(self) -> Ints:
        """Row of `tenants` for each adapter: int64 (A)."""
        rows = self.tenant_row
        return np.fromiter((rows[t] for t in self.tenant_of), np.int64, len(self.tenant_of))

    @classmethod
    def of(cls, entries: Mapping[str, tuple[str, str, str, int]]) -> Catalogue:
        """From adapter id -> (tenant, source, revision, rank)."""
        ids = tuple(sorted(entries))
        rows = [entries[i] for i in ids]
        return cls(
            ids=ids,
            tenant_of=tuple(r[0] for r in rows),
            sources=tuple(r[1] for r in rows),
            revisions=tuple(r[2] for r in rows),
            ranks=np.fromiter((r[3] for r in rows), np.int64, len(rows)),
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What routers saw per adapter over the last window. Float64 columns aligned with the catalogue (A); NaN = unknown.

    Zero means that the router was heard and saw no request; NaN in the latency columns means no request or no report.

    Attributes:
        window_s: seconds that the rates cover.
        requests_per_s, prompt_tokens_per_s, completion_tokens_per_s, errors_per_s: rates.
        ttft_mean_s, ttft_p99_s: time to the first byte of the answer.
        base_requests_per_s, base_tokens_per_s: the base model's own traffic, served by any warm replica.
        unknown_requests_per_s: requests for names that the catalogue lacks.
    """

    window_s: float
    requests_per_s: Floats
    prompt_tokens_per_s: Floats
    completion_tokens_per_s: Floats
    errors_per_s: Floats
    ttft_mean_s: Floats
    ttft_p99_s: Floats
    base_requests_per_s: Signal = UNSEEN
    base_tokens_per_s: Signal = UNSEEN
    unknown_requests_per_s: Signal = UNSEEN

    @classmethod
    def unknown(cls, adapters: int, window_s: float = 0.0) -> Traffic:
        """All columns NaN: no router was heard."""
        nan = np.full(adapters, np.nan)
        return cls(window_s, nan, nan, nan, nan, nan, nan)


@dataclass(frozen=True, slots=True)
class PairTraffic:
    """What routers saw per (adapter, replica) over the last window: columns of one length, sparse, any order.

    Attributes:
        adapter: row of the catalogue, int64.
        replica: index in `Observation.replicas`, int64.
        requests_per_s, ttft_mean_s, completion_tokens_per_s: float64; NaN = unknown.
    """

    adapter: Ints
    replica: Ints
    requests_per_s: Floats
    ttft_mean_s: Floats
    completion_tokens_per_s: Floats

    @classmethod
    def none(cls) -> PairTraffic:
        """No pair was seen."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Observation:
    """One fleet at `now_s` (seconds since the Unix epoch; virtual in simulations).

    Attributes:
        catalogue, traffic: adapters and their demand, aligned by row.
        pairs: demand and latency per owner, the evidence for noisy neighbours.
        replicas: every live replica, ascending by id. A dead process is absent or FAILED.
        groups: by name.
        routers: every router heard within the policy's `ring.routerTtl`.
        freshness: how old each source is: `traffic`, `engines`, `replicas`, `routers`, `history`.
        ledger: what this controller loaded, and what failed.
        conditions: what the shell noticed outside decisions (invalid policy kept out, frozen, duplicated series):
            name -> sentence.
        ring_epoch, ring_body: what is published now, as it was read back; 0 and None where nothing is.
    """

    now_s: float
    catalogue: Catalogue
    traffic: Traffic
    replicas: tuple[Replica, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict)
    routers: tuple[Router, ...] = ()
    pairs: PairTraffic = field(default_factory=PairTraffic.none)
    freshness: Mapping[str, Signal] = field(default_factory=dict)
    ledger: LoadLedger = field(default_factory=LoadLedger)
    conditions: Mapping[str, str] = field(default_factory=dict)
    ring_epoch: int = 0
    ring_body: bytes | None = None
