"""Pages served over HTTP."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from autoscaler.domain.fleet import Replica, ReplicaState


@dataclass
class Pages:
    """An HTTP server whose pages a test sets by path; what is not set answers 503."""

    address: str = ""
    by_path: dict[str, str] = field(default_factory=dict)

    def replica(self, name: str, **changed: object) -> Replica:
        values: dict[str, object] = {
            "id": name,
            "group": "warm",
            "slot": None,
            "address": f"{self.address}/{name}",
            "state": ReplicaState.READY,
        }
        return Replica(**(values | changed))  # type: ignore[arg-type]


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    served = Pages()

    async def answer(request: web.Request) -> web.Response:
        text = served.by_path.get(request.path)
        return web.Response(status=503) if text is None else web.Response(text=text)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    served.address = f"{host}:{port}"
    yield served
    await runner.cleanup()
