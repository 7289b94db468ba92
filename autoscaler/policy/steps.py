"""What each step of a decision is told: signals, targets, tiering, scaling, ring, forecast, diagnosis."""

# ruff: noqa: RUF009 - `key` makes a dataclass field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.domain.fleet import Tier
from autoscaler.policy.fields import Items, Section, Table, key, section
from autoscaler.policy.groups import IDENTIFIER
from autoscaler.policy.scalars import Choice, Duration, Either, Flag, Integer, Number, Text
from autoscaler.policy.words import Isolation, Overflow, SignalName, SlotShortage, Trigger, UnknownAdapter

LABEL = Text(r"[a-zA-Z_][a-zA-Z0-9_]*", "a Prometheus label name", 120)
PROMQL = Text("", "PromQL", 8192, lines=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """How this fleet's metrics are found: on top of the engine's preset."""

    matchers: Mapping[str, str] = key(
        Table(LABEL, Text("", "a label value", 1024), 32),
        dict,
        "Label matchers put into every engine query of the preset, such as `namespace: llm`.",
    )
    replica_label: str = key(LABEL, "pod", "Label whose value is a replica's id.")
    adapter_label: str = key(LABEL, "adapter", "Label of the router's series whose value is the adapter's id.")
    window_s: float = key(Duration(1, 3600), 60.0, "What rates are taken over; at least two scrape intervals.")
    max_age_s: float = key(Duration(1, 3600), 60.0, "An older sample is missing, not fresh.")
    queries: Mapping[SignalName, str] = key(
        Table(Choice(SignalName), PROMQL),
        dict,
        "PromQL per signal, instead of the preset's: rates per second, times in seconds, shares 0 to 1. It must keep "
        "`replicaLabel`; those of `adapter...` keep `adapterLabel` instead, `resident` keeps both.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSlo:
    """What one tenant was promised; None (`auto`) is the fleet's default."""

    ttft_s: float | None = key(Either("auto", Duration(0.001, 3600)), None, "Time to first token.")
    objective_ratio: float | None = key(
        Either("auto", Number(0.5, 0.99999)), None, "Share of requests that must meet it.", name="objective"
    )
    isolation: Isolation = key(
        Choice(Isolation),
        Isolation.SHARED,
        "`dedicated`: the tenant gets a hot group, whatever its load.",
        effect="whether the tenant has replicas of its own: a hot group is made or goes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service level objectives."""

    ttft_s: float = key(Duration(0.001, 3600), 1.0, "Time to first token that a request should meet.")
    objective_ratio: float = key(Number(0.5, 0.99999), 0.99, "Share of requests that must meet it.", name="objective")
    tenants: Mapping[str, TenantSlo] = key(
        Table(IDENTIFIER, Section(TenantSlo)), dict, "Tenants with a promise of their own, by tenant id."
    )

    def ttft_of(self, tenant: str) -> float:
        """Time to first token promised to a tenant, seconds."""
        own = self.tenants.get(tenant)
        return self.ttft_s if own is None or own.ttft_s is None else own.ttft_s

    def objective_of(self, tenant: str) -> float:
        """Share of a tenant's requests that must meet its target."""
        own = self.tenants.get(tenant)
        return self.objective_ratio if own is None or own.objective_ratio is None else own.objective_ratio

    @property
    def dedicated(self) -> frozenset[str]:
        """Tenants that were promised replicas of their own."""
        return frozenset(t for t, own in self.tenants.items() if own.isolation is Isolation.DEDICATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds over all groups together."""

    max_replicas_total: int = key(
        Integer(1, 100_000),
        32,
        "Most replicas of all groups together.",
        effect="how far all groups can grow together; lower holds growth, it removes nothing",
    )
    max_changes_per_hour: int = key(Integer(1, 100_000), 60, "Most changes of any group's replica count in an hour.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiering:
    """When a tenant changes tier. Promotion acts at once; demotion needs quiet for `demoteTicks` after `dwell`."""

    hot_threshold_replicas: float = key(
        Number(0.01, 1_000),
        3.0,
        "A tenant that is expected to need so many replicas becomes HOT; below, the ring serves it better.",
        name="hotThreshold",
        effect="which loads get a hot group; higher: fewer hot groups",
    )
    cold_threshold_tokens_per_s: float = key(
        Number(0, 1e9),
        1.0,
        "A tenant whose forecast upper band is above so many tokens/s is WARM at least; quiet below it becomes COLD.",
        name="coldThreshold",
        effect="which tenants keep residency; higher: more cold tenants",
    )
    demote_ratio: float = key(
        Number(0, 1, above=True), 0.5, "Quiet is below this share of the threshold that was passed.", name="demoteBelow"
    )
    demote_ticks: int = key(
        Integer(1, 10_000),
        8,
        "Ticks in a row that must be quiet.",
        effect="how much quiet a demotion needs; more: fewer tier changes",
    )
    dwell_s: float = key(
        Duration(),
        7200.0,
        "Minimum stay in a tier before a demotion; tenants flap within the hour.",
        effect="how long a promoted tenant stays; longer: fewer tier changes, later savings",
    )
    promote_on: tuple[Trigger, ...] = key(
        Items(Choice(Trigger), 3, unique=True),
        (),
        "What promotes to HOT besides a pin, an override or `isolation: dedicated`. Groups by load cost replicas.",
    )
    slot_fill_ratio: float = key(
        Number(0, 1, above=True),
        0.9,
        "Share of a replica's adapter slots that residents may take up; who is over is COLD where `groups.cold` is.",
        name="slotFill",
    )
    pins: Mapping[str, Tier] = key(
        Table(IDENTIFIER, Choice(Tier)),
        dict,
        "Tenants whose tier is fixed, until an override says otherwise.",
        effect="the tier of the named tenants",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOut:
    """Limits of growing. It is never delayed on purpose."""

    max_step_replicas: int = key(Integer(1, 10_000), 4, "Most replicas added to a group in a tick.", name="maxStep")
    pending_guard_s: float = key(
        Duration(1), 900.0, "Replicas that are not ready block further growth for so long; then they count as stuck."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleIn:
    """Conditions of shrinking, the expensive direction."""

    stabilisation_s: float = key(
        Duration(),
        300.0,
        "The highest need within so long is what counts.",
        effect="how long groups wait before they shrink; longer: fewer changes, more replica-hours",
    )
    max_step_replicas: int = key(Integer(1, 10_000), 1, "Most replicas taken from a group in a tick.", name="maxStep")
    margin_ratio: float = key(
        Number(0, 1), 0.1, "What must be left free under the target after the removal.", name="margin"
    )
    horizon_s: float | None = key(
        Either("auto", Duration(1)),
        None,
        "The load's upper band over so long must fit what remains; `auto`: twice `startup`, at least `stabilisation`.",
        effect="how far ahead a replica must be of no use before it goes; longer: fewer changes, more replica-hours",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How many replicas a group needs."""

    queue_per_replica: float = key(
        Number(0, 100_000, above=True),
        5.0,
        "Waiting requests (less those that wait for an adapter slot) per replica.",
        effect="when a queue makes groups grow; higher: fewer replicas, longer waits",
    )
    kv_usage_ratio: float = key(
        Number(0, 1, above=True, why="the gauge ends at 1; 80 % is 0.8"),
        0.8,
        "KV cache use, 0 to 1.",
        name="kvUsage",
        effect="when KV use makes groups grow; higher: fewer replicas, more preemptions",
    )
    ttft_s: float | None = key(
        Either("auto", Duration(0.001, 3600)),
        None,
        "Time to first token above which a group grows; `auto`: `slo.ttft`.",
    )
    utilisation_ratio: float | None = key(
        Either("auto", Number(0, 1.5, above=True)),
        None,
        "Share of what a replica carries in time that forecast demand may fill; `auto`: 0.9 with `ring.overflow: any`, "
        "else 0.85. Above 1 where what was learnt is too careful.",
        name="utilisation",
        effect="how full replicas are planned; higher: fewer replicas, less room for bursts",
    )
    tolerance_ratio: float = key(
        Number(0, 1),
        0.1,
        "A pressure within this share of its target changes nothing.",
        name="tolerance",
        effect="how small a difference is ignored; higher: fewer changes",
    )
    capacity_tokens_per_s: float | None = key(
        Either("auto", Number(0, 1e9, above=True)),
        None,
        "Prompt and completion tokens/s that a replica carries within its SLO; `auto`: measured.",
        name="capacity",
    )
    startup_s: float = key(
        Duration(), 180.0, "How long a new replica takes, until it was measured: look-ahead of growth."
    )
    scale_out: ScaleOut = section(ScaleOut, "Limits of growing.")
    scale_in: ScaleIn = section(ScaleIn, "Conditions of shrinking.")
    on_adapter_slot_shortage: SlotShortage = key(
        Choice(SlotShortage),
        SlotShortage.HOLD,
        "`grow`: add replicas where adapter slots are short and nothing is left to demote. `hold`: say so only.",
    )

    @property
    def scale_in_horizon_s(self) -> float:
        """How far ahead a replica must be of no use before it goes: coming back would cost a start."""
        stated = self.scale_in.horizon_s
        return max(2.0 * self.startup_s, self.scale_in.stabilisation_s, 1.0) if stated is None else stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Placement of adapters on the warm group, and what routers do at request time."""

    replication: int | None = key(
        Either("auto", Integer(1, 64)),
        None,
        "Owners per adapter; `auto`: the most, from 2, that the engines' adapter slots hold without loads.",
        effect="owners per adapter; more: more residents per replica, and moves when it changes",
    )
    load_bound_ratio: float = key(
        Number(1.05, 10),
        1.25,
        "A slot's placed load over the mean, at most.",
        name="loadBound",
        effect="how even placement is; lower: more exceptions and moves",
    )
    request_bound_percent: int = key(
        Integer(100, 1_000),
        125,
        "Requests in flight over the mean, in percent, at which a router takes the next owner.",
        effect="when routers leave a busy owner; lower: more spill to standbys",
    )
    request_floor: int = key(Integer(1, 10_000), 4, "Requests in flight below which that bound never bites.")
    overflow: Overflow = key(
        Choice(Overflow),
        Overflow.STANDBYS,
        "Where a request goes whose owners are over the bound; `any` needs `engine.resolver`.",
        effect="where routers send what owners cannot take",
    )
    standby_count: int = key(Integer(0, 64), 1, "Standbys per adapter, where it is registered too.")
    slot_grace_s: float = key(
        Duration(),
        600.0,
        "How long a slot waits for its replica's successor; then adapters move.",
        effect="how long a lost replica keeps its adapters; longer: fewer moves, fewer owners meanwhile",
    )
    ack_timeout_s: float = key(
        Duration(0.1), 30.0, "How long routers may take to apply an epoch before drains are held."
    )
    router_ttl_s: float = key(Duration(0.1), 60.0, "A router that was not heard for so long is not waited for.")
    moves_per_hour: int | None = key(
        Either("auto", Integer(1, 10_000_000)),
        None,
        "Moves, weighted by load, that may be spent in an hour; `auto`: half of all placed pairs, at least 100.",
        effect="how fast placement may follow; lower: fewer loads, later balance",
    )
    unknown: UnknownAdapter = key(
        Choice(UnknownAdapter),
        UnknownAdapter.COLD,
        "Names in no list: to the cold pool, or answered 404.",
        effect="whether unknown names are tried or answered 404",
    )
    residency_deadline_s: float = key(
        Duration(1), 300.0, "A new replica joins the ring without its last adapters after so long."
    )
    drain_timeout_s: float = key(Duration(0.1), 300.0, "A drained replica goes after so long, finished or not.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasting:
    """How demand is foreseen."""

    horizon_s: float = key(Duration(1), 600.0, "Look-ahead of tier decisions and placement.")
    horizons_s: tuple[float, ...] = key(
        Items(Duration(1), 8, unique=True),
        (600.0, 1800.0, 3600.0),
        "Horizons that are learnt and calibrated: ascending multiples of `bucket`; others are interpolated.",
    )
    bucket_s: float = key(Duration(1, 3600), 600.0, "Length of the buckets that history is kept in.")
    half_lives_s: tuple[float, ...] = key(
        Items(Duration(1), 12, unique=True),
        (600.0, 1200.0, 3600.0, 14400.0, 86400.0),
        "Half-lives of the moving averages, ascending.",
    )
    day_s: float = key(Duration(60), 86400.0, "Length of the season; the demo's day is shorter.")
    history_s: float = key(Duration(), 7 * 86400.0, "How far back memory is filled from Prometheus at start; 0: not.")
    learned: bool = key(
        Flag(), True, "Whether a learned model may serve where it beats the cheap ones on the last day."
    )
    retrain_every_s: float = key(Duration(60), 43_200.0, "How often it is trained anew, beside the tick.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosing:
    """When thrash and noisy neighbours are named."""

    window_s: float = key(Duration(1), 300.0, "What evidence is gathered over.")
    min_requests: int = key(Integer(1, 1_000_000), 20, "Requests in the window below which nothing is concluded.")
    thrash_loads_per_1000: float = key(
        Number(0, 1_000_000, above=True),
        100.0,
        "Adapter loads per 1,000 requests that are thrash if latency suffers.",
        name="thrashLoads",
    )
    deferred_ratio: float = key(
        Number(0, 1, above=True),
        0.5,
        "Share of waiting requests that wait for an adapter slot: also thrash.",
        name="deferred",
    )
    idle_kv_ratio: float = key(
        Number(0, 1, above=True),
        0.5,
        "KV use below which compute is to spare, so that poor latency is no saturation.",
        name="idleKv",
    )
    noisy_score_ratio: float = key(
        Number(0, 1, above=True), 0.5, "Score, 0 to 1, from which a tenant is a noisy neighbour.", name="noisyScore"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """While the warm group saturates and may not grow, routers bound each tenant before all suffer."""

    max_in_flight_per_tenant: int = key(
        Integer(1, 1_000_000),
        64,
        "Requests that one tenant may have in flight through one router while the warm group saturates at its maximum.",
    )
    retry_after_s: float = key(
        Duration(0.1, 3600), 1.0, "`Retry-After` of the 429 that the aggressor gets, in whole seconds."
    )
