"""A Prometheus with hours of history: what a controller starts from, and what a backtest is made of."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscaler.cli import main
from autoscaler.cli.settings import MetricsFrom, Prometheus, Settings, Source
from autoscaler.cli.sources import FollowingSource
from autoscaler.controller.learning import Learner
from autoscaler.forecasting import ForecastMethod, forecast
from autoscaler.planner import PlannerMemory
from autoscaler.planner.learned import settings_of
from autoscaler.policy.loading import parse_policy
from autoscaler.policy.model import FleetPolicy
from tests.controller.test_learning import MemoryModels
from tests.controller.test_learning import here as outlook_here
from tests.e2e.parts.processes import need
from tests.e2e.parts.prometheus import PrometheusServer
from tests.planner.world import catalogue

START_S, HOURS, SCRAPE_S, BUCKET_S = 1_767_225_600.0, 4, 15, 60
COUNTED = {"envoy_llm_requests": 1.0, "envoy_llm_prompt_tokens": 200.0, "envoy_llm_completion_tokens": 100.0}
RATES = {"t000": 8.0, "t001": 2.0, "t002": 0.0}
GAP_S = (START_S + 1.5 * 3600, START_S + 2 * 3600)
RESET_S = START_S + 2.5 * 3600
POLICY = b"""
apiVersion: lora-autoscaler.io/v1alpha1
kind: FleetPolicy
metadata: {name: fleet}
spec:
  baseModel: base
  adapters: {pathTemplate: "/adapters/{id}"}
  groups: {warm: {minReplicas: 1, maxReplicas: 40}, hot: none, cold: none}
  scaling: {startup: 60s, scaleIn: {horizon: 180s}}
  forecast:
    {bucket: 60s, horizons: [60s, 180s], halfLives: [60s, 120s, 600s], day: 1h, horizon: 60s, history: 3h,
     learned: false}
