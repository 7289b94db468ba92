"""What no single key can be blamed for: bounds against bounds, targets against limits, promises against groups.

One small function per question, in the order of the file. Each yields faults with the path to blame and the paths that
it looked at, so that a rule whose inputs are already wrong stays silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autoscaler.domain.fleet import EngineLimits, Tier
from autoscaler.policy.groups import ColdGroup, HotGroups, StatedLimits, WarmGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import join
from autoscaler.policy.scalars import duration, figure
from autoscaler.policy.schedules import overlaps, zone
from autoscaler.policy.words import HotSource, Overflow, Preset

Group = WarmGroup | ColdGroup | HotGroups


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that is broken. `path` and `uses` are below `spec`."""

    path: str
    found: str
    allowed: str
    message: str
    uses: tuple[str, ...] = ()


def groups_of(policy: FleetPolicy) -> Iterator[tuple[Tier, str, Group]]:
    """Each group that the policy has, with its path."""
    for tier, group in (
        (Tier.WARM, policy.groups.warm),
        (Tier.HOT, policy.groups.hot),
        (Tier.COLD, policy.groups.cold),
    ):
        if group is not None:
            yield tier, f"groups.{tier}", group


def adapters(policy: FleetPolicy) -> Iterator[Fault]:
    """One source of the catalogue, and a template that holds the id."""
    said = policy.adapters
    ways = [n for n, v in (("list", said.list), ("file", said.file), ("configMap", said.config_map)) if v is not None]
    if len(ways) > 1:
        both = " and ".join(ways)
        yield Fault("adapters", both, "one of list, file, configMap", f"the catalogue comes from {both}; keep one")
    yield from _template("adapters.pathTemplate", said.path_template)


def _template(path: str, template: str | None) -> Iterator[Fault]:
    if template is None:
        return
    rest = template.replace("{id}", "")
    if "{id}" not in template or "{" in rest or "}" in rest:
        message = f"`{template}` must contain {{id}} and no other braces, such as /adapters/{{id}}"
        yield Fault(path, template, "a path with {id}", message)


def engine(policy: FleetPolicy) -> Iterator[Fault]:
    """A custom engine needs the query that scaling cannot do without."""
    if policy.engine.preset is Preset.CUSTOM and "waiting" not in policy.signals.queries:
        message = "`engine.preset: custom` has no metric names of its own; give at least `signals.queries.waiting`"
        yield Fault("signals.queries", "no `waiting`", "PromQL for `waiting`", message, ("engine.preset",))


def limits(policy: FleetPolicy) -> Iterator[Fault]:
    """Host memory holds at least what the adapter slots hold."""
    own: list[tuple[str, StatedLimits]] = [("engine.limits", policy.engine.limits)]
    own += [(f"{path}.limits", group.limits) for _, path, group in groups_of(policy)]
    for path, said in own:
        if said.max_loras is not None and said.max_cpu_loras is not None and said.max_cpu_loras < said.max_loras:
            message = f"maxCpuLoras {said.max_cpu_loras} is below maxLoras {said.max_loras}, which engines refuse"
            yield Fault(
                f"{path}.maxCpuLoras",
                str(said.max_cpu_loras),
                f"at least {said.max_loras}",
                message,
                (f"{path}.maxLoras",),
            )


def bounds(policy: FleetPolicy) -> Iterator[Fault]:
    """No minimum above its maximum, at any hour."""
    for _, path, group in groups_of(policy):
        low, high = group.min_replicas, group.max_replicas
        if low > high:
            message = f"minReplicas {low} is above maxReplicas {high}"
            yield Fault(f"{path}.minReplicas", str(low), f"at most {high}", message, (f"{path}.maxReplicas",))
            continue
        for i, schedule in enumerate(group.schedules):
            at = f"{path}.schedules[{i}]"
            least = low if schedule.min_replicas is None else schedule.min_replicas
            most = high if schedule.max_replicas is None else schedule.max_replicas
            if least > most:
                message = f"minReplicas {least} is above maxReplicas {most} meanwhile (what is left out is the group's)"
                yield Fault(at, str(least), f"at most {most}", message, (f"{path}.minReplicas", f"{path}.maxReplicas"))
            if isinstance(group, WarmGroup) and (least < 1 or most < 1):
                message = "the warm group may not go to 0: it serves the ring"
                yield Fault(at, str(min(least, most)), "at least 1", message)


