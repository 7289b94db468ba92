"""Clients that never pause, through a stock Envoy that asks controllers for the ring: whatever fails is counted."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

from autoscaler.connectors.envoy.bootstrap import EnvoySettings, discovering
from tests.e2e.kubernetes.running import ADAPTERS
from tests.e2e.parts.envoy import EnvoyProcess
from tests.e2e.parts.processes import LOOPBACK, free_port

CLIENTS = 6


def router(directory: Path, asked_at: Sequence[tuple[str, int]]) -> tuple[EnvoyProcess, str]:
    """An Envoy that asks any of these controllers, and where clients send; it is ready once one has answered."""
    port = free_port()
    settings = EnvoySettings(directory, port, free_port())
    made = discovering(settings, asked_at[0])
    (asked,) = [c for c in made["static_resources"]["clusters"] if c["name"] == "controller"]
    hosts = asked["load_assignment"]["endpoints"][0]["lb_endpoints"]
    for address, number in asked_at[1:]:
        at = {"address": address, "port_value": number}
        hosts.append({"endpoint": {"address": {"socket_address": at}}})
    return EnvoyProcess(directory, made), f"http://{LOOPBACK}:{port}"


class Clients:
    """`CLIENTS` that ask one completion after the other for adapters at random, streamed and whole in turn."""

    def __init__(self, url: str, adapters: Sequence[str] = ADAPTERS) -> None:
        self._url, self._adapters = url, adapters
        self.ended: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), name="clients", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    @property
    def failed(self) -> dict[str, int]:
        """How requests that failed ended."""
        return {end: count for end, count in self.ended.items() if end != "200"}

    async def _all(self) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(self._one(session, number) for number in range(CLIENTS)))

    async def _one(self, session: aiohttp.ClientSession, number: int) -> None:
        draw = random.Random(number)
        while not self._over.is_set():
            body: dict[str, Any] = {"model": draw.choice(self._adapters), "prompt": "hello", "max_tokens": 8}
            self.ended[await self._ask(session, body | {"stream": draw.random() < 0.5})] += 1
            await asyncio.sleep(0.15)

    async def _ask(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> str:
        try:
            async with session.post(f"{self._url}/v1/completions", json=body) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        if answer.status == 200 and body["stream"] and not text.endswith("data: [DONE]\n\n"):
            return "a stream broke off"
        return str(answer.status) if answer.status == 200 else f"{answer.status} {text[:200]}"
