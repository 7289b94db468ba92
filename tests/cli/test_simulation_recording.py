"""A range of a Prometheus as a file: rates and mean lengths, in pieces, and what is not known stays unknown."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from autoscaler.cli import simulation_recording
from autoscaler.cli.backtest_recording import from_file
from autoscaler.cli.errors import UsageError
from autoscaler.cli.policies import read_policy
from autoscaler.cli.simulation_recording import Source, Span, record, trace_of
from autoscaler.connectors.metrics.connection import PrometheusSettings
from autoscaler.domain.observation import Catalogue, Floats
from autoscaler.policy.model import FleetPolicy
from autoscaler.simulator.traffic import open_trace, sampled, shaped

START_S = 1_700_000_040.0
RATES = np.array([[50.0, 0.0, 0.0], [5.0, 20.0, 0.0], [np.nan, np.nan, np.nan], [0.0, 0.0, 0.0], [10.0, 1.0, 0.0]])
POLICY = """
apiVersion: lora-autoscaler.io/v1alpha1
kind: FleetPolicy
metadata: {name: chat}
spec:
  baseModel: base
  groups: {warm: {minReplicas: 1, maxReplicas: 40}, hot: none, cold: none}
  adapters: {pathTemplate: "/a/{id}", list: [{id: acme}, {id: beta}, {id: idle}]}
"""


@dataclass(frozen=True, slots=True)
class Known(Source):
    """A source whose answers are given: prompts of 300 tokens, answers of 80, of `acme` alone."""

    async def read(self, catalogue: Catalogue, span_s: Span, counter: str = "") -> tuple[Floats, Floats]:
        first_s, last_s, window_s = span_s
        ends_s = np.arange(first_s, last_s + 1.0, window_s)
        rows = RATES[np.round((ends_s - START_S) / 60.0).astype(int) - 1]
        each = {"": 1.0, "envoy_llm_prompt_tokens": 300.0, "envoy_llm_completion_tokens": 80.0}[counter]
        return ends_s, rows * (each if not counter else np.array([each, 0.0, 0.0]))


@pytest.fixture
def source(tmp_path: Path) -> Known:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return Known(PrometheusSettings("http://127.0.0.1:9"), "envoy", read_policy(path), path)


async def recorded(source: Source, file: Path, windows: int = 5) -> tuple[str, ...]:
    return await record(source, (START_S + 60.0, START_S + 60.0 * windows, 60.0), file)


@pytest.mark.parametrize("name", ["kept.csv", "kept.csv.gz"])
async def test_what_was_recorded_is_played_again(source: Known, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    notes = await recorded(source, file)
    assert notes == ("1 of 5 windows are unknown and played as those before them",)
    trace = open_trace(file)
    assert trace.adapters == ("acme", "beta"), "nobody asked for `idle`"
    counts = [sum(map(len, shaped(trace, start_s=60.0 * w, duration_s=60.0))) for w in range(5)]
    assert counts == [3000, 1500, 1500, 0, 660]
    mix = sampled(trace, start_s=0.0, span_s=60.0)
    assert float(mix.prompt_tokens.mean()) == pytest.approx(300.0, rel=0.1)
    assert float(mix.output_tokens.mean()) == pytest.approx(80.0, rel=0.1)


async def test_it_is_told_where_the_unknown_lies(source: Known, tmp_path: Path) -> None:
    whole = await record(source, (START_S + 180.0, START_S + 240.0, 60.0), tmp_path / "a.csv")
    assert whole == (
        "the first 1 of 2 windows are unknown: what is played begins after them",
        "no tokens are recorded: a request counts as 500",
    )
    assert (await recorded(source, tmp_path / "b.csv", 3)) == (
        "the last 1 of 3 windows are unknown: nothing is played there",
    )


async def test_it_is_read_in_bounded_pieces(source: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, pieces = tmp_path / "whole.csv", tmp_path / "pieces.csv"
    await recorded(source, whole)
    monkeypatch.setattr(simulation_recording, "_FEWEST_WINDOWS", 2)
    monkeypatch.setattr(simulation_recording, "_MOST_VALUES", 6)
    await recorded(source, pieces)
    counts = [
        [sum(map(len, shaped(open_trace(f), start_s=60.0 * w, duration_s=60.0))) for w in range(5)]
        for f in (whole, pieces)
    ]
    assert counts[0] == counts[1]


async def test_a_backtest_reads_the_same_file(source: Known, tmp_path: Path) -> None:
    file = tmp_path / "kept.csv"
    await recorded(source, file)
    bucketed = read_policy_with_bucket(tmp_path)
    recording = from_file(file, bucketed, None, None)
    assert list(recording.catalogue.ids) == ["client-acme", "client-beta"]
    np.testing.assert_allclose(recording.requests_per_s, RATES[:, :2])


def read_policy_with_bucket(folder: Path) -> FleetPolicy:
    path = folder / "bucket.yaml"
    path.write_text(POLICY + "  forecast: {bucket: 60s, horizons: [60s], day: 1h, horizon: 60s, history: 1h}\n")
    return read_policy(path)


async def test_a_range_without_a_request_counted_is_refused(source: Known, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no request of a router between these times; is --router envoy right"):
        await record(source, (START_S + 180.0, START_S + 180.0, 60.0), tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"record": Path("x")}, "--record would not be used without a Prometheus' URL"),
        ({"start": "noon"}, "--start noon must be seconds from the beginning"),
        ({"trace": "http://127.0.0.1:9", "start": "soon"}, "--start 'soon' is no time"),
        ({"trace": "http://127.0.0.1:9", "start": "2999-01-01T00:00:00Z"}, "ends in the future"),
        ({"trace": "http://127.0.0.1:9", "router": "none"}, "no router preset 'none'"),
        ({"trace": "http://127.0.0.1:9", "settings": Path("nowhere.yaml")}, "nowhere.yaml"),
    ],
)
def test_what_cannot_be_a_range_is_told(source: Known, told: dict[str, object], words: str) -> None:
    usual = {"trace": __file__, "start": None, "record": None, "hours": 1.0, "speed": 1.0, "router": "envoy",
             "settings": None, "lengths": None}  # fmt: skip
    arguments = argparse.Namespace(**{**usual, **told})
    with pytest.raises(UsageError, match=words), trace_of(arguments, source.policy, source.policy_file):
        pass
