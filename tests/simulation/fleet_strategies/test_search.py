"""The search finds the most daring setting that keeps the SLO, and goes on where it was stopped."""

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.strategies.catalogue import strategies
from autoscaler.simulator.strategies.scenario import Scenario, Traffic
from autoscaler.simulator.strategies.search import Climb, Job, Results, cheapest, climb, keeps_slo, run_jobs
from autoscaler.simulator.traffic import GeneratorSettings

POLICY = FleetPolicy(name="sim", base_model="base")
SCENARIO = Scenario(
    Traffic(generator=GeneratorSettings(adapters=20, rate_rps=8.0)), limits=EngineLimits(20, 20), seconds=240.0,
    warmup_s=60.0, replicas=2, most=4, startup_s=30.0,
)  # fmt: skip


def job(**settings: float) -> Job:
    return Job(SCENARIO, "least-request-hpa", settings, POLICY, 9_000.0)


def figures(hours: float, attained: float) -> dict[str, float]:
    return {"gpu_hours": hours, "slo_attainment": attained}


@pytest.mark.parametrize("limit", range(-1, 6))
def test_a_ladder_is_climbed_by_halves(limit: int) -> None:
    search, runs = Climb.of([job(active=float(i)) for i in range(6)]), 0
    while (now := search.next) is not None:
        search, runs = search.after(now.settings["active"] <= limit), runs + 1
    assert search.low == min(limit, 5)
    assert runs <= 3


@pytest.mark.parametrize("limit", range(-1, 9))
@pytest.mark.parametrize("guess", [0, 4, 8])
def test_a_guess_is_followed_rung_by_rung(limit: int, guess: int) -> None:
    search, runs = Climb.of([job(active=float(i)) for i in range(9)], guess), 0
    while (now := search.next) is not None:
        search, runs = search.after(now.settings["active"] <= limit), runs + 1
    assert search.low == limit
    assert runs <= abs(limit - guess) + 2


def test_a_setting_that_misses_and_is_dearer_than_the_best_ends_its_ladder() -> None:
    results, told = Results(), list[float]()
    cheap, dear = job(active=1.0, choices=2), [job(active=float(i), choices=0) for i in range(7)]
    for one, found in ((cheap, figures(5.0, 1.0)), *((j, figures(9.0 - i / 10, 0.96)) for i, j in enumerate(dear))):
        results.keep(one, found)
    tried = climb([[cheap], dear], results, 1, lambda j, f: told.append(1.0))
    assert tried == [cheap, dear[3]], "the three before it cost more still, the three after it miss"
    assert not told, "what is known is not run"


def test_a_fleet_that_collapsed_says_nothing_of_what_more_cautious_settings_cost() -> None:
    """It grew by its own queue: 12 replica-hours at the middle setting, where three rungs back keeps the SLO for 4."""
    results = Results()
    rungs = [job(active=float(i), choices=0) for i in range(7)]
    results.keep(job(active=1.0, choices=2), figures(5.0, 1.0))
    for i, one in enumerate(rungs):
        results.keep(one, figures(4.0, 1.0) if i < 2 else figures(12.0, 0.5))
    tried = climb([[job(active=1.0, choices=2)], rungs], results, 1)
    assert cheapest(tried, results)[0] == rungs[1]


def test_a_target_is_crossed_with_least_counts_and_a_least_count_with_targets() -> None:
    peer = strategies(POLICY, 9_000.0)["bounded-hash-active-requests"]
    leasts, first = peer.crossed({"bound": 125, "window_s": 60.0, "active": 30.0})
    assert first is not None
    assert {s["active"] for s in leasts} == {40.0}, "two rungs bolder than 30"
    assert [s["least"] for s in leasts] == sorted((s["least"] for s in leasts), reverse=True)
    targets, at = peer.crossed({"bound": 125, "window_s": 60.0, "active": 40.0, "least": 0.8})
    assert at is not None
    assert targets[at]["active"] == 40.0
    assert {s["least"] for s in targets} == {0.8}
    assert strategies(POLICY, 9_000.0)["oracle"].crossed({}) == ([], None)


