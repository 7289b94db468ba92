"""The Alertmanager configuration of the documentation: every alert of ours has a route, and Alertmanager takes it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "monitor.md"


def configuration() -> str:
    """The page's YAML block."""
    (block,) = re.findall(r"```yaml\n(route:\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return block


def alerts() -> dict[str, str]:
    """Alert -> severity, from the page's own table."""
    rows = re.findall(r"^\| `(LoraAutoscaler\w+)` \| (\w+)", PAGE.read_text("utf-8"), re.MULTILINE)
    return dict(rows)


def amtool() -> str:
    found = shutil.which("amtool")
    if found is None:
        pytest.skip("amtool is not here; it comes with Alertmanager (Debian: prometheus-alertmanager)")
    return found


def told(tmp_path: Path) -> Path:
    file = tmp_path / "alertmanager.yml"
    file.write_text(configuration(), "utf-8")
    return file


def test_every_inhibition_names_alerts_that_there_are():
    config: dict[str, Any] = yaml.safe_load(configuration())
    known = set(alerts())
    assert len(known) >= 8
    for rule in config["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            name, value = re.fullmatch(r'(\w+) =~? "(.*)"', matcher).groups()
            if name == "alertname":
                assert any(re.fullmatch(value, alert) for alert in known), matcher
    receivers = {r["name"] for r in config["receivers"]}
    assert receivers == {"default", "models-channel", "models-pager"}


def test_alertmanager_takes_it(tmp_path: Path):
    checked = subprocess.run([amtool(), "check-config", told(tmp_path)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "3 receivers" in checked.stdout
    assert "2 inhibit rules" in checked.stdout


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "models-pager"), ("warning", "models-channel")])
def test_each_alert_goes_where_the_page_says(tmp_path: Path, severity: str, receiver: str):
    program, file = amtool(), told(tmp_path)
    for alert in alerts():
        asked = [program, "config", "routes", "test", f"--config.file={file}", f"--verify.receivers={receiver}",
                 f"alertname={alert}", f"severity={severity}", "fleet=chat"]  # fmt: skip
        tested = subprocess.run(asked, capture_output=True, text=True)
        assert tested.returncode == 0, tested.stdout + tested.stderr


def test_what_is_not_ours_goes_to_the_default(tmp_path: Path):
    asked = [amtool(), "config", "routes", "test", f"--config.file={told(tmp_path)}", "alertname=NodeDown"]
    assert subprocess.run(asked, capture_output=True, text=True).stdout.strip() == "default"
