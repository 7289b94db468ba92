"""Load and residents of each slot while adapters are seated one after the other."""

from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest

import numpy as np
import numpy.typing as npt


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

    def fits_home(self, home: Sequence[int], before: Collection[int], share: float) -> bool:
        """Every slot of `home` takes the share: those that had it under `limit`, the others under `home_limit`."""
        for slot in home:
            limit = self.limit if slot in before else self.home_limit
            if self.residents[slot] >= self.max_residents or self.loads[slot] + share > limit:
                return False
        return True

    def takes(self, slot: int, share: float) -> bool:
        """The slot stays within `limit` and the residents."""
        return self.residents[slot] < self.max_residents and self.loads[slot] + share <= self.limit

    def take(self, slots: Iterable[int], share: float) -> None:
        """Book one more resident with `share` on each slot."""
        for slot in slots:
            self.loads[slot] += share
            self.residents[slot] += 1

    def least_loaded(self, count: int, besides: Collection[int], closed: Collection[int]) -> list[int]:
        """The `count` slots with least load that can hold one more resident, lower index on ties; perhaps fewer."""
        excluded = {*besides, *closed}
        most = self.max_residents
        found = [slot for slot, residents in enumerate(self.residents) if residents < most and slot not in excluded]
        return nsmallest(count, found, key=self.loads.__getitem__)
