"""`FleetPolicy`: what an operator wants of one fleet. Sections, keys, units and defaults are this tree of fields."""

# ruff: noqa: RUF009 - `key` makes a dataclass field

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.fleet import EngineLimits, Tier
from autoscaler.policy.fields import Section, key, required
from autoscaler.policy.groups import IDENTIFIER, NAME, Adapters, Engine, Groups, Target
from autoscaler.policy.scalars import Choice, Duration, Either, Text
from autoscaler.policy.steps import Budget, Diagnosing, Fairness, Forecasting, Ring, Scaling, Signals, Slo, Tiering
from autoscaler.policy.words import Actuation, Mode

API_VERSION = "lora-autoscaler.io/v1alpha1"
KIND = "FleetPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """A valid policy: `spec` of the file, and the fleet's name.

    Durations are seconds (`_s`), shares are 0 to 1 (`_ratio`), None is the file's `auto` or `none`. In Python
    `FleetPolicy(name=..., base_model=...)` has every default; it is not validated.
    """

    name: str = ""

    base_model: str = required(IDENTIFIER, "The base model's name, as requests and engines know it.")
    mode: Mode = key(
        Choice(Mode),
        Mode.ADVISE,
        "`advise`: compute and record. `propose`: wait for approval. `enforce`: act.",
    )
    actuation: Actuation = key(
        Choice(Actuation),
        Actuation.SCALE,
        "`scale`: set replica counts. `export`: publish them as metrics for an HPA or KEDA that acts.",
    )
    tick_interval_s: float = key(Duration(0.1, 600), 15.0, "Time between two decisions.")
    adapters: Adapters = key(Section(Adapters), Adapters, "The catalogue.")
    engine: Engine = key(Section(Engine), Engine, "The serving engine.")
    signals: Signals = key(Section(Signals), Signals, "Where metrics come from.")
    slo: Slo = key(Section(Slo), Slo, "Service level objectives.")
    groups: Groups = key(Section(Groups), Groups, "Groups of replicas.")
    budget: Budget = key(Section(Budget), Budget, "Bounds over all groups.")
    tiering: Tiering = key(Section(Tiering), Tiering, "When tenants change tier.")
    scaling: Scaling = key(Section(Scaling), Scaling, "How many replicas.")
    ring: Ring = key(Section(Ring), Ring, "Which replica serves which adapter.")
    forecast: Forecasting = key(Section(Forecasting), Forecasting, "How demand is foreseen.")
    diagnosis: Diagnosing = key(Section(Diagnosing), Diagnosing, "When thrash and noisy neighbours are named.")
    fairness: Fairness | None = key(
        Either("none", Section(Fairness)),
        None,
        "Bounds per tenant once the fleet is at its maximum; `none`: routers refuse nobody.",
    )

    def limits(self, tier: Tier, seen: EngineLimits) -> EngineLimits:
        """Engine limits of a tier's group: its own, else the engine's, else what is in `seen` (observed or default)."""
        group = {Tier.WARM: self.groups.warm, Tier.COLD: self.groups.cold, Tier.HOT: self.groups.hot}[tier]
        fleet = self.engine.limits.over(seen)
        return fleet if group is None else group.limits.over(fleet)

    def target_name(self, group: str, target: Target) -> str:
        """What a group's target is called: what the policy says, else `<fleet>-<group>`."""
        return target.name or f"{self.name}-{group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Who a policy is about."""

    name: str = required(NAME, "The fleet's name: in the API, in metrics, and in the names of what is made for it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument:
    """A policy file as it is written; `FleetPolicy` is what it means."""

    api_version: str = required(Text(API_VERSION.replace(".", r"\."), f"`{API_VERSION}`"), "The format of this file.")
    kind: str = required(Text(KIND, f"`{KIND}`"), "What this file is.")
    metadata: Metadata = required(Section(Metadata), "Who this is about.")
    spec: FleetPolicy = required(Section(FleetPolicy), "What is wanted.")
