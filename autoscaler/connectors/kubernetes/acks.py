"""Routers of the other instances: each instance tells the leader, by the ConfigMap `<fleet>-routers`, whom it serves.

A router asks whichever instance its connection reached, and the leader must not take a replica away from under a router
that a follower serves. Written when an epoch or a router changes, and now and then so that it is known to be alive.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

from autoscaler.connectors.kubernetes.cluster import Json
from autoscaler.connectors.kubernetes.config_map import OneConfigMap
from autoscaler.connectors.kubernetes.lease import KubernetesLease
from autoscaler.domain.decisions import Applied, Outcome
from autoscaler.domain.fleet import Router
from autoscaler.ports import Clock, PermanentError, RingPublisher, TemporaryError

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5
_ALIVE_EVERY_S = 20.0
_FORGOTTEN_AFTER_S = 300.0


class SharedAcks:
    """`RingPublisher` that publishes nothing, and hears of the routers of the other instances.

    Args:
        config_map: the place.
        lease: whether this instance leads: the leader only reads.
    """

    def __init__(self, config_map: OneConfigMap, lease: KubernetesLease) -> None:
        self._config_map, self._lease = config_map, lease
        self._seen: dict[str, tuple[Json, float]] = {}
        self._last: tuple[int, bytes] | None = None

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Nothing to do: each instance brings its own routers up to the published ring."""
        self._last = epoch, body
        return Applied()

    async def last(self) -> tuple[int, bytes] | None:
        """What was published last, so that nobody takes this place for one that is behind."""
        return self._last

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Those of the others, aged by our own clock since their instance last told of them. Raises TemporaryError."""
        told = ((self._config_map.seen() or {}).get("data") or {}).items()
        found = {name: json.loads(text) for name, text in told if name != self._lease.holder}
        self._seen = {
            name: (said, self._seen[name][1] if self._seen.get(name, (None,))[0] == said else now_s)
            for name, said in found.items()
        }
        return tuple(
            Router(router, epoch, age_s + max(0.0, now_s - at_s))
            for said, at_s in self._seen.values()
            for router, epoch, age_s in said["routers"]
        )

    async def run(self, own: Sequence[RingPublisher], clock: Clock) -> None:
        """While this instance follows, tell of the routers that `own` hear of; until cancelled."""
        told: list[list[object]] = []
        told_at_s, failing = 0.0, False
        while True:
            await clock.sleep(_LOOK_EVERY_S)
            now_s = clock.now_s()
            if self._lease.held(now_s):
                continue
            heard = [r for each in own for r in await each.routers(now_s)]
            said: list[list[object]] = [[r.id, r.epoch, 0.0 if r.age_s < _ALIVE_EVERY_S else r.age_s] for r in heard]
            alive = bool(said) and now_s - told_at_s >= _ALIVE_EVERY_S
            if said == told and not alive:
                continue
            try:
                await asyncio.to_thread(self._tell, said, now_s)
            except (TemporaryError, PermanentError) as error:
                _log.log(logging.DEBUG if failing else logging.WARNING, "the leader knows no router of ours: %s", error)
                failing = True
                continue
            told, told_at_s, failing = said, now_s, False

    def _tell(self, said: list[list[object]], now_s: float) -> None:
        def edit(found: Json) -> Outcome | None:
            data = {
                name: text for name, text in (found.get("data") or {}).items()
                if now_s - json.loads(text)["at_s"] < _FORGOTTEN_AFTER_S
            }  # fmt: skip
            found["data"] = {**data, self._lease.holder: json.dumps({"at_s": now_s, "routers": said})}
            return None

        self._config_map.change_now(edit)
