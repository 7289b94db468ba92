"""The chart's own schema refuses a misspelt key before anything is installed, and takes every key that there is."""

import json
import re
from pathlib import Path

import pytest

from autoscaler.cli.settings import Settings, parse_settings
from autoscaler.policy.fields import keys
from autoscaler.policy.model import FleetPolicy

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "helm/lora-autoscaler/values.schema.json").read_text())
MADE_BY_THE_CHART = {"platform", "state", "tokens", "lease"}


def test_the_chart_takes_exactly_the_keys_of_a_policy():
    told = SCHEMA["properties"]["policies"]["additionalProperties"]["propertyNames"]["enum"]
    assert set(told) == {item.name for item in keys(FleetPolicy)}


def test_the_chart_takes_exactly_the_settings_that_it_does_not_make_itself():
    told = SCHEMA["properties"]["settings"]["propertyNames"]["enum"]
    assert set(told) == {item.name for item in keys(Settings)} - MADE_BY_THE_CHART


@pytest.mark.parametrize("unit", ["s", "m"])
def test_the_chart_takes_exactly_the_lease_durations_that_settings_take(unit: str):
    pattern = SCHEMA["properties"]["leaseDuration"]["pattern"]
    for number in (0, 1, 9, 10, 11, 59, 99, 100, 599, 600, 601, 1000):
        text = f"{number}{unit}"
        taken = isinstance(parse_settings(f"lease: {text}".encode(), Path("s")), Settings)
        assert bool(re.search(pattern, text)) is taken, text
    assert not any(re.search(pattern, text) for text in ("", "15", "1h", "-5s", "15sm", "x15s"))


def test_the_chart_takes_no_interval_of_nothing():
    pattern = SCHEMA["properties"]["monitoring"]["properties"]["serviceMonitor"]["properties"]["interval"]["pattern"]
    assert re.search(pattern, "30s")
    assert not re.search(pattern, "0s")
