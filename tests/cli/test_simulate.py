"""`simulate`: a table, JSON without NaN, and a report that fetches nothing."""

import json
import re
from pathlib import Path

import pytest

from autoscaler.cli import main
from autoscaler.cli.simulation_charts import Dot, Line, heat, lines, scatter, stacked

pytestmark = pytest.mark.slow
SMALL = (
    "--hours", "0.1", "--rate", "6", "--adapters", "20", "--replicas", "2", "--max-loras", "16", "--startup", "30",
    "--strategy", "ours", "round-robin-hpa", "oracle",
)  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    files = ("--output", str(folder / "report.json"), "--html", str(folder / "report.html"))
    assert main(["simulate", *SMALL, *files]) == 0
    return folder


def test_the_json_report_has_every_strategy_and_no_nan(ran: Path) -> None:
    text = (ran / "report.json").read_text()
    assert "NaN" not in text
    told = json.loads(text)
    assert list(told["strategies"]) == ["ours", "round-robin-hpa", "oracle"]
    ours = told["strategies"]["ours"]
    assert ours["requests"] > 1000
    assert len(ours["timeline"]["at_s"]) == len(ours["timeline"]["ready"]) > 10
    assert len(ours["heat"]["p99_s"]) == len(ours["heat"]["tenants"])
    assert ours["decisions"][0]["message"]


def test_the_page_is_one_file_that_fetches_nothing(ran: Path) -> None:
    page = (ran / "report.html").read_text()
    assert page.count("<svg") >= 8
    assert not re.search(r"(src|href)=|@import|url\(|<script", page)
    for title in ("What it cost", "Replicas over time", "Decisions that mattered", "Who suffered"):
        assert title in page


def test_the_same_seed_prints_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for _ in range(2):
        assert main(["simulate", *SMALL]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert tables[0].startswith("STRATEGY")
    assert "WITHIN 1 S" in tables[0]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (("--trace", "no-such-file.csv"), "no-such-file.csv"),
        (("--profile", "no-such-gpu"), "no-such-gpu"),
        (("--hours", "0"), "--hours 0"),
        (("--adapters", "3000", "--strategy", "group-per-tenant"), "3000 replicas"),
    ],
)
def test_wrong_input_is_one_sentence(wrong: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *SMALL, *wrong]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert named in told[-1]


def test_charts_draw_names_as_text_and_leave_gaps_where_nothing_is_known() -> None:
    line = lines([0.0, 60.0, 120.0], [Line("<b>", [1.0, float("nan"), 2.0], "--teal")], "requests")
    assert "<b>" not in line
    assert line.count("M") == 2  # a gap begins a new stroke
    assert "a&lt;b" in heat(["a<b"], [60.0], [[0.5]], 1.0)
    assert "late" in scatter([Dot("late", 3.0, 20.0, "--rose", False)], "hours", "s", 1.0)
    assert stacked([0.0, 60.0], [Line("warm", [3.0, 4.0], "--amber")], "tenants").count("<polygon") == 1