"""


def open_metrics() -> str:
    """Counters as an Envoy showed them, scraped every 15 s, with half an hour missing and a restart."""
    lines = []
    for name, each in COUNTED.items():
        lines.append(f"# TYPE {name} gauge")
        for adapter, rate in RATES.items():
            for i in range(HOURS * 3600 // SCRAPE_S + 1):
                at_s = START_S + i * SCRAPE_S
                if GAP_S[0] <= at_s < GAP_S[1]:
                    continue
                since_s = at_s - (RESET_S if at_s >= RESET_S else START_S - 7200)
                labels = f'adapter="{adapter}",instance="envoy:9901",job="envoy"'
                lines.append(f"{name}{{{labels}}} {rate * each * since_s:.0f} {at_s:.0f}")
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    folder = tmp_path_factory.mktemp("recorded")
    text = folder / "history.om"
    text.write_text(open_metrics())
    data = folder / "prometheus" / "data"
    data.mkdir(parents=True)
    made = [need("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    with PrometheusServer(folder / "prometheus", [], retention="100y") as server:
        yield server


class Stopped:
    """A clock that stands at the end of what is recorded."""

    def now_s(self) -> float:
        return START_S + HOURS * 3600 + 30

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_a_controller_starts_with_what_a_real_prometheus_remembers(recorded: PrometheusServer) -> None:
    policy = parse_policy(POLICY, "policy.yaml")
    assert isinstance(policy, FleetPolicy)
    told = MetricsFrom(source=Source.PROMETHEUS, prometheus=Prometheus(url=recorded.url))
    source = FollowingSource(Settings(metrics=told), {}, lambda: policy, None, Stopped())  # type: ignore[arg-type]
    learner = Learner(Stopped(), MemoryModels(), source, outlook_here)
    adapters, memory = catalogue(3), PlannerMemory()
    for _ in range(1000):
        memory = learner.before(memory, policy, adapters)
        if "history is being read" not in learner.conditions(policy).get("HistoryShort", ""):
            break
        await asyncio.sleep(0.05)
    assert "HistoryShort" not in learner.conditions(policy)
    assert memory.demand is not None
    filled, settings = memory.demand.forecast, settings_of(policy)
    assert filled.series.age.tolist() == pytest.approx([180 - 30] * 3, abs=2), "the gap is unknown"
    np.testing.assert_allclose(filled.series.usual(), [8.0, 2.0, 0.0], rtol=0.02)
    made = forecast(filled, [60.0], filled.last_tick_s, settings)
    np.testing.assert_allclose(made.mean[0], [8.0, 2.0, 0.0], rtol=0.05, atol=0.01)
    assert (made.method == ForecastMethod.TABLE).all()
    rates = np.stack([row for row in filled.series.day if not np.isnan(row).any()])
    assert rates[:, 0].min() > 7.0, "neither the restart nor the gap is a false zero"
    assert rates[:, 0].max() < 9.0, "nor a false burst"
    await learner.close()


def test_a_backtest_of_a_real_prometheus(
    recorded: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, page = tmp_path / "policy.yaml", tmp_path / "report.html"
    policy.write_bytes(POLICY)
    span = ["--start", f"{START_S + 3 * 3600:.0f}", "--end", f"{START_S + HOURS * 3600:.0f}"]
    asked = ["backtest", "--policy", str(policy), "--prometheus", recorded.url, *span, "--capacity", "1000"]
    assert main([*asked, "--html", str(page), "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (report["tenants"], report["judged_buckets"]) == (3, 60)
    assert report["unknown_ratio"] == 0.0
    for pool in ("all", "head"):
        assert report["methods"]["served"]["60"][pool]["wape"] < 0.02
    assert report["fleet_rate"]["actual_rps"][30] == pytest.approx(10.0, rel=0.02)
    assert any("the 3 that routers counted" in note for note in report["notes"])
    warm = report["scale"]["groups"]["warm"]
    assert warm["tokens_per_s"][30] == pytest.approx(3000.0, rel=0.02), "300 tokens a request are recorded"
    assert warm["replicas"][-1] >= 3
    assert page.stat().st_size > 10_000


def test_a_simulation_plays_what_a_real_prometheus_has_recorded_and_keeps_it(
    recorded: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, kept = tmp_path / "policy.yaml", tmp_path / "kept.csv"
    policy.write_bytes(POLICY)
    fleet = ["--replicas", "2", "--max-loras", "8", "--startup", "30", "--strategy", "least-request-hpa"]
    asked = ["simulate", "--policy", str(policy), "--hours", "1", *fleet, "--output"]
    # From a quarter of an hour before the half hour that nobody recorded to one after it.
    span = ["--start", f"{START_S + 1.25 * 3600:.0f}", "--record", str(kept)]
    assert main([*asked, str(tmp_path / "a.json"), "--trace", recorded.url, *span]) == 0
    assert "of 60 windows are unknown and played as those before them" in capsys.readouterr().err
    assert main([*asked, str(tmp_path / "b.json"), "--trace", str(kept)]) == 0
    assert "unknown" not in capsys.readouterr().err
    first, again = (json.loads((tmp_path / name).read_text())["strategies"] for name in ("a.json", "b.json"))
    assert first == again, "the file is the range"
    told = first["least-request-hpa"]
    assert told["requests"] == pytest.approx(10.0 * 3000, rel=0.03), "the gap is no silence"
    assert told["tokens_per_s"] == pytest.approx(10.0 * 100, rel=0.1), "answers of 100 tokens are recorded"
    rows = [line.split(",") for line in kept.read_text().splitlines()[1:]]
    assert {row[0] for row in rows} == {"t000", "t001"}
    assert {round(float(row[3])) for row in rows if row[0] == "t000"} == {200}


def test_history_that_no_router_wrote_is_said_so(
    recorded: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_bytes(POLICY)
    span = ["--start", f"{START_S:.0f}", "--end", f"{START_S + 3600:.0f}"]
    asked = ["backtest", "--policy", str(policy), "--prometheus", recorded.url, *span, "--router", "llm-d"]
    assert main(asked) == 2
    assert "holds no llm_d_epp_request_total between these times; is --router llm-d right?" in capsys.readouterr().err
