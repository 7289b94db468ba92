"""Why a tenant is where it is, in sentences with numbers: built for those that changed and those that are asked about.

A trail has the past (what set the present tier, since when), what the first rule that spoke said, and the limit that
overruled it where one did. Each sentence holds the number that makes the tier better than WARM, or says who asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.domain.decisions import Condition, Reason, Step, TierDecision
from autoscaler.domain.figures import figure
from autoscaler.domain.fleet import Tier
from autoscaler.domain.observation import Bools, Floats
from autoscaler.domain.signals import Fresh
from autoscaler.tiering.limits import most_hot_groups
from autoscaler.tiering.memory import TIER_COLD, TIER_HOT, TIER_NEW, TIER_WARM, Codes
from autoscaler.tiering.plan import REASON_CODE, REASONS, TIERS
from autoscaler.tiering.tenants import Tenants


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What one tick's decisions rest on: columns of T tenants, before and after the limits.

    Attributes:
        asked: tenants that an operator or the policy put where they are.
    """

    tenants: Tenants
    ruled_tier: Codes
    ruled_reason: npt.NDArray[np.int16]
    tier: Codes
    reason: npt.NDArray[np.int16]
    since_s: Floats
    asked: Bools


def decision(evidence: Evidence, row: int) -> TierDecision:
    """One tenant's decision with its trail."""
    tenants = evidence.tenants
    before = int(tenants.memory.tier[row])
    ruled, final = REASONS[evidence.ruled_reason[row]], REASONS[evidence.reason[row]]
    trail = [Step(ruled, TIERS[evidence.ruled_tier[row]].value, _SENTENCES[ruled](tenants, row))]
    if before != TIER_NEW:
        trail.insert(0, _past(tenants, row, before))
    if final is not ruled:
        trail.append(Step(final, TIERS[evidence.tier[row]].value, _SENTENCES[final](tenants, row)))
    override = tenants.overrides.get(row)
    return TierDecision(
        tenant=tenants.view.ids[row],
        before=None if before == TIER_NEW else TIERS[before],
        after=TIERS[evidence.tier[row]],
        reason=final,
        trail=tuple(trail),
        since_s=float(evidence.since_s[row]),
        override_expires_at_s=None if override is None else override.expires_at_s,
    )


def conditions(evidence: Evidence) -> tuple[Condition, ...]:
    """Promises that cannot be kept, which an operator must know."""
    full = evidence.reason == REASON_CODE[Reason.HOT_GROUPS_FULL]
    broken = [evidence.tenants.view.ids[row] for row in np.flatnonzero(full & evidence.asked)]
    if not broken:
        return ()
    most = most_hot_groups(evidence.tenants)
    text = f"{', '.join(sorted(broken)[:10])}: HOT was asked for, but there may be only {most} hot groups"
    return (Condition("HotGroupsFull", text),)


def _past(tenants: Tenants, row: int, before: int) -> Step:
    code = int(tenants.memory.reason[row])
    why = REASONS[code] if code >= 0 else Reason.IN_BAND
    stayed_s = max(0.0, tenants.now_s - float(tenants.memory.since_s[row]))
    return Step(why, TIERS[before].value, f"{TIERS[before].value} for {_span(stayed_s)}, set by {why.value}")


def _unloadable(tenants: Tenants, row: int) -> str:
    return "no replica could load any of its adapters, so it holds no adapter slot and no group"


def _override(tenants: Tenants, row: int) -> str:
    override = tenants.overrides.get(row)
    if override is None:
        tenant = tenants.view.ids[row]
        return f"asked for by the policy: tiering.pins.{tenant} is {tenants.policy.tiering.pins[tenant].value}"
    left = _span(override.expires_at_s - tenants.now_s)
    displaced = tenants.memory.displaced.get(override.tenant)
    put_aside = int(tenants.before[row]) if displaced is None else displaced.tier
    back = TIERS[put_aside] if put_aside >= 0 else Tier.WARM
    return f"asked for by {override.actor} ({override.reason}); it ends in {left}, then {back.value} comes back"


