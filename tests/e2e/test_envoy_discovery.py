"""Real Envoy that asks for its ring: what moved is sent, a refusal is heard, a lost controller costs nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
from envoy.config.cluster.v3 import cluster_pb2

from autoscaler.connectors.envoy import EnvoyProcess, EnvoySettings
from autoscaler.connectors.envoy.ads import CLUSTER, AdsServer, Resource
from autoscaler.connectors.envoy.bootstrap import discovering
from autoscaler.connectors.envoy.discovery import EnvoyDiscovery
from autoscaler.connectors.envoy.resources import UNKNOWN_NAME, Mode
from autoscaler.domain.decisions import Failed
from autoscaler.ring.codec import encode
from autoscaler.ring.owners import Ring
from autoscaler.ring.snapshot import Choice, Fairness, HotGroup, MemberState, Overflow
from autoscaler.simulator.http import Pump, SimulatedEngine
from tests.e2e.envoy_bench import ADAPTERS, BASE, OPTIONS, Bench, change_shape_under_load, keep_asking, move_under_load
from tests.e2e.parts.processes import free_port


class Asking(Bench):
    """A bench whose Envoy is served by an `AdsServer`."""

    server: AdsServer


@asynccontextmanager
async def asking(directory: Path, replicas: int) -> AsyncIterator[Asking]:
    pump = Pump()
    engines = {f"r{i}": SimulatedEngine(OPTIONS, pump) for i in range(replicas)}
    for engine in engines.values():
        await engine.start()
    settings, server = EnvoySettings(directory, free_port(), free_port()), AdsServer("127.0.0.1", free_port())
    await server.start()
    port = int(server.address.rpartition(":")[2])
    (directory / "bootstrap.json").write_text(json.dumps(discovering(settings, ("127.0.0.1", port))))
    publisher = EnvoyDiscovery(server, known=lambda: ADAPTERS)
    envoy = EnvoyProcess(settings)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            bench: Any = Asking(settings, publisher, engines, session)  # type: ignore[arg-type]
            bench.server = server
            # Envoy is ready once it has been told something.
            first = bench.snapshot(1, list(engines))
            assert not isinstance(await publisher.publish(1, encode(first)), Failed)
            await envoy.start()
            await applied(bench, 1)
            yield bench
    finally:
        await envoy.stop()
        await bench.server.stop()
        for engine in engines.values():
            await engine.crash()


async def applied(bench: Asking, epoch: int) -> None:
    """Until Envoy says that it applies this epoch."""
    async with asyncio.timeout(20):
        while [r.epoch for r in await bench.publisher.routers(0.0)] != [epoch]:  # noqa: ASYNC110 - it tells no event
            await asyncio.sleep(0.01)


async def test_each_name_goes_where_the_ring_says(tmp_path: Path) -> None:
    async with asking(tmp_path, 6) as bench:
        hot = HotGroup("hot-a01", (bench.member("r5"),))
        cold = (bench.member("r4"),)
        ring = bench.snapshot(
            2, ["r0", "r1", "r2", "r3"], choice=Choice.LEAST, hot={"a01": hot}, cold=cold, warm=ADAPTERS[:20]
        )
        await bench.publish(ring)
        asked = [*ADAPTERS, BASE, "nobody-knows"]
        statuses = await asyncio.gather(*(bench.ask(name, 8) for name in asked for _ in range(8)))
        served = await bench.hits()
    assert statuses.count(200) == 8 * (len(asked) - 1), "an engine refuses the name that nobody knows"
    owners = {name: {m.replica for m in Ring(ring).owners(name).members} for name in ADAPTERS}
    assert {name: set(served[name]) - owners[name] for name in ADAPTERS if set(served[name]) - owners[name]} == {}
    assert set(served["a01"]) == {"r5"}
    assert set(served["a22"]) == {"r4"}, "what is not warm goes to the cold group"
    assert set(served[UNKNOWN_NAME]) == {"r4"}
    assert set(served[BASE]) <= {"r0", "r1", "r2", "r3"}


async def test_a_move_is_a_few_bytes_and_costs_no_request(tmp_path: Path) -> None:
    async with asking(tmp_path, 4) as bench:
        await bench.publish(bench.snapshot(2, list(bench.engines), exceptions={"a00": ("s0000", "s0001")}))
        (peer,) = bench.server.peers.values()
        whole_bytes, peer.sent_bytes = peer.sent_bytes, 0
        statuses, served = await move_under_load(bench, 3)
    assert set(statuses) == {200}, statuses
    assert set(served) <= {"r0", "r1"}
    assert peer.sent_bytes / 8 < whole_bytes / 5, "its four endpoints and its route of everything"


async def test_where_any_replica_may_serve_the_bound_is_the_ring_s_and_a_move_is_one_route(tmp_path: Path) -> None:
    async with asking(tmp_path, 4) as bench:
        few = {"warm": ADAPTERS[:2], "overflow": Overflow.ANY}  # a small fleet, which lists its calm adapters too
        for epoch in (2, 3):  # the first one changes the overflow, which the second tidies up
            first = {"a00": ("s0000", "s0001")}
            await bench.publish(bench.snapshot(epoch, list(bench.engines), exceptions=first, **few))
        (peer,) = bench.server.peers.values()
        peer.sent_bytes = 0
        await bench.publish(bench.snapshot(4, list(bench.engines), exceptions={"a00": ("s0002", "s0001")}, **few))
        moved_bytes = peer.sent_bytes
        assert [await bench.ask("a00") for _ in range(5)] == [200] * 5
        served = (await bench.hits())["a00"]
        burst = await bench.pile_up("a00", 40)
        held = await bench.in_flight("whole")
        for request in burst:
            request.cancel()
        await asyncio.gather(*burst, return_exceptions=True)
        assert bench.publisher.refusals() == {}
    assert served == {"r2": 5}
    assert 0 < moved_bytes < 800
    # A quarter more than 40 over four is 12.5, so 13, and one more.
    assert sum(held.values()) == 40
    assert max(held.values()) <= 14, held


async def test_overflow_changes_under_load_without_a_failed_or_misplaced_request(tmp_path: Path) -> None:
    async with asking(tmp_path, 4) as bench:
        statuses, served = await change_shape_under_load(bench, 2)
        assert bench.publisher.refusals() == {}
    assert set(statuses) == {200}, statuses
    assert set(served) == {"r0", "r1", "r2"}, "an adapter in no subset would have gone to the cold group"


async def test_a_bound_on_tenants_comes_and_goes_with_the_ring(tmp_path: Path) -> None:
    async with asking(tmp_path, 3) as bench:
        bound = Fairness(5, 2000, {"a00": "greedy", "a01": "greedy"})
        await bench.publish(bench.snapshot(2, list(bench.engines), fairness=bound))
        await bench.until_bounded("a00", 5)
        burst = [bench.refused(name, 100) for name in ("a00", "a01") for _ in range(20)]
        neighbours = [bench.ask(name, 2) for name in ADAPTERS[2:]]
        answers, calm = await asyncio.gather(asyncio.gather(*burst), asyncio.gather(*neighbours))
        (peer,) = bench.server.peers.values()
        peer.sent_bytes = 0
        await bench.publish(bench.snapshot(3, list(bench.engines), fairness=bound, exceptions={"a09": ("s0000",)}))
        moved_bytes = peer.sent_bytes
        await bench.publish(bench.snapshot(4, list(bench.engines)))
        await bench.until_bounded("a00", None)
        assert bench.publisher.refusals() == {}
    assert set(answers) == {None, "2"}
    assert set(calm) == {200}
    assert moved_bytes < 8_000, "a move sends no limits anew: counts go on"


async def test_another_bound_is_in_force_at_once_and_costs_no_request(tmp_path: Path) -> None:
    """Envoy makes a cluster that changed anew, and waits until it is told the endpoints again."""
    async with asking(tmp_path, 4) as bench:
        stop = asyncio.Event()
        load = asyncio.create_task(keep_asking(bench, ADAPTERS, stop))
        for epoch, (overflow, percent) in enumerate(
            [(Overflow.ANY, 150), (Overflow.ANY, 110), (Overflow.OWNERS, 300), (Overflow.OWNERS, 400)], 2
        ):
            busy = {"a00": ("s0000", "s0001")}
            told = bench.snapshot(epoch, list(bench.engines), exceptions=busy, request_bound_percent=percent)
            await bench.publish(replace(told, overflow=overflow))
            await asyncio.sleep(0.1)
        stop.set()
        statuses = await load
        assert await bench.series("envoy_cluster_manager_warming_clusters") == {(): 0.0}
        assert bench.publisher.refusals() == {}
    assert set(statuses) == {200}, statuses


async def test_a_refusal_is_told_and_the_membership_before_it_stays(tmp_path: Path) -> None:
    async with asking(tmp_path, 2) as bench:
        whole, refused = bench.server.resources, cluster_pb2.Cluster(name="least")
        refused.connect_timeout.seconds = -1
        broken = {**whole, CLUSTER: {**whole[CLUSTER], "least": Resource.of(refused.SerializeToString())}}
        bench.server.publish(2, broken)
        async with asyncio.timeout(20):
            while not bench.publisher.refusals():  # noqa: ASYNC110 - it tells no event
                await asyncio.sleep(0.01)
        assert "Cluster:" in bench.publisher.refusals()["envoy"]
        assert [r.epoch for r in await bench.publisher.routers(0.0)] == [1]
        assert await bench.ask(BASE) == 200
        bench.server.publish(3, whole)
        await applied(bench, 3)
        assert bench.publisher.refusals() == {}


async def test_without_its_controller_it_goes_on_and_is_sent_only_what_it_lacks(tmp_path: Path) -> None:
    async with asking(tmp_path, 3) as bench:
        await bench.publish(bench.snapshot(2, list(bench.engines)))
        await bench.server.stop()
        assert [await bench.ask(name) for name in ADAPTERS] == [200] * len(ADAPTERS)
        assert [r.epoch for r in await bench.publisher.routers(0.0)] == [2], "gone for a moment only"
        again = AdsServer("127.0.0.1", int(bench.server.address.rpartition(":")[2]))
        publisher = EnvoyDiscovery(again, known=lambda: ADAPTERS, mode=Mode.RING)
        leaves = bench.snapshot(3, list(bench.engines))
        members = (*leaves.members[:2], bench.member("r2", slot="s0002", state=MemberState.DRAINING))
        ring = bench.snapshot(3, [], members=members)
        await publisher.publish(3, encode(ring))
        await again.start()
        bench.server, bench.publisher = again, publisher
        await applied(bench, 3)
        (peer,) = again.peers.values()
        assert 0 < peer.sent_bytes < 40_000
        await bench.new_hits()
        assert [await bench.ask(name) for name in ADAPTERS] == [200] * len(ADAPTERS)
        assert set().union(*(set(c) for c in (await bench.new_hits()).values())) == {"r0", "r1"}


async def test_a_lower_epoch_and_one_without_members_are_refused(tmp_path: Path) -> None:
    publisher = EnvoyDiscovery(AdsServer("127.0.0.1", free_port()))
    async with asking(tmp_path, 1) as bench:
        empty = bench.snapshot(2, [])
        assert isinstance(await publisher.publish(2, encode(empty)), Failed)
        await publisher.publish(2, encode(bench.snapshot(2, ["r0"])))
        lower = await publisher.publish(1, encode(bench.snapshot(1, ["r0"])))
    assert "never goes back" in str(lower)
    assert Counter(r.epoch for r in await publisher.routers(0.0)) == Counter()