def test_only_the_peer_that_profiles_depends_on_the_capacity() -> None:
    other = {name: replace(job(), strategy=name, capacity_tokens_per_s=1.0).key for name in ("oracle", "ours")}
    assert other == {name: replace(job(), strategy=name).key for name in other}
    profiled = replace(job(), strategy="rendezvous-predictive")
    assert profiled.key != replace(profiled, capacity_tokens_per_s=1.0).key


def test_the_cheapest_within_the_objective_is_best_and_else_the_nearest() -> None:
    results, jobs = Results(), [job(active=float(i)) for i in range(3)]
    for one, told in zip(jobs, [figures(9.0, 0.999), figures(7.0, 0.995), figures(3.0, 0.6)], strict=True):
        results.keep(one, told)
    assert cheapest(jobs, results)[0] == jobs[1]
    assert cheapest(jobs[2:], results)[0] == jobs[2]
    assert keeps_slo(jobs[1], results)
    assert not keeps_slo(jobs[2], results)


def test_a_job_is_known_by_all_that_it_depends_on() -> None:
    assert job(active=1.0).key == job(active=1.0).key
    assert job(active=1.0).key != job(active=2.0).key
    assert replace(job(active=1.0), scenario=replace(SCENARIO, seed=9)).key != job(active=1.0).key


def test_results_survive_a_stop_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).keep(job(active=1.0), figures(1.0, 1.0))
    with path.open("a") as file:
        file.write('{"key": "torn')
    assert Results(path).get(job(active=1.0)) == figures(1.0, 1.0)
    assert Results(path).get(job(active=2.0)) is None


def test_every_strategy_can_be_sent_to_another_process() -> None:
    known = strategies(POLICY, 9_000.0)
    assert list(known) == [
        "ours", "round-robin-hpa", "least-request-hpa", "bounded-hash-active-requests", "rendezvous-predictive",
        "affinity-saturation", "group-per-tenant", "oracle",
    ]  # fmt: skip
    for strategy in known.values():
        assert all(len(ladder) > 0 for ladder in strategy.ladders)


@pytest.mark.slow
def test_a_search_runs_what_it_needs_once() -> None:
    results, told = Results(), list[str]()
    ladder = [replace(job(), settings={"choices": 0, "active": a}) for a in (5.0, 10.0, 40.0)]
    tried = climb([ladder], results, 1, lambda j, f: told.append(j.key))
    run_jobs(tried, results, 1, lambda j, f: told.append(j.key))
    assert len(told) == len(tried) == 2
    assert cheapest(tried, results)[0].settings["active"] >= 10.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["round-robin-hpa", "bounded-hash-active-requests", "rendezvous-predictive", "affinity-saturation",
     "group-per-tenant", "oracle"],
)  # fmt: skip
def test_every_strategy_serves_what_arrives(name: str) -> None:
    strategy = strategies(POLICY, 9_000.0)[name]
    outcome = strategy.run(SCENARIO, strategy.usual, lambda share: None)
    assert outcome.requests == pytest.approx(8 * 180, rel=0.1)
    assert outcome.errors == 0
    assert outcome.slo_attainment > 0.9
    assert outcome.gpu_hours > 0


@pytest.mark.slow
def test_the_bound_needs_no_more_replicas_than_a_peer_that_keeps_the_slo() -> None:
    known = strategies(POLICY, 9_000.0)
    bound = known["oracle"].run(SCENARIO, {}, lambda share: None)
    peer = known["rendezvous-predictive"].run(SCENARIO, {"fill": 0.5, "interval_s": 60.0}, lambda share: None)
    assert bound.slo_attainment >= 0.99
    assert peer.slo_attainment >= 0.99
    assert bound.gpu_hours <= peer.gpu_hours