def _override_expired(tenants: Tenants, row: int) -> str:
    if row not in tenants.returned:
        return "nobody asks for HOT any more, and its load does not: back to the ring"
    return f"the override ended: {TIERS[int(tenants.before[row])].value} comes back, as it was before"


def _isolation(tenants: Tenants, row: int) -> str:
    return f"asked for by the policy: slo.tenants.{tenants.view.ids[row]}.isolation is dedicated"


def _load(tenants: Tenants, row: int) -> str:
    mean = float(tenants.view.mean_tokens_per_s[row])
    return (
        f"{figure(mean)} tokens/s expected, {_replicas(tenants, mean)}; {_hot_line(tenants)}; {_worth(tenants, mean)}"
    )


def _burst(tenants: Tenants, row: int) -> str:
    now = float(tenants.rate[row])
    return f"a jump to {figure(now)} tokens/s, {_replicas(tenants, now)}; {_hot_line(tenants)}; {_worth(tenants, now)}"


def _slo(tenants: Tenants, row: int) -> str:
    ticks = int(tenants.missed_ticks[row])
    return f"its SLO was missed for {ticks} ticks in a row, and the ring is not saturated (promoteOn: slo)"


def _noisy(tenants: Tenants, row: int) -> str:
    found = tenants.view.diagnosis.tenants[tenants.view.ids[row]]
    enough = tenants.policy.diagnosis.noisy_score_ratio
    return (
        f"aggressor score {found.aggressor:.2f}, named from {enough:.2f}: it adds {found.effect.mean_s:.3g} s to the "
        f"first tokens of {len(found.others)} tenants beside it"
    )


def _new(tenants: Tenants, row: int) -> str:
    return f"never seen before: it begins on the ring; upper band {figure(tenants.upper[row])} tokens/s"


def _woke(tenants: Tenants, row: int) -> str:
    upper = float(tenants.upper[row])
    return f"upper band {figure(upper)} tokens/s; a COLD tenant wakes up from {figure(tenants.cold_tokens_per_s)}"


def _quiet(tenants: Tenants, row: int) -> str:
    line, upper = float(tenants.quiet_below[row]), float(tenants.later_upper[row])
    quiet_s = tenants.now_s - float(tenants.quiet_since_s[row])
    for_s = f"{_span(quiet_s)} (needs {_span(tenants.dwell_s[row])})"
    text = f"upper band {figure(upper)} tokens/s, below {figure(line)} for {for_s}"
    if tenants.before[row] == TIER_HOT:
        return f"{text}: {_worth(tenants, upper)}"
    slots = tenants.slots or 0
    return (
        f"{text}: gives back {int(tenants.view.adapters[row])} adapter slots of a ring that holds {tenants.on_ring} "
        f"adapters in {slots}, not each twice, so that {_copies(tenants, row)} on two replicas; of its own next hour "
        f"{figure(float(tenants.mean[row]) * 3600)} tokens are expected to wait for a load"
    )


def _dwell(tenants: Tenants, row: int) -> str:
    since_s = max(float(tenants.since_s[row]), float(tenants.quiet_since_s[row]))
    left = float(tenants.dwell_s[row]) - (tenants.now_s - since_s)
    upper = float(tenants.later_upper[row])
    return f"quiet at {figure(upper)} tokens/s, {_worth(tenants, upper)}, but it stays for {_span(left)} more (dwell)"


def _in_band(tenants: Tenants, row: int) -> str:
    upper = float(tenants.upper[row])
    if not tenants.view.known[row]:
        return "its demand is unknown, so it stays"
    text = f"upper band {figure(upper)} tokens/s is {_replicas(tenants, upper)}; {_hot_line(tenants)}"
    if tenants.before[row] == TIER_WARM and tenants.quiet[row]:
        return f"{text}; quiet, but the ring holds every adapter twice, so COLD would gain nothing"
    if tenants.before[row] == TIER_HOT:
        later = float(tenants.later_upper[row])
        return f"{text}; {_worth(tenants, later)}; it goes back below {figure(float(tenants.quiet_below[row]))}"
    if tenants.before[row] == TIER_COLD:
        return f"{text}; asleep, it leaves {int(tenants.view.adapters[row])} adapter slots to others"
    return text


