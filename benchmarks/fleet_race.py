"""One regime of the race with scaling: every strategy tuned in hindsight on one seed, then judged on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.simulator.strategies.search import Figures, Job, cheapest
from benchmarks.fleet_cases import NAMES, Maker
from benchmarks.fleet_runs import Runs, interval, mean

OURS, BOUND, TURNS, HASHED = "ours", "oracle", "round-robin-hpa", "bounded-hash-active-requests"
SHIPPED = "ours as shipped"
PEERS = tuple(name for name in NAMES if name not in (OURS, BOUND, "group-per-tenant"))
NEAR = 1.2
"""Peers dearer than so many times the cheapest at the tuning seed are not judged, but for two that are asked about."""
_BOUND_SEEDS = 2
_RUNGS_BEFORE = 2
_MOST_JUDGED = 8


@dataclass(frozen=True)
class Pick:
    """A setting, and the ladder that it stands on."""

    ladder: tuple[Job, ...]
    at: int

    @property
    def job(self) -> Job:
        """With the tuning seed."""
        return self.ladder[self.at]


@dataclass(frozen=True)
class Judged:
    """A setting's figures on every seed, and how many cheaper ones were judged before and missed the SLO."""

    job: Job
    rows: list[Figures]
    before: int


class Race:
    """Everybody at its best, on the same arrivals."""

    def __init__(self, maker: Maker, rate_rps: float, runs: Runs) -> None:
        self._maker, self._rate_rps, self._runs = maker, rate_rps, runs
        self._seeds = range(maker.regime.size.seeds)
        self.frontier: dict[str, list[Figures]] = {}

    def run(self) -> dict[str, Any]:
        """The figures of one row."""
        found = self._tune()
        hours = {name: self._hours(jobs[0]) for name, jobs in found.items()}
        near = NEAR * min(hours[name] for name in PEERS)
        peers = [name for name in PEERS if name in (TURNS, HASHED) or hours[name] <= near]
        asked = {name: (found[name], self._seeds) for name in (OURS, *peers)}
        shipped = [replace(found[OURS][0], settings={})]
        asked |= {SHIPPED: (shipped, self._seeds), BOUND: (found[BOUND], self._seeds[:_BOUND_SEEDS])}
        self._runs.play([self._at_seed(jobs[0], seed) for jobs, seeds in asked.values() for seed in seeds])
        judged = {name: self._judge(*one) for name, one in asked.items()}
        rows = {name: one.rows for name, one in judged.items()}
        told = {
            name: {"settings": {"max_loras": one.job.scenario.limits.max_loras, **one.job.settings},
                   "judged_before": one.before, **mean(one.rows),
                   "by_seed": [[row["gpu_hours"], row["slo_attainment"]] for row in one.rows]}
            for name, one in judged.items()
        }  # fmt: skip
        kept = [name for name in peers if told[name]["slo_attainment"] >= self._objective] or peers
        peer = min(kept, key=lambda name: told[name]["gpu_hours"])
        return {
            "strategies": told,
            "best_peer": peer,
            "seeds": len(self._seeds),
            "ratios": {
                f"{mine} / {other}": interval(_ratios(rows[mine], rows[other]))
                for mine in (SHIPPED, OURS)
                for other in dict.fromkeys((peer, TURNS, HASHED, BOUND))
            },
            "frontier": self.frontier,
        }

    @property
    def _objective(self) -> float:
        return self._maker.regime.changing(self._rate_rps, self._maker.regime.middle_slots, 0).objective_ratio

    def _tune(self) -> dict[str, list[Job]]:
        """Each one's settings that keep the SLO, cheapest first: of all ladders at one number of slots, of the best at
        all, and of the one across it where that was best; with the two rungs before the best."""
        regime, names = self._maker.regime, (OURS, BOUND, *PEERS)
        ladders = [tuple(one) for name in names for one in self._ladders(name, regime.middle_slots)]
        tried = self._runs.climb(ladders)
        first = {name: self._best(name, tried, ladders) for name in names}
        others = [
            (self._with_slots(pick, slots), pick.at)
            for slots in regime.size.slots if slots != regime.middle_slots
            for pick in first.values()
        ]  # fmt: skip
        tried += self._runs.climb([ladder for ladder, _ in others], [at for _, at in others])
        ladders += [ladder for ladder, _ in others]
        crossing = [self._maker.across(self._best(name, tried, ladders).job) for name in names]
        crossing = [(ladder, at) for ladder, at in crossing if ladder]
        tried += self._runs.climb([ladder for ladder, _ in crossing], [at for _, at in crossing])
        ladders += [ladder for ladder, _ in crossing]
        rungs = [self._best(name, tried, ladders) for name in names]
        before = [job for pick in rungs for job in pick.ladder[max(pick.at - _RUNGS_BEFORE, 0) : pick.at]]
        self._runs.play(before)
        tried += before
        for job in {job.key: job for job in tried}.values():
            figures = self._runs.of(job)
            told = {k: figures[k] for k in ("gpu_hours", "ttft_p99_s", "slo_attainment")}
            told["settings"] = {"max_loras": job.scenario.limits.max_loras, **job.settings}
            self.frontier.setdefault(job.strategy, []).append(told)
        return {name: cheapest([job for job in tried if job.strategy == name], self._runs.results) for name in names}

    def _ladders(self, name: str, slots: int) -> list[list[Job]]:
        return self._maker.ladders(name, self._rate_rps, 0, slots)

    def _with_slots(self, pick: Pick, slots: int) -> tuple[Job, ...]:
        scenario = self._maker.regime.changing(self._rate_rps, slots, 0)
        return tuple(replace(job, scenario=scenario) for job in pick.ladder)

    def _best(self, name: str, tried: Sequence[Job], ladders: Sequence[tuple[Job, ...]]) -> Pick:
        found = cheapest([job for job in tried if job.strategy == name], self._runs.results)[0]
        return next(
            Pick(ladder, at)
            for ladder in ladders
            for at, job in enumerate(ladder)
            if job.strategy == name and job.key == found.key
        )

    def _hours(self, job: Job) -> float:
        return float(self._runs.of(job)["gpu_hours"])

    def _judge(self, jobs: Sequence[Job], seeds: range) -> Judged:
        """The first of these settings that keeps the SLO on the mean of its seeds, of as many as are judged; where none
        does, the one that came nearest."""
        missed: list[Judged] = []
        for job in jobs[:_MOST_JUDGED]:
            judged = Judged(job, self._runs.play([self._at_seed(job, seed) for seed in seeds]), len(missed))
            if mean(judged.rows)["slo_attainment"] >= self._objective:
                return judged
            missed.append(judged)
        return max(missed, key=lambda one: mean(one.rows)["slo_attainment"])

    def _at_seed(self, job: Job, seed: int) -> Job:
        return replace(job, scenario=self._maker.regime.changing(self._rate_rps, job.scenario.limits.max_loras, seed))


def _ratios(mine: Sequence[Figures], others: Sequence[Figures]) -> list[float]:
    """Seed by seed, as far as both were run."""
    return [a["gpu_hours"] / b["gpu_hours"] for a, b in zip(mine, others, strict=False)]
