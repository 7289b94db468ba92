"""Recorded rates become requests at those rates; what is damaged is told with its line."""

import gzip
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from autoscaler.simulator.traffic import Trace, TraceError, open_trace, sampled, shaped

HEAD = "client_id,window_start_s,rate_rps,prompt_tokens,output_tokens"


def written(path: Path, rows: Sequence[str], head: str = HEAD) -> Path:
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def counts(trace: Trace, start_s: float, seconds: float) -> dict[str, int]:
    found = np.zeros(len(trace.adapters), np.int64)
    for chunk in shaped(trace, start_s=start_s, duration_s=seconds):
        found += np.bincount(chunk.adapter, minlength=len(found))
    return dict(zip(trace.adapters, found.tolist(), strict=True))


def test_each_window_has_the_requests_and_the_lengths_that_were_recorded(tmp_path: Path) -> None:
    rows = ["acme,1700000000,50,300,80", "beta,1700000000,0,,", "acme,1700000060,5,300,80", "beta,1700000060,20,40,900"]
    trace = open_trace(written(tmp_path / "r.csv", rows), seed=3)
    assert trace.adapters == ("acme", "beta")
    assert counts(trace, 0.0, 60.0) == {"acme": 3000, "beta": 0}
    assert counts(trace, 60.0, 60.0) == {"acme": 300, "beta": 1200}
    first, second = sampled(trace, start_s=0.0, span_s=60.0), sampled(trace, start_s=60.0, span_s=60.0)
    assert first.prompt_tokens.mean() == pytest.approx(300.0, rel=0.1)
    assert first.output_tokens.mean() == pytest.approx(80.0, rel=0.1)
    assert second.output_tokens[second.adapter == 1].mean() == pytest.approx(900.0, rel=0.15)
    gaps = np.diff(first.time_s)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1), "by chance within a window"


def test_it_is_the_same_each_time_and_another_with_another_seed(tmp_path: Path) -> None:
    path = written(tmp_path / "r.csv", [f"a{i},{60 * w},2,100,10" for w in range(5) for i in range(4)])
    whole = np.concatenate([c.time_s for c in open_trace(path, seed=1).chunks()])
    assert np.array_equal(whole, np.concatenate([c.time_s for c in open_trace(path, seed=1).chunks()]))
    assert (np.diff(whole) >= 0).all()
    assert not np.array_equal(whole, np.concatenate([c.time_s for c in open_trace(path, seed=2).chunks()]))
    late = np.concatenate([c.time_s for c in open_trace(path, seed=1).chunks(130.0)])
    assert np.array_equal(late, whole[whole >= 120.0]), "a slice skips what lies before"


def test_a_gap_is_played_as_what_was_before_it_and_a_recorded_zero_as_silence(tmp_path: Path) -> None:
    path = written(tmp_path / "r.csv", ["a,0,2,100,10", "a,60,3,100,10", "a,240,0,100,10", "a,300,1,100,10"])
    trace = open_trace(path)
    assert [counts(trace, 60.0 * w, 60.0)["a"] for w in range(6)] == [120, 180, 180, 180, 0, 60]


def test_rates_alone_do_and_a_line_without_a_rate_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "r.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("client_id,window_start_s,rate_rps,cv\n7,0,10,1\n8,0,,1\n9,0,nan,1\n7,600,10,1\n")
    trace = open_trace(path)
    assert trace.adapters == ("7",)
    mix = sampled(trace, start_s=0.0, span_s=1200.0)
    assert len(mix) == 12_000
    assert float((mix.prompt_tokens + mix.output_tokens).mean()) == pytest.approx(500.0, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["a,0,fast,1,1"], "line 2: could not convert"),
        (["a,0,1,1,1", "b,0,-1,1,1"], "line 3: a rate must be 0 or more"),
        (["a,0,inf,1,1"], "line 2: a rate must be"),
        (["a,0,1,0.0,1"], "lengths above 0"),
        (["a,nan,1,1,1"], "line 2: a line needs"),
        (["a,60,1,1,1", "a,0,1,1,1"], "sort it by window_start_s"),
        (["", "a"], "line 3: it has 1 columns of 5"),
        ([], "no line with a rate"),
        (["a,0,1e9,1,1", "a,60,1,1,1"], "too many"),
    ],
)
def test_a_damaged_recording_is_named_with_its_line(tmp_path: Path, rows: list[str], words: str) -> None:
    path = written(tmp_path / "r.csv", rows)
    with pytest.raises(TraceError, match=words) as told:
        list(open_trace(path).chunks())
    assert str(path) in str(told.value)


@pytest.mark.parametrize(
    "head",
    [HEAD, "client_id,window_start_s,rate_rps,cv,pattern,arg1,arg2", "TIMESTAMP,ContextTokens,GeneratedTokens"],
)
def test_a_file_that_is_cut_off_is_told(tmp_path: Path, head: str) -> None:
    lines = {"T": "2023-11-16 18:00:00.{:04d},10,10", "r": "{},0,1.5,10,Gamma,1,1"}
    line = lines["T"] if head.startswith("T") else lines["r"] if "pattern" in head else "a{},0,1.5,10,10"
    whole = gzip.compress("\n".join([head, *(line.format(i * 7919 % 9973) for i in range(9000))]).encode())
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match="end-of-stream") as told:
        list(open_trace(path).chunks())
    assert str(path) in str(told.value)


def test_damaged_lengths_of_a_servegen_trace_are_told(tmp_path: Path) -> None:
    rates = written(
        tmp_path / "x.rates.csv", ["1,0,2,1,Gamma,1,1"], "client_id,window_start_s,rate_rps,cv,pattern,arg1,arg2"
    )
    lengths = written(tmp_path / "l.csv", ["1,zero"], "client_id,window_start_s")
    with pytest.raises(TraceError, match=r"l\.csv: line 2: "):
        list(open_trace(rates, lengths=lengths).chunks())


@pytest.mark.slow
def test_a_longer_recording_takes_no_more_memory(tmp_path: Path) -> None:
    def peak_bytes(windows: int) -> int:
        path = written(
            tmp_path / f"{windows}.csv", [f"a{i},{60 * w},1,100,10" for w in range(windows) for i in range(100)]
        )
        tracemalloc.start()
        assert sum(len(chunk) for chunk in open_trace(path).chunks()) == windows * 6000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak_bytes(2)
    assert peak_bytes(120) < 1.3 * peak_bytes(20)
