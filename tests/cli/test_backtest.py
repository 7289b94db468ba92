"""A backtest judges what was foreseen by what came, and never by what it could not know."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscaler.cli import main
from autoscaler.cli.backtest import moment
from autoscaler.cli.backtest_charts import ticks
from autoscaler.cli.backtest_recording import from_file
from autoscaler.cli.backtest_scores import Said, Scores, pools_of
from autoscaler.cli.errors import UsageError
from autoscaler.cli.policies import read_policy

BUCKET_S = 60
POLICY = """
apiVersion: lora-autoscaler.io/v1alpha1
kind: FleetPolicy
metadata: {name: chat}
spec:
  baseModel: base
  groups: {warm: {minReplicas: 1, maxReplicas: 40}, hot: none, cold: none}
  budget: {maxReplicasTotal: 40, maxChangesPerHour: 600}
  scaling: {startup: 60s, scaleIn: {stabilisation: 120s, horizon: 180s}}
  forecast:
    {bucket: 60s, horizons: [60s, 180s], halfLives: [60s, 120s, 600s], day: 1h, horizon: 60s, history: 1h,
     learned: false}
"""
Written = Callable[..., Path]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(rates: dict[str, Any], window_s: int = BUCKET_S) -> Path:
        path = tmp_path / "rates.csv.gz"
        with gzip.open(path, "wt", newline="") as lines:
            rows = csv.writer(lines)
            rows.writerow(["client_id", "window_start_s", "rate_rps", "cv"])
            for client, column in rates.items():
                rows.writerows([client, i * window_s, f"{v:g}", 1] for i, v in enumerate(column) if not np.isnan(v))
        return path

    return write


def reported(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["backtest", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_steady_tenants_are_foreseen_exactly_and_change_nothing(capsys, policy: Path, written: Written):
    rates = written({"1": [4.0] * 150, "2": [0.5] * 150, "3": [0.05] * 150})
    report = reported(capsys, "--policy", policy, "--rates", rates, "--start", 90 * BUCKET_S, "--capacity", 1000)
    assert (report["learnt_buckets"], report["judged_buckets"], report["tenants"]) == (90, 60, 3)
    for method in ("served", "last_value"):
        for horizon in ("60", "180"):
            assert report["methods"][method][horizon]["all"]["wape"] == pytest.approx(0.0, abs=0.02)
    assert report["methods"]["served"]["60"]["head"]["coverage90"] == 1.0
    assert report["methods"]["served"]["60"]["all"]["windows"] == 3 * 60
    assert report["tiers"]["changes"] == []
    assert report["unknown_ratio"] == 0.0
    warm = report["scale"]["groups"]["warm"]
    assert warm["short_buckets_ratio"] == 0.0
    assert warm["replica_hours"] == pytest.approx(sum(warm["replicas"]) / 60)


def test_a_rise_is_followed_by_replicas_and_shown_as_short_where_it_was_not_foreseen(capsys, policy, written):
    rates = written({"1": [1.0] * 110 + [40.0] * 40})
    report = reported(capsys, "--policy", policy, "--rates", rates, "--start", 90 * BUCKET_S, "--capacity", 1000)
    replicas = report["scale"]["groups"]["warm"]["replicas"]
    assert replicas[15] <= 2
    assert replicas[-1] >= 20, "40 requests/s of 500 tokens need 20 replicas of 1000 tokens/s"
    assert 0.0 < report["scale"]["groups"]["warm"]["short_buckets_ratio"] < 0.2


def test_a_gap_is_unknown_and_is_not_judged(capsys, policy: Path, written: Written):
    steady = np.full(150, 4.0)
    gap = steady.copy()
    gap[100:130] = np.nan
    full, holed = (
        reported(capsys, "--policy", policy, "--rates", written({"1": r}), "--start", 90 * BUCKET_S)
        for r in (steady, gap)
    )
    assert (full["unknown_ratio"], holed["unknown_ratio"]) == (0.0, 0.5)
    assert holed["methods"]["served"]["60"]["all"]["windows"] == full["methods"]["served"]["60"]["all"]["windows"] - 30
    assert holed["methods"]["served"]["60"]["all"]["wape"] == pytest.approx(0.0, abs=0.02), "no false zero"
    assert holed["fleet_rate"]["actual_rps"][20] is None


def test_without_a_capacity_no_count_is_decided_and_it_says_so(capsys, policy: Path, written: Written):
    report = reported(capsys, "--policy", policy, "--rates", written({"1": [1.0] * 100}))
    assert report["scale"] is None
    assert any("give --capacity" in note for note in report["notes"])
    assert report["judged_buckets"] == 50, "a file's first half is learnt from"


def test_the_page_is_whole_needs_nothing_else_and_names_cannot_break_it(capsys, tmp_path, policy, written):
    rng = np.random.default_rng(1)
    name = "<script>alert(1)</script>"
    rates = written({name: rng.uniform(0, 9, 150), "2": rng.uniform(0, 1, 150) * (rng.random(150) < 0.3)})
    html, output = tmp_path / "report.html", tmp_path / "report.json"
    arguments = ["--policy", str(policy), "--rates", str(rates), "--capacity", "700"]
    assert main(["backtest", *arguments, "--html", str(html), "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert "chat: 75 buckets of 60 s judged after 75 learnt from" in said
    text = html.read_text()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert page.counts["svg"] >= 7
    assert page.counts.get("script", 0) == 0
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert "NaN" not in text
    assert json.loads(output.read_text())["fleet"] == "chat"


class _Page(HTMLParser):
    """Counts tags and keeps those that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_scores_add_up_by_pool_and_level():
    scores = Scores((60.0, 120.0), 60.0, pools_of(np.array([2.0, 0.01])), 120.0)
    quantiles = np.array([[1.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    for h in range(2):
        scores.say(h, Said(0, quantiles, np.array([2.0, 1.0])))
    scores.came(1, np.array([2.0, 0.0]))
    scores.came(2, np.array([6.0, np.nan]))
    served = scores.methods()["served"]
    assert served["60"]["head"] == {
        "wape": 0.5, "pinball90": pytest.approx(0.05), "coverage90": 1.0, "provisioned_ratio": 1.5, "windows": 1.0,
    }  # fmt: skip
    assert served["60"]["tail"]["coverage90"] is None, "neither the actual nor the band is above zero"
    assert served["120"]["head"]["wape"] == 0.75, "the mean of 2 and 6 against 1"
    assert served["120"]["all"]["coverage90"] == 0.0
    assert scores.calibration()["120"]["head"] == {"0.5": 0.0, "0.9": 0.0, "0.95": 1.0}
    assert scores.methods()["last_value"]["60"]["all"]["wape"] == 0.5
    assert scores.coverage_by_day() == [{"day": 0, "60": 1.0, "120": 0.0}]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2026-05-01T00:00:00Z", 1777593600.0), ("2026-05-01", 1777593600.0), ("2026-05-01T02:00:00+02:00", 1777593600.0),
     ("12.5", 12.5)],
)  # fmt: skip
def test_a_moment_is_an_instant_or_seconds(text: str, seconds: float):
    assert moment(text, "--start") == seconds


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "its first line has no client_id, window_start_s, rate_rps"),
        ("client_id,window_start_s,rate_rps\n1,0,1\n1,60,-1\n", "rates.csv:3: .* rate_rps '-1'"),
        ("client_id,window_start_s,rate_rps\n1,0,inf\n", "rates.csv:2: .* rate_rps 'inf'"),
        ("client_id,window_start_s,rate_rps\n1,nan,1\n", "rates.csv:2: window_start_s 'nan'"),
        ("client_id,window_start_s,rate_rps\n1,soon,1\n", "rates.csv:2: window_start_s 'soon'"),
        ("client_id,window_start_s,rate_rps\n1\n", "rates.csv:2: window_start_s '' must be seconds"),
        ("client_id,window_start_s,rate_rps\n", "no line with a rate"),
        ("client_id,window_start_s,rate_rps\n1,0,1\n1,90,1\n", "windows of 90 s do not fit into buckets of 60 s"),
        ("client_id,window_start_s,rate_rps\n1,0,1\n", "has 1 buckets, from 0 s to 60 s: some must lie before --start"),
    ],
)
def test_a_file_that_cannot_be_replayed_says_why(tmp_path: Path, policy: Path, content: str, message: str):
    path = tmp_path / "rates.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        from_file(path, read_policy(policy), None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prometheus", "http://127.0.0.1:9"], "needs --start, before --end"),
        (["--prometheus", "http://127.0.0.1:9", "--start", "yesterday"], "'yesterday' is no time"),
        (["--prometheus", "http://127.0.0.1:9", "--start", "0", "--end", "600"], "does not answer"),
        (["--prometheus", "http://127.0.0.1:9", "--start", "0", "--end", "600", "--router", "x"], "no router preset"),
        (["--rates", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["--rates", "nowhere.csv", "--output", "no/folder.json"], "there is no folder no"),
        (["--rates", "nowhere.csv", "--router", "llm-d"], "--router would not be used with --rates"),
        (["--rates", "nowhere.csv", "--html", "."], "it is a folder"),
    ],
)
def test_wrong_usage_is_one_sentence_and_code_2(capsys, policy: Path, arguments: list[str], message: str):
    assert main(["backtest", "--policy", str(policy), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_policy_is_told_with_the_line_of_each_error(capsys, policy: Path):
    policy.write_text(POLICY.replace("baseModel: base", "baseModel: base\n  modee: enforce"))
    assert main(["backtest", "--policy", str(policy), "--rates", "nowhere.csv"]) == 2
    assert f"{policy}:7: spec.modee: `modee` is no key of spec; did you mean `mode`?" in capsys.readouterr().err


def test_ticks_are_round_and_within():
    assert ticks(0.0, 1.0) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(0.0, 870.0) == [0.0, 200.0, 400.0, 600.0, 800.0]
    assert all(0.78 <= t <= 1.0 for t in ticks(0.78, 1.0))
