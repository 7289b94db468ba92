"""Prometheus rules, Grafana dashboards and runbooks: real promtool, real Helm, and every query on a real Prometheus."""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from autoscaler.policy.words import Mode
from tests.docs.reference import metric_rows
from tests.e2e.parts.commands import helm
from tests.e2e.parts.processes import need
from tests.e2e.parts.prometheus import PrometheusServer
from tests.e2e.test_one_machine import ADAPTERS, Machine, machine

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "lora-autoscaler"
RULES = CHART / "rules" / "lora-autoscaler.rules.yaml"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
CASES = ROOT / "tests" / "e2e" / "rules" / "cases.test.yaml"


def promtool(*arguments: str) -> str:
    done = subprocess.run([need("promtool"), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Each panel's title and expression, of every dashboard."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"]


def test_the_rules_are_valid_and_no_two_are_alike() -> None:
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", str(RULES))


def test_each_alert_fires_where_it_should_and_stays_silent_where_it_nearly_would() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(CASES))


def test_each_alert_has_a_case_that_fires_one_that_is_silent_a_severity_and_a_runbook() -> None:
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test.get("alert_rule_test", ())]
    fires = {case["alertname"] for case in cases if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    alerts = [rule for rule in rules() if "alert" in rule]
    assert fires == silent == {rule["alert"] for rule in alerts}
    for rule in alerts:
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule
        runbook = ROOT / rule["annotations"]["runbook_url"]
        assert f"**Alert** `{rule['alert']}`" in runbook.read_text(), runbook
    assert {p.name for p in (ROOT / "docs" / "runbooks").glob("*.md")} == {
        Path(rule["annotations"]["runbook_url"]).name for rule in alerts
    }


def test_rules_and_dashboards_name_only_series_that_exist() -> None:
    own = {name for name, *_ in metric_rows()}
    own |= {f"{name}_{part}" for name, kind, *_ in metric_rows() if kind == "histogram" for part in _HISTOGRAM}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = [rule["expr"] for rule in rules()] + [expression for _, expression in queries()]
    named = {name for expression in asked for name in re.findall(r"lora_autoscaler[_:][\w:]+", expression)}
    assert named <= own | recorded


_HISTOGRAM = ("bucket", "sum", "count")


def test_a_dashboard_s_panels_do_not_overlap_and_say_what_they_show() -> None:
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            assert at["x"] + at["w"] <= 24, panel["title"]
            taken |= cells


def test_the_chart_makes_all_of_it_from_the_same_files_and_nothing_unasked() -> None:
    command = ["template", "release", str(CHART), "--namespace", "serving"]
    kinds = {found["kind"] for found in yaml.safe_load_all(helm(*command)) if found}
    assert not kinds & {"PrometheusRule", "ServiceMonitor"}
    for part in ("serviceMonitor", "rules", "dashboards"):
        command += ["--set", f"monitoring.{part}.enabled=true"]
    command += ["--set", "monitoring.rules.runbooks=https://wiki.example.com/"]
    made = {(m["kind"], m["metadata"]["name"]): m for m in yaml.safe_load_all(helm(*command)) if m}
    for rule in (found := rules()):
        if "alert" in rule:
            rule["annotations"]["runbook_url"] = f"https://wiki.example.com/{rule['annotations']['runbook_url']}"
    spec = made["PrometheusRule", "release"]["spec"]
    assert [rule for group in spec["groups"] for rule in group["rules"]] == found
    board = made["ConfigMap", "release-dashboards"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert [json.loads(text) for text in board["data"].values()] == [json.loads(p.read_text()) for p in DASHBOARDS]
    monitor = made["ServiceMonitor", "release"]["spec"]
    service = made["Service", "release"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


async def traffic(running: Machine, over: asyncio.Event) -> None:
    """One tenant asks for most, the others for a little, until it is over."""
    async with httpx.AsyncClient(timeout=30.0) as client:

        async def ask(adapter: str) -> None:
            body = {"model": adapter, "prompt": "x x", "max_tokens": 4, "stream": True}
            await client.post(f"{running.world.envoy_settings.url}/v1/completions", json=body)

        number = 0
        while not over.is_set():
            number += 1
            await asyncio.gather(ask(ADAPTERS[0]), ask(ADAPTERS[0]), ask(ADAPTERS[number % len(ADAPTERS)]))


async def test_no_panel_of_a_dashboard_is_empty_on_a_running_product(tmp_path: Path) -> None:
    """All expressions of both dashboards, on the series of a controller that serves traffic and obeys an override."""
    async with machine(tmp_path, Mode.ENFORCE) as running:
        address = str(running.client.base_url).removeprefix("http://").rstrip("/")
        scrape = {"job_name": "lora-autoscaler", "static_configs": [{"targets": [address]}]}
        with PrometheusServer(tmp_path / "prometheus", [scrape], rule_files=[RULES]) as prometheus:
            over = asyncio.Event()
            asking = asyncio.create_task(traffic(running, over))
            try:
                body = {"tier": "hot", "reason": "a change to show", "ttl_s": 600}
                told = await running.client.put(f"/v1/fleets/local/tenants/{ADAPTERS[3]}/override", json=body)
                assert told.status_code == 200, told.text
                empty = await _until_none_is_empty(prometheus)
            finally:
                over.set()
                await asking
            assert empty == []


async def _until_none_is_empty(prometheus: PrometheusServer) -> list[str]:
    """Panels that are still empty after 90 s, with their expressions."""
    empty: list[str] = []
    for _ in range(90):
        empty = []
        for panel, expression in queries():
            asked = expression.replace("$fleet", "local").replace("$__rate_interval", "30s")
            assert "$" not in asked, panel
            if not await asyncio.to_thread(prometheus.query, asked):
                empty.append(f"{panel}: {asked}")
        if not empty:
            return []
        await asyncio.sleep(1)
    return empty
