"""History in bounded pieces: silence, absence and refusal are three different things."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from autoscaler.connectors.metrics import history
from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.history import recorded_replicas, request_history
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.connectors.metrics.queries import Scope
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.observation import Catalogue
from autoscaler.ports import HistoryPiece

CATALOGUE = Catalogue.of({a: (a, "", "", 0) for a in ("a1", "a2")})
SCOPE = Scope({}, {}, (), 60.0)
START_S, STEP_S = 6000.0, 60.0


class Recorded:
    """Heard a router from `heard_from_s` on, where the rate of a1 equals the time; refuses long spans."""

    def __init__(self) -> None:
        self.url = ""
        self.heard_from_s = 0.0
        self.most_points = 10**9
        self.spans: list[int] = []
        self.vector: list[dict[str, Any]] = []

    async def query_range(self, request: web.Request) -> web.Response:
        start, end, step = (float(request.query[n]) for n in ("start", "end", "step"))
        times = [t for t in np.arange(start, end + 1, step) if t >= self.heard_from_s]
        if (end - start) / step + 1 > self.most_points:
            return web.json_response({"status": "error", "error": "too many samples"}, status=422)
        if request.query["query"].startswith("count"):
            self.spans.append(int((end - start) / step) + 1)
            rows = [{"metric": {}, "values": [[t, "3"] for t in times]}] if times else []
        else:
            rows = [{"metric": {"adapter": "a1"}, "values": [[t, str(t)] for t in times]}] if times else []
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": rows}})

    async def query(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": self.vector}})


@pytest.fixture
async def server() -> AsyncIterator[Recorded]:
    served = Recorded()
    app = web.Application()
    app.router.add_get("/api/v1/query_range", served.query_range)
    app.router.add_get("/api/v1/query", served.query)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    served.url = f"http://{host}:{port}"
    yield served
    await runner.cleanup()


async def pieces(url: str, points: int) -> list[HistoryPiece]:
    connection = PrometheusConnection(PrometheusSettings(url, retries=0))
    end_s = START_S + (points - 1) * STEP_S
    read = request_history(connection, ENVOY, SCOPE, CATALOGUE, START_S, end_s, STEP_S)
    found = [piece async for piece in read]
    connection.close()
    return found


async def test_rates_are_aligned_with_the_catalogue_and_zero_where_nothing_grew(server: Recorded) -> None:
    (piece,) = await pieces(server.url, 5)
    np.testing.assert_array_equal(piece.times_s, START_S + STEP_S * np.arange(5))
    np.testing.assert_array_equal(piece.requests_per_s, np.stack([piece.times_s, np.zeros(5)], axis=1))
    assert piece.trouble == ""


async def test_before_a_router_was_heard_nothing_is_known(server: Recorded) -> None:
    server.heard_from_s = START_S + 2 * STEP_S
    (piece,) = await pieces(server.url, 4)
    assert np.isnan(piece.requests_per_s).all(axis=1).tolist() == [True, True, False, False]


async def test_pieces_are_bounded_and_cover_every_point_once(server: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_VALUES", 40)
    found = await pieces(server.url, 50)
    assert server.spans == [20, 20, 10]
    np.testing.assert_array_equal(np.concatenate([p.times_s for p in found]), START_S + STEP_S * np.arange(50))


async def test_a_piece_that_is_refused_is_halved(server: Recorded) -> None:
    server.most_points = 13
    found = await pieces(server.url, 50)
    assert max(server.spans) <= 13
    times_s = np.concatenate([p.times_s for p in found])
    np.testing.assert_array_equal(times_s, START_S + STEP_S * np.arange(50))
    np.testing.assert_array_equal(np.concatenate([p.requests_per_s for p in found])[:, 0], times_s)


async def test_a_server_that_refuses_everything_leaves_it_unknown_and_says_why(server: Recorded) -> None:
    server.most_points = 0
    found = await pieces(server.url, 20)
    assert sum(len(p.times_s) for p in found) == 20
    assert all(np.isnan(p.requests_per_s).all() for p in found)
    assert found[0].trouble == "Prometheus refused the query: too many samples"


async def test_replicas_of_the_past_are_those_that_had_series(server: Recorded) -> None:
    server.vector = [
        {"metric": {"pod": "b", "instance": "10.0.0.2:8000"}, "value": [0, "1"]},
        {"metric": {"instance": "10.0.0.1:8000"}, "value": [0, "1"]},
    ]
    connection = PrometheusConnection(PrometheusSettings(server.url))
    found = await recorded_replicas(connection, VLLM, SCOPE, "pod", START_S)
    assert found == (
        Replica("10.0.0.1:8000", "warm", None, "10.0.0.1:8000", ReplicaState.READY),
        Replica("b", "warm", None, "10.0.0.2:8000", ReplicaState.READY),
    )


async def test_a_policys_own_rate_is_averaged_over_each_step_and_silence_of_all_is_unknown(server: Recorded):
    asked: list[str] = []
    server.heard_from_s = START_S + 2 * STEP_S
    connection = PrometheusConnection(PrometheusSettings(server.url))
    query_range = connection.query_range

    async def noted(expression: str, *span: float) -> Any:
        asked.append(expression)
        return await query_range(expression, *span)

    connection.query_range = noted  # type: ignore[method-assign]
    own = "sum by (adapter) (rate(litellm_requests_total[1m]))"
    span = (START_S, START_S + 3 * STEP_S, STEP_S)
    pieces = [p async for p in request_history(connection, ENVOY, SCOPE, CATALOGUE, *span, own=own)]
    mean = f"avg_over_time(({own})[60000ms:60000ms])"
    assert asked == [f"count({mean})", mean]
    [piece] = pieces
    np.testing.assert_array_equal(piece.requests_per_s[:, 0], [np.nan, np.nan, START_S + 120.0, START_S + 180.0])
    np.testing.assert_array_equal(piece.requests_per_s[:, 1], [np.nan, np.nan, 0.0, 0.0])
    connection.close()
