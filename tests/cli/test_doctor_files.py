"""`doctor` without a controller: each fault is named with its remedy."""

import time
from pathlib import Path

import pytest
from fastapi import FastAPI, Request

from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.policy.exports import to_yaml
from tests.cli.serving import free_port, serving
from tests.planner.world import policy


def prometheus(names: list[str], skew_s: float = 0.0) -> FastAPI:
    """What of Prometheus' API doctor asks: the clock, the names, and queries that find nothing."""

    app = FastAPI()

    @app.api_route("/api/v1/query", methods=["GET", "POST"])
    async def query(request: Request) -> dict:
        asked = dict(request.query_params) or dict(await request.form())
        clock = [time.time(), str(time.time() + skew_s)]
        scalar = asked["query"] == "time()"
        data = {"resultType": "scalar", "result": clock} if scalar else {"resultType": "vector", "result": []}
        return {"status": "success", "data": data}

    @app.get("/api/v1/label/__name__/values")
    async def values() -> dict:
        return {"status": "success", "data": names}

    return app


@pytest.fixture
def wired(tmp_path: Path):
    """Writes a policy, and settings that name a Prometheus."""

    def write(url: str, more: str = "") -> tuple[str, Path, str, Path]:
        (tmp_path / "policies").mkdir(exist_ok=True)
        (tmp_path / "policies" / "fleet.yaml").write_text(to_yaml(policy()))
        file = tmp_path / "settings.yaml"
        file.write_text(f"metrics: {{source: prometheus, prometheus: {{url: '{url}', retries: 0}}}}\n{more}")
        return "--policies", tmp_path / "policies", "--settings", file

    return write


ROUTER = ["envoy_llm_requests", "envoy_llm_prompt_tokens"]


def test_a_renamed_metric_is_told_with_the_nearest_name(wired, run):
    names = [n for n in VLLM.metric_names() if n != "vllm:num_requests_waiting"] + ["vllm:num_requests_wait", *ROUTER]
    with serving(prometheus(names)) as url:
        ran = run("doctor", *wired(url), "--json")
    wrong = [f for f in ran.json if f["state"] == "wrong"]
    assert [(f["check"], f["subject"]) for f in wrong] == [("metric", "fleet waiting")]
    assert "the nearest name that exists is vllm:num_requests_wait" in wrong[0]["message"]
    assert "signals.queries" in wrong[0]["remedy"]
    assert ran.code == 1


def test_all_metrics_there_is_exit_code_0_and_what_is_optional_is_a_note(wired, run):
    with serving(prometheus([*VLLM.metric_names(), *ROUTER])) as url:
        ran = run("doctor", *wired(url), "--json")
    assert ran.code == 0
    found = {f["subject"]: f["state"] for f in ran.json if f["check"] == "metric"}
    assert found["fleet waiting"] == "fine"
    assert any(f["state"] == "note" and f["subject"] == "fleet router" for f in ran.json)


def test_a_clock_that_differs_and_a_router_nobody_scrapes(wired, run):
    with serving(prometheus(list(VLLM.metric_names()), skew_s=-90)) as url:
        ran = run("doctor", *wired(url), "--json")
    wrong = {f["check"]: f for f in ran.json if f["state"] == "wrong"}
    assert "clock is -9" in wrong["prometheus"]["message"]
    assert wrong["prometheus"]["remedy"] == "Set both by NTP."
    assert "no series named envoy_llm_requests" in wrong["metric"]["message"]


def test_an_unreachable_prometheus_a_missing_token_file_and_a_misspelt_fleet(wired, run):
    more = "tokens: nowhere.yaml\nfleets: {fleett: {}}\n"
    ran = run("doctor", *wired(f"http://127.0.0.1:{free_port()}", more), "--json")
    wrong = {f["check"]: f for f in ran.json if f["state"] == "wrong"}
    assert set(wrong) == {"prometheus", "tokens", "settings"}
    assert "does not answer" in wrong["prometheus"]["message"]
    assert wrong["settings"]["remedy"] == "Name one of fleet, or drop it."


def test_bad_policies_and_settings_are_findings_not_failures(tmp_path: Path, run):
    (tmp_path / "p.yaml").write_text("spec: {}")
    (tmp_path / "s.yaml").write_text("listen: 80")
    ran = run("doctor", "--policies", tmp_path / "p.yaml", "--settings", tmp_path / "s.yaml", "--json")
    assert ran.code == 1
    assert {f["check"] for f in ran.json if f["state"] == "wrong"} == {"policy", "settings"}
    assert all(f["remedy"] for f in ran.json)


def test_a_scraped_fleet_without_a_router_is_told_what_that_costs(tmp_path: Path, run):
    (tmp_path / "p.yaml").write_text(to_yaml(policy()))
    (tmp_path / "s.yaml").write_text("{}")
    ran = run("doctor", "--policies", tmp_path / "p.yaml", "--settings", tmp_path / "s.yaml")
    assert ran.code == 1
    assert "nothing is ever scaled in" in ran.out
    assert ran.out.splitlines()[-1].endswith("1 wrong")


def test_files_that_are_not_there_are_wrong_usage(run):
    assert run("doctor", "--policies", "nowhere.yaml").code == 2
    assert run("doctor", "--settings", "nowhere.yaml").code == 2
