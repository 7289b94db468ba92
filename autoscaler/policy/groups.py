"""What a fleet is made of: adapters, engines, groups of replicas, their bounds and schedules."""

# ruff: noqa: RUF009 - `key` makes a dataclass field

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscaler.domain.fleet import EngineLimits
from autoscaler.policy.fields import Items, Section, key, required, section
from autoscaler.policy.scalars import Choice, Duration, Either, Flag, Integer, Number, Text
from autoscaler.policy.words import CatalogueKind, Day, HotSource, Preset

NAME = Text(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", "lower-case letters, digits and '-', at most 40", 40)
OBJECT = Text(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "a Kubernetes object name")
IDENTIFIER = Text("", "1 to 253 bytes without control characters")
CLOCK = Text(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00", 'a quoted time of day, "08:00" to "24:00"', 5)
ZONE = Text(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", "an IANA time zone, such as `Europe/Berlin`", 64)
OPTIONAL = Text("", "a text without control characters", least_bytes=0)
LINE = Text("", "one line", 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One adapter of the catalogue."""

    id: str = required(IDENTIFIER, "The adapter's id, which is its routing key and its name in requests.")
    tenant: str = key(OPTIONAL, "", "Who owns it. Left out: the id itself.")
    source: str = key(
        Text("", "one line", 4096, least_bytes=0),
        "",
        "What the engine gets as `lora_path`. Left out: `adapters.pathTemplate`.",
    )
    rank: int = key(Integer(0, 4096), 0, "LoRA rank; 0 means unknown.")
    revision: str = key(OPTIONAL, "", "A change of it loads the new one before the old goes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Where the catalogue comes from: `list`, `file` or `configMap`, at most one.

    With none of them it is what routers saw answered (`pathTemplate` says where each lies), or, without a template,
    what the engines' `/v1/models` shows.
    """

    list: tuple[CatalogueEntry, ...] | None = key(
        Either("none", Items(Section(CatalogueEntry, "id"), 100_000)),
        None,
        "The catalogue itself. An entry may be a bare id.",
    )
    file: str | None = key(
        Either("none", LINE), None, "A watched YAML file with such a list, relative to this policy's folder."
    )
    config_map: str | None = key(
        Either("none", OBJECT), None, "A watched ConfigMap with such a list under the key `adapters.yaml`."
    )
    path_template: str | None = key(
        Either("none", LINE),
        None,
        "Source of entries without one; `{id}` stands for the adapter's id. Alone: any id that routers saw answered.",
    )

    allowed_sources: tuple[str, ...] = key(
        Items(LINE, 64),
        (),
        "Folders or URL prefixes, in one of which every source must lie, such as `/adapters` or `s3://models`; empty: "
        "anywhere. For catalogues that others may write: engines fetch what a source says.",
    )

    @property
    def kind(self) -> CatalogueKind:
        """Which of the ways it is; `engine` where nothing is said."""
        if self.list is not None:
            return CatalogueKind.LIST
        if self.file is not None:
            return CatalogueKind.FILE
        if self.config_map is not None:
            return CatalogueKind.CONFIG_MAP
        return CatalogueKind.ENGINE if self.path_template is None else CatalogueKind.PATH_TEMPLATE


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLimits:
    """Engine limits as stated; None (`auto`) is what the engine shows, else its own default."""

    max_loras: int | None = key(
        Either("auto", Integer(1, 4096)),
        None,
        "Adapter slots: the most distinct adapters in one batch.",
        effect="how many adapters fit a replica: replication, and who is demoted for want of adapter slots",
    )
    max_cpu_loras: int | None = key(
        Either("auto", Integer(1, 100_000)), None, "Adapters resident in host memory, at least `maxLoras`."
    )
    max_lora_rank: int | None = key(Either("auto", Integer(1, 4096)), None, "Highest rank that loads.")
    max_num_seqs: int | None = key(Either("auto", Integer(1, 65_536)), None, "Most running requests.")

    def over(self, seen: EngineLimits) -> EngineLimits:
        """The limits that hold: what is stated here, else what is in `seen`. Host adapters are never below slots."""
        max_loras = self.max_loras or seen.max_loras
        return replace(
            seen,
            max_loras=max_loras,
            max_cpu_loras=max(max_loras, self.max_cpu_loras or seen.max_cpu_loras),
            max_lora_rank=self.max_lora_rank or seen.max_lora_rank,
            max_num_seqs=self.max_num_seqs or seen.max_num_seqs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How gently adapters are loaded into engines."""

    parallel_per_replica: int = key(Integer(1, 64), 2, "Loads in flight on one replica; each stalls its requests.")
    timeout_s: float = key(Duration(0.1, 3600), 60.0, "A load that takes longer has failed.")
    attempts: int = key(Integer(1, 100), 3, "Failed loads of one adapter on one replica before another slot is tried.")
    backoff_s: float = key(Duration(0.01, 3600), 10.0, "Wait after the first failure; it doubles with each.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The serving engine: preset and limits."""

    preset: Preset = key(
        Choice(Preset), Preset.VLLM, "Metric names and adapter calls; `custom`: only `signals.queries`."
    )
    limits: StatedLimits = section(StatedLimits, "Limits of every group's engines; a group's own go before these.")
    resolver: bool = key(
        Flag(),
        False,
        "Whether engines load an unknown adapter by themselves at its first request (vLLM resolver plugin).",
        effect="whether replicas may be sent adapters that are not registered there",
    )
    loading: Loading = section(Loading, "Rates, time-outs and retries of adapter loads.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What holds a group's replica count: any object with a `scale` subresource. The local actuator takes the name."""

    name: str | None = key(Either("auto", OBJECT), None, "The object's name; `auto`: `<fleet>-<group>`.")
    kind: str = key(Text(r"[A-Z][A-Za-z0-9]*", "a Kubernetes kind", 63), "Deployment", "Its kind.")
    api_version: str = key(Text(r"[a-z0-9.-]+(/[a-z0-9]+)?", "such as `apps/v1`", 120), "apps/v1", "Its API version.")
    namespace: str | None = key(Either("auto", OBJECT), None, "Its namespace; `auto`: the controller's own.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Bounds that hold at certain hours. Two schedules of a group may not overlap."""

    days: tuple[Day, ...] = key(
        Items(Choice(Day), 7, unique=True), tuple(Day), "Days on which it begins, `mon` to `sun`. Left out: all."
    )
    start: str = required(CLOCK, "When it begins, local time.", name="from")
    end: str = required(CLOCK, "When it ends, local time; at or before `from` means on the next day.", name="to")
    time_zone: str = key(ZONE, "UTC", "IANA time zone of `from` and `to`.")
    min_replicas: int | None = key(Either("auto", Integer(0, 10_000)), None, "Minimum meanwhile; `auto`: the group's.")
    max_replicas: int | None = key(Either("auto", Integer(0, 10_000)), None, "Maximum meanwhile; `auto`: the group's.")


SCHEDULES = Items(Section(Schedule), 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmGroup:
    """The ring group."""

    target: Target = section(Target, "What is scaled.")
    min_replicas: int = key(Integer(1, 10_000), 2, "Never fewer; 2 keep every adapter served while one is replaced.")
    max_replicas: int = key(Integer(1, 10_000), 16, "Never more.")
    limits: StatedLimits = section(StatedLimits, "Limits of this group's engines.")
    schedules: tuple[Schedule, ...] = key(SCHEDULES, (), "Bounds by time of day.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdGroup:
    """A shared pool for COLD tenants. Measured, it seldom pays: without one they use the warm group's spare slots."""

    target: Target = section(Target, "What is scaled.")
    min_replicas: int = key(Integer(0, 10_000), 0, "Never fewer; 0 lets it sleep until the first request.")
    max_replicas: int = key(Integer(1, 10_000), 2, "Never more.")
    idle_after_s: float = key(Duration(1), 900.0, "No request for so long lets it go to 0.")
    fill_ratio: float = key(
        Number(0, 1, above=True),
        0.5,
        "Share of its measured capacity that it is filled to; above half it hurts.",
        name="fill",
    )
    limits: StatedLimits = section(StatedLimits, "Limits of this group's engines.")
    schedules: tuple[Schedule, ...] = key(SCHEDULES, (), "Bounds by time of day.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPatch:
    """What a hot group's pods have different from the warm group's."""

    container: str | None = key(Either("auto", NAME), None, "The engine's container; `auto`: the first.")
    args: tuple[str, ...] = key(
        Items(LINE, 64),
        (),
        "Arguments put after the container's own. `{maxLoras}` is the tenant's number of adapters, `{checkpoint}` the "
        "merged checkpoint, `{adapter}` the name that it is to be served by.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedCheckpoints:
    """Consent to serve a hot tenant from a checkpoint with its adapter merged in."""

    allowed: bool = key(Flag(), False, "Whether it may be done. Advice on it is given either way.")
    path_template: str | None = key(
        Either("none", LINE), None, "Where the checkpoint lies; `{id}` stands for the adapter's id. We never merge."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HotGroups:
    """Dedicated groups, one per HOT tenant."""

    source: HotSource = key(
        Choice(HotSource), HotSource.TEMPLATE, "Made from the warm group's template, or one of `targets`."
    )
    targets: tuple[Target, ...] = key(
        Items(Section(Target), 1_000), (), "With `source: declared`: objects at 0 replicas to take groups from."
    )
    template: PodPatch = section(PodPatch, "With `source: template`: what its pods have different.")
    max_groups: int = key(Integer(1, 1_000), 4, "Most hot groups at a time.")
    min_replicas: int = key(Integer(1, 10_000), 1, "Of each group: never fewer.")
    max_replicas: int = key(Integer(1, 10_000), 8, "Of each group: never more; the ring serves who needs more.")
    merged_checkpoints: MergedCheckpoints = section(MergedCheckpoints, "Consent to merge.")
    limits: StatedLimits = section(StatedLimits, "Limits of these groups' engines.")
    schedules: tuple[Schedule, ...] = key(SCHEDULES, (), "Bounds by time of day, of each group.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The three kinds of group."""

    warm: WarmGroup = section(WarmGroup, "The ring group.")
    hot: HotGroups | None = key(
        Either("none", Section(HotGroups)), HotGroups, "Dedicated groups; `none`: no tenant is ever HOT."
    )
    cold: ColdGroup | None = key(
        Either("none", Section(ColdGroup)),
        None,
        "The shared cold pool; `none`: COLD tenants use the warm group's spare adapter slots.",
    )
