"""A real Envoy, its publisher and simulated engines behind it, and traffic."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from autoscaler.connectors.envoy import EnvoyFilePublisher, EnvoyProcess, EnvoySettings
from autoscaler.domain.decisions import Applied
from autoscaler.ring.codec import encode
from autoscaler.ring.snapshot import Choice, Member, MemberState, Overflow, RingSnapshot
from autoscaler.simulator.engine.profile import EngineLimits
from autoscaler.simulator.http import AdapterTable, EngineOptions, Pump, SimulatedEngine
from tests.e2e.parts.processes import free_port

ADAPTERS = tuple(f"a{i:02d}" for i in range(24))
BASE = "base"
OPTIONS = EngineOptions(
    limits=EngineLimits(max_loras=8, max_cpu_loras=64),
    files=AdapterTable({f"/adapters/{name}": 16 for name in (*ADAPTERS, "cold-one")}),
    resolver=True,
    shutdown_timeout_s=5.0,
)


@dataclass
class Bench:
    """A running Envoy, its publisher, and engines by replica name (`r0`, `r1`, ...)."""

    settings: EnvoySettings
    publisher: EnvoyFilePublisher
    engines: dict[str, SimulatedEngine]
    session: aiohttp.ClientSession
    served: dict[str, Counter[str]] = field(default_factory=dict)

    def snapshot(self, epoch: int, replicas: Sequence[str], **changes: Any) -> RingSnapshot:
        members = tuple(self.member(name, slot=f"s{i:04d}") for i, name in enumerate(replicas))
        ring = RingSnapshot("bench", epoch, "2026-11-29T12:00:00Z", 2, members, warm=ADAPTERS, base_models=(BASE,))
        return replace(ring, **changes)

    def member(self, name: str, slot: str = "", state: MemberState = MemberState.ACTIVE) -> Member:
        return Member(name, self.engines[name].address, state, slot)

    async def publish(self, snapshot: RingSnapshot) -> None:
        """Publish, and wait until Envoy itself says that it applies this epoch."""
        outcome = await self.publisher.publish(snapshot.epoch, encode(snapshot))
        assert isinstance(outcome, Applied), outcome
        for _ in range(500):
            if [router.epoch for router in await self.publisher.routers(0.0)] == [snapshot.epoch]:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"Envoy did not apply epoch {snapshot.epoch}: {await self.publisher.routers(0.0)}")

    async def ask(self, model: str, tokens: int = 1, *, stream: bool = False, prompt: str = "hello") -> int:
        """One completion; its status, -1 where the answer broke off and 0 where there was none."""
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        status = 0
        try:
            async with self.session.post(f"{self.settings.url}/v1/completions", json=body) as answer:
                status = answer.status
                text = await answer.text()
        except aiohttp.ClientError:
            return -1 if status else 0
        whole = not stream or status != 200 or text.endswith("data: [DONE]\n\n")
        return status if whole else -1

    async def refused(self, model: str, tokens: int = 8) -> str | None:
        """One completion: None where it was answered, else the `Retry-After` of its 429."""
        body = {"model": model, "prompt": "hello", "max_tokens": tokens}
        async with self.session.post(f"{self.settings.url}/v1/completions", json=body) as answer:
            text = await answer.text()
            assert answer.status in (200, 429), text
            return None if answer.status == 200 else answer.headers["Retry-After"]

    async def until_bounded(self, model: str, most: int | None) -> None:
        """Ask until Envoy applies the bound: it follows the epoch by moments, since it is a resource of its own."""
        for _ in range(200):
            answers = await asyncio.gather(*(self.refused(model, 60) for _ in range(2 * (most or 20))))
            if (None in answers and set(answers) != {None}) == (most is not None):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the bound of {model} is not {most}")

    def submitted(self, replica: str) -> int:
        """Requests that its engine has taken."""
        return self.engines[replica].calls.live.model.gauges().submitted

    async def pile_up(self, model: str, count: int) -> list[asyncio.Task[int]]:
        """Long requests, each sent once an engine has the one before: all of them are in flight. Cancel them."""
        asked: list[asyncio.Task[int]] = []
        before = sum(map(self.submitted, self.engines))
        async with asyncio.timeout(60):
            while len(asked) < count:
                asked.append(asyncio.create_task(self.ask(model, 2_000)))
                while sum(map(self.submitted, self.engines)) < before + len(asked):  # noqa: ASYNC110 - it tells no event
                    await asyncio.sleep(0.001)
        return asked

    async def in_flight(self, cluster: str) -> dict[str, int]:
        """Replica -> its requests in flight by Envoy's own count of one cluster."""
        by_address = {engine.address: replica for replica, engine in self.engines.items()}
        counts = await self.series("envoy_cluster_endpoint_rq_active")
        return {
            by_address[dict(labels)["envoy_endpoint_address"]]: int(value)
            for labels, value in counts.items()
            if dict(labels)["envoy_cluster_name"] == cluster
        }

    async def until_served(self, count: int) -> None:
        for _ in range(600):
            if sum(sum((await self.hits()).values(), Counter()).values()) >= count:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"fewer than {count} requests ended within a minute")

    async def until_in_flight(self, replica: str) -> None:
        for _ in range(500):
            if self.submitted(replica):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{replica} got no request")

    async def hits(self, name: str = "requests") -> dict[str, Counter[str]]:
        """Envoy's own counter: adapter -> replica -> how often."""
        by_address = {engine.address: replica for replica, engine in self.engines.items()}
        found: dict[str, Counter[str]] = {}
        for labels, value in (await self.series(f"envoy_llm_{name}")).items():
            tags = dict(labels)
            replica = by_address.get(tags["upstream"], tags["upstream"])
            found.setdefault(tags["adapter"], Counter())[replica] += int(value)
        return found

    async def new_hits(self) -> dict[str, Counter[str]]:
        """`hits` since the last call."""
        before, self.served = self.served, await self.hits()
        grown = {name: counts - before.get(name, Counter()) for name, counts in self.served.items()}
        return {name: counts for name, counts in grown.items() if counts}

    async def series(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of one metric on Envoy's page, by labels."""
        async with self.session.get(f"{self.settings.admin_url}/stats/prometheus") as answer:
            lines = (await answer.text()).splitlines()
        found = {}
        for line in lines:
            left, _, value = line.rpartition(" ")
            metric, _, labels = left.partition("{")
            if metric == name:
                pairs = (pair.partition("=") for pair in labels.rstrip("}").split('",') if pair)
                found[tuple((key, text.strip('"')) for key, _, text in pairs)] = float(value)
        return found


@asynccontextmanager
async def running(directory: Path, replicas: int, **of_publisher: Any) -> AsyncIterator[Bench]:
    pump = Pump()
    engines = {f"r{i}": SimulatedEngine(OPTIONS, pump) for i in range(replicas)}
    for engine in engines.values():
        await engine.start()
    settings = EnvoySettings(directory, free_port(), free_port())
    publisher = EnvoyFilePublisher(settings, **of_publisher)
    publisher.prepare()
    envoy = EnvoyProcess(settings)
    await envoy.start()
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield Bench(settings, publisher, engines, session)
    finally:
        await envoy.stop()
        for engine in engines.values():
            await engine.crash()


async def keep_asking(bench: Bench, models: Sequence[str], stop: asyncio.Event, *, tokens: int = 4) -> Counter[int]:
    """Open-loop: a request each 5 ms, streamed and whole in turn, until `stop`; how many ended with which status."""
    asked: list[asyncio.Task[int]] = []
    while not stop.is_set():
        model = models[len(asked) % len(models)]
        asked.append(asyncio.create_task(bench.ask(model, tokens, stream=len(asked) % 2 == 0)))
        await asyncio.sleep(0.005)
    return Counter(await asyncio.gather(*asked))


async def change_shape_under_load(bench: Bench, first_epoch: int) -> tuple[Counter[int], Counter[str]]:
    """Let other replicas serve, and again only owners and standbys, to and fro while every adapter is asked for.

    The last replica is the cold group, which no adapter belongs to. How many requests ended with which status, and how
    many each replica served.
    """
    *warm, cold = bench.engines
    only: dict[str, Any] = {"overflow": Overflow.STANDBYS, "standby_count": 1}
    shapes: list[dict[str, Any]] = [only, {"overflow": Overflow.ANY}, only, {"overflow": Overflow.ANY}]
    shapes += [{"choice": Choice.LEAST}, {"overflow": Overflow.ANY}, only]
    await bench.new_hits()
    stop = asyncio.Event()
    for number, shape in enumerate(shapes):
        await bench.publish(bench.snapshot(first_epoch + number, warm, cold=(bench.member(cold),), **shape))
        if number == 0:
            load = asyncio.create_task(keep_asking(bench, ADAPTERS, stop))
        await asyncio.sleep(0.3)
    stop.set()
    statuses = await load
    return statuses, sum((await bench.new_hits()).values(), Counter())


async def move_under_load(bench: Bench, first_epoch: int) -> tuple[Counter[int], Counter[str]]:
    """Move `a00` to and fro in eight epochs, at last to `r0` and `r1`, while every adapter is asked for.

    How many requests ended with which status, and which replicas served twenty for `a00` afterwards.
    """
    stop = asyncio.Event()
    load = asyncio.create_task(keep_asking(bench, ADAPTERS, stop))
    for number in range(8):
        await asyncio.sleep(0.15)
        slots = ("s0000", "s0001") if number % 2 else ("s0002", "s0003")
        await bench.publish(bench.snapshot(first_epoch + number, list(bench.engines), exceptions={"a00": slots}))
    stop.set()
    statuses = await load
    await bench.new_hits()
    await asyncio.gather(*(bench.ask("a00") for _ in range(20)))
    return statuses, (await bench.new_hits())["a00"]
