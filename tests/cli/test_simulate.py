"""`simulate`: a table, JSON without NaN, and a report that fetches nothing."""

import json
import re
import threading
from pathlib import Path

import pytest

from autoscaler.cli import main, simulate
from autoscaler.cli.simulation_charts import Dot, Line, Span, heat, lines, scatter, stacked
from autoscaler.simulator.strategies.search import Job

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
        (("--trace", "no-such-file.csv"), "--trace no-such-file.csv: there is no such file; name a trace's file"),
        (("--trace", ".", "--lengths", "l.csv"), "--trace .: it is a folder"),
        (("--profile", "no-such-gpu"), "no-such-gpu"),
        (("--fail", "1m:explode"), "kinds are kill, hang"),
        (("--generate", "tempo=3"), "keys are zipf_exponent"),
        (("--scrape-loss", "1"), "--scrape-loss 1"),
        (("--trace", "http://127.0.0.1:1"), "http://127.0.0.1:1 does not answer"),
        (("--rate", "1e9"), "at most 1e+09 are simulated"),
        (("--max-cpu-loras", "15"), "at least the adapter slots, 16"),
        (("--output", "no/folder.json"), "there is no folder no"),
        (("--lengths", "l.csv"), "--lengths would not be used without a --trace"),
        (("--settings", "s.yaml", "--router", "llm-d"), "--settings, --router would not be used without"),
        (("--adapters", "3000", "--strategy", "group-per-tenant"), "3000 replicas"),
    ],
)
def test_wrong_input_is_one_sentence(wrong: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *SMALL, *wrong]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert named in told[-1]


def test_the_report_says_what_failed_when_and_whom_it_struck(tmp_path: Path) -> None:
    files = ("--output", str(tmp_path / "report.json"), "--html", str(tmp_path / "report.html"))
    failures = ("--fail", "3m:kill", "2m:scrapes:90s", "--scrape-loss", "0.1", "--scrape-delay", "2")
    assert main(["simulate", *SMALL, *failures, *files]) == 0
    told = json.loads((tmp_path / "report.json").read_text())
    at = [(120.0, "scrapes", 90.0), (180.0, "kill", 0.0)]
    assert [(f["at_s"], f["kind"], f["seconds"]) for f in told["scenario"]["failures"]] == at
    assert (told["scenario"]["scrape_loss_ratio"], told["scenario"]["scrape_delay_s"]) == (0.1, 2.0)
    for name, outcome in told["strategies"].items():
        struck = outcome["failures"]
        assert [(f["at_s"], f["kind"], f["seconds"]) for f in struck] == ([] if name == "oracle" else at)
        assert outcome["errors"] >= sum(f["refused"] for f in struck)
    assert told["strategies"]["ours"]["failures"][1]["replica"].startswith("warm-")
    page = (tmp_path / "report.html").read_text()
    assert "What failed, and when" in page
    assert page.count('class="span"') == page.count('class="instant"') == 2, "an outage and a death, in two charts"
    assert "Not struck: oracle." in page


def test_a_damaged_recording_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept.csv"
    path.write_text("client_id,window_start_s,rate_rps,prompt_tokens,output_tokens\na,0,5,100,10\na,60,much,100,10\n")
    assert main(["simulate", *SMALL, "--trace", str(path)]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith(f"lora-autoscaler: {path}: line 3: ")


def test_a_run_whose_standard_error_is_a_file_says_every_while_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = threading.Semaphore(0)
    line = simulate.Told.line

    def noted(told: simulate.Told) -> str:
        asked.release()
        return line(told)

    monkeypatch.setattr(simulate, "LINE_EVERY_S", 0.001)
    monkeypatch.setattr(simulate.Told, "line", noted)
    told = simulate.Told(4)
    assert line(told).startswith("4 strategies to play (")
    told.share("ours", 1, 0.5)
    assert line(told).startswith("ours: 38%, ")
    for _ in range(2):  # who asks for a second line has printed the first
        assert asked.acquire(timeout=60)
    told.end()
    assert "s so far)" in capsys.readouterr().err


def test_in_a_file_the_end_of_each_run_is_a_line_and_nothing_between_is(capsys: pytest.CaptureFixture[str]) -> None:
    told = simulate.Told(2)
    for name, done, share in (
        ("ours", 0, 0.5),
        ("ours", 0, 0.999),
        ("ours", 0, 1.0),
        ("oracle", 1, 1.0),
        ("oracle", 1, 1.0),
    ):
        told.share(name, done, share)
    told.end()
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == ["ours: 50%", "oracle: 100%"]


def test_ctrl_c_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(job: Job, progress: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "run", interrupted)
    assert main(["simulate", *SMALL]) == 2
    told = capsys.readouterr().err.strip()
    assert told == "lora-autoscaler: stopped before the end: nothing is reported; fewer --hours take less"


def test_charts_draw_names_as_text_and_leave_gaps_where_nothing_is_known() -> None:
    line = lines([0.0, 60.0, 120.0], [Line("<b>", [1.0, float("nan"), 2.0], "--teal")], "requests")
    assert "<b>" not in line
    assert line.count("M") == 2  # a gap begins a new stroke
    shaded = lines([0.0, 3600.0], [Line("r", [1.0, 2.0], "--teal")], "requests", spans=[Span("<out>", 900.0, 1800.0)])
    assert shaded.count('class="span"') == 1
    assert "&lt;out&gt;" in shaded
    assert "a&lt;b" in heat(["a<b"], [60.0], [[0.5]], 1.0)
    assert "late" in scatter([Dot("late", 3.0, 20.0, "--rose", False)], "hours", "s", 1.0)
    assert stacked([0.0, 60.0], [Line("warm", [3.0, 4.0], "--amber")], "tenants").count("<polygon") == 1