def _groups_full(tenants: Tenants, row: int) -> str:
    return f"there may be {most_hot_groups(tenants)} hot groups (groups.hot, budget), and others are worth more"


def _group_too_small(tenants: Tenants, row: int) -> str:
    asks = max(float(tenants.upper[row]), float(tenants.mean[row])) / tenants.usable_tokens_per_s
    most = tenants.group_replicas(row, np.asarray(tenants.before == TIER_HOT))
    return (
        f"it needs {asks:.2f} replicas, and its group may have {most} (groups.hot.maxReplicas, and what the others "
        "leave of budget.maxReplicasTotal): the ring spreads it over more"
    )


def _slot_budget(tenants: Tenants, row: int) -> str:
    each = float(tenants.mean[row]) / max(int(tenants.view.adapters[row]), 1)
    return (
        f"the ring's {tenants.slots} adapter slots are taken by tenants worth more than its "
        f"{figure(each)} tokens/s per adapter"
    )


def _worth(tenants: Tenants, tokens_per_s: float) -> str:
    """By how much HOT beats WARM, in replicas: zero at the demotion threshold."""
    if not np.isfinite(tenants.hot_tokens_per_s):
        return "its worth is unknown before a replica's capacity is"
    worth = tenants.hot_worth_replicas(tokens_per_s)
    spared, price = worth + tenants.policy.tiering.demote_ratio, tenants.policy.tiering.demote_ratio
    return (
        f"HOT is {'better' if worth >= 0 else 'worse'} than WARM by {abs(worth):.2f} replicas "
        f"(isolation {spared:.2f}, a group's rounding {price:.2f})"
    )


def _copies(tenants: Tenants, row: int) -> str:
    count = min(int(tenants.view.adapters[row]), tenants.surplus)
    return f"{count} busier {'adapter is' if count == 1 else 'adapters are'}"


def _hot_line(tenants: Tenants) -> str:
    threshold = tenants.policy.tiering.hot_threshold_replicas
    if not np.isfinite(tenants.hot_tokens_per_s):
        return "nobody is HOT by load before a replica's capacity is known"
    return f"HOT from {threshold:.3g} replicas ({figure(tenants.hot_tokens_per_s)} tokens/s)"


def _replicas(tenants: Tenants, tokens_per_s: float) -> str:
    capacity = tenants.view.capacity_tokens_per_s
    if not isinstance(capacity, Fresh) or capacity.value <= 0:
        return "an unknown share of a replica"
    return f"{tokens_per_s / capacity.value:.2f} replicas"


def _span(seconds: float) -> str:
    if not np.isfinite(seconds):
        return "no time"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


_SENTENCES: dict[Reason, Callable[[Tenants, int], str]] = {
    Reason.UNLOADABLE: _unloadable,
    Reason.OVERRIDE: _override,
    Reason.OVERRIDE_EXPIRED: _override_expired,
    Reason.ISOLATION_ASKED: _isolation,
    Reason.FORECAST_HOT: _load,
    Reason.BURST_ONSET: _burst,
    Reason.SLO_MISSED: _slo,
    Reason.NOISY_NEIGHBOUR: _noisy,
    Reason.NEW_TENANT: _new,
    Reason.WOKE_UP: _woke,
    Reason.QUIET: _quiet,
    Reason.DWELL: _dwell,
    Reason.IN_BAND: _in_band,
    Reason.HOT_GROUPS_FULL: _groups_full,
    Reason.GROUP_TOO_SMALL: _group_too_small,
    Reason.ADAPTER_SLOT_BUDGET: _slot_budget,
}
