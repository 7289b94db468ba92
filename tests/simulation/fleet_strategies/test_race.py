"""The race's rules: who is judged, by which setting, and what a row says; on results that are given."""

import math
from pathlib import Path

import pytest

from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.search import Figures, Job, Results
from benchmarks import fleet_matrix
from benchmarks.fleet_cases import Maker, Regime, Size
from benchmarks.fleet_race import BOUND, HASHED, OURS, SHIPPED, TURNS, Race
from benchmarks.fleet_runs import Runs, interval

REGIME = Regime(100, "128", "recent", Size(replicas=6, seconds=600.0, slots=(16, 64, 96), seeds=3))
COST = {OURS: 6.0, BOUND: 4.0, TURNS: 12.0, HASHED: 8.0, "rendezvous-predictive": 6.5, "affinity-saturation": 7.0,
        "least-request-hpa": 20.0}  # fmt: skip


class Given(Results):
    """Every job has a result already: bolder settings are cheaper, and too bold ones miss."""

    def __init__(self, ladders: dict[str, list[str]], misses_elsewhere: str, margin: int) -> None:
        super().__init__()
        self._ladders, self._misses, self._margin, self.asked = (
            ladders,
            misses_elsewhere,
            margin,
            list[tuple[str, int]](),
        )

    def get(self, job: Job) -> Figures:
        """All but the ladder's last three rungs keep the SLO, with other seeds of one strategy so many fewer."""
        self.asked.append((job.strategy, job.scenario.seed))
        ladder = self._ladders.get(job.strategy, [])
        at = ladder.index(repr(job.settings)) if repr(job.settings) in ladder else 0
        limit = len(ladder) - 4 - (self._margin if job.strategy == self._misses and job.scenario.seed else 0)
        hours = COST[job.strategy] * (2.0 - 0.01 * at) * (1.1 if job.scenario.limits.max_loras != 64 else 1.0)
        figures = dict.fromkeys(
            ("ttft_p50_s", "ttft_p99_s", "adapter_loads_per_1000", "moves", "tier_changes", "requests", "errors"), 1.0
        )
        kept = at <= limit or len(ladder) < 2
        return {**figures, "gpu_hours": hours, "replicas_mean": hours, "slo_attainment": 0.995 if kept else 0.9}


def raced(misses_elsewhere: str, margin: int = 1) -> tuple[dict[str, object], Given]:
    maker = Maker(REGIME, FleetPolicy(name="sim", base_model="base"), Level.ENVOY, 9_000.0)
    ladders = {name: [repr(j.settings) for j in maker.ladders(name, 40.0, 0, 64)[0]] for name in COST}
    results = Given(ladders, misses_elsewhere, margin)
    return Race(maker, 40.0, Runs(results, 1)).run(), results


def test_where_the_cheapest_setting_misses_on_other_seeds_the_next_cheapest_is_judged() -> None:
    told, _ = raced("rendezvous-predictive")
    strategies = told["strategies"]
    assert isinstance(strategies, dict)
    assert strategies["rendezvous-predictive"]["judged_before"] == 1
    assert strategies["rendezvous-predictive"]["slo_attainment"] >= 0.99
    assert strategies[OURS]["judged_before"] == 0
    assert told["best_peer"] == "rendezvous-predictive"


def test_where_every_setting_misses_on_other_seeds_the_nearest_is_told() -> None:
    told, _ = raced("rendezvous-predictive", margin=20)
    strategies = told["strategies"]
    assert isinstance(strategies, dict)
    assert strategies["rendezvous-predictive"]["slo_attainment"] < 0.99
    assert told["best_peer"] == "affinity-saturation", "who misses is not the best, however cheap"


def test_only_peers_near_the_cheapest_the_two_that_are_asked_about_and_ours_are_judged_on_every_seed() -> None:
    told, results = raced("")
    others = {name for name, seed in results.asked if seed == 2}
    assert others == {OURS, TURNS, HASHED, "rendezvous-predictive", "affinity-saturation"}
    assert (BOUND, 1) in results.asked
    assert (BOUND, 2) not in results.asked, "two seeds do for the bound"
    strategies = told["strategies"]
    assert isinstance(strategies, dict)
    assert SHIPPED in strategies
    assert strategies[OURS]["settings"]["max_loras"] == 64, "16 and 96 slots are dearer"


def test_a_row_has_a_cell_for_each_heading_and_says_what_was_found() -> None:
    told, _ = raced("")
    row = fleet_matrix.row({**told, "name": REGIME.name, "rate_rps": 40.0})
    assert row.count("|") == fleet_matrix.HEAD.splitlines()[0].count("|")
    assert row.startswith("| 100, 128, recent | 40 | ")
    assert "rendezvous, 64 slots, interval_s 60, fill" in row
    assert "99.50 %" in row
    assert " to " in row


def test_an_interval_is_student_s_and_unknown_from_one_value() -> None:
    middle, low, high = interval([0.9, 1.0, 1.1])
    assert middle == pytest.approx(1.0)
    assert high - middle == pytest.approx(4.303 * 0.1 / math.sqrt(3))
    assert low == pytest.approx(2 * middle - high)
    assert all(math.isnan(v) for v in interval([1.0])[1:])


def test_all_regimes_are_every_cache_and_kernel_and_a_file_s_lines_are_taken_as_they_are(tmp_path: Path) -> None:
    assert len(list(fleet_matrix.lines("all", None, None, 0.0))) == 18
    with_clients = list(fleet_matrix.lines("all", Path("m.rates.csv"), None, 691_200.0))
    assert len(with_clients) == 24
    assert with_clients[0] == "--rates 'm.rates.csv' --start 691200 --hours 2 --host slots --kernels recent"
    some = tmp_path / "some"
    some.write_text("--adapters 5 --host all  # five\n\n# none\n")
    assert list(fleet_matrix.lines(str(some), None, None, 0.0)) == ["--adapters 5 --host all"]


def test_a_file_s_slice_is_thinned_to_the_rate_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "m.rates.csv"
    rows = "".join(f"{client},{at},{rate},1,Gamma,1,1\n" for at in (0, 600) for client, rate in ((1, 6), (2, 2)))
    path.write_text("client_id,window_start_s,rate_rps,cv,pattern,arg1,arg2\n" + rows)
    regime = Regime(1000, "all", "measured", Size(2, 600.0, (64,), 1), path)
    assert regime.count == 2
    assert regime.changing(2.0, 64, 0).traffic.scale == pytest.approx(0.25, rel=0.01)
    assert regime.limits(64).max_cpu_loras == 64, "two clients need no more than the slots"
    assert regime.fixed(2.0, 64, 0).traffic.steady_rps == 2.0
