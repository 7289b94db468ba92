"""A clock that tests set, and a client session."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest


@dataclass
class SetClock:
    """A clock that stands still until a test moves it."""

    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client
