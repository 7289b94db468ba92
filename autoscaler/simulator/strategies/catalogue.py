"""The strategies by name, and what is tried to find each one's best setting.

A ladder is one kind of setting from the most cautious to the most daring; the search climbs it as far as the SLO
allows. Everything an operator of the original would turn is in a ladder or in the choice between ladders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Overflow
from autoscaler.simulator.fleet.tables import Level
from autoscaler.simulator.strategies import peers
from autoscaler.simulator.strategies.dedicated import run_dedicated
from autoscaler.simulator.strategies.oracle import run_oracle
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.peers import Peer
from autoscaler.simulator.strategies.run import Progress, run_ours, run_peer
from autoscaler.simulator.strategies.scalers import ActiveHpa, ActiveRequests, Predictive, QueueHpa, Saturation
from autoscaler.simulator.strategies.scenario import Scenario

Settings = dict[str, Any]
Ladders = list[list[Settings]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to run a fleet.

    Attributes:
        run: one scenario with one setting.
        ladders: settings to try, each list from cautious to daring.
        usual: the setting that its own documentation begins with.
        turned: the target beside `least` by which it scales, cautious to daring; empty where there is no such pair.
    """

    name: str
    run: Callable[[Scenario, Settings, Progress], Outcome]
    ladders: Ladders
    usual: Settings
    turned: tuple[str, tuple[float, ...]] = ("", ())

    def crossed(self, settings: Settings) -> tuple[list[Settings], int | None]:
        """A ladder across the one on which `settings` was found best, and where to begin; none where it has no pair.

        Of a tuned least count: every target with it. Of a target: every least count, with a target two rungs bolder.
        """
        key, values = self.turned
        if key not in settings:
            return [], None
        at = values.index(settings[key]) if settings[key] in values else None
        if "least" in settings:
            return [{**settings, key: value} for value in values], at
        bolder = values[-1 if at is None else min(at + 2, len(values) - 1)]
        return [{**settings, key: bolder, "least": least} for least in _LEASTS], _LEASTS.index(_FIRST_LEAST)


def _peer(
    name: str, build: Callable[[Settings], Peer], ladders: Ladders, usual: Settings,
    turned: tuple[str, tuple[float, ...]] = ("", ()),
) -> Strategy:  # fmt: skip
    def run(scenario: Scenario, settings: Settings, progress: Progress) -> Outcome:
        return run_peer(_bounded(scenario, settings), name, build(settings), settings, progress)

    return Strategy(name, run, ladders, usual, turned)


def _bounded(scenario: Scenario, settings: Settings) -> Scenario:
    """The scenario with the setting's least count, a multiple of the replicas at the start."""
    least = max(scenario.least, round(settings.get("least", 0.0) * scenario.replicas))
    return scenario if scenario.least == scenario.most else replace(scenario, least=least)


def _ladder(key: str, values: tuple[float, ...], **fixed: Any) -> list[Settings]:
    return [{**fixed, key: value} for value in values]


_TARGETS = (6.0, 8.0, 10.0, 12.0, 15.0, 18.0, 22.0, 26.0, 30.0, 35.0, 40.0, 47.0, 55.0, 65.0, 75.0, 90.0, 110.0)
_FILLS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.25)
_TRIGGERS = (0.76, 0.74, 0.72, 0.7, 0.68, 0.66, 0.64, 0.62, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2, 0.1)
_LEASTS = (3.0, 2.5, 2.2, 2.0, 1.8, 1.65, 1.5, 1.35, 1.2, 1.1, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35)
"""Least replicas over the scenario's: where load rises faster than a replica starts, a fixed fleet is a peer's best."""
_UTILISATIONS = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2, 1.35)
_FIRST_LEAST = 0.8
_HIGH = 40.0  # requests in flight a replica: growth above it, beside a tuned least count


