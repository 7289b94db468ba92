"""Fixed fleets: what a fleet carries, who saturates when, and what a burst of one adapter does to the others."""

from __future__ import annotations

from typing import Any

from autoscaler.simulator.strategies.search import Job, keeps_slo
from benchmarks.fleet_cases import BURST_LOAD, NAMES, Maker
from benchmarks.fleet_runs import Runs

_ROUTED = [name for name in NAMES if name != "group-per-tenant"]


class Fixed:
    """Steady demand of one regime's mix on its size of fleet."""

    def __init__(self, maker: Maker, runs: Runs) -> None:
        self._maker, self._runs, self._slots = maker, runs, maker.regime.middle_slots

    def ideal_rps(self) -> float:
        """What the bound carries: its knee, found from twice what the profile's step costs say of the mix."""
        regime = self._maker.regime
        rough = regime.size.replicas * regime.mix.rough_rps(regime.changing(1.0, self._slots, 0).engine_profile)
        return self._knee("oracle", rough, 2.0)

    def figures(self, ideal_rps: float) -> dict[str, Any]:
        """Knees as shares of the bound's, figures between round-robin's and ours, and a burst."""
        knees = {name: self._knee(name, ideal_rps, 1.5) / ideal_rps for name in _ROUTED}
        return {"knee": knees, **self._between(knees, ideal_rps), "burst": self._burst(ideal_rps)}

    def _knee(self, name: str, unit_rps: float, high: float) -> float:
        """Highest steady load, requests/s, at which the fixed fleet keeps the SLO; by bisection of its share."""
        low = 0.02
        for _ in range(self._maker.regime.size.steps):
            middle = (low + high) / 2
            job = self._static(name, middle * unit_rps)
            self._runs.play([job])
            low, high = (middle, high) if keeps_slo(job, self._runs.results) else (low, middle)
        return low * unit_rps

    def _static(self, name: str, rate_rps: float) -> Job:
        scenario = self._maker.regime.fixed(float(f"{rate_rps:.6g}"), self._slots, 0)
        return self._maker.job(scenario, name, self._maker.usual(name))

    def _between(self, knees: dict[str, float], ideal_rps: float) -> dict[str, Any]:
        low, high = knees["round-robin-hpa"], knees["ours"]
        load = (low + high) / 2 if high > low else high
        rows = self._runs.play([self._static(name, load * ideal_rps) for name in _ROUTED])
        told = ("ttft_p99_s", "adapter_loads_per_1000")
        between = {name: {"load": load, **{k: row[k] for k in told}} for name, row in zip(_ROUTED, rows, strict=True)}
        return {"between_knees": between}

    def _burst(self, ideal_rps: float) -> dict[str, float]:
        """p99 of the others during the burst over before; of the generator's traffic only."""
        if self._maker.regime.file is not None:
            return {}
        scenario = self._maker.regime.burst(BURST_LOAD * ideal_rps, self._slots, 0)
        rows = self._runs.play([self._maker.job(scenario, name, self._maker.usual(name)) for name in _ROUTED])
        extra = {name: row["extra"] for name, row in zip(_ROUTED, rows, strict=True)}
        return {n: e["others_ttft_p99_1_s"] / e["others_ttft_p99_0_s"] for n, e in extra.items()}
