"""A burst at the maximum of replicas: the controller sees it, routers bound the aggressor, neighbours are served."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp

from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.steps import Fairness
from autoscaler.policy.words import Mode
from tests.e2e.test_one_machine import ADAPTERS, Machine, machine, ring_ready, small_policy, until

AGGRESSOR, NEIGHBOURS = ADAPTERS[0], ADAPTERS[1:]
BOUND = 4
RETRY_AFTER_S = 5.0


@dataclass
class Heard:
    """What became of requests: statuses, what 429s said, times to the first byte of those that were answered."""

    statuses: Counter[int] = field(default_factory=Counter)
    retry_after: Counter[str] = field(default_factory=Counter)
    ttft_s: list[float] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def p99_s(self) -> float:
        """Of the times to the first byte."""
        return sorted(self.ttft_s)[int(0.99 * len(self.ttft_s))] if self.ttft_s else float("nan")

    def forget(self) -> None:
        """Begin anew; what is in flight stays so."""
        self.statuses, self.retry_after, self.ttft_s = Counter(), Counter(), []
        self.most_in_flight = 0


async def one(session: aiohttp.ClientSession, url: str, model: str, tokens: int, heard: Heard) -> int:
    """One streamed completion; a request counts as in flight once its answer begins, as it is then the engine's."""
    body = {"model": model, "prompt": "x " * 50, "max_tokens": tokens, "stream": True}
    began = asyncio.get_running_loop().time()
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        if answer.status == 200:
            heard.in_flight += 1
            heard.most_in_flight = max(heard.most_in_flight, heard.in_flight)
            try:
                await answer.content.readany()
                heard.ttft_s.append(asyncio.get_running_loop().time() - began)
                async for _ in answer.content.iter_any():
                    pass
            finally:
                heard.in_flight -= 1
        else:
            heard.retry_after[answer.headers.get("Retry-After", "")] += 1
        heard.statuses[answer.status] += 1
        return answer.status


@contextlib.asynccontextmanager
async def clients(url: str, models: Sequence[str], count: int, tokens: int, pause_s: float) -> AsyncIterator[Heard]:
    """So many clients that each ask, wait for the answer, pause (after a 429 as long as it says), and ask again."""
    heard = Heard()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def client(number: int) -> None:
            while True:
                status = await one(session, url, models[number % len(models)], tokens, heard)
                await asyncio.sleep(pause_s if status == 200 else RETRY_AFTER_S)

        tasks = [asyncio.create_task(client(number)) for number in range(count)]
        try:
            yield heard
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def full_policy() -> FleetPolicy:
    """Four small engines are all that there may be: none is left for a group of the aggressor's own."""
    policy = small_policy(Mode.ENFORCE)
    return replace(
        policy,
        engine=replace(policy.engine, limits=replace(policy.engine.limits, max_num_seqs=8)),
        budget=replace(policy.budget, max_replicas_total=4),
        fairness=Fairness(max_in_flight_per_tenant=BOUND, retry_after_s=RETRY_AFTER_S),
    )


def bounded(m: Machine) -> bool:
    """Whether the ring in force has a bound."""
    latest = m.controller.latest
    return (
        latest is not None and latest.plan.ring.snapshot is not None and latest.plan.ring.snapshot.fairness is not None
    )


async def test_at_the_maximum_the_aggressor_is_refused_and_its_neighbours_are_served(tmp_path: Path) -> None:
    async with machine(tmp_path, told=full_policy()) as m:
        await ring_ready(m)
        url = m.world.envoy_settings.url
        async with (
            clients(url, NEIGHBOURS, 11, 20, 0.2) as neighbours,
            clients(url, (AGGRESSOR,), 100, 200, 0.0) as aggressor,
        ):

            async def is_bounded() -> bool:
                return bounded(m) and aggressor.statuses[429] > 0

            await until(is_bounded, 150.0)
            crowded = as_now(neighbours)
            neighbours.forget()
            # What the aggressor had in flight before its bound ends first.
            await until(lambda: _holds(aggressor.in_flight <= BOUND), 150.0)
            aggressor.forget()
            neighbours.forget()
            await until(lambda: _holds(sum(neighbours.statuses.values()) >= 60), 120.0)
            calm = as_now(neighbours)
            fleet = (await m.reader.get("/v1/fleets/local")).json()
    print(
        f"neighbours' p99 to the first byte: {crowded.p99_s():.2f} s before the bound, {calm.p99_s():.2f} s within it"
    )
    assert "TenantsBounded" in {c["name"] for c in fleet["conditions"]}
    assert set(aggressor.retry_after) == {"5"}
    assert set(aggressor.statuses) == {200, 429}, "it is still served, as far as its bound goes"
    assert aggressor.most_in_flight <= BOUND + 2, "a client hears of an end after Envoy counts it; unbounded it has 100"
    assert set(calm.statuses) == {200} == set(crowded.statuses), "no neighbour was refused, or failed"


def as_now(heard: Heard) -> Heard:
    """As it is now."""
    return replace(heard, statuses=heard.statuses.copy(), ttft_s=list(heard.ttft_s))


async def _holds(value: bool) -> bool:
    return value
