"""What Prometheus and its kin may answer, and what is made of it. The real one is in tests/e2e."""

import base64
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.presets import CUSTOM, VLLM
from autoscaler.connectors.metrics.prometheus import PrometheusSource, SourceSettings
from autoscaler.connectors.metrics.router_presets import ENVOY, LLM_D
from autoscaler.domain.fleet import Replica, ReplicaState
from autoscaler.domain.observation import Catalogue
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.steps import Signals
from autoscaler.policy.words import SignalName
from autoscaler.ports import Metrics

NOW_S = 1000.0
CATALOGUE = Catalogue.of({a: (a, "", "", 0) for a in ("a1", "a2")})
REPLICAS = [Replica(f"r{i}", "warm", None, f"10.0.0.{i}:8000", ReplicaState.READY) for i in (1, 2)]

Rows = list[dict[str, Any]]


@dataclass
class FakePrometheus:
    """Answers each query by the first rule whose pattern is in it; others find nothing."""

    url: str = ""
    rules: list[tuple[str, Rows]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    fails: Callable[[web.Request], web.Response | None] = lambda _: None
    requests: list[web.Request] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    now_s: float = NOW_S

    async def query(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        if failure := self.fails(request):
            return failure
        expression = request.query["query"]
        if expression == "time()":
            return self.answer("scalar", [self.now_s, str(self.now_s)])
        found = next((rows for pattern, rows in self.rules if pattern in expression), [])
        return self.answer("matrix" if expression.endswith("s]") else "vector", found)

    async def label(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return web.json_response({"status": "success", "data": self.names})

    def answer(self, kind: str, result: Any) -> web.Response:
        body = {"status": "success", "data": {"resultType": kind, "result": result}} | self.extra
        return web.json_response(body, dumps=lambda b: json.dumps(b, separators=(",", ":")))

    def engines(self, **values: float) -> None:
        """Both replicas' gauges, two samples each."""
        self.rules.append(
            (
                "__name__=~",
                [raw(f"vllm:{n}", v, pod=r.id, engine="0") for n, v in values.items() for r in REPLICAS],
            )
        )


def raw(name: str, *values: float, at: tuple[float, ...] = (), **labels: str) -> dict[str, Any]:
    times = at or tuple(NOW_S - 15 * i for i in range(len(values)))[::-1]
    return {"metric": {"__name__": name, **labels}, "values": [[t, str(v)] for t, v in zip(times, values, strict=True)]}


def row(value: float | str, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [NOW_S, str(value)]}


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    served = FakePrometheus()
    app = web.Application()
    app.router.add_route("*", "/base/api/v1/query", served.query)
    app.router.add_route("*", "/base/api/v1/label/__name__/values", served.label)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    served.url = f"http://{host}:{port}/base/"
    yield served
    await runner.cleanup()


async def read(fake: FakePrometheus, signals: Signals | None = None, now_s: float = NOW_S, **changed: Any) -> Metrics:
    source = {k: changed.pop(k) for k in ("engine", "router", "replay") if k in changed}
    connection = PrometheusConnection(PrometheusSettings(**({"url": fake.url, "retries": 0} | changed)))
    settings = {"engine": VLLM, "router": ENVOY, "signals": signals or Signals(), "base_models": frozenset({"base"})}
    try:
        return await PrometheusSource(SourceSettings(**(settings | source)), connection).read(
            now_s, CATALOGUE, REPLICAS
        )
    finally:
        connection.close()


def heard(fake: FakePrometheus, age_s: float = 3.0) -> None:
    fake.rules.append(("min(time() - timestamp(envoy_llm_requests", [row(age_s)]))


async def test_a_server_that_is_gone_leaves_everything_unknown(fake: FakePrometheus) -> None:
    seen = await read(fake, url="http://127.0.0.1:1")
    waiting = seen.replicas["r1"].waiting
    assert isinstance(waiting, Missing)
    assert "does not answer" in waiting.why
    assert np.isnan(seen.traffic.requests_per_s).all()
    assert seen.freshness["engines"] == seen.freshness["traffic"] == waiting
    assert seen.conditions["MetricsUnreachable"] == waiting.why


async def test_a_refusal_is_told_in_the_servers_words(fake: FakePrometheus) -> None:
    body = {"status": "error", "errorType": "bad_data", "error": 'parse error: "x" is wrong'}
    fake.fails = lambda _: web.json_response(body, status=400)
    seen = await read(fake)
    assert seen.conditions["MetricsUnreachable"] == 'Prometheus refused the query: parse error: "x" is wrong'


@pytest.mark.parametrize("body", ["<html>", "[]", "{}", '{"status":"success","data":null}'])
async def test_what_is_no_prometheus_is_said(fake: FakePrometheus, body: str) -> None:
    fake.fails = lambda _: web.Response(text=body)
    seen = await read(fake)
    assert "answered what is no Prometheus answer" in seen.conditions["MetricsUnreachable"]


async def test_an_overloaded_server_is_asked_again(fake: FakePrometheus) -> None:
    answers = [503, 429]
    fake.fails = lambda _: web.Response(status=answers.pop()) if answers else None
    fake.engines(num_requests_waiting=4)
    seen = await read(fake, retries=3)
    assert seen.replicas["r1"].waiting == Fresh(4.0)


async def test_a_bearer_token_is_read_again_at_each_query(fake: FakePrometheus, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    def rotate(request: web.Request) -> None:
        if request.query["query"] == "time()":
            token.write_text("second\n")

    fake.fails = rotate
    await read(fake, bearer_token_file=token)
    sent = [r.headers["Authorization"] for r in fake.requests if "query" in r.query]
    assert (sent[0], set(sent[1:])) == ("Bearer first", {"Bearer second"})


async def test_basic_authentication_headers_and_the_base_path_are_sent(fake: FakePrometheus, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p:\u00e4ss\n")
    headers = {"X-Scope-OrgID": "team|a"}
    await read(fake, username="ann", password_file=tmp_path / "password", headers=headers)
    for request in fake.requests:
        assert request.headers["X-Scope-OrgID"] == "team|a"
        kind, _, encoded = request.headers["Authorization"].partition(" ")
        assert (kind, base64.b64decode(encoded).decode()) == ("Basic", "ann:p:\u00e4ss")


async def test_a_missing_credential_file_is_no_crash(fake: FakePrometheus, tmp_path: Path) -> None:
    seen = await read(fake, bearer_token_file=tmp_path / "gone")
    assert "No such file" in seen.conditions["MetricsUnreachable"]


async def test_matchers_are_in_every_query_and_stay_values(fake: FakePrometheus) -> None:
    signals = Signals(matchers={"namespace": "llm"})
    await read(fake, signals, matchers={"cluster": 'eu"} or up{x="\\\n'})
    queries = [r.query["query"] for r in fake.requests if "query" in r.query and r.query["query"] != "time()"]
    escaped = 'cluster="eu\\"} or up{x=\\"\\\\\\n"'
    for query in queries:
        selectors = re.findall(r"\b(?:envoy_\w+|up)(?=\{)", query.replace(escaped, "")) or ["engines"]
        assert query.count(escaped) == len(selectors), query
    (engines,) = (q for q in queries if "__name__" in q)
    assert 'namespace="llm"' in engines


async def test_the_number_of_queries_does_not_grow_with_adapters(fake: FakePrometheus) -> None:
    heard(fake)
    fake.engines(num_requests_waiting=0)
    await read(fake)
    few = len(fake.requests)
    fake.rules.insert(0, ("envoy_llm_requests", [row(1.0, adapter=f"x{i}", upstream="u") for i in range(5000)]))
    await read(fake)
    assert len(fake.requests) == 2 * few
    assert few == 11


async def test_all_queries_of_a_tick_are_at_one_moment_of_the_servers_clock(fake: FakePrometheus) -> None:
    fake.now_s = 1234.5
    seen = await read(fake)
    assert {r.query.get("time") for r in fake.requests if "query" in r.query} == {None, "1234.500"}
    assert seen.conditions["ClockSkew"] == "Prometheus' clock is +234 s from the controller's: set both by NTP"


async def test_recorded_history_is_read_at_the_time_that_is_asked_for(fake: FakePrometheus) -> None:
    seen = await read(fake, now_s=77.0, replay=True)
    assert {r.query.get("time") for r in fake.requests if "query" in r.query} == {"77.000"}
    assert "ClockSkew" not in seen.conditions


async def test_copies_of_a_highly_available_pair_are_seen_and_counted_once(fake: FakePrometheus) -> None:
    copies = [
        raw("vllm:num_requests_waiting", v, v, at=(NOW_S - 15 - o, NOW_S - o), pod="r1", prometheus_replica=name)
        for name, v, o in (("a", 7.0, 2.0), ("b", 8.0, 5.0))
    ]
    counters = [
        raw(
            "vllm:request_success_total",
            1e6,
            1e6 + 30,
            at=(NOW_S - 15 - o, NOW_S - o),
            pod="r1",
            prometheus_replica=name,
        )
        for name, o in (("a", 2.0), ("b", 5.0))
    ]
    fake.rules.append(("__name__=~", copies + counters))
    seen = await read(fake)
    assert seen.replicas["r1"].waiting == Fresh(7.0, 2.0)
    assert seen.replicas["r1"].requests_per_s == Fresh(2.0, 2.0)
    assert "series of replica r1 come twice at the same time" in seen.conditions["DuplicatedSeries"]
    traffic = [r.query["query"] for r in fake.requests if "sum by (adapter" in r.query.get("query", "")]
    assert all("max without (prometheus_replica, __replica__, replica)" in query for query in traffic)


async def test_a_partial_answer_is_not_taken_for_a_small_one(fake: FakePrometheus) -> None:
    heard(fake)
    fake.rules.append(("envoy_llm_requests", [row(5.0, adapter="a1", upstream="10.0.0.1:8000")]))
    fake.extra = {"warnings": ["store gateway eu-2 is down"]}
    seen = await read(fake)
    assert np.isnan(seen.traffic.requests_per_s).all()
    assert seen.freshness["traffic"] == Missing("partial answer: store gateway eu-2 is down")
    assert "store gateway eu-2 is down" in seen.conditions["PartialAnswer"]


@pytest.mark.parametrize("extra", [{"warnings": ["PromQL info: metric might not be a counter"]}, {"infos": ["x"]}])
async def test_remarks_on_the_expression_are_no_partial_answer(fake: FakePrometheus, extra: dict[str, Any]) -> None:
    heard(fake)
    fake.extra = extra
    assert (await read(fake)).freshness["traffic"] == Fresh(3.0, 3.0)


async def test_victoriametrics_says_partial_in_its_own_way(fake: FakePrometheus) -> None:
    heard(fake)
    fake.extra = {"isPartial": True}
    assert (await read(fake)).freshness["traffic"] == Missing("partial answer: the answer is partial")


async def test_adapters_without_growth_had_no_traffic_once_a_router_was_heard(fake: FakePrometheus) -> None:
    heard(fake)
    fake.rules += [
        (
            "envoy_llm_requests",
            [row(5.0, adapter="a1", upstream="10.0.0.1:8000"), row(1.0, adapter="base", upstream="")],
        ),
        ("envoy_llm_completion_tokens", [row(500.0, adapter="a1", upstream="10.0.0.1:8000")]),
    ]
    seen = await read(fake)
    np.testing.assert_array_equal(seen.traffic.requests_per_s, [5.0, 0.0])
    np.testing.assert_array_equal(seen.traffic.completion_tokens_per_s, [500.0, 0.0])
    np.testing.assert_array_equal(seen.traffic.prompt_tokens_per_s, [np.nan, 0.0])
    assert seen.traffic.base_requests_per_s == Fresh(1.0, 3.0)
    assert (seen.pairs.adapter.tolist(), seen.pairs.replica.tolist()) == ([0], [0])


async def test_a_router_that_nobody_hears_is_unknown(fake: FakePrometheus) -> None:
    fake.engines(num_requests_running=3, num_requests_waiting=0)
    fake.names = ["envoy_llm_request", "up"]
    seen = await read(fake)
    assert np.isnan(seen.traffic.requests_per_s).all()
    assert seen.freshness["traffic"] == Missing("no series named envoy_llm_requests")


async def test_a_router_that_was_heard_long_ago_is_stale(fake: FakePrometheus) -> None:
    heard(fake, 90.0)
    assert (await read(fake)).freshness["traffic"] == Missing("envoy_llm_requests is stale by 90 s")


async def test_no_series_of_routers_and_idle_engines_are_no_traffic(fake: FakePrometheus) -> None:
    fake.rules.append(
        (
            "__name__=~",
            [
                raw(f"vllm:{n}", 0.0, 0.0, pod=r.id)
                for n in ("num_requests_running", "num_requests_waiting", "request_success_total")
                for r in REPLICAS
            ],
        )
    )
    np.testing.assert_array_equal((await read(fake)).traffic.requests_per_s, [0.0, 0.0])


async def test_a_misspelt_metric_is_named_with_its_nearest(fake: FakePrometheus) -> None:
    fake.engines(num_requests_running=0)
    fake.names = ["vllm_num_requests_waiting", "vllm:num_requests_running"]
    seen = await read(fake)
    assert seen.conditions["MetricMissing/waiting"] == (
        "no engine shows vllm:num_requests_waiting; the nearest name that exists is vllm_num_requests_waiting"
    )


async def test_series_are_joined_with_live_replicas_by_name_before_address(fake: FakePrometheus) -> None:
    fake.rules.append(
        (
            "__name__=~",
            [
                raw("vllm:num_requests_waiting", 9.0, pod="dead", instance="10.0.0.1:8000"),
                raw("vllm:num_requests_waiting", 4.0, instance="10.0.0.2:8000"),
            ],
        )
    )
    seen = await read(fake)
    assert seen.replicas["r1"].waiting == Missing("no series of this replica")
    assert seen.replicas["r2"].waiting == Fresh(4.0)


async def test_samples_of_a_predecessor_are_not_the_new_processs(fake: FakePrometheus) -> None:
    fake.engines(num_requests_waiting=9)
    connection = PrometheusConnection(PrometheusSettings(fake.url))
    source = PrometheusSource(SourceSettings(VLLM, ENVOY), connection)
    restarted = Replica("r1", "warm", None, "10.0.0.1:8000", ReplicaState.READY, started_at_s=NOW_S + 30)
    seen = await source.read(NOW_S, CATALOGUE, [restarted])
    assert seen.replicas["r1"].waiting == Missing("no series of this replica")


async def test_own_queries_stand_before_the_preset(fake: FakePrometheus) -> None:
    fake.engines(num_requests_waiting=9)
    fake.rules.insert(0, ("my_queue", [row(2.0, pod="r1"), row("NaN", pod="r2"), row(7.0, pod="dead")]))
    seen = await read(fake, Signals(queries={SignalName.WAITING: "my_queue"}))
    assert seen.replicas["r1"].waiting == Fresh(2.0)
    assert seen.replicas["r2"].waiting == Missing("the query says nan")


@pytest.mark.parametrize(
    ("requests", "why"),
    [([row(0, pod="r1")], "no traffic"), ([row(2, pod="r1")], "NaN without a count"), ([], "NaN without a count")],
)
async def test_nan_of_an_average_is_no_traffic_only_with_a_count_of_zero(
    fake: FakePrometheus, requests: Rows, why: str
) -> None:
    fake.rules += [("my_ttft", [row("NaN", pod="r1")]), ("my_count", requests)]
    signals = Signals(queries={SignalName.TTFT_MEAN: "my_ttft", SignalName.REQUESTS: "my_count"})
    assert (await read(fake, signals, engine=CUSTOM)).replicas["r1"].ttft_mean_s == Missing(why)


async def test_an_own_query_with_several_series_of_a_replica_is_not_guessed_at(fake: FakePrometheus) -> None:
    fake.rules.append(("my_queue", [row(2.0, pod="r1", engine="0"), row(3.0, pod="r1", engine="1")]))
    seen = await read(fake, Signals(queries={SignalName.WAITING: "my_queue"}), engine=CUSTOM)
    assert seen.replicas["r1"].waiting == Missing(
        "2 different series of this replica: let the query for waiting sum by (pod)"
    )
    assert seen.replicas["r2"].waiting == Missing("the policy's query for waiting found nothing of this replica")


async def test_traffic_by_own_queries(fake: FakePrometheus) -> None:
    fake.rules += [
        ("lite_requests", [row(3.0, adapter="a1"), row(1.0, adapter="base"), row(0.5, adapter="who")]),
        ("lite_ttft", [row("NaN", adapter="a2"), row(0.2, adapter="a1")]),
    ]
    signals = Signals(queries={SignalName.ADAPTER_REQUESTS: "lite_requests", SignalName.ADAPTER_TTFT_P99: "lite_ttft"})
    seen = await read(fake, signals, engine=CUSTOM)
    np.testing.assert_array_equal(seen.traffic.requests_per_s, [3.0, 0.0])
    np.testing.assert_array_equal(seen.traffic.ttft_p99_s, [0.2, np.nan])
    assert seen.traffic.base_requests_per_s == Fresh(1.0)
    assert seen.traffic.unknown_requests_per_s == Fresh(0.5)
    assert seen.freshness["traffic"] == Fresh(0.0)


async def test_an_own_query_that_finds_nothing_is_unknown_traffic(fake: FakePrometheus) -> None:
    seen = await read(fake, Signals(queries={SignalName.ADAPTER_REQUESTS: "typo"}), engine=CUSTOM)
    assert np.isnan(seen.traffic.requests_per_s).all()
    assert seen.freshness["traffic"] == Missing("the policy's query for adapterRequests found nothing")


async def test_an_endpoint_picker_tells_adapters_and_no_owners(fake: FakePrometheus) -> None:
    fake.rules += [
        ("min(time() - timestamp(llm_d_epp_request_total", [row(1.0)]),
        ("llm_d_epp_request_total", [row(4.0, target_model_name="a2"), row(1.0, target_model_name="new")]),
        ("histogram_quantile", [row(1.5, target_model_name="a2")]),
    ]
    seen = await read(fake, router=LLM_D)
    np.testing.assert_array_equal(seen.traffic.requests_per_s, [0.0, 4.0])
    np.testing.assert_array_equal(seen.traffic.ttft_p99_s, [np.nan, 1.5])
    assert len(seen.pairs.adapter) == 0
    assert all("sum by (target_model_name)" in q for q in _queries(fake) if "epp_request_total" in q and "rate" in q)


def _queries(fake: FakePrometheus) -> list[str]:
    return [r.query["query"] for r in fake.requests if "query" in r.query]
