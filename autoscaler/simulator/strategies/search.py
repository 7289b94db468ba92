"""Jobs of a comparison: kept as they end, so that a stopped one goes on where it was, and run through joblib.

A user with a cluster puts `joblib.parallel_backend("dask")` or Ray's around `run_jobs`; nothing here changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.catalogue import Settings, strategies
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.scenario import Scenario

Figures = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One strategy with one setting before one scenario."""

    scenario: Scenario
    strategy: str
    settings: Settings
    policy: FleetPolicy
    capacity_tokens_per_s: float
    level: Level = Level.ENVOY

    @property
    def key(self) -> str:
        """16 hex digits over all that the result depends on."""
        told = [asdict(self.scenario), self.strategy, self.settings, self.level, f"{self.capacity_tokens_per_s:.6g}"]
        told.append(repr(self.policy) if self.strategy == "ours" else "")
        return hashlib.sha256(json.dumps(told, default=str, sort_keys=True).encode()).hexdigest()[:16]

    def run(self, progress: Callable[[float], None] = lambda share: None) -> Outcome:
        """Play it."""
        found = strategies(self.policy, self.capacity_tokens_per_s, self.level)[self.strategy]
        return found.run(self.scenario, self.settings, progress)


class Results:
    """Figures of finished jobs, one JSON line each; in memory only where there is no file."""

    def __init__(self, path: Path | None = None) -> None:
        """Read what is there; a line that was cut off by a kill is left out."""
        self._path = path
        self._known: dict[str, Figures] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                    self._known[row["key"]] = row["figures"]
                except (ValueError, KeyError, TypeError):
                    continue

    def get(self, job: Job) -> Figures | None:
        """What a job gave, if it was run."""
        return self._known.get(job.key)

    def keep(self, job: Job, figures: Figures) -> None:
        """Remember what a job gave."""
        self._known[job.key] = figures
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"key": job.key, "strategy": job.strategy, "figures": figures}) + "\n")


Told = Callable[[Job, Figures], None]


def run_jobs(jobs: Iterable[Job], results: Results, parallel: int, told: Told = lambda job, figures: None) -> None:
    """Run the jobs that have no result yet, `parallel` at a time, keeping each as it ends."""
    open_jobs = list({job.key: job for job in jobs if results.get(job) is None}.values())
    if parallel == 1:
        ended: Iterator[tuple[int, Figures]] = ((i, _figures(job)) for i, job in enumerate(open_jobs))
    else:
        work = Parallel(n_jobs=parallel, return_as="generator_unordered")
        ended = work(delayed(_numbered)(i, job) for i, job in enumerate(open_jobs))
    for i, figures in ended:
        results.keep(open_jobs[i], figures)
        told(open_jobs[i], figures)


def _numbered(number: int, job: Job) -> tuple[int, Figures]:
    return number, _figures(job)


def _figures(job: Job) -> Figures:
    return job.run().figures()


@dataclass(frozen=True, slots=True)
class Climb:
    """The search for the most daring setting of each ladder that keeps the SLO: a bisection, one round at a time."""

    jobs: tuple[Job, ...]
    low: int = -1
    high: int = -1

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> Climb:
        """A ladder's jobs, cautious to daring."""
        return cls(tuple(jobs), -1, len(jobs))

    @property
    def next(self) -> Job | None:
        """What to run now; None where the search is over."""
        return self.jobs[(self.low + self.high) // 2] if self.high - self.low > 1 else None

    def after(self, kept: bool) -> Climb:
        """The search after the run of `next`."""
        middle = (self.low + self.high) // 2
        return Climb(self.jobs, middle, self.high) if kept else Climb(self.jobs, self.low, middle)


def climb(
    ladders: Sequence[Sequence[Job]], results: Results, parallel: int, told: Told = lambda job, figures: None
) -> list[Job]:
    """The jobs that were run, of all ladders; every result is in `results`."""
    searches = [Climb.of(jobs) for jobs in ladders]
    tried: list[Job] = []
    while any(search.next is not None for search in searches):
        now = [job for search in searches if (job := search.next) is not None]
        run_jobs(now, results, parallel, told)
        tried += now
        searches = [s if s.next is None else s.after(keeps_slo(s.next, results)) for s in searches]
    return tried


def keeps_slo(job: Job, results: Results) -> bool:
    """Whether a job's run met its scenario's objective."""
    figures = results.get(job)
    return figures is not None and figures["slo_attainment"] >= job.scenario.objective_ratio


def best(tried: Sequence[Job], results: Results) -> Job:
    """The cheapest that keeps the SLO; where none does, the one that comes nearest."""

    def order(job: Job) -> tuple[bool, float, float]:
        figures = results.get(job) or {}
        good = keeps_slo(job, results)
        return (not good, figures["gpu_hours"] if good else -figures["slo_attainment"], figures["gpu_hours"])

    return min(tried, key=order)
