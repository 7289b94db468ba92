"""One regime of the race with scaling: every strategy tuned in hindsight on one seed, then judged on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.simulator.strategies.search import Figures, Job, best
from benchmarks.fleet_cases import NAMES, Maker
from benchmarks.fleet_runs import Runs, interval, mean

OURS, BOUND, TURNS, HASHED = "ours", "oracle", "round-robin-hpa", "bounded-hash-active-requests"
SHIPPED = "ours as shipped"
PEERS = tuple(name for name in NAMES if name not in (OURS, BOUND, "group-per-tenant"))
NEAR = 1.2
"""Peers dearer than so many times the cheapest at the tuning seed are not judged, but for two that are asked about."""
_BOUND_SEEDS = 2
_MOST_STEPS_BACK = 6


@dataclass(frozen=True)
class Pick:
    """A setting, and the ladder that it stands on."""

    ladder: tuple[Job, ...]
    at: int
    back: int = 0

    @property
    def job(self) -> Job:
        """With the tuning seed."""
        return self.ladder[self.at]

    @property
    def settings(self) -> dict[str, Any]:
        """With the adapter slots, which are the scenario's."""
        return {"max_loras": self.job.scenario.limits.max_loras, **self.job.settings}

    def cautious(self) -> Pick | None:
        """One rung back; None where there is none, or enough were gone."""
        return (
            None if self.at == 0 or self.back == _MOST_STEPS_BACK else replace(self, at=self.at - 1, back=self.back + 1)
        )


class Race:
    """Everybody at its best, on the same arrivals."""

    def __init__(self, maker: Maker, rate_rps: float, runs: Runs) -> None:
        self._maker, self._rate_rps, self._runs = maker, rate_rps, runs
        self._seeds = range(maker.regime.size.seeds)
        self.frontier: dict[str, list[Figures]] = {}

    def run(self) -> dict[str, Any]:
        """The figures of one row."""
        picks = self._tune()
        hours = {name: self._hours(pick) for name, pick in picks.items()}
        near = NEAR * min(hours[name] for name in PEERS)
        peers = [name for name in PEERS if name in (TURNS, HASHED) or hours[name] <= near]
        shipped = Pick((replace(picks[OURS].job, settings={}),), 0)
        asked = {name: (picks[name], self._seeds) for name in (OURS, *peers)}
        asked |= {SHIPPED: (shipped, self._seeds), BOUND: (picks[BOUND], self._seeds[:_BOUND_SEEDS])}
        judged, rows = self._judge(asked)
        told = {
            name: {"settings": judged[name].settings, "stepped_back": judged[name].back, **mean(rows[name]),
                   "by_seed": [[row["gpu_hours"], row["slo_attainment"]] for row in rows[name]]}
            for name in judged
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

    def _tune(self) -> dict[str, Pick]:
        """Each one's cheapest setting that keeps the SLO: all ladders at one number of slots, the best at all, and
        the one across it where that was best."""
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
        for job in {job.key: job for job in tried}.values():
            figures = self._runs.of(job)
            told = {k: figures[k] for k in ("gpu_hours", "ttft_p99_s", "slo_attainment")}
            told["settings"] = {"max_loras": job.scenario.limits.max_loras, **job.settings}
            self.frontier.setdefault(job.strategy, []).append(told)
        return {name: self._best(name, tried, ladders) for name in names}

    def _ladders(self, name: str, slots: int) -> list[list[Job]]:
        return self._maker.ladders(name, self._rate_rps, 0, slots)

    def _with_slots(self, pick: Pick, slots: int) -> tuple[Job, ...]:
        scenario = self._maker.regime.changing(self._rate_rps, slots, 0)
        return tuple(replace(job, scenario=scenario) for job in pick.ladder)

    def _best(self, name: str, tried: Sequence[Job], ladders: Sequence[tuple[Job, ...]]) -> Pick:
        found = best([job for job in tried if job.strategy == name], self._runs.results)
        return next(
            Pick(ladder, at)
            for ladder in ladders
            for at, job in enumerate(ladder)
            if job.strategy == name and job.key == found.key
        )

    def _hours(self, pick: Pick) -> float:
        return float(self._runs.of(pick.job)["gpu_hours"])

    def _judge(self, asked: dict[str, tuple[Pick, range]]) -> tuple[dict[str, Pick], dict[str, list[Figures]]]:
        """All on their seeds; who misses the SLO on average goes one rung back and is judged again."""
        judged = {name: pick for name, (pick, _) in asked.items()}
        open_names = list(judged)
        rows: dict[str, list[Figures]] = {}
        while open_names:
            self._runs.play([job for name in open_names for job in self._at_seeds(judged[name], asked[name][1])])
            following = []
            for name in open_names:
                rows[name] = self._runs.play(self._at_seeds(judged[name], asked[name][1]))
                back = judged[name].cautious()
                if mean(rows[name])["slo_attainment"] < self._objective and back is not None:
                    judged[name] = back
                    following.append(name)
            open_names = following
        return judged, rows

    def _at_seeds(self, pick: Pick, seeds: range) -> list[Job]:
        slots = pick.job.scenario.limits.max_loras
        return [replace(pick.job, scenario=self._maker.regime.changing(self._rate_rps, slots, seed)) for seed in seeds]


def _ratios(mine: Sequence[Figures], others: Sequence[Figures]) -> list[float]:
    """Seed by seed, as far as both were run."""
    return [a["gpu_hours"] / b["gpu_hours"] for a, b in zip(mine, others, strict=False)]
