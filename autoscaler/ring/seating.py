"""Place adapters on slots: rendezvous hashing, bounded by load and residents, sticky from tick to tick.

Most adapters are small and live where the hash says. The few that carry the load are seated one by one, largest
first. The result depends on the set of adapters, their loads and the previous placement, and on no order among them.
"""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from autoscaler.ring.ledger import Ledger
from autoscaler.ring.placement import (
    HOME_BOUND,
    SPARE_DEPTH,
    Infeasible,
    InfeasibleReason,
    Limits,
    Placement,
    PlacementError,
    settle,
)
from autoscaler.ring.previous import Previous, read_previous
from autoscaler.ring.ranking import Indices, Ranking, rank, rerank, rows_before
from autoscaler.ring.replication import Counts, Floats, spared_copies, wanted_copies

TAIL_SHARE = 0.05
"""Shares below this part of the mean load are placed by the hash alone: 99 % of adapters at Zipf 1."""

_WHOLE_BITS = 32  # loads become integers of at most 2^32, so that sums of two million are exact, in any order
_SQRT_HALF = 0.7071067811865476


def place(
    adapters: Sequence[str],
    loads: npt.ArrayLike,
    slots: Collection[str],
    *,
    limits: Limits,
    replication: int = 2,
    previous: Placement | None = None,
    young: npt.NDArray[np.bool_] | None = None,
    vacant: Collection[str] = (),
    standbys: int = 0,
) -> Placement:
    """Place every adapter.

    Args:
        adapters: n distinct ids in any order; the same tuple as last time is cheapest.
        loads: (n,) forecast mean load of each, in any one unit (tokens/s), finite and >= 0.
        slots: the ranked slots, active and vacant.
        limits: what a slot may carry.
        replication: R, resolved (`resolve_replication`).
        previous: the last placement, whatever its adapters, slots and R were.
        young: (n,) adapters that are a few ticks old at most: their load counts as the mean of a slot at most.
        vacant: those of `slots` that wait for a replica: they keep what they have and get nothing beyond the hash.
        standbys: ranked slots beyond R that the caller will ask for (`held_by_slot`), kept in the ranking.

    Raises:
        PlacementError: a load is not finite or negative, lengths differ, R below 1.
        ValueError: an adapter or a slot is named twice.
    """
    given = _checked(adapters, loads, replication)
    depth = replication + max(SPARE_DEPTH, standbys)
    rows = None if previous is None else rows_before(previous.ranking, adapters)
    if previous is None:
        ranking = rank(adapters, slots, depth)
    else:
        ranking = rerank(previous.ranking, adapters, slots, depth, rows)
    m = len(ranking.slots)
    if m == 0:
        nowhere = tuple(Infeasible(name, InfeasibleReason.NO_SLOTS, replication, 0) for name in ranking.adapters)
        return settle(ranking, replication, dict.fromkeys(range(len(given)), ()), given, 0.0, nowhere)
    whole, unit = _whole(given)
    mean = max(float(whole.sum()) / m, limits.quiet_load / unit)
    if young is not None:
        whole = np.where(young, np.minimum(whole, np.floor(mean)), whole)
    before = None if previous is None else read_previous(ranking, previous, rows)
    closed = {index for index, slot in enumerate(ranking.slots) if slot in vacant} if vacant else set()
    seating = _Seating(ranking, min(replication, m), whole, mean, limits, before, closed)
    seating.run()
    copies = seating.copies
    copies[list(seating.exceptions)] = [len(owners) for owners in seating.exceptions.values()]
    return Placement(
        ranking=ranking,
        replication=replication,
        exceptions=seating.exceptions,
        copies=copies,
        shares=whole * unit / np.maximum(copies, 1),
        slot_loads=np.array(seating.ledger.loads) * unit,
        slot_residents=np.array(seating.ledger.residents, np.intp),
        mean=mean * unit,
        infeasible=tuple(seating.infeasible),
    )


