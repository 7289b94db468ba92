"""Runs of the race: played once each, kept, and told with the time that is left."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

import numpy as np

from autoscaler.simulator.strategies.search import Figures, Job, Results, climb, run_jobs

_EXPECTED = 160
"""Runs of one regime before one has ended: 110 to tune, 50 to judge."""
_T95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Runs:
    """Plays jobs that have no result yet, over one regime or several."""

    def __init__(self, results: Results, parallel: int, regimes: int = 1) -> None:
        self.results, self._parallel, self._regimes = results, parallel, regimes
        self._began_s, self._new = time.monotonic(), 0
        self._ended: list[int] = []

    def play(self, jobs: Sequence[Job]) -> list[Figures]:
        """Figures of these jobs, in their order."""
        run_jobs(jobs, self.results, self._parallel, self._told)
        return [self.of(job) for job in jobs]

    def climb(self, ladders: Sequence[Sequence[Job]], first: Sequence[int | None] = ()) -> list[Job]:
        """The jobs tried on these ladders."""
        return climb(ladders, self.results, self._parallel, self._told, first)

    def of(self, job: Job) -> Figures:
        """What a job gave that was played."""
        found = self.results.get(job)
        assert found is not None
        return found

    def end_regime(self) -> None:
        """One regime is done: the next are judged by it."""
        self._ended.append(self._new - sum(self._ended))

    def left_s(self) -> float:
        """About how long the rest takes, by the runs of the regimes that were not done before."""
        if not self._new:
            return math.nan
        whole = [runs for runs in self._ended if runs > _EXPECTED / 4]
        each = float(np.mean(whole)) if whole else _EXPECTED
        current = self._new - sum(self._ended)
        runs = max(each - current, 1.0) + each * (self._regimes - len(self._ended) - 1)
        return runs * (time.monotonic() - self._began_s) / self._new

    def _told(self, job: Job, figures: Figures) -> None:
        self._new += 1
        limits = job.scenario.limits
        print(
            f"  {self._new:4} {time.monotonic() - self._began_s:6.0f} s, about {self.left_s() / 60:4.0f} min left  "
            f"{job.strategy:<30} seed {job.scenario.seed} {limits.max_loras:4} slots {figures['gpu_hours']:7.2f} GPU-h "
            f"{figures['slo_attainment']:7.2%} p99 {figures['ttft_p99_s']:8.3f} s {figures['cpu_s']:5.1f} s  "
            f"{job.settings}",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def interval(values: Sequence[float]) -> list[float]:
    """Mean, and its 95 % interval by Student's t: NaN from one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return [mean, math.nan, math.nan]
    half = _T95.get(len(values) - 1, 1.96) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return [mean, mean - half, mean + half]


def mean(rows: Sequence[Figures]) -> Figures:
    """Means over seeds of what is told."""
    keys = (
        "gpu_hours", "ttft_p50_s", "ttft_p99_s", "slo_attainment", "adapter_loads_per_1000", "moves", "tier_changes",
        "requests", "errors", "replicas_mean",
    )  # fmt: skip
    return {key: float(np.mean([row[key] for row in rows])) for key in keys}
