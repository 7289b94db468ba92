"""Which epochs routers have applied: nothing drains before they let go of it."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.decisions import Condition
from autoscaler.domain.fleet import Router


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What routers said.

    Attributes:
        routers: those heard within `ring.routerTtl`; the others are not waited for.
        timeout_s: `ring.ackTimeout`: how long routers may take before `RouterLag` is raised, and how long an epoch is
            out before it counts where no router says anything.
        newest: the highest epoch that was published. A router that names a higher one follows another ring, or none.
    """

    routers: tuple[Router, ...]
    timeout_s: float
    now_s: float
    newest: int

    def of(self, epoch: int, published_at_s: float) -> bool:
        """Whether every router applies `epoch` or a later one. A router that lags holds it, however long."""
        if not self.routers:
            return self.now_s - published_at_s >= self.timeout_s
        return all(epoch <= router.epoch <= self.newest for router in self.routers)

    def lag(self, epoch: int, published_at_s: float) -> Condition | None:
        """`RouterLag`, where an epoch is out for longer than the timeout and some router has not applied it."""
        behind = [r for r in self.routers if not epoch <= r.epoch <= max(self.newest, epoch)]
        if not behind or self.now_s - published_at_s < self.timeout_s:
            return None
        worst = min(behind, key=lambda r: r.epoch)
        return Condition(
            "RouterLag",
            f"{len(behind)} of {len(self.routers)} routers have not applied epoch {epoch} after "
            f"{self.now_s - published_at_s:.0f} s (`{worst.id}` is at {worst.epoch}, the newest is "
            f"{max(self.newest, epoch)}); drains are held. "
            "Look at that router's log and at what it reads the ring from.",
        )
