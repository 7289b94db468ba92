"""Raw samples of one series over the last window, and what may be concluded from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Series:
    """One time series as it was read.

    Attributes:
        labels: every label but the name.
        times_s: sample times, ascending, on the source's clock; at least one.
        values: samples, NaN allowed.
    """

    labels: Mapping[str, str]
    times_s: Sequence[float]
    values: Sequence[float]

    @property
    def last_s(self) -> float:
        """When the newest sample was taken."""
        return self.times_s[-1]

    @property
    def last(self) -> float:
        """The newest sample."""
        return self.values[-1]

    @property
    def span_s(self) -> float:
        """Seconds between the oldest and the newest sample; 0 with one sample."""
        return self.times_s[-1] - self.times_s[0]

    def increase(self) -> float:
        """How much a counter grew from the oldest to the newest sample; a fall is a restart from zero.

        Unlike PromQL's `increase()` nothing is extrapolated to the edges of the window.
        """
        grown = 0.0
        for before, after in pairwise(self.values):
            grown += after - before if after >= before else after
        return grown
