"""Load and residents of each slot while adapters are seated one after the other."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest

import numpy as np
import numpy.typing as npt

DISPLACING_CLASSES = 4
"""A newcomer whose share is so many half-octaves larger (four times) takes a full slot's room from a holder: places
follow value, and yet do not change hands over every wobble (twice: half as many changes more, the same balance)."""


class Ledger:
    """What each slot carries so far, and the three limits on taking more. Slots are indices; loads have one unit."""

    def __init__(
        self,
        loads: npt.NDArray[np.float64],
        *,
        home_limit: float,
        limit: float,
        max_residents: int,
        closed: Collection[int] = (),
    ) -> None:
        """`home_limit` binds a slot that is new to an adapter, `limit` every slot; `closed` slots take nobody new."""
        # Plain lists: reading one number of a numpy array costs ten times as much.
        self.loads: list[float] = loads.tolist()
        self.residents = [0] * len(self.loads)
        self.home_limit = home_limit
        self.limit = limit
        self.max_residents = max_residents
        self.closed = frozenset(closed)
        # Classes of the adapters that held a slot and have yet to be seated, largest first.
        self._awaited: list[deque[int]] = [deque() for _ in self.loads]

    def expect(self, slots: Iterable[int], size_class: int) -> None:
        """Keep room for an adapter that held these slots; call in the order of seating."""
        for slot in slots:
            self._awaited[slot].append(size_class)

    def arrives(self, slots: Iterable[int]) -> None:
        """It is the turn of the next adapter that held these slots: its room is no longer kept."""
        for slot in slots:
            self._awaited[slot].popleft()

    def take(self, slots: Iterable[int], share: float) -> None:
        """Book one more resident with `share` on each slot."""
        for slot in slots:
            self.loads[slot] += share
            self.residents[slot] += 1

    @property
    def full(self) -> bool:
        """No slot has room for anybody."""
        return min(self.residents, default=0) >= self.max_residents

    def fits_home(self, home: Sequence[int], held: Collection[int], share: float, size_class: int) -> bool:
        """Every slot of `home` takes the share: those that it held under `limit`, the others under `home_limit`."""
        for slot in home:
            limit = self.limit if slot in held else self.home_limit
            if self.loads[slot] + share > limit or not self._has_room(slot, size_class, slot in held):
                return False
        return True

    def takes(self, slot: int, share: float, size_class: int, *, held: bool) -> bool:
        """The slot stays within `limit` and the residents."""
        return self.loads[slot] + share <= self.limit and self._has_room(slot, size_class, held)

    def least_loaded(self, count: int, besides: Collection[int], held: Collection[int], size_class: int) -> list[int]:
        """The `count` slots with least load that have room for one more, lower index on ties; perhaps fewer."""
        found = [
            slot
            for slot in range(len(self.loads))
            if slot not in besides
            and (slot in held or slot not in self.closed)
            and self._has_room(slot, size_class, slot in held)
        ]
        return nsmallest(count, found, key=self.loads.__getitem__)

    def with_room(self, taken: Collection[int]) -> list[int]:
        """Slots with room for one more than who is there, who is expected, and the caller where it has `taken` one."""
        rooms = zip(self.residents, self._awaited, strict=True)
        return [s for s, (n, awaited) in enumerate(rooms) if n + len(awaited) + (s in taken) < self.max_residents]

    def swap(self, slot: int, target: int, share: float) -> None:
        """A resident with `share` leaves `slot` for `target`; its place on `slot` is then the caller's to take."""
        self.loads[slot] -= share
        self.residents[slot] -= 1
        self.take([target], share)

    def _has_room(self, slot: int, size_class: int, held: bool) -> bool:
        """One resident more fits; for a newcomer also beside the holders to come, unless they are far smaller."""
        free = self.max_residents - self.residents[slot]
        if held or free > len(self._awaited[slot]):
            return free > 0
        return free > sum(awaited > size_class - DISPLACING_CLASSES for awaited in self._awaited[slot])
