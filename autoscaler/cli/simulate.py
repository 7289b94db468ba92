"""`simulate`: a policy and its rivals on a trace, in a table, as JSON, and as a report to look at."""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from autoscaler.cli.errors import UsageError, check_writable
from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.cli.simulation_recording import trace_of
from autoscaler.cli.simulation_report import page
from autoscaler.cli.simulation_scenario import scenario_of
from autoscaler.cli.tables import table
from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.engine.profile import ProfileError
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies.catalogue import strategies
from autoscaler.simulator.strategies.dedicated import MOST_TENANTS
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.scenario import Scenario
from autoscaler.simulator.strategies.search import Figures, Job, Results, cheapest, climb
from autoscaler.simulator.traffic import TraceError

LINE_EVERY_S = 30.0
"""Between two lines of progress where standard error is a file or a pipe."""


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison, write what was asked for. Returns 0. Raises UsageError for input that cannot be used."""
    check_writable(arguments.output, arguments.html, arguments.record, arguments.results)
    policy_file = arguments.policy or shipped_policy("default")
    policy = read_policy(policy_file)
    told = Told(len(set(arguments.strategy)))
    try:
        with trace_of(arguments, policy, policy_file) as (trace, start_s):
            scenario = scenario_of(arguments, policy, trace, start_s)
            _report(arguments, policy, scenario, _outcomes(arguments, policy, scenario, told))
    except (TraceError, ProfileError) as error:
        raise UsageError(str(error)) from error
    except KeyboardInterrupt:
        again = " what --results has kept is not run again" if arguments.tune and arguments.results else ""
        raise UsageError(f"stopped before the end: nothing is reported;{again or ' fewer --hours take less'}") from None
    finally:
        told.end()
    return 0


def _outcomes(arguments: argparse.Namespace, policy: FleetPolicy, scenario: Scenario, told: Told) -> list[Outcome]:
    """Every strategy played, in the order asked for."""
    capacity = _capacity_tokens_per_s(scenario)
    names = list(dict.fromkeys(arguments.strategy))
    tenants = len(scenario.trace.adapters)
    if tenants > MOST_TENANTS and "group-per-tenant" in names:
        raise UsageError(f"group-per-tenant needs {tenants} replicas at least; {MOST_TENANTS} are simulated at most")
    jobs = [Job(scenario, name, {}, policy, capacity, Level(arguments.routers)) for name in names]
    outcomes = list(_played(_tuned(jobs, arguments, told), arguments.jobs, told))
    told.end()
    return sorted(outcomes, key=lambda o: names.index(o.strategy))


def _report(arguments: argparse.Namespace, policy: FleetPolicy, scenario: Scenario, outcomes: list[Outcome]) -> None:
    print(_table(outcomes, scenario))
    if arguments.output:
        _write(arguments.output, json.dumps(_finite(_document(outcomes, scenario)), indent=1))
    if arguments.html:
        _write(arguments.html, page(outcomes, scenario, policy.name))


class Told:
    """A progress line on standard error, with the time left; where that is no terminal, a line every half minute."""

    def __init__(self, runs: int) -> None:
        self._runs, self._began_s, self._last, self._told = runs, time.monotonic(), "", 0
        self._ended = threading.Event()
        if not sys.stderr.isatty():
            threading.Thread(target=self._beat, daemon=True).start()

    def share(self, name: str, done: int, share: float) -> None:
        """`done` runs have ended, and so much of one more."""
        whole = (done + share) / max(1, self._runs)
        spent_s = time.monotonic() - self._began_s
        left = f"{spent_s / whole - spent_s:.0f} s left" if whole > 0.02 else "..."
        line = f"{name}: {whole:.0%}, {left}"
        if sys.stderr.isatty():
            if line != self._last:
                print(f"{line:<72}", end="\r", file=sys.stderr, flush=True)
        elif share == 1.0 and done >= self._told:
            self._told = done + 1
            print(line, file=sys.stderr, flush=True)
        self._last = line

    def line(self) -> str:
        """Where it stands, for who cannot see a line change: a run in another process tells only its end."""
        spent_s = time.monotonic() - self._began_s
        return f"{self._last or f'{self._runs} strategies to play'} ({spent_s:.0f} s so far)"

    def _beat(self) -> None:
        while not self._ended.wait(LINE_EVERY_S):
            print(self.line(), file=sys.stderr, flush=True)

    def search(self, job: Job, figures: Figures) -> None:
        """One run of a search."""
        text = (
            f"{job.strategy} {job.settings}: {figures['gpu_hours']:.2f} replica-hours, {figures['slo_attainment']:.2%}"
        )
        print(f"{text:<72}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line, and say no more."""
        self._ended.set()
        if sys.stderr.isatty():
            print(" " * 72, end="\r", file=sys.stderr, flush=True)


def _capacity_tokens_per_s(scenario: Scenario) -> float:
    """What the peer that profiles one replica beforehand would find, by this traffic's own lengths: tokens/s."""
    mix = scenario.traffic.mix(min(scenario.seconds, 7200.0) * scenario.traffic.speed, scenario.seed)
    return mix.rough_rps(scenario.engine_profile) * mix.tokens


def _tuned(jobs: list[Job], arguments: argparse.Namespace, told: Told) -> list[Job]:
    """Each strategy's usual setting, or its best one."""
    known = strategies(jobs[0].policy, jobs[0].capacity_tokens_per_s, jobs[0].level)
    if not arguments.tune:
        return [replace(job, settings=known[job.strategy].usual) for job in jobs]
    results = Results(arguments.results)
    found = []
    for job in jobs:
        ladders = [[replace(job, settings=settings) for settings in ladder] for ladder in known[job.strategy].ladders]
        found.append(cheapest(climb(ladders, results, arguments.jobs, told.search), results)[0])
    return found


def _played(jobs: list[Job], parallel: int, told: Told) -> Iterator[Outcome]:
    if parallel == 1:
        for done, job in enumerate(jobs):
            yield job.run(lambda share, done=done, job=job: told.share(job.strategy, done, share))  # type: ignore[misc]
        return
    work = Parallel(n_jobs=parallel, return_as="generator_unordered")
    for done, outcome in enumerate(work(delayed(job.run)() for job in jobs)):
        told.share(outcome.strategy, done, 1.0)
        yield outcome


def _table(outcomes: list[Outcome], scenario: Scenario) -> str:
    cheapest = outcomes[0].gpu_hours
    rows = [
        (
            o.strategy, f"{o.gpu_hours:.2f}", f"{o.gpu_hours / cheapest:.2f}" if cheapest else "-",
            f"{o.slo_attainment:.2%}", _seconds(o.ttft_p50_s), _seconds(o.ttft_p99_s),
            f"{o.adapter_loads_per_1000:.0f}", f"{o.moves}", f"{o.resizes}", f"{o.requests}", f"{o.errors}",
        )
        for o in outcomes
    ]  # fmt: skip
    target = f"WITHIN {scenario.target_ttft_s:g} S"
    headings = (
        "STRATEGY", "REPLICA-H", "RATIO", target, "TTFT P50", "TTFT P99", "LOADS/1000", "MOVES", "RESIZES", "REQUESTS",
        "REFUSED",
    )  # fmt: skip
    return table(headings, rows)


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f} s" if value < 10 else f"{value:.0f} s"


def _document(outcomes: list[Outcome], scenario: Scenario) -> dict[str, Any]:
    told = {k: v for k, v in asdict(scenario).items() if k != "traffic"}
    traffic = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(scenario.traffic).items()}
    return {"scenario": {**told, "traffic": traffic}, "strategies": {o.strategy: asdict(o) for o in outcomes}}


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
