"""Publishes ring snapshots to every Envoy that asks for them, and hears from their answers which epoch each applies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from autoscaler.connectors.envoy.ads import AdsServer
from autoscaler.connectors.envoy.publisher import servable
from autoscaler.connectors.envoy.resources import Mode
from autoscaler.connectors.envoy.xds import Cut
from autoscaler.connectors.routers.epochs import judged
from autoscaler.domain.decisions import Applied, Failed, Outcome
from autoscaler.domain.fleet import Router
from autoscaler.ring.snapshot import MemberState, RingSnapshot


class EnvoyDiscovery:
    """`autoscaler.ports.RingPublisher` for all Envoys of a fleet, by incremental ADS.

    A membership that an Envoy refuses is not applied there: it keeps the one before, its epoch stays behind, and
    `refusals` has its own words. An Envoy that has lost its controller keeps what it has.

    Args:
        server: where they connect; started and stopped by who made it.
        known: the catalogue's adapter ids: they get routes and series of their own, COLD ones included.
        mode: how requests are routed.
        router_ttl_s: an Envoy that has been gone for so long is forgotten.
    """

    def __init__(
        self,
        server: AdsServer,
        *,
        known: Callable[[], Iterable[str]] = tuple,
        mode: Mode = Mode.RING,
        router_ttl_s: float = 60.0,
    ) -> None:
        self._server, self._known, self._mode, self._router_ttl_s = server, known, mode, router_ttl_s
        self._cut = Cut()
        self._lock = asyncio.Lock()
        self._last: tuple[int, bytes] | None = None
        self._snapshot: RingSnapshot | None = None
        self._shown: tuple[frozenset[str], Mode] = frozenset(), mode
        self._heard: dict[str, tuple[int, float]] = {}

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Send what changed, if `epoch` is higher than what is there and somebody in it can serve."""
        snapshot = await asyncio.to_thread(servable, epoch, body)
        if isinstance(snapshot, Failed):
            return snapshot
        async with self._lock:
            outcome = judged(self._last, epoch, body)
            if outcome is not None:
                return outcome
            self._snapshot = snapshot
            await self._send()
            self._last = epoch, body
        return Applied(f"epoch {epoch} sent to {len(self._server.peers)} Envoys")

    async def show(self, snapshot: RingSnapshot) -> None:
        """Serve members before anything was published, by a fleet's advice: it is no epoch, and nobody applies one."""
        async with self._lock:
            if self._last is None and any(m.state is MemberState.ACTIVE and m.address for m in snapshot.members):
                self._snapshot = replace(snapshot, epoch=0)
                await self._send()

    async def last(self) -> tuple[int, bytes] | None:
        """The published epoch and snapshot, None where there is none."""
        return self._last

    async def follow(self, mode: Mode) -> None:
        """Route by the ring, or blind to adapters, and know the catalogue as it is now. The epoch does not change."""
        async with self._lock:
            self._mode = mode
            if self._snapshot is not None and self._shown != (frozenset(self._known()), mode):
                await self._send()

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Envoys that are connected, and those that were not long ago, each with the epoch that it applies."""
        now = time.monotonic()
        connected: dict[str, int] = {}
        for peer in self._server.peers.values():
            if peer.node:
                connected[peer.node] = min(peer.applied, connected.get(peer.node, peer.applied))
        self._heard |= {node: (epoch, now) for node, epoch in connected.items()}
        self._heard = {n: heard for n, heard in self._heard.items() if now - heard[1] <= self._router_ttl_s}
        return tuple(Router(node, epoch, now - at) for node, (epoch, at) in sorted(self._heard.items()))

    def refusals(self) -> dict[str, str]:
        """Envoy -> why it did not take what it was sent, in its own words."""
        return {
            peer.node: "; ".join(f"{kind.rpartition('.')[2]}: {words}" for kind, (_, words) in peer.refused.items())
            for peer in self._server.peers.values() if peer.refused
        }  # fmt: skip

    async def _send(self) -> None:
        assert self._snapshot is not None
        known = frozenset(self._known())
        # In a thread: 100,000 adapters are seconds of work, and the API answers meanwhile.
        resources = await asyncio.to_thread(self._cut.resources, self._snapshot, known, self._mode)
        self._shown = known, self._mode
        self._server.publish(self._snapshot.epoch, resources)
