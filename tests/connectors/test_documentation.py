"""The reference pages name every series, setting and condition of these rooms."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from autoscaler.connectors.metrics.connection import PrometheusSettings
from autoscaler.connectors.metrics.presets import PRESETS
from autoscaler.connectors.metrics.router_presets import ENVOY, LLM_D, ROUTERS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ROOT / "autoscaler" / "connectors"
OBSERVATION = (ROOT / "docs" / "observation.md").read_text()
CONDITION = re.compile(
    r'(?:conditions\[f?|conditions = \{f?|\{\n\s+f?|return \{f?|(?:INVALID|UNFIT) = )"([A-Z][A-Za-z]+)'
)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS.keys())
def test_every_engine_series_is_documented(preset: object) -> None:
    names = {re.sub(r"_(sum|count|bucket)$", "", n) for n in preset.metric_names()}  # type: ignore[attr-defined]
    assert [n for n in sorted(names) if f"`{n}" not in OBSERVATION] == []


@pytest.mark.parametrize("router", [ENVOY, LLM_D], ids=["envoy", "llm-d"])
def test_every_router_series_is_documented(router: object) -> None:
    shown = (*router.counters(), router.ttft_buckets, router.in_flight)  # type: ignore[attr-defined]
    names = [re.sub(r"(?<=ttft_seconds)_(sum|count|bucket)$", "", n) for n in shown if n]
    assert [n for n in names if f"`{n}`" not in OBSERVATION] == []


def test_every_router_preset_is_documented() -> None:
    assert [name for name in ROUTERS if f"`{name}`" not in OBSERVATION] == []


def test_every_setting_of_prometheus_is_documented() -> None:
    assert [f.name for f in fields(PrometheusSettings) if f"`{f.name}`" not in OBSERVATION] == []


def test_every_condition_is_documented() -> None:
    rooms = ("metrics", "files", "stores")
    sources = [path.read_text() for room in rooms for path in sorted((ROOMS / room).glob("*.py"))]
    named = {name for source in sources for name in CONDITION.findall(source)}
    assert {"PartialAnswer", "MetricMissing", "StoreSetAside", "CatalogueInvalid", "TokensUnseen"} <= named
    assert [name for name in sorted(named) if f"`{name}" not in OBSERVATION] == []