class _Seating:
    """One run of the phases. Rows are adapters; `loose` rows are seated one by one, the others stay with the hash."""

    def __init__(
        self,
        ranking: Ranking,
        replication: int,
        loads: Floats,
        mean: float,
        limits: Limits,
        before: Previous | None,
        closed: Collection[int],
    ) -> None:
        self.ranking, self.replication, self.loads, self.mean, self.limits = ranking, replication, loads, mean, limits
        self.before = before
        self.home = ranking.top[:, :replication]
        self.copies = self._wanted_copies()
        self.shares = loads / self.copies
        self.exceptions: dict[int, tuple[int, ...]] = {}
        self.infeasible: list[Infeasible] = []
        self.ranked: dict[int, list[int]] = {}
        self.seated: dict[int, list[int]] = {}
        # With no load at all nothing is known that could call an adapter home.
        home_limit = HOME_BOUND * mean if mean > 0 else -1.0
        self.loose = self._loose_at_first()
        tail_loads, self.tail_residents = self._tail_sums()
        tail_loads = self._shed_load(tail_loads)
        self.ledger = Ledger(
            tail_loads,
            home_limit=home_limit,
            limit=limits.bound * mean,
            max_residents=limits.residents_per_slot,
            closed=closed,
        )

    def run(self) -> None:
        """The head on top of the tail's loads; then what its residents push out of full slots, and the strays.

        A small adapter that was an exception is seated last, when slots are as full as they will be: earlier it would
        find room at home, push a neighbour out, and the two would change places on every tick.
        """
        self._seat(np.flatnonzero(self.loose & ~self.strays))
        last = np.concatenate([self._shed_residents(), np.flatnonzero(self.strays)])
        if len(last):
            self._seat(last)

    def _wanted_copies(self) -> Counts:
        before = None if self.before is None else self.before.copies_now()
        slots = len(self.ranking.slots)
        return spared_copies(
            wanted_copies(self.loads, self.mean, slots, self.replication, before),
            self.loads,
            self.ranking.hashes,
            self.mean,
            replication=self.replication,
            pairs=slots * self.limits.residents_per_slot,
            before=np.zeros(len(self.loads), np.intp) if before is None else before,
        )

    def _loose_at_first(self) -> npt.NDArray[np.bool_]:
        """The head, and what was an exception: it goes home only where there is room, or it would flap."""
        loose: npt.NDArray[np.bool_] = (self.shares >= TAIL_SHARE * self.mean) & (self.loads > 0) | (
            self.copies != self.replication
        )
        self.strays = np.zeros(len(loose), np.bool_)
        if self.before is not None:
            rows = self.before.exception_rows()
            self.strays[rows[~loose[rows]]] = True
        return loose | self.strays

    def _tail_sums(self) -> tuple[Floats, npt.NDArray[np.intp]]:
        """Load and residents of each slot by the hash alone. Sums of whole numbers: exact, whatever the order."""
        m, loose = len(self.ranking.slots), np.flatnonzero(self.loose)
        tail_loads, residents = np.zeros(m), np.zeros(m, np.intp)
        weights = self.loads.copy()
        weights[loose] = 0.0
        for owner in self.home.T:
            tail_loads += np.bincount(owner, weights, m)
            residents += np.bincount(owner, minlength=m) - np.bincount(owner[loose], minlength=m)
        return tail_loads / self.replication, residents

    def _shed_load(self, tail_loads: Floats) -> Floats:
        """Loosen the largest of the tail on slots that the hash alone fills above the bound, half-way to HOME_BOUND."""
        target = self.mean * (self.limits.bound + HOME_BOUND) / 2
        for slot in range(len(tail_loads)):
            if tail_loads[slot] <= self.limits.bound * self.mean:
                continue
            rows = self._in_order(self._tail_on(slot))
            kept = tail_loads[slot] - np.cumsum(self.shares[rows])
            self._loosen(rows[: int(np.searchsorted(-kept, -target)) + 1], tail_loads)
        return tail_loads

    def _shed_residents(self) -> Indices:
        """Count head and tail together, and loosen the least loaded of the tail on slots that hold more than L."""
        residents, most = np.array(self.ledger.residents) + self.tail_residents, self.limits.residents_per_slot
        loads, out = np.array(self.ledger.loads), []
        for slot in np.flatnonzero(residents > most).tolist():
            rows = self._in_order(self._tail_on(slot))[::-1]
            if self.before is not None:  # newcomers yield to those that are there
                rows = rows[np.argsort(self.before.rows[rows] >= 0, kind="stable")]
            excess = int(self.tail_residents[slot] + self.ledger.residents[slot]) - most
            out.append(rows[: max(excess, 0)])
            self._loosen(out[-1], loads)
        self.ledger.loads = loads.tolist()
        self.ledger.residents = (np.array(self.ledger.residents) + self.tail_residents).tolist()
        return np.concatenate(out) if out else np.zeros(0, np.intp)

    def _tail_on(self, slot: int) -> Indices:
        return np.flatnonzero((self.home == slot).any(axis=1) & ~self.loose)

    def _loosen(self, rows: Indices, slot_loads: Floats) -> None:
        self.loose[rows] = True
        for owner in self.home[rows].T:
            np.subtract.at(slot_loads, owner, self.shares[rows])
            np.subtract.at(self.tail_residents, owner, 1)

    def _in_order(self, rows: Indices) -> Indices:
        """Half-octave classes of the share, largest first, then by hash: loads that wander change places seldom."""
        return rows[np.lexsort((self.ranking.hashes[rows], -_half_octaves(self.shares[rows], self.mean)))]

    def _seat(self, rows: Indices) -> None:
        rows = self._in_order(rows)
        helds = self.before.owners(rows) if self.before is not None else [[] for _ in rows]
        classes = _half_octaves(self.shares[rows], self.mean).tolist()
        many = rows[self.copies[rows] > self.replication]
        self.ranked.update(zip(many.tolist(), self.ranking.full(many).tolist(), strict=True))
        for held, size_class in zip(helds, classes, strict=True):
            self.ledger.expect(held, size_class)
        homes, wanted, shares = self.home[rows].tolist(), self.copies[rows].tolist(), self.shares[rows].tolist()
        for row, home, held, count, share, size_class in zip(
            rows.tolist(), homes, helds, wanted, shares, classes, strict=True
        ):
            self.ledger.arrives(held)
            # Thousands may come too late, and nobody need look for their places.
            full = self.ledger.full
            owners = [] if full else self._owners(row, home, held, count, share, size_class)
            if len(owners) < self.replication and not full:
                owners = self._swapped_in(row, owners)
            if len(owners) < self.replication:
                reason = InfeasibleReason.RESIDENTS_FULL
                self.infeasible.append(Infeasible(self.ranking.adapters[row], reason, count, len(owners)))
                self.exceptions[row] = ()
                continue
            # Short of room for a large adapter's extra copies, its load is on those there are.
            self.ledger.take(owners, share * count / len(owners))
            self.seated[row] = owners
            if owners != home:
                self.exceptions[row] = tuple(owners)

    def _owners(
        self, row: int, home: list[int], held: list[int], count: int, share: float, size_class: int
    ) -> list[int]:
        """The owners of one adapter in rank order: home if it fits, else what it had, the best rank, the least load."""
        ledger = self.ledger
        ranked = home if count == len(home) else self._ranked(row)
        if ledger.fits_home(ranked[:count], held, share, size_class):
            return ranked[:count]
        owners = [slot for slot in held if ledger.takes(slot, share, size_class, held=True)][:count]
        if len(owners) == count:
            return owners
        ranked, chosen = self._ranked(row), set(owners)
        for slot in ranked:
            if len(chosen) == count:
                break
            if slot not in chosen and slot not in ledger.closed and ledger.takes(slot, share, size_class, held=False):
                chosen.add(slot)
        if len(chosen) < count:
            chosen.update(ledger.least_loaded(count - len(chosen), chosen, held, size_class))
        return [slot for slot in ranked if slot in chosen]

    def _swapped_in(self, row: int, owners: list[int]) -> list[int]:
        """Where all the room left is on slots that it already has: another adapter goes there and leaves it its place.

        Without this the last adapters of a full fleet may find two free places on one slot and none elsewhere. The
        smallest of those seated move, largest class last.
        """
        owners, spare = list(owners), self.ledger.with_room(owners)
        for other, slots in reversed(self.seated.items()):
            if not spare or len(owners) == self.replication:
                break
            for slot in [slot for slot in slots if slot not in owners]:
                target = next((free for free in spare if free not in slots), None)
                if len(owners) < self.replication and target is not None:
                    self.ledger.swap(slot, target, float(self.shares[other]))
                    slots[slots.index(slot)] = target
                    self.seated[other] = slots = [s for s in self._ranked(other) if s in slots]
                    self.exceptions[other] = tuple(slots)
                    if slots == self.home[other].tolist():
                        del self.exceptions[other]
                    owners.append(slot)
                    spare = self.ledger.with_room(owners)
        return [slot for slot in self._ranked(row) if slot in owners]

    def _ranked(self, row: int) -> list[int]:
        if row not in self.ranked:
            self.ranked[row] = self.ranking.full([row])[0].tolist()
        return self.ranked[row]


