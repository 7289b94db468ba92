"""What one moved adapter costs on its way to the routers: bytes and milliseconds, incrementally and by files.

`python -m benchmarks.router_push --adapters 100000 --slots 512 --json`; `--envoy` also measures a real Envoy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscaler.connectors.envoy import EnvoyFilePublisher, EnvoyProcess, EnvoySettings
from autoscaler.connectors.envoy.ads import AdsServer, Peer
from autoscaler.connectors.envoy.bootstrap import discovering
from autoscaler.connectors.envoy.resources import Mode
from autoscaler.connectors.envoy.xds import Cut
from autoscaler.ring.codec import encode
from autoscaler.ring.owners import Ring
from autoscaler.ring.snapshot import Choice, Member, Overflow, RingSnapshot


def snapshot(adapters: int, slots: int, choice: Choice, overflow: Overflow) -> RingSnapshot:
    """A ring by the pure hash, two owners each."""
    members = tuple(
        Member(f"warm-{i}", f"10.{i // 65536}.{i // 256 % 256}.{i % 256}:8000", slot=f"s{i:04d}") for i in range(slots)
    )
    names = tuple(f"adapter-{i:06d}" for i in range(adapters))
    return RingSnapshot(
        "fleet", 1, "2026-01-01T00:00:00Z", 2, members, choice, overflow=overflow, warm=names, base_models=("base",)
    )


def moved(before: RingSnapshot, epoch: int) -> RingSnapshot:
    """One adapter's second owner is another slot."""
    name = (before.warm or ())[epoch * 37 % len(before.warm or ("",))]
    owners = [m.slot for m in Ring(before).owners(name).members]
    other = next(m.slot for m in before.members if m.slot not in owners)
    return replace(before, epoch=epoch, exceptions={**before.exceptions, name: (owners[0], other)})


def measure(ring: RingSnapshot) -> dict[str, Any]:
    """Without an Envoy: the work to cut a snapshot, and what is sent for the whole and for one moved adapter."""
    cut = Cut()
    began = time.perf_counter()
    resources = cut.resources(ring, frozenset(), Mode.RING)
    whole_s = time.perf_counter() - began
    peer, hears = Peer(), _asks_for_all()
    for request in hears:
        peer.hear(request)
    _drain(peer, resources, 1)
    whole_bytes, peer.sent_bytes = peer.sent_bytes, 0
    began = time.perf_counter()
    resources = cut.resources(moved(ring, 2), frozenset(), Mode.RING)
    cut_s = time.perf_counter() - began
    began = time.perf_counter()
    _drain(peer, resources, 2)
    return {
        "whole_bytes": whole_bytes, "whole_cut_ms": whole_s * 1000, "move_bytes": peer.sent_bytes,
        "move_cut_ms": cut_s * 1000, "move_send_ms": (time.perf_counter() - began) * 1000,
    }  # fmt: skip


def _asks_for_all() -> list[Any]:
    from envoy.service.discovery.v3 import discovery_pb2

    from autoscaler.connectors.envoy.ads import ORDER

    return [discovery_pb2.DeltaDiscoveryRequest(type_url=kind, resource_names_subscribe=["*"]) for kind in ORDER]


def _drain(peer: Peer, resources: Any, number: int) -> None:
    for _ in peer.lacks(resources, number):
        pass


def files(ring: RingSnapshot) -> dict[str, float]:
    """The same by files, which carry the whole: what is written for one moved adapter."""
    with tempfile.TemporaryDirectory() as folder:
        publisher = EnvoyFilePublisher(EnvoySettings(Path(folder), 1, 2), apply_timeout_s=0.0)
        publisher.prepare()
        asyncio.run(publisher.publish(1, encode(ring)))
        began = time.perf_counter()
        asyncio.run(publisher.publish(2, encode(moved(ring, 2))))
        taken_s = time.perf_counter() - began
        written = sum(p.stat().st_size for p in Path(folder).iterdir() if p.name.startswith(("endpoints", "routes")))
    return {"move_bytes": written, "move_cut_ms": taken_s * 1000}


async def with_envoy(ring: RingSnapshot, moves: int) -> dict[str, float]:
    """A real Envoy: until it has answered that it applies the whole, and then each move."""
    port, client, admin = (_free_port() for _ in range(3))
    server, cut, applied_ms = AdsServer("127.0.0.1", port), Cut(), []
    await server.start()
    server.publish(1, cut.resources(ring, frozenset(), Mode.RING))
    with tempfile.TemporaryDirectory() as folder:
        settings = EnvoySettings(Path(folder), client, admin)
        (Path(folder) / "bootstrap.json").write_text(json.dumps(discovering(settings, ("127.0.0.1", port))))
        envoy = EnvoyProcess(settings)
        began = time.perf_counter()
        await envoy.start(300.0)
        await _applied(server, 1)
        whole_s, before_s = time.perf_counter() - began, _cpu_s(envoy)
        for epoch in range(2, 2 + moves):
            ring = moved(ring, epoch)
            resources = cut.resources(ring, frozenset(), Mode.RING)
            began = time.perf_counter()
            server.publish(epoch, resources)
            await _applied(server, epoch)
            applied_ms.append((time.perf_counter() - began) * 1000)
        cpu_s, rss = (_cpu_s(envoy) - before_s) / moves, _rss_bytes(envoy)
        await envoy.stop()
    await server.stop()
    return {
        "envoy_whole_s": whole_s, "envoy_move_ms": sorted(applied_ms)[len(applied_ms) // 2],
        "envoy_move_cpu_ms": cpu_s * 1000, "envoy_rss_bytes": rss,
    }  # fmt: skip


async def _applied(server: AdsServer, epoch: int) -> None:
    while not any(peer.applied >= epoch for peer in server.peers.values()):  # noqa: ASYNC110 - it is polled for the time
        await asyncio.sleep(0.0005)


def _cpu_s(envoy: EnvoyProcess) -> float:
    fields = Path(f"/proc/{envoy.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _rss_bytes(envoy: EnvoyProcess) -> int:
    return int(Path(f"/proc/{envoy.pid}/statm").read_text().split()[1]) * 4096


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapters", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--choice", type=Choice, choices=list(Choice), default=Choice.LEAST)
    parser.add_argument("--overflow", type=Overflow, choices=list(Overflow), default=Overflow.OWNERS)
    parser.add_argument("--moves", type=int, default=5)
    parser.add_argument("--envoy", action="store_true", help="measure a real Envoy too")
    parser.add_argument("--no-files", action="store_true", help="leave out the comparison with files")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    ring = snapshot(arguments.adapters, arguments.slots, arguments.choice, arguments.overflow)
    found: dict[str, Any] = {"adapters": arguments.adapters, "slots": arguments.slots, "delta": measure(ring)}
    if not arguments.no_files:
        found["files"] = files(ring)
    if arguments.envoy:
        found["delta"] |= asyncio.run(with_envoy(ring, arguments.moves))
    if arguments.json:
        print(json.dumps(found))
    else:
        for way in ("delta", "files"):
            for name, value in found.get(way, {}).items():
                print(f"{way:6} {name:20} {value:14,.1f}")


if __name__ == "__main__":
    main()