def strategies(policy: FleetPolicy, capacity_tokens_per_s: float, level: Level = Level.ENVOY) -> dict[str, Strategy]:
    """All of them by name.

    Args:
        policy: ours.
        capacity_tokens_per_s: what one replica carries, for the peer that profiles it beforehand, and for us where
            an operator states it.
        level: of our routers.
    """

    def ours(scenario: Scenario, settings: Settings, progress: Progress) -> Outcome:
        return run_ours(_bounded(scenario, settings), "ours", adjusted(policy, settings), settings, level, progress)

    def oracle(scenario: Scenario, settings: Settings, progress: Progress) -> Outcome:
        return run_oracle(scenario, "oracle", settings, progress)

    def dedicated(scenario: Scenario, settings: Settings, progress: Progress) -> Outcome:
        return run_dedicated(scenario, "group-per-tenant", settings, progress)

    found = [
        Strategy(
            "ours", ours,
            [
                _ladder("utilisation", _UTILISATIONS),
                _ladder("utilisation", _UTILISATIONS, capacity_tokens_per_s=capacity_tokens_per_s),
                _ladder("least", _LEASTS, utilisation=1.0, capacity_tokens_per_s=capacity_tokens_per_s),
            ],
            {}, ("utilisation", _UTILISATIONS),
        ),
        _peer(
            "round-robin-hpa", lambda s: Peer(peers.round_robin(), QueueHpa(s["queue"])),
            [_ladder("least", (*_LEASTS, 0.0), queue=q) for q in (1.0, 5.0)],
            {"queue": 5.0},
        ),
        _peer(
            "least-request-hpa", lambda s: Peer(peers.least_requests(s["choices"]), ActiveHpa(s["active"])),
            [
                *(_ladder("active", _TARGETS, choices=c) for c in (2, 0)),
                _ladder("least", _LEASTS, choices=0, active=_HIGH),
            ],
            {"choices": 2, "active": 30.0}, ("active", _TARGETS),
        ),
        _peer(
            "bounded-hash-active-requests",
            lambda s: Peer(peers.bounded_hash(s["bound"]), ActiveRequests(s["active"], s["window_s"])),
            [
                *(_ladder("active", _TARGETS, bound=125, window_s=w) for w in (60.0, 600.0)),
                _ladder("least", _LEASTS, bound=125, active=_HIGH, window_s=60.0),
            ],
            {"bound": 125, "active": 100.0, "window_s": 600.0}, ("active", _TARGETS),
        ),
        _peer(
            "rendezvous-predictive",
            lambda s: Peer(peers.rendezvous(2), Predictive(capacity_tokens_per_s, s["fill"], s["interval_s"])),
            [
                *(_ladder("fill", _FILLS, interval_s=i) for i in (60.0, 180.0)),
                _ladder("least", _LEASTS, fill=1.0, interval_s=60.0),
            ],
            {"fill": 0.8, "interval_s": 180.0}, ("fill", _FILLS),
        ),
        _peer(
            "affinity-saturation",
            lambda s: Peer(peers.affinity(s["affinity"]), Saturation(s["kv_trigger"], s["queue_trigger"])),
            [
                *(_ladder("kv_trigger", _TRIGGERS, affinity=w, queue_trigger=3.0) for w in (1.0, 4.0)),
                _ladder("least", _LEASTS, affinity=4.0, kv_trigger=0.5, queue_trigger=3.0),
            ],
            {"affinity": 1.0, "kv_trigger": 0.1, "queue_trigger": 3.0}, ("kv_trigger", _TRIGGERS),
        ),
        Strategy("group-per-tenant", dedicated, [[{"queue": 5.0}]], {"queue": 5.0}),
        Strategy("oracle", oracle, [[{}]], {}),
    ]  # fmt: skip
    return {strategy.name: strategy for strategy in found}


def adjusted(policy: FleetPolicy, settings: Settings) -> FleetPolicy:
    """The policy with a setting of the search in place of its own."""
    scaling = policy.scaling
    if "utilisation" in settings:
        scaling = replace(scaling, utilisation_ratio=settings["utilisation"])
    if "capacity_tokens_per_s" in settings:
        scaling = replace(scaling, capacity_tokens_per_s=settings["capacity_tokens_per_s"])
    ring = policy.ring
    if "overflow" in settings:
        ring = replace(ring, overflow=Overflow(settings["overflow"]))
    return replace(policy, scaling=scaling, ring=ring)