def schedules(policy: FleetPolicy) -> Iterator[Fault]:
    """Known time zones, a beginning within the day, and never two schedules of a group at a time."""
    for _, path, group in groups_of(policy):
        for i, schedule in enumerate(group.schedules):
            at = f"{path}.schedules[{i}]"
            if zone(schedule.time_zone) is None:
                message = f"there is no time zone `{schedule.time_zone}`; use an IANA name, such as Europe/Berlin"
                yield Fault(f"{at}.timeZone", schedule.time_zone, "an IANA time zone", message)
            if schedule.start == "24:00":
                yield Fault(
                    f"{at}.from", "24:00", '"00:00" to "23:59"', 'it begins at "00:00" of the next day; write that'
                )
        if any(schedule.start == "24:00" for schedule in group.schedules):
            continue
        for i, j, moment in overlaps(group.schedules):
            message = (
                f"schedules {i} and {j} of the {path} group overlap, first on {moment}; only one may hold at a time"
            )
            yield Fault(
                f"{path}.schedules[{j}]", f"overlaps schedules[{i}]", "schedules that do not overlap", message,
                (f"{path}.schedules[{i}]",),
            )  # fmt: skip


def _asking(policy: FleetPolicy) -> list[str]:
    """Tenants that need a hot group whatever their load."""
    pinned = {tenant for tenant, tier in policy.tiering.pins.items() if tier is Tier.HOT}
    return sorted(pinned | policy.slo.dedicated)


def promises(policy: FleetPolicy) -> Iterator[Fault]:
    """Who was promised a group, or pinned to one, can have it."""
    hot, pins, asking = policy.groups.hot, policy.tiering.pins, _asking(policy)
    for tenant in asking:
        path = (
            join("tiering.pins", tenant) if pins.get(tenant) is Tier.HOT else join("slo.tenants", tenant) + ".isolation"
        )
        if hot is None:
            message = f"tenant `{tenant}` needs a hot group, but `groups.hot` is none"
            yield Fault(path, "hot", "warm or cold, or hot groups", message, ("groups.hot",))
    for tenant in sorted(policy.slo.dedicated):
        if pins.get(tenant, Tier.HOT) is not Tier.HOT:
            message = f"tenant `{tenant}` is pinned to {pins[tenant]}, but `slo` promises it replicas of its own"
            yield Fault(join("tiering.pins", tenant), pins[tenant], "hot", message, (join("slo.tenants", tenant),))
    if hot is not None and len(asking) > hot.max_groups:
        message = f"{len(asking)} tenants are pinned hot or were promised isolation, but maxGroups is {hot.max_groups}"
        yield Fault("groups.hot.maxGroups", str(hot.max_groups), f"at least {len(asking)}", message, ("tiering", "slo"))


def hot_groups(policy: FleetPolicy) -> Iterator[Fault]:
    """Hot groups have something to come from, and carry who is promoted into them."""
    hot = policy.groups.hot
    if hot is None:
        return
    path = "groups.hot"
    if hot.source is HotSource.DECLARED and len(hot.targets) < hot.max_groups:
        message = (
            f"{hot.max_groups} hot groups may be taken, but only {len(hot.targets)} targets are declared; add or lower"
        )
        yield Fault(
            f"{path}.targets", str(len(hot.targets)), f"at least {hot.max_groups}", message, (f"{path}.maxGroups",)
        )
    names = [(t.api_version, t.kind, t.namespace, t.name) for t in hot.targets]
    for i, target in enumerate(hot.targets):
        if target.name is None or names.index(names[i]) != i:
            message = "declared targets need names that differ, since each holds one tenant"
            yield Fault(f"{path}.targets[{i}].name", target.name or "auto", "a name of its own", message)
    merged = hot.merged_checkpoints
    if merged.allowed and merged.path_template is None:
        message = "merged checkpoints are allowed, but `pathTemplate` does not say where they lie"
        yield Fault(f"{path}.mergedCheckpoints.pathTemplate", "none", "a path with {id}", message)
    yield from _template(f"{path}.mergedCheckpoints.pathTemplate", merged.path_template)
    worth = policy.tiering.hot_threshold_replicas
    if worth > hot.max_replicas:
        message = (
            f"a tenant is promoted at a load of {figure(worth)} replicas, but a hot group ends at {hot.max_replicas}; "
            "raise groups.hot.maxReplicas or lower the threshold"
        )
        yield Fault(
            "tiering.hotThreshold", figure(worth), f"at most {hot.max_replicas}", message, (f"{path}.maxReplicas",)
        )


