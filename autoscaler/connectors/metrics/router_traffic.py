"""What routers saw becomes columns: per adapter, per (adapter, replica), the base model, and names nobody knows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.fleet import Replica
from autoscaler.domain.observation import Catalogue, Floats, Ints, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Missing, Signal

UNKNOWN = -1
BASE = -2


@dataclass(frozen=True, slots=True)
class PairRates:
    """Rates per (adapter name, upstream address) pair, both as routers wrote them: columns of one length P.

    Attributes:
        adapters, upstreams: names; an upstream is empty where the router does not tell.
        requests_per_s, errors_per_s, prompt_tokens_per_s, completion_tokens_per_s: float64 (P), NaN = not shown.
        ttft_s_per_s, ttfts_per_s: seconds of time to first byte, and how many, per second: float64 (P).
        window_s, age_s: what the rates cover, and how old the newest sample is.
    """

    adapters: Sequence[str]
    upstreams: Sequence[str]
    requests_per_s: Floats
    errors_per_s: Floats
    prompt_tokens_per_s: Floats
    completion_tokens_per_s: Floats
    ttft_s_per_s: Floats
    ttfts_per_s: Floats
    window_s: float
    age_s: float


def adapter_rows(names: Sequence[str], catalogue: Catalogue, base_models: frozenset[str]) -> Ints:
    """Row of the catalogue for each name, UNKNOWN or BASE: int64 (P)."""
    row = catalogue.row
    return np.fromiter((BASE if n in base_models else row.get(n, UNKNOWN) for n in names), np.int64, len(names))


def traffic(rates: PairRates, rows: Ints, adapters: int, ttft_p99_s: Floats) -> Traffic:
    """Columns aligned with the catalogue.

    Args:
        rates: what routers saw.
        rows: catalogue row of each pair, UNKNOWN or BASE.
        adapters: how many the catalogue has (A).
        ttft_p99_s: float64 (A), NaN without traffic.
    """
    known = rows >= 0
    prompt, completion = (
        _idle_is_zero(column, rates.requests_per_s)
        for column in (rates.prompt_tokens_per_s, rates.completion_tokens_per_s)
    )

    def per_adapter(column: Floats) -> Floats:
        return np.bincount(rows[known], column[known], adapters).astype(np.float64)

    def total(column: Floats, row: int) -> Signal:
        value = float(column[rows == row].sum())
        return Fresh(value, rates.age_s) if value == value else Missing("the router does not show it")

    return Traffic(
        window_s=rates.window_s,
        requests_per_s=per_adapter(rates.requests_per_s),
        prompt_tokens_per_s=per_adapter(prompt),
        completion_tokens_per_s=per_adapter(completion),
        errors_per_s=per_adapter(rates.errors_per_s),
        ttft_mean_s=_ratio(per_adapter(rates.ttft_s_per_s), per_adapter(rates.ttfts_per_s)),
        ttft_p99_s=ttft_p99_s,
        base_requests_per_s=total(rates.requests_per_s, BASE),
        base_tokens_per_s=total(prompt + completion, BASE),
        unknown_requests_per_s=total(rates.requests_per_s, UNKNOWN),
    )


def answered_names(rates: PairRates, rows: Ints, unknown_name: str) -> frozenset[str]:
    """Names that the catalogue lacks and that some requests were answered for without an error."""
    answered = (rows == UNKNOWN) & (rates.requests_per_s > np.nan_to_num(rates.errors_per_s))
    return frozenset(rates.adapters[int(i)] for i in np.flatnonzero(answered)) - {"", unknown_name}


def pair_traffic(rates: PairRates, rows: Ints, replicas: Sequence[Replica]) -> PairTraffic:
    """Pairs of a known adapter and a live replica that had traffic; a dead replica's pairs are left out."""
    index = {r.address: i for i, r in enumerate(replicas) if r.address} | {r.id: i for i, r in enumerate(replicas)}
    owners = np.fromiter((index.get(u, UNKNOWN) for u in rates.upstreams), np.int64, len(rows))
    live = (rows >= 0) & (owners >= 0) & ((rates.requests_per_s > 0) | (rates.ttfts_per_s > 0))
    return PairTraffic(
        adapter=rows[live],
        replica=owners[live],
        requests_per_s=rates.requests_per_s[live],
        ttft_mean_s=_ratio(rates.ttft_s_per_s[live], rates.ttfts_per_s[live]),
        completion_tokens_per_s=rates.completion_tokens_per_s[live],
    )


def _idle_is_zero(column: Floats, requests: Floats) -> Floats:
    """Without requests there were no tokens either; with requests and no report the number stays unknown."""
    return np.where(np.isnan(column) & (requests == 0), 0.0, column)


def _ratio(part: Floats, whole: Floats) -> Floats:
    ratio = np.full(len(part), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio


def in_flight_of(replicas: Iterable[Replica], open_requests: Mapping[str, float]) -> dict[str, Signal]:
    """Requests that routers have open on each replica, from those by `host:port`; NaN says as little as no number."""
    counted = ((r.id, open_requests.get(r.address, math.nan)) for r in replicas)
    return {replica: Fresh(count) for replica, count in counted if math.isfinite(count)}
