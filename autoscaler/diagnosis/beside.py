"""Who else is on a replica, how they fare on their own other owners, and who holds how much of it.

A tenant with two owners is its own control: what makes its requests slow everywhere (long prompts, a large adapter) is
in both, so what is left of the difference is the replica's doing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from autoscaler.diagnosis.pairs import PairTable
from autoscaler.domain.observation import Floats, Ints

LONGEST_TTFT_S = 60.0  # later ones are cut: one request that hung is not a neighbour's doing
_FEWEST_RPS = 1e-9


class Beside:
    """One tick's pairs, by replica."""

    def __init__(self, pairs: PairTable, replicas: int, tenants: int) -> None:
        order = np.lexsort((pairs.tenant, pairs.replica))  # sums do not depend on the order in which pairs are told
        self._starts = np.searchsorted(pairs.replica[order], np.arange(replicas + 1))
        self._tenant, self._running, self._kv = pairs.tenant[order], pairs.running[order], pairs.kv_tokens[order]
        timed = np.isfinite(pairs.ttft_s[order])
        self._requests = np.where(timed, pairs.requests[order], 0.0)
        self._ttft_sum = self._requests * np.where(timed, pairs.ttft_s[order], 0.0)
        self._everywhere = _sums(self._tenant, self._requests, self._ttft_sum, tenants)

    def _rows(self, replica: int) -> Ints:
        return np.arange(self._starts[replica], self._starts[replica + 1])

    def later_s(self, tenant: int, replica: int, touched: Collection[int]) -> tuple[Ints, Floats, Floats]:
        """Other tenants here that also are where `tenant` is not: (tenant, weight, seconds later here than there).

        `touched`: replicas with requests of `tenant`, this one among them. The weight is the smaller of both rates.
        """
        here = self._rows(replica)
        here = here[self._tenant[here] != tenant]
        starts = np.flatnonzero(np.diff(self._tenant[here], prepend=-1))
        others, place = self._tenant[here[starts]], np.zeros(here.size, np.int64)
        place[starts[1:]] = 1
        beside = _sums(np.cumsum(place), self._requests[here], self._ttft_sum[here], others.size)
        rows = np.concatenate([self._rows(r) for r in sorted(touched)])
        at = np.searchsorted(others, self._tenant[rows])
        mine = at < others.size
        mine[mine] = others[at[mine]] == self._tenant[rows[mine]]
        rows, at = rows[mine], at[mine]
        near = _sums(at, self._requests[rows], self._ttft_sum[rows], others.size)
        away = self._everywhere[:, others] - near
        known = (beside[0] > _FEWEST_RPS) & (away[0] > _FEWEST_RPS)
        beside, away = beside[:, known], away[:, known]
        later = np.minimum(beside[1] / beside[0], LONGEST_TTFT_S) - np.minimum(away[1] / away[0], LONGEST_TTFT_S)
        return others[known], np.minimum(beside[0], away[0]), later

    def held(self, tenant: int, replica: int) -> Mapping[str, float]:
        """A tenant's share of a replica's running requests (`batch`) and of their KV cache (`kv`), where known."""
        rows = self._rows(replica)
        mine = self._tenant[rows] == tenant
        out: dict[str, float] = {}
        for name, column in (("batch", self._running[rows]), ("kv", self._kv[rows])):
            total = float(column.sum())
            if np.isfinite(total) and total > 0:
                out[name] = float(column[mine].sum()) / total
        return out


def _sums(index: Ints, requests: Floats, ttft_sum: Floats, size: int) -> Floats:
    """Requests/s and sums of rate times TTFT by index: float64 (2, size)."""
    return np.stack([np.bincount(index, column, size) for column in (requests, ttft_sum)]).astype(np.float64)
