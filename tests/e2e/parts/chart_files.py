"""Makes the file of the chart that comes from code: `python -m tests.e2e.parts.chart_files`."""

import json
from pathlib import Path

from autoscaler.connectors.envoy.bootstrap import EnvoySettings, discovering

BOOTSTRAP = Path(__file__).resolve().parents[3] / "helm" / "lora-autoscaler" / "files" / "envoy.json"
CONTROLLER = ("controller.invalid", 1)
"""Stands for the Service, which only the release knows."""


def bootstrap() -> str:
    """The routers' bootstrap; who an Envoy is, is said on its command line."""
    made = discovering(EnvoySettings(Path(), 8000, 9901, host="0.0.0.0"), CONTROLLER, 9902)
    del made["node"]
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    BOOTSTRAP.write_text(bootstrap())
