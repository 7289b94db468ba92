"""`FleetPolicy`: what an operator wants of one fleet. Sections, keys, units and defaults are this tree of fields."""

# ruff: noqa: RUF009 - `key` makes a dataclass field

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.fleet import EngineLimits, Tier
from autoscaler.domain.signals import Fresh, Missing, Signal
from autoscaler.policy.fields import Section, key, required, section
from autoscaler.policy.groups import IDENTIFIER, NAME, Adapters, Engine, Groups, Target
from autoscaler.policy.scalars import Choice, Duration, Either, Text
from autoscaler.policy.steps import Budget, Diagnosing, Fairness, Forecasting, Ring, Scaling, Signals, Slo, Tiering
from autoscaler.policy.words import Actuation, Mode, Overflow

API_VERSION = "lora-autoscaler.io/v1alpha1"
KIND = "FleetPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """A valid policy: `spec` of the file, and the fleet's name.

    Durations are seconds (`_s`), shares are 0 to 1 (`_ratio`), None is the file's `auto` or `none`. In Python
    `FleetPolicy(name=..., base_model=...)` has every default; it is not validated.
    """

    name: str = ""

    base_model: str = required(
        IDENTIFIER,
        "The base model's name, as requests and engines know it.",
        effect="which requests go to any warm replica",
    )
    mode: Mode = key(
        Choice(Mode),
        Mode.ADVISE,
        "`advise`: compute and record. `propose`: wait for approval. `enforce`: act.",
        effect="whether plans are carried out",
    )
    actuation: Actuation = key(
        Choice(Actuation),
        Actuation.SCALE,
        "`scale`: set replica counts. `export`: publish them as metrics for an HPA or KEDA that acts.",
        effect="who changes replica counts",
    )
    tick_interval_s: float = key(
        Duration(0.1, 600),
        15.0,
        "Time between two decisions.",
        effect="how soon anything is noticed; what counts ticks takes longer or shorter",
    )
    adapters: Adapters = section(
        Adapters,
        "Where the catalogue comes from: at most one of `list`, `file`, `configMap`; else what routers saw answered "
        "(with `pathTemplate`), else what the engines show.",
        effect="which adapters are loaded, placed and served",
    )
    engine: Engine = section(
        Engine,
        "The serving engine.",
        effect="what replicas are thought to hold, hence placement and which adapters fit",
    )
    signals: Signals = section(
        Signals,
        "Where metrics come from.",
        effect="what is measured; decisions follow the new figures, and missing ones hold",
    )
    slo: Slo = section(Slo, "Service level objectives.", effect="which tenants are promoted, and when groups grow")
    groups: Groups = section(Groups, "Groups of replicas.", effect="how many replicas each group may have")
    budget: Budget = section(
        Budget, "Bounds over all groups.", effect="how many replicas and changes all groups may have together"
    )
    tiering: Tiering = section(Tiering, "When tenants change tier.", effect="which tenants are hot, warm or cold")
    scaling: Scaling = section(Scaling, "How many replicas.", effect="when groups grow and shrink")
    ring: Ring = section(
        Ring, "Which replica serves which adapter.", effect="which replica serves which adapter, and how routers choose"
    )
    forecast: Forecasting = section(
        Forecasting, "How demand is foreseen.", effect="the demand that tiers, scale and placement are decided for"
    )
    diagnosis: Diagnosing = section(
        Diagnosing, "When thrash and noisy neighbours are named.", effect="when thrash and noisy neighbours are named"
    )
    fairness: Fairness | None = key(
        Either("none", Section(Fairness)),
        None,
        "Bounds per tenant while the warm group saturates at its maximum; `none`: routers refuse nobody.",
        effect="whom routers refuse at the maximum of replicas",
    )

    @property
    def ttft_target_s(self) -> float:
        """Time to first token above which a group grows, and above which one is late: `scaling.ttft` or `slo.ttft`."""
        return self.slo.ttft_s if self.scaling.ttft_s is None else self.scaling.ttft_s

    def limits(self, tier: Tier, seen: EngineLimits) -> EngineLimits:
        """Engine limits of a tier's group: its own, else the engine's, else what is in `seen` (observed or default)."""
        group = {Tier.WARM: self.groups.warm, Tier.COLD: self.groups.cold, Tier.HOT: self.groups.hot}[tier]
        fleet = self.engine.limits.over(seen)
        return fleet if group is None else group.limits.over(fleet)

    def utilisation(self, tier: Tier = Tier.WARM) -> float:
        """Share of a replica's capacity that demand may fill; a cold pool's is smaller, above half it hurts.

        `auto`: with subsets routers bound a replica loosely, and 1,000 adapters in 64 slots had 98.0 % of first tokens
        in time at .9 and 99.6 % at .85. Where any replica may serve they keep the ring's own bound; what is left at .9
        is for the tenant that comes back within a start: a recorded day had 99.3 % in time, and 98.6 to 99.1 % at 1.
        """
        stated, cold = self.scaling.utilisation_ratio, self.groups.cold
        wanted = stated or (0.9 if self.ring.overflow is Overflow.ANY else 0.85)
        return min(wanted, cold.fill_ratio) if tier is Tier.COLD and cold is not None else wanted

    def usable(self, capacity_tokens_per_s: Signal, tier: Tier = Tier.WARM) -> Signal:
        """What demand may fill of one replica, tokens/s; Missing where its capacity is."""
        if isinstance(capacity_tokens_per_s, Missing):
            return capacity_tokens_per_s
        return Fresh(capacity_tokens_per_s.value * self.utilisation(tier))

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
