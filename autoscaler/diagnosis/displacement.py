"""Which adapters others push out of adapter slots and of memory, how often, by whom, and what would cure it.

Engines of today do not say whom they evict. What is used: how often routers send each adapter to each replica, the
adapter slots, and the engine's count of loads where it has one. What is not seen is called an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.diagnosis.residents import MOST_NAMED_BY
from autoscaler.diagnosis.slots import loads_per_s
from autoscaler.domain.diagnosis import Basis, Cure, Place, PushedOut
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.observation import Floats, Ints, Observation
from autoscaler.domain.signals import Fresh

MOST_TOLD = 24  # a page of them; who pushes out whom is worked out for these alone
WELL_CURED = 0.1  # of the loads that may stay for a number of slots to be called a cure
RAREST_PER_HOUR = 0.5
_HOUR_S = 3600.0
_MORE_SLOTS = (1.25, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True, slots=True, eq=False)
class Competition:
    """Who asks for adapter slots where: P pairs of adapter and READY replica, R replicas.

    Attributes:
        adapters: ids, by the numbers in `adapter`.
        adapter, replica: of each pair (P), ascending by replica, then adapter.
        rates: requests/s of each pair, above 0 (P).
        slots: adapter slots (R).
        times: counted loads over estimated ones (R); 1 where loads are not counted.
        counted: whether they are (R).
        loads: loads/s, and so evictions/s, of each pair (P).
    """

    replicas: tuple[Replica, ...]
    adapters: tuple[str, ...]
    adapter: Ints
    replica: Ints
    rates: Floats
    slots: Ints
    times: Floats
    counted: tuple[bool, ...]
    loads: Floats


def competition(observation: Observation) -> Competition:
    """Who asks for adapter slots on READY replicas, by what one observation tells."""
    pairs, count = observation.pairs, len(observation.replicas)
    ready = np.array([r.state is ReplicaState.READY for r in observation.replicas], np.bool_)
    known = np.isfinite(pairs.requests_per_s) & (pairs.requests_per_s > 0)
    known[known] = ready[pairs.replica[known]]
    keys, place = np.unique(
        pairs.replica[known] * max(len(observation.catalogue.ids), 1) + pairs.adapter[known], return_inverse=True
    )
    rates = np.bincount(place, pairs.requests_per_s[known], keys.size).astype(np.float64)
    replica, adapter = np.divmod(keys, max(len(observation.catalogue.ids), 1))
    slots = np.array([r.limits.max_loras for r in observation.replicas], np.int64)
    loads = loads_per_s(rates, replica, slots)
    signals = [r.signals.adapter_loads_per_s for r in observation.replicas]
    counted = tuple(isinstance(s, Fresh) for s in signals)
    shown = np.array([s.value if isinstance(s, Fresh) else 0.0 for s in signals], np.float64)
    foreseen = np.bincount(replica, loads, count)
    times = np.where(np.array(counted, np.bool_) & (foreseen > 0), shown / np.maximum(foreseen, 1e-12), 1.0)
    return Competition(
        observation.replicas, observation.catalogue.ids, adapter, replica, rates, slots, times, counted,
        loads * times[replica],
    )  # fmt: skip


def pushed_out(seen: Competition, residents: Sequence[PushedOut]) -> tuple[PushedOut, ...]:
    """Adapters by how often they are pushed out, the most often first, at most `MOST_TOLD`."""
    total = np.bincount(seen.adapter, seen.loads, len(seen.adapters)) * _HOUR_S
    often = np.argsort(-total, kind="stable")[:MOST_TOLD]
    often = often[total[often] >= RAREST_PER_HOUR]
    found = [*_of_slots(seen, often), *(p for p in residents if p.per_hour >= RAREST_PER_HOUR)]
    found.sort(key=lambda p: (-p.per_hour, p.adapter, p.place))
    return tuple(found[:MOST_TOLD])


def _of_slots(seen: Competition, often: Ints) -> list[PushedOut]:
    """Evictions from adapter slots: each is shared among the others of its replica as they load."""
    starts = np.searchsorted(seen.replica, np.arange(seen.slots.size + 1))
    on_replica = np.bincount(seen.replica, seen.loads, seen.slots.size)
    mine = [np.flatnonzero((seen.adapter == a) & (seen.loads > 0)) for a in often.tolist()]
    left = _without(seen, mine, starts)
    out = []
    for adapter, rows, after in zip(often.tolist(), mine, left, strict=True):
        by = np.zeros(len(seen.adapters))
        for row in rows.tolist():
            replica = seen.replica[row]
            theirs = slice(starts[replica], starts[replica + 1])
            others = max(float(on_replica[replica] - seen.loads[row]), 1e-300)
            by[seen.adapter[theirs]] += seen.loads[row] * seen.loads[theirs] / others
        by[adapter] = 0.0
        known = np.flatnonzero(by)
        first = known[np.argsort(-by[known], kind="stable")[:MOST_NAMED_BY]]
        total = float(by[known].sum())
        where = seen.replica[rows[np.argsort(-seen.loads[rows], kind="stable")]].tolist()
        out.append(
            PushedOut(
                seen.adapters[adapter], Place.SLOT,
                Basis.COUNTED if all(seen.counted[r] for r in where) else Basis.ESTIMATED,
                float(seen.loads[rows].sum()) * _HOUR_S, float(seen.rates[rows].sum()) * _HOUR_S,
                tuple(seen.replicas[r].id for r in where),
                tuple((seen.adapters[j], float(by[j]) / total) for j in first.tolist()),
                (float(on_replica[where].sum()) * _HOUR_S, after * _HOUR_S),
            )
        )  # fmt: skip
    return out


def _without(seen: Competition, gone: Sequence[Ints], starts: Ints) -> list[float]:
    """Loads/s that are left on the replicas of each adapter in turn (its pairs' rows), were it served elsewhere."""
    owner = np.repeat(np.arange(len(gone)), [rows.size for rows in gone])
    row = np.concatenate([np.zeros(0, np.int64), *gone])
    replica = seen.replica[row]
    size = starts[replica + 1] - starts[replica]
    case = np.repeat(np.arange(row.size), size)
    rows = np.arange(case.size) - np.repeat(np.cumsum(size) - size, size) + np.repeat(starts[replica], size)
    stay = rows != row[case]
    rows, case = rows[stay], case[stay]
    loads = loads_per_s(seen.rates[rows], case, seen.slots[replica]) * seen.times[seen.replica[rows]]
    return [float(v) for v in np.bincount(owner[case], loads, len(gone))]


def cures(seen: Competition, members: Collection[str], cold_group: bool) -> tuple[Cure, ...]:
    """What adapter slots, tiers and placement would each do for the READY replicas of one group.

    Args:
        seen: the fleet.
        members: the group's replicas.
        cold_group: whether COLD tenants have replicas of their own; without them that is no cure.
    """
    here = np.isin(seen.replica, [i for i, r in enumerate(seen.replicas) if r.id in members])
    numbers, replica = np.unique(seen.replica[here], return_inverse=True)
    before = float(seen.loads[here].sum()) * _HOUR_S
    if before < RAREST_PER_HOUR:
        return ()
    group = _Group(
        before, seen.adapter[here], replica, seen.rates[here], seen.slots[numbers], seen.times[numbers], cold_group
    )
    return (_by_slots(group), _by_tier(group), _by_placement(group))


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    before: float
    adapter: Ints
    replica: Ints
    rates: Floats
    slots: Ints
    times: Floats
    cold_group: bool

    def loads(self, rates: Floats, replica: Ints, slots: Ints) -> float:
        """Loads/h of other pairs or other slots on the same replicas."""
        return float((loads_per_s(rates, replica, slots) * self.times[replica]).sum()) * _HOUR_S


def _by_slots(group: _Group) -> Cure:
    """The fewest slots that end nine loads of ten."""
    used, now = int(np.bincount(group.replica).max()), int(group.slots.max())
    tried = sorted({*(math.ceil(now * more) for more in _MORE_SLOTS if now * more < used), used})
    for number in tried:
        after = group.loads(group.rates, group.replica, np.maximum(group.slots, number))
        if after <= WELL_CURED * group.before:
            break
    text = f"{number} adapter slots a replica instead of {now}, {_effect(group.before, after)}"
    return Cure("slots", group.before, after, text)


def _by_tier(group: _Group) -> Cure:
    """The least asked-for adapters go, until the others fit where they are."""
    total = np.bincount(group.adapter, group.rates).astype(np.float64)
    order = np.flatnonzero(total)[np.argsort(-total[total > 0], kind="stable")]
    stay, most = 0, order.size
    while stay < most:  # the largest number of adapters that fit
        middle = (stay + most + 1) // 2
        kept = np.isin(group.adapter, order[:middle])
        fits = np.all(np.bincount(group.replica[kept], minlength=group.slots.size) <= group.slots)
        stay, most = (middle, most) if fits else (stay, middle - 1)
    gone, moved = order.size - stay, float(total[order[stay:]].sum())
    text = f"the {gone} least asked-for of {order.size} adapters COLD, {_effect(group.before, 0.0)} here"
    text += f"; their {moved * _HOUR_S:,.0f} requests an hour ({moved / total.sum():.1%} of all) then load on first use"
    text += " in the cold group" if group.cold_group else ", which needs a cold group (`groups.cold`)"
    return Cure("tier", group.before, 0.0, text)


def _by_placement(group: _Group) -> Cure:
    """Each adapter on one replica, spread evenly by how often it is asked for."""
    total = np.bincount(group.adapter, group.rates).astype(np.float64)
    adapters = np.flatnonzero(total)
    rates, count = -np.sort(-total[adapters]), group.slots.size
    turn, place = np.divmod(np.arange(rates.size), count)
    owner = np.where(turn % 2 == 0, place, count - 1 - place)
    after = min(group.loads(rates, owner, group.slots), group.before)
    copies = group.adapter.size / adapters.size
    each = math.ceil(adapters.size / count)
    text = f"each adapter on one replica instead of {copies:.1f} on average ({each} a replica for "
    text += f"{int(group.slots.min())} slots), {_effect(group.before, after)}"
    if copies < 1.05 or after > 0.9 * group.before:
        text = f"placement alone does not help: {adapters.size} adapters on {count} replicas are {each} each at best, "
        text += f"for {int(group.slots.min())} slots"
    return Cure("placement", group.before, after, text)


def _effect(before: float, after: float) -> str:
    return f"and about {before:,.0f} adapter loads an hour become {after:,.0f}"
