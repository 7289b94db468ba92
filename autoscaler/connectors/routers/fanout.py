"""Several places at once. The first is the durable one: what it holds is what the others are brought up to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from autoscaler.domain.decisions import Applied, Failed, Outcome
from autoscaler.domain.fleet import Router
from autoscaler.ports import RingPublisher, TemporaryError


class Publishers:
    """`RingPublisher` over others. The first must not forget; the others may, as after a restart, and are caught up."""

    def __init__(self, durable: RingPublisher, others: Sequence[RingPublisher]) -> None:
        self._durable = durable
        self._others = tuple(others)

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Publish to the durable place, and only then to the others; a failure of any is the outcome."""
        outcome = await self._durable.publish(epoch, body)
        if not isinstance(outcome, Applied):
            return outcome
        outcomes = await asyncio.gather(*(other.publish(epoch, body) for other in self._others))
        failed = [o for o in outcomes if isinstance(o, Failed)]
        if not failed:
            return outcome
        # The durable place has it already, so each later `last` tries again.
        return Failed("; ".join(o.error for o in failed), retry_after_s=0.0)

    async def last(self) -> tuple[int, bytes] | None:
        """The highest epoch anywhere; places that are behind get it now. Raises the durable one's TemporaryError."""
        durable = await self._durable.last()
        seen = [durable, *await asyncio.gather(*map(_last, self._others))]
        best = max((last for last in seen if last is not None), key=lambda last: last[0], default=None)
        if best is not None:
            places = zip((self._durable, *self._others), seen, strict=True)
            behind = [place for place, last in places if last is None or last[0] < best[0]]
            await asyncio.gather(*(place.publish(*best) for place in behind))
        return best

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Routers of all places, ascending by id; one that is heard in two places counts with its lower epoch."""
        heard = await asyncio.gather(*(_routers(place, now_s) for place in (self._durable, *self._others)))
        by_id: dict[str, Router] = {}
        for router in (r for routers in heard for r in routers):
            known = by_id.get(router.id)
            if known is None or router.epoch < known.epoch:
                by_id[router.id] = router
        return tuple(by_id[r] for r in sorted(by_id))


async def _last(place: RingPublisher) -> tuple[int, bytes] | None:
    try:
        return await place.last()
    except TemporaryError:
        return None


async def _routers(place: RingPublisher, now_s: float) -> tuple[Router, ...]:
    try:
        return await place.routers(now_s)
    except TemporaryError:
        return ()
