"""The chart's own schema refuses a misspelt key before anything is installed, and takes every key that there is."""

import json
from pathlib import Path

from autoscaler.cli.settings import Settings
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
