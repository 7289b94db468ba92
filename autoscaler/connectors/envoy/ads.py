"""Aggregated discovery over gRPC, incremental: each Envoy is sent exactly the resources that it lacks, and answers.

The room knows resources by type, name and version, and nothing of what is in them. Types are sent in an order in which
no resource names one that was not sent yet; one stream is one order.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

# Else a child that is forked while a server runs takes its threads up again, and may end before it becomes an Envoy.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf.any_pb2 import Any as Packed  # type: ignore[import-untyped]

_log = logging.getLogger(__name__)
TYPE_URL = "type.googleapis.com/"
CLUSTER = TYPE_URL + "envoy.config.cluster.v3.Cluster"
ASSIGNMENT = TYPE_URL + "envoy.config.endpoint.v3.ClusterLoadAssignment"
ENDPOINT = TYPE_URL + "envoy.config.endpoint.v3.LbEndpoint"
ROUTES = TYPE_URL + "envoy.config.route.v3.RouteConfiguration"
HOST = TYPE_URL + "envoy.config.route.v3.VirtualHost"
FILTER = TYPE_URL + "envoy.config.core.v3.TypedExtensionConfig"
ORDER = (CLUSTER, ASSIGNMENT, ENDPOINT, ROUTES, HOST, FILTER)
_MOST_AT_ONCE = 5_000  # resources of one response


@dataclass(frozen=True, slots=True)
class Resource:
    """One serialised resource. It is sent again when `version` changes."""

    version: str
    body: bytes

    @classmethod
    def of(cls, body: bytes, parent: str = "") -> Resource:
        """With the version that its bytes give, and that of the resource with which it must be sent again."""
        return cls(hashlib.blake2b(body, digest_size=8, key=parent.encode()).hexdigest(), body)


Resources = Mapping[str, Mapping[str, Resource]]
"""Type URL -> name -> resource."""


@dataclass(slots=True)
class Peer:
    """One connected Envoy.

    Attributes:
        node: its name.
        applied: the last number of which it has accepted everything.
        refused: type URL -> (number, its own words), until it accepts a later push of that type.
        sent_bytes: of all responses.
    """

    node: str = ""
    applied: int = 0
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    sent_bytes: int = 0
    _asked: dict[str, set[str]] = field(default_factory=dict)
    _has: dict[str, dict[str, str]] = field(default_factory=dict)
    _open: dict[str, tuple[str, int]] = field(default_factory=dict)
    _reached: int = 0

    def hear(self, request: discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Take in what it asks for, accepts or refuses."""
        self.node = request.node.id or self.node
        kind = request.type_url
        if request.response_nonce:
            of = self._open.pop(request.response_nonce, None)
            if of is not None and request.HasField("error_detail"):
                self.refused[kind] = of[1], request.error_detail.message
                _log.warning("Envoy %s refuses %s: %s", self.node, kind, request.error_detail.message)
            elif of is not None and self.refused.get(kind, (0, ""))[0] < of[1]:
                self.refused.pop(kind, None)
        first = kind not in self._asked
        asked = self._asked.setdefault(kind, set())
        self._new.setdefault(kind, []).extend(n for n in request.resource_names_subscribe if n not in asked)
        asked.update(request.resource_names_subscribe)
        asked.difference_update(request.resource_names_unsubscribe)
        if first and not asked:
            asked.add("*")
        if first:
            self._has[kind] = dict(request.initial_resource_versions)
        self._settle()

    def lacks(self, resources: Resources, number: int) -> Iterable[discovery_pb2.DeltaDiscoveryResponse]:
        """Responses that bring it up to date, in order; the first of a type is sent even when it is empty."""
        self._reached = number
        for kind in ORDER:
            if kind in self._asked:
                yield from self._responses(kind, resources.get(kind, {}), number)
        self._settle()

    def _responses(
        self, kind: str, resources: Mapping[str, Resource], number: int
    ) -> Iterable[discovery_pb2.DeltaDiscoveryResponse]:
        wanted = {name: r for name, r in resources.items() if self._wants(kind, name)}
        has = self._has[kind]
        changed = [(name, r) for name, r in wanted.items() if has.get(name) != r.version]
        gone = [name for name in has if name not in wanted]
        # What is asked for and is not there is told as removed: Envoy waits for one answer or the other.
        empty = [name for name in self._new.pop(kind, ()) if not any(map(_within(kind, name), wanted))]
        greeted = kind in self._greeted
        if not (changed or gone or empty) and greeted:
            return
        self._greeted.add(kind)
        for begin in range(0, max(len(changed), 1), _MOST_AT_ONCE):
            part = changed[begin : begin + _MOST_AT_ONCE]
            nonce = f"{number}.{next(_nonces)}"
            response = discovery_pb2.DeltaDiscoveryResponse(
                system_version_info=str(number), type_url=kind, nonce=nonce,
                removed_resources=[*gone, *empty] if begin == 0 else (),
                resources=[
                    discovery_pb2.Resource(name=name, version=r.version, resource=Packed(type_url=kind, value=r.body))
                    for name, r in part
                ],
            )  # fmt: skip
            self._open[nonce] = kind, number
            self.sent_bytes += response.ByteSize()
            yield response
        for name in gone:
            del has[name]
        has.update((name, r.version) for name, r in changed)

    def _wants(self, kind: str, name: str) -> bool:
        return not self._asked[kind].isdisjoint(("*", name, _collection(kind, name)))

    def _settle(self) -> None:
        """It has applied a number once nothing that it was sent for it is unanswered or refused."""
        if not self._open and not self.refused:
            self.applied = self._reached

    _greeted: set[str] = field(default_factory=set)
    _new: dict[str, list[str]] = field(default_factory=dict)