def _checked(adapters: Sequence[str], loads: npt.ArrayLike, replication: int) -> Floats:
    given = np.asarray(loads, np.float64)
    if given.shape != (len(adapters),):
        raise PlacementError(f"loads have shape {given.shape} for {len(adapters)} adapters; give one load each")
    if not (np.isfinite(given.sum()) and given.min(initial=0.0) >= 0):
        row = int(np.argmin((given >= 0) & (given < np.inf)))
        raise PlacementError(f"the load of {adapters[row]!r} is {given[row]}; it must be finite and at least 0")
    if replication < 1:
        raise PlacementError(f"replication is {replication}; it must be at least 1")
    return given


def _whole(loads: Floats) -> tuple[Floats, float]:
    """Loads as whole numbers of a unit (a power of two): 2^-32 of the largest load is below any effect."""
    largest = float(loads.max(initial=0.0))
    unit = 2.0 ** max(int(np.frexp(largest)[1]) - _WHOLE_BITS, -1000)
    return np.rint(loads / unit), unit


def _half_octaves(shares: Floats, mean: float) -> npt.NDArray[np.intp]:
    """floor(2 * log2(share / mean)) without rounding: from exponent and mantissa. No load is the lowest class."""
    if mean <= 0:
        return np.zeros(len(shares), np.intp)
    mantissa, exponent = np.frexp(shares / mean)
    classes = 2 * exponent.astype(np.intp) - np.where(mantissa >= _SQRT_HALF, 1, 2)
    return np.where(shares > 0, classes, np.iinfo(np.intp).min // 2)
