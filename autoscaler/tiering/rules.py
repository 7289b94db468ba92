"""Which tier each tenant should have, before the limits of hot groups and adapter slots.

An ordered list of rules. Each looks at all tenants at once and speaks for some of them; the first that speaks for a
tenant decides. Worked numbers with the defaults: a replica carries 4,000 tokens/s and the threshold is 3 replicas, so a
tenant is HOT from an expected 12,000 tokens/s, and leaves HOT once the upper band of the next hour was below 6,000 for
8 ticks and two hours. Up by the mean, down by the band: a wide band alone is doubt, not load, and doubt moves nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from autoscaler.domain.decisions import Reason
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.observation import Bools
from autoscaler.policy.words import Trigger
from autoscaler.tiering.memory import TIER_COLD, TIER_HOT, TIER_NEW, TIER_WARM
from autoscaler.tiering.plan import REASON_CODE, TIERS
from autoscaler.tiering.tenants import Tenants


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The tenants that a rule speaks for: rows, tier codes and the reason."""

    rows: npt.NDArray[np.int64]
    tier: npt.NDArray[np.int64]
    reason: Reason


Rule: TypeAlias = Callable[[Tenants], Answer]
NOBODY = np.zeros(0, np.int64)
ASKED = (Reason.OVERRIDE, Reason.ISOLATION_ASKED)


def unloadable(tenants: Tenants) -> Answer:
    """No replica can load its adapters: nobody's word makes them resident, so it holds no slot and no group."""
    return _where(~tenants.view.loadable, TIER_COLD, Reason.UNLOADABLE)


def overridden(tenants: Tenants) -> Answer:
    """An operator's word, until it expires."""
    rows = np.array(sorted(tenants.overrides), np.int64)
    tiers = np.array([TIERS.index(tenants.overrides[int(r)].tier) for r in rows], np.int64)
    return Answer(rows, tiers, Reason.OVERRIDE)


def pinned(tenants: Tenants) -> Answer:
    """The policy's word on a tenant's tier."""
    pins = tenants.policy.tiering.pins
    known = [t for t in sorted(pins) if t in tenants.row] if pins else []
    return Answer(tenants.rows(known), np.array([TIERS.index(pins[t]) for t in known], np.int64), Reason.OVERRIDE)


def isolated(tenants: Tenants) -> Answer:
    """The policy promises the tenant replicas of its own."""
    promised = sorted(tenants.policy.slo.dedicated)
    return _rows(tenants.rows(promised) if promised else NOBODY, TIER_HOT, Reason.ISOLATION_ASKED)


def worth_replicas(tenants: Tenants) -> Answer:
    """It is expected to need several replicas: rounding a group of its own up to whole ones wastes little."""
    mask = tenants.view.known & (tenants.view.mean_tokens_per_s > tenants.hot_tokens_per_s)
    return _where(mask & _asked(tenants, Trigger.LOAD), TIER_HOT, Reason.FORECAST_HOT)


def burst(tenants: Tenants) -> Answer:
    """A jump to that load, which the forecast does not know yet."""
    mask = tenants.view.burst & (np.nan_to_num(tenants.rate) > tenants.hot_tokens_per_s)
    return _where(mask & _asked(tenants, Trigger.LOAD), TIER_HOT, Reason.BURST_ONSET)


def slo_missed(tenants: Tenants) -> Answer:
    """It has missed its SLO for long although the ring is not saturated: more replicas there would not cure it."""
    cured_by_replicas = tenants.view.diagnosis.cause("warm") is Cause.SATURATION
    long = tenants.missed_ticks >= tenants.policy.tiering.demote_ticks
    return _where(long & (_asked(tenants, Trigger.SLO) and not cured_by_replicas), TIER_HOT, Reason.SLO_MISSED)


