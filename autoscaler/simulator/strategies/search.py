"""Jobs of a comparison: kept as they end, so that a stopped one goes on where it was, and run through joblib.

A user with a cluster puts `joblib.parallel_backend("dask")` or Ray's around `run_jobs`; nothing here changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

from joblib import Parallel, delayed

from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.catalogue import Settings, strategies
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.scenario import Scenario

Figures = dict[str, Any]
_SIMULATED = ("simulator/engine", "simulator/fleet", "simulator/traffic", "simulator/profiles", "simulator/strategies")
_DECIDING = (
    "domain", "policy", "forecasting", "diagnosis", "tiering", "scaling", "ring", "planner", "controller", "connectors",
)  # fmt: skip
_SEARCHING = ("search.py", "catalogue.py")  # of `strategies`: they choose what is run, not what it gives
_LONG = ("ours", "oracle")  # begun first, so that two cores end together
DEARER = 1.05
"""A setting that missed the SLO at this many times the cost of one that kept it ends its ladder's search."""
COLLAPSED = 0.95
"""With fewer first tokens in time a fleet grows by its own queue: its cost says nothing of more cautious settings."""


@cache
def sources(rooms: tuple[str, ...]) -> str:
    """Digest of the code in these rooms: a result is of the code that gave it."""
    root, found = Path(__file__).parents[2], hashlib.sha256()
    for room in rooms:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".py", ".json") and path.name not in _SEARCHING:
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


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
        """16 hex digits over all that the result depends on, the code included."""
        told = [asdict(self.scenario), self.strategy, self.settings, self.level, sources(_SIMULATED)]
        if self.strategy == "ours":
            told += [repr(self.policy), sources(_DECIDING)]
        if self.strategy == "rendezvous-predictive":
            told.append(f"{self.capacity_tokens_per_s:.6g}")
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
    open_jobs.sort(key=lambda job: job.strategy not in _LONG)
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
    began_s = process_time()
    return {**job.run().figures(), "cpu_s": process_time() - began_s}


@dataclass(frozen=True, slots=True)
class Climb:
    """The search for the most daring setting of one ladder that keeps the SLO.

    It halves what is left, or goes rung by rung from `first`, a guess, until that is bracketed.
    """

    jobs: tuple[Job, ...]
    low: int = -1
    high: int = -1
    first: int | None = None

    @classmethod
    def of(cls, jobs: Sequence[Job], first: int | None = None) -> Climb:
        """A ladder's jobs, cautious to daring."""
        return cls(tuple(jobs), -1, len(jobs), first)

    @property
    def next(self) -> Job | None:
        """What to run now; None where the search is over."""
        return self.jobs[self._at] if self.high - self.low > 1 else None

    @property
    def _at(self) -> int:
        inside = self.first is not None and self.low < self.first < self.high
        return self.first if inside and self.first is not None else (self.low + self.high) // 2

    def after(self, kept: bool, *, hopeless: bool = False) -> Climb:
        """The search after the run of `next`; `hopeless`: more cautious settings need not be tried."""
        at = self._at
        first = None if self.first is None else at + (1 if kept else -1)
        if kept:
            return replace(self, low=at, first=first)
        return replace(self, low=at - 1 if hopeless else self.low, high=at, first=first)


def climb(
    ladders: Sequence[Sequence[Job]],
    results: Results,
    parallel: int,
    told: Told = lambda job, figures: None,
    first: Sequence[int | None] = (),
) -> list[Job]:
    """The jobs that were run, of all ladders, which may be of several strategies; every result is in `results`.

    A ladder is given up at a setting that misses the SLO by little and is `DEARER` than the strategy's cheapest that
    keeps it: cost falls along a ladder, so what is before it costs more still. `first`: where to begin each ladder.
    """
    guesses = first or [None] * len(ladders)
    searches = [Climb.of(jobs, guess) for jobs, guess in zip(ladders, guesses, strict=True)]
    tried: list[Job] = []
    while any(search.next is not None for search in searches):
        now = [job for search in searches if (job := search.next) is not None]
        run_jobs(now, results, parallel, told)
        tried += now
        searches = [s if (job := s.next) is None else _judged(s, job, tried, results) for s in searches]
    return tried


def _judged(search: Climb, job: Job, tried: Sequence[Job], results: Results) -> Climb:
    kept = keeps_slo(job, results)
    good = [j for j in tried if j.strategy == job.strategy and keeps_slo(j, results)]
    cheapest = min((_hours(j, results) for j in good), default=float("inf"))
    figures = results.get(job) or {"gpu_hours": float("inf"), "slo_attainment": 0.0}
    near = not kept and figures["slo_attainment"] >= COLLAPSED
    return search.after(kept, hopeless=near and figures["gpu_hours"] >= DEARER * cheapest)


def _hours(job: Job, results: Results) -> float:
    return float((results.get(job) or {"gpu_hours": float("inf")})["gpu_hours"])


def keeps_slo(job: Job, results: Results) -> bool:
    """Whether a job's run met its scenario's objective."""
    figures = results.get(job)
    return figures is not None and figures["slo_attainment"] >= job.scenario.objective_ratio


def cheapest(tried: Sequence[Job], results: Results) -> list[Job]:
    """Those that keep the SLO, the cheapest first, each once; where none does, the one that comes nearest."""

    def order(job: Job) -> tuple[float, float]:
        figures = results.get(job) or {}
        return (figures["gpu_hours"], -figures["slo_attainment"])

    distinct = list({job.key: job for job in tried}.values())
    kept = sorted((job for job in distinct if keeps_slo(job, results)), key=order)
    return kept or [max(distinct, key=lambda job: (results.get(job) or {})["slo_attainment"])]
