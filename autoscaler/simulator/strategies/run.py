"""Puts one strategy before one scenario: the same traffic, engines, metrics and delays for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autoscaler.domain.decisions import DecisionRecord
from autoscaler.policy.groups import StatedLimits
from autoscaler.policy.model import FleetPolicy
from autoscaler.ring.slots import slot_name
from autoscaler.simulator.fleet.controlled import ControlledFleet
from autoscaler.simulator.fleet.engines import EngineFleet, FleetShape
from autoscaler.simulator.fleet.platform import Platform, PlatformSettings
from autoscaler.simulator.fleet.ports import EPOCH_S
from autoscaler.simulator.fleet.scraping import ScrapeSettings
from autoscaler.simulator.fleet.stream import ArrivalStream
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies import failures
from autoscaler.simulator.strategies.outcome import Outcome, Recorder
from autoscaler.simulator.strategies.peers import POOL, Peer, PeerFleet, owned, rendezvous, warm_as_routed
from autoscaler.simulator.strategies.scalers import Bounds
from autoscaler.simulator.strategies.scenario import Scenario

_SPARE_PLACES = 4  # engines that drain while others start
_MOST_RECORDS, _TIER_RECORDS = 20_000, 100
Progress = Callable[[float], None]


class Stage:
    """A scenario ready to be played: engines, platform, recorder."""

    def __init__(self, scenario: Scenario, *, loads_are_free: bool = False, one_each: bool = False) -> None:
        self.scenario = scenario
        self.names = scenario.trace.adapters
        shape = FleetShape(
            places=max(scenario.most, scenario.replicas) + _SPARE_PLACES,
            adapters=len(self.names),
            routers=scenario.routers,
            target_ttft_s=scenario.target_ttft_s,
            loads_are_free=loads_are_free,
            one_each=one_each,
        )
        self.engines = EngineFleet(scenario.engine_profile, scenario.limits, shape, scenario.seed)
        arrivals = scenario.traffic.arrivals(scenario.trace, scenario.seconds, scenario.seed)
        self.stream = ArrivalStream(arrivals)
        settings = PlatformSettings(startup_s=scenario.start_takes_s, warm_with=scenario.popularity)
        self.platform = Platform(self.engines, self.stream, settings, scenario.limits)
        self.recorder = Recorder(
            self.platform, self.names, scenario.popularity, warmup_s=scenario.warmup_s,
            interval_s=max(15.0, min(60.0, scenario.seconds / 120)),
        )  # fmt: skip
        self.recorder.watch(scenario.watched, scenario.marks_s)
        self.recorder.failures = failures.put(self.platform, scenario.failures, scenario.seed)
        self.scraping = ScrapeSettings(
            delay_s=scenario.scrape_delay_s, loss_ratio=scenario.scrape_loss_ratio, target_s=scenario.target_ttft_s,
            seed=scenario.seed,
        )  # fmt: skip

    def play(self, progress: Progress = lambda share: None) -> None:
        """Run to the end, telling the share done."""
        seconds, parts = self.scenario.seconds, 200
        for part in range(1, parts + 1):
            self.platform.run(seconds * part / parts)
            progress(part / parts)


def run_peer(
    scenario: Scenario, name: str, peer: Peer, settings: dict[str, Any], progress: Progress = lambda share: None
) -> Outcome:
    """One peer."""
    stage = Stage(scenario)
    stage.platform.resize(POOL, scenario.replicas, now=True)
    fleet = PeerFleet(
        stage.platform, peer, stage.names, scenario.popularity, Bounds(scenario.least, scenario.most), stage.scraping
    )
    stage.play(progress)
    return stage.recorder.outcome(name, settings, moves=0, tier_changes=0, resizes=fleet.resizes)


def on_an_older_ring(scenario: Scenario) -> Stage:
    """A stage whose warm group serves by plain rendezvous with two owners, each with its adapters in memory."""
    stage = Stage(scenario)
    platform = stage.platform
    platform.resize("warm", scenario.replicas, now=True)
    first = rendezvous(2, lambda i, member: slot_name(i))(platform.serving(), stage.names)
    platform.engines.route(first)
    warm_as_routed(platform, first, scenario.popularity)
    for member in platform.serving():
        platform.engines.register(member.place, owned(first, member.place))
    return stage


def run_ours(
    scenario: Scenario, name: str, policy: FleetPolicy, settings: dict[str, Any], level: Level = Level.ENVOY,
    progress: Progress = lambda share: None,
) -> Outcome:  # fmt: skip
    """The product: its controller, with this policy, and routers at this level. The scenario gives limits and bounds.

    Until the controller's first ring is published routers go by an older one.
    """
    stage = on_an_older_ring(scenario)
    platform = stage.platform
    loop = asyncio.new_event_loop()
    try:
        fleet = ControlledFleet(platform, fitted(policy, scenario), stage.names, stage.scraping, level, loop)
        stage.recorder.moves = lambda: fleet.counted.moves
        stage.recorder.tiers = lambda: _tiers(fleet)
        before = [0, 0]

        def begin() -> None:
            before[:] = [fleet.counted.moves, fleet.counted.tier_changes]

        platform.calendar.at(scenario.warmup_s, begin)
        tick_s = fleet.policy.tick_interval_s
        platform.calendar.every(tick_s, tick_s, fleet.tick)
        stage.play(progress)
        fleet.close()
    finally:
        loop.close()
    counted = fleet.counted
    outcome = stage.recorder.outcome(
        name, settings, moves=counted.moves - before[0], tier_changes=counted.tier_changes - before[1],
        resizes=counted.resizes,
    )  # fmt: skip
    records = _mattering(fleet.decisions.read("", limit=_MOST_RECORDS), EPOCH_S + scenario.warmup_s)
    told = tuple(
        {"at_s": r.at_s, "step": r.step, "subject": r.subject, "reason": r.reason.value, "before": r.before,
         "after": r.after, "message": r.message}
        for r in records
    )  # fmt: skip
    return replace(outcome, decisions=told)


def fitted(policy: FleetPolicy, scenario: Scenario) -> FleetPolicy:
    """The policy with what the scenario says of engines, bounds, SLO and start; all else is the policy's."""
    limits = StatedLimits(
        max_loras=scenario.limits.max_loras, max_cpu_loras=scenario.limits.max_cpu_loras,
        max_lora_rank=scenario.limits.max_lora_rank, max_num_seqs=scenario.limits.max_num_seqs,
    )  # fmt: skip
    warm = replace(policy.groups.warm, min_replicas=scenario.least, max_replicas=scenario.most)
    groups = replace(policy.groups, warm=warm)
    budget = replace(policy.budget, max_replicas_total=max(scenario.most, policy.groups.warm.min_replicas))
    scaling = replace(policy.scaling, startup_s=scenario.start_takes_s)
    slo = replace(policy.slo, ttft_s=scenario.target_ttft_s, objective_ratio=scenario.objective_ratio)
    engine = replace(policy.engine, limits=limits, resolver=True)
    return replace(policy, groups=groups, budget=budget, scaling=scaling, slo=slo, engine=engine)


def _mattering(records: tuple[DecisionRecord, ...], from_s: float) -> list[DecisionRecord]:
    """Every change of replicas and of the ring, and the first tier changes once the fleet was in its stride."""
    tiers = [r for r in records if r.step == "tiers" and r.at_s >= from_s][:_TIER_RECORDS]
    return sorted((*(r for r in records if r.step != "tiers"), *tiers), key=lambda r: r.id)


def _tiers(fleet: ControlledFleet) -> dict[str, int]:
    view = fleet.latest
    return {} if view is None else {tier.value: n for tier, n in view.plan.tiers.counts().items()}