def noisy_neighbour(tenants: Tenants) -> Answer:
    """It hurts the others on its replicas."""
    found, enough = tenants.view.diagnosis.tenants, tenants.policy.diagnosis.noisy_score_ratio
    guilty = [t for t in sorted(found) if found[t].aggressor >= enough]
    asked = guilty and _asked(tenants, Trigger.NOISY_NEIGHBOUR)
    return _rows(tenants.rows(guilty) if asked else NOBODY, TIER_HOT, Reason.NOISY_NEIGHBOUR)


def asked_no_more(tenants: Tenants) -> Answer:
    """HOT because somebody asked, and nobody does any more: back to the ring, unless a rule above finds a reason."""
    by_word = np.isin(tenants.memory.reason, [REASON_CODE[r] for r in ASKED])
    by_word[list(tenants.returned)] = False
    return _where((tenants.before == TIER_HOT) & by_word, TIER_WARM, Reason.OVERRIDE_EXPIRED)


def new_tenant(tenants: Tenants) -> Answer:
    """A tenant that was never seen begins on the ring."""
    return _where(tenants.before == TIER_NEW, TIER_WARM, Reason.NEW_TENANT)


def woke_up(tenants: Tenants) -> Answer:
    """A COLD tenant has traffic again."""
    mask = (tenants.before == TIER_COLD) & (tenants.upper >= tenants.cold_tokens_per_s) & (tenants.upper > 0)
    return _where(mask, TIER_WARM, Reason.WOKE_UP)


def cooled(tenants: Tenants) -> Answer:
    """A HOT tenant that was quiet for long enough goes back to the ring."""
    return _where((tenants.before == TIER_HOT) & tenants.calm & tenants.stayed, TIER_WARM, Reason.QUIET)


def fell_asleep(tenants: Tenants) -> Answer:
    """Quiet WARM tenants give their adapter slots back, quietest first, while the ring cannot hold every adapter twice.

    Where it can, staying WARM costs nothing, and COLD would only make the next request wait for a load.
    """
    if not tenants.surplus:
        return _rows(NOBODY, TIER_COLD, Reason.QUIET)
    quiet = tenants.calm & tenants.stayed & (tenants.view.adapters > 0)
    rows = np.flatnonzero((tenants.before == TIER_WARM) & quiet)
    order = np.lexsort((tenants.memory.keys[rows], tenants.quiet_since_s[rows], tenants.mean[rows]))
    rows = rows[order]
    freed_before = np.cumsum(tenants.view.adapters[rows]) - tenants.view.adapters[rows]
    return _rows(rows[freed_before < tenants.surplus], TIER_COLD, Reason.QUIET)


def dwelling(tenants: Tenants) -> Answer:
    """Quiet in HOT, but not for long enough."""
    rows = np.flatnonzero(tenants.calm & (tenants.before == TIER_HOT))
    return Answer(rows, tenants.before[rows].astype(np.int64), Reason.DWELL)


def in_band(tenants: Tenants) -> Answer:
    """Nothing asks for a change."""
    return Answer(np.arange(len(tenants.view.ids)), tenants.before.astype(np.int64), Reason.IN_BAND)


RULES: tuple[Rule, ...] = (
    unloadable,
    overridden,
    pinned,
    isolated,
    worth_replicas,
    burst,
    slo_missed,
    noisy_neighbour,
    asked_no_more,
    new_tenant,
    woke_up,
    cooled,
    fell_asleep,
    dwelling,
    in_band,
)
LEARNT = (Reason.FORECAST_HOT, Reason.BURST_ONSET, Reason.SLO_MISSED, Reason.NOISY_NEIGHBOUR, Reason.WOKE_UP)


def _asked(tenants: Tenants, trigger: Trigger) -> bool:
    return trigger in tenants.policy.tiering.promote_on


def _where(mask: Bools, tier: int, reason: Reason) -> Answer:
    return _rows(np.flatnonzero(mask), tier, reason)


def _rows(rows: npt.NDArray[np.int64], tier: int, reason: Reason) -> Answer:
    return Answer(rows, np.full(rows.size, tier, np.int64), reason)