def _collection(kind: str, name: str) -> str:
    """By what a resource is asked for together with its like: virtual hosts by the name of their route table."""
    folder = name.rpartition("/")[0]
    return folder if kind == HOST else f"{folder}/*"


def _within(kind: str, asked: str) -> Callable[[str], bool]:
    return lambda name: asked in ("*", name, _collection(kind, name))


_nonces = itertools.count(1)


class AdsServer:
    """Serves one set of resources to every Envoy that connects. Plain text: keep the port inside the cluster.

    `peers` are those that are connected now.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.resources: Resources = {}
        self._number = 0
        self._changed = asyncio.Event()
        self.peers: dict[int, Peer] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        self._server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", 64 * 1024 * 1024), ("grpc.so_reuseport", 0),
                     ("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
        )  # fmt: skip
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(_Service(self._stream), self._server)
        try:
            bound = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        if not bound:
            raise OSError(f"{self.address} is taken")
        await self._server.start()

    async def stop(self) -> None:
        """End every stream; Envoys keep what they have."""
        if self._server is not None:
            await self._server.stop(0.5)

    def publish(self, number: int, resources: Resources) -> None:
        """Bring every Envoy up to these resources; `number` is what an Envoy that accepts them has applied."""
        self._number, self.resources = number, resources
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _stream(
        self, requests: AsyncIterator[discovery_pb2.DeltaDiscoveryRequest]
    ) -> AsyncIterator[discovery_pb2.DeltaDiscoveryResponse]:
        peer = Peer()
        self.peers[id(peer)] = peer
        heard = asyncio.Event()
        listening = asyncio.create_task(_listen(requests, peer, heard))
        try:
            while not listening.done():
                heard.clear()
                changed = self._changed
                for response in peer.lacks(self.resources, self._number):
                    yield response
                await _any(listening, heard, changed)
        finally:
            listening.cancel()
            del self.peers[id(peer)]


async def _any(listening: asyncio.Task[None], *events: asyncio.Event) -> None:
    """Until the peer has hung up, or one of the events has happened."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait([listening, *waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def _listen(
    requests: AsyncIterator[discovery_pb2.DeltaDiscoveryRequest], peer: Peer, heard: asyncio.Event
) -> None:
    async for request in requests:
        peer.hear(request)
        heard.set()


_Stream = Callable[
    [AsyncIterator[discovery_pb2.DeltaDiscoveryRequest]], AsyncIterator[discovery_pb2.DeltaDiscoveryResponse]
]


class _Service(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):  # type: ignore[misc]
    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    async def DeltaAggregatedResources(  # noqa: N802 - gRPC's name
        self, requests: AsyncIterator[discovery_pb2.DeltaDiscoveryRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[discovery_pb2.DeltaDiscoveryResponse]:
        """The one method that is served."""
        async for response in self._stream(requests):
            yield response