def budget(policy: FleetPolicy) -> Iterator[Fault]:
    """All minimums together fit the total."""
    groups, total = policy.groups, policy.budget.max_replicas_total
    need = groups.warm.min_replicas + (groups.cold.min_replicas if groups.cold else 0)
    need += groups.hot.min_replicas * len(_asking(policy)) if groups.hot else 0
    if need > total:
        message = f"the groups' minimums and promised hot groups need {need} replicas, but maxReplicasTotal is {total}"
        yield Fault(
            "budget.maxReplicasTotal", str(total), f"at least {need}", message, ("groups", "slo", "tiering.pins")
        )


def reachable(policy: FleetPolicy) -> Iterator[Fault]:
    """Targets that the gauges, with the tolerance, can pass; else nothing would ever scale out."""
    scaling = policy.scaling
    top = 1 + scaling.tolerance_ratio
    if scaling.kv_usage_ratio * top >= 1:
        most = figure(int(1000 / top - 1e-9) / 1000)
        message = (
            f"kvUsage {figure(scaling.kv_usage_ratio)} with tolerance {figure(scaling.tolerance_ratio)} is passed only "
            f"above {figure(round(scaling.kv_usage_ratio * top, 3))}, but the gauge ends at 1: it would never scale out"
        )
        yield Fault(
            "scaling.kvUsage", figure(scaling.kv_usage_ratio), f"at most {most}", message, ("scaling.tolerance",)
        )
    unstated = EngineLimits(max_num_seqs=0)
    batches = [n for tier, _, _ in groups_of(policy) if (n := policy.limits(tier, unstated).max_num_seqs)]
    if batches and scaling.queue_per_replica * top > min(batches):
        queue, most = figure(scaling.queue_per_replica), figure(int(min(batches) / top * 10) / 10)
        message = (
            f"queuePerReplica {queue} is out of reach where a replica runs {min(batches)} requests (maxNumSeqs): more "
            f"than a whole batch would have to wait; at most {most} is of use"
        )
        uses = ("engine.limits", "groups", "scaling.tolerance")
        yield Fault("scaling.queuePerReplica", queue, f"at most {most}", message, uses)


def ring(policy: FleetPolicy) -> Iterator[Fault]:
    """Overflow goes where requests are answered; no more owners than replicas."""
    said, most = policy.ring, policy.groups.warm.max_replicas
    if said.overflow is Overflow.ANY and not policy.engine.resolver:
        message = (
            "with overflow `any` engines without a resolver answer 404; set engine.resolver: true, or use standbys"
        )
        yield Fault("ring.overflow", "any", "owners or standbys", message, ("engine.resolver",))
    if said.overflow is Overflow.STANDBYS and said.standby_count == 0:
        message = "overflow goes to standbys, but standbyCount is 0; set it to 1, or use `overflow: owners`"
        yield Fault("ring.standbyCount", "0", "at least 1", message, ("ring.overflow",))
    if said.replication is not None and said.replication > most:
        message = f"{said.replication} owners per adapter are out of reach: the warm group ends at {most} replicas"
        yield Fault("ring.replication", str(said.replication), f"at most {most}", message, ("groups.warm.maxReplicas",))


def forecast(policy: FleetPolicy) -> Iterator[Fault]:
    """Horizons that can be learnt, and look-aheads within them."""
    said = policy.forecast
    for name, values in (("horizons", said.horizons_s), ("halfLives", said.half_lives_s)):
        if not values or list(values) != sorted(values):
            found = ", ".join(map(duration, values)) or "an empty list"
            yield Fault(f"forecast.{name}", found, "ascending durations", f"{name} must be ascending and not empty")
    for i, horizon_s in enumerate(said.horizons_s):
        if abs(horizon_s / said.bucket_s - round(horizon_s / said.bucket_s)) > 1e-6:
            message = f"horizon {duration(horizon_s)} is no multiple of bucket {duration(said.bucket_s)}"
            path = f"forecast.horizons[{i}]"
            yield Fault(path, duration(horizon_s), "a multiple of forecast.bucket", message, ("forecast.bucket",))
    last_s = max(said.horizons_s, default=0.0)
    shrink_s = policy.scaling.scale_in.horizon_s or 0.0
    looks = (("forecast.horizon", said.horizon_s), ("scaling.scaleIn.horizon", shrink_s))
    for path, ahead_s in looks:
        if said.horizons_s and ahead_s > last_s:
            message = f"it looks {duration(ahead_s)} ahead, but the last of forecast.horizons is {duration(last_s)}"
            yield Fault(path, duration(ahead_s), f"at most {duration(last_s)}", message, ("forecast.horizons",))


Rule = Callable[[FleetPolicy], Iterator[Fault]]
RULES: tuple[Rule, ...] = (
    adapters, engine, limits, bounds, schedules, promises, hot_groups, budget, reachable, ring, forecast,
)  # fmt: skip
