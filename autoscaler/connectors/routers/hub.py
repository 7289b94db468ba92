"""The ring in memory, for routers that ask our API: they wait for the next epoch, and say which one they apply."""

from __future__ import annotations

import asyncio
from collections import deque

from autoscaler.connectors.routers.epochs import judged
from autoscaler.domain.decisions import Applied, Outcome
from autoscaler.domain.fleet import Router

# A name costs memory until it ends; clients choose it.
MOST_ROUTERS = 10_000

# Enough to see what the last changes moved; a snapshot of 100,000 adapters is 2 MB.
RECENT_EPOCHS = 8


class RingHub:
    """`RingPublisher` of one fleet behind the API's long poll, events and acknowledgements.

    Args:
        router_ttl_s: a router that was not heard of for so long is gone.
    """

    def __init__(self, router_ttl_s: float) -> None:
        self._router_ttl_s = router_ttl_s
        self._last: tuple[int, bytes] | None = None
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=RECENT_EPOCHS)
        self._changed = asyncio.Event()
        self._acks: dict[str, tuple[int, float]] = {}

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Publish a snapshot if `epoch` is higher, and wake everybody who waits."""
        outcome = judged(self._last, epoch, body)
        if outcome is not None:
            return outcome
        self._last = epoch, body
        self._recent.append(self._last)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return Applied()

    async def last(self) -> tuple[int, bytes] | None:
        """The published epoch and snapshot, None where there is none."""
        return self._last

    def recent(self) -> tuple[tuple[int, bytes], ...]:
        """The last epochs and snapshots that were published here, oldest first."""
        return tuple(self._recent)

    async def newer(self, epoch: int, wait_s: float) -> tuple[int, bytes] | None:
        """The snapshot once its epoch is above `epoch`; None where that did not happen within `wait_s`."""
        try:
            async with asyncio.timeout(wait_s):
                while self._last is None or self._last[0] <= epoch:
                    await self._changed.wait()
        except TimeoutError:
            return None
        return self._last

    def acknowledge(self, router: str, epoch: int, now_s: float) -> bool:
        """A router says what it applies. False: an epoch that was never published, or too many routers."""
        if self._last is None or epoch > self._last[0]:
            return False
        self._forget(now_s)
        if router not in self._acks and len(self._acks) >= MOST_ROUTERS:
            return False
        self._acks[router] = epoch, now_s
        return True

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Routers heard of within the time to live, ascending by id."""
        self._forget(now_s)
        return tuple(Router(r, epoch, max(0.0, now_s - at_s)) for r, (epoch, at_s) in sorted(self._acks.items()))

    def _forget(self, now_s: float) -> None:
        self._acks = {r: ack for r, ack in self._acks.items() if now_s - ack[1] <= self._router_ttl_s}
