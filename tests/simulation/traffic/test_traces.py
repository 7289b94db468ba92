"""Every trace format gives the same columns, in order of time, in bounded chunks, and the same again."""

import dataclasses
import gzip
import json
import math
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.simulator.traffic import (
    Arrivals,
    Burst,
    GeneratedTrace,
    GeneratorSettings,
    ServeGenTrace,
    Trace,
    TraceError,
    open_trace,
    shaped,
    steady,
)
from autoscaler.simulator.traffic.arrivals import CHUNK


def joined(chunks: Iterable[Arrivals]) -> Arrivals:
    columns = [(c.time_s, c.adapter, c.prompt_tokens, c.output_tokens) for c in chunks]
    return Arrivals(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def azure(path: Path, rows: int, step_s: float = 0.25) -> Path:
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for i in range(rows):
        minute, second = divmod(i * step_s, 60)
        lines.append(
            f"2023-11-16 {18 + int(minute) // 60:02d}:{int(minute) % 60:02d}:{second:010.7f},{100 + i},{i % 7}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_azure_gives_seconds_from_its_first_request_and_leaves_empty_answers_out(tmp_path: Path) -> None:
    all_of_it = joined(open_trace(azure(tmp_path / "a.csv", 9), adapters=3).chunks())
    assert all_of_it.time_s.tolist() == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0])
    assert all_of_it.prompt_tokens.tolist() == [101, 102, 103, 104, 105, 106, 108]
    assert all_of_it.output_tokens.tolist() == [1, 2, 3, 4, 5, 6, 1]
    assert set(all_of_it.adapter.tolist()) <= {0, 1, 2}


def test_burstgpt_is_read_with_and_without_a_session_column(tmp_path: Path) -> None:
    plain = tmp_path / "b.csv"
    plain.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,10,20,30,API log\n")
    with_session = tmp_path / "s.csv"
    with_session.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,7,1.5,GPT-4,10,20,30,API log\n7,8,1,ChatGPT,3,4,7,API log\n"
    )
    assert joined(open_trace(plain).chunks()).prompt_tokens.tolist() == [10]
    read = joined(open_trace(with_session).chunks())
    assert (read.time_s.tolist(), read.prompt_tokens.tolist(), read.output_tokens.tolist()) == (
        [0, 2],
        [10, 3],
        [20, 4],
    )


def test_mooncake_times_are_milliseconds_and_never_go_back(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl.gz"
    rows = [{"timestamp": t, "input_length": 5, "output_length": 2, "hash_ids": [1]} for t in (1000, 3000, 2500, 4000)]
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert joined(open_trace(path).chunks()).time_s.tolist() == [0, 2, 2, 3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "of none of the known kinds"),
        (b"a,b,c\n1,2,3\n", "of none of the known kinds"),
        (b"\xff\xfe\x00", "decode"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "lines 2 to"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,1\n", "lines 2 to"),
        (b'{"timestamp": 1}\n', "lines 1 to"),
        (b"client_id,window_start_s,rate_rps,cv,pattern,arg1,arg2\n0,0,fast,1,Gamma,1,1\n", "line 2"),
        (b"client_id,window_start_s,rate_rps,cv,pattern,arg1,arg2\n", "no line with a rate"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=words) as told:
        list(open_trace(path).chunks())
    assert str(path) in str(told.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file or directory; name a file that is there"):
        open_trace(tmp_path / "nowhere.csv")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    def peak_bytes(rows: int) -> int:
        trace = open_trace(azure(tmp_path / f"{rows}.csv", rows, 0.01))
        tracemalloc.start()
        assert sum(len(chunk) for chunk in trace.chunks()) > rows / 2
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(4 * CHUNK) < 1.3 * peak_bytes(CHUNK)


def rates(path: Path, rows: Iterable[tuple[int, int, float, str, float]]) -> Path:
    lines = ["client_id,window_start_s,rate_rps,cv,pattern,arg1,arg2"]
    lines += [f"{c},{w},{r},1.2,{pattern},{shape},1.0" for c, w, r, pattern, shape in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_servegen_windows_have_the_requests_that_their_rates_say(tmp_path: Path) -> None:
    path = rates(tmp_path / "r.csv", [(7, 0, 2.0, "Gamma", 0.5), (7, 600, 0.0, "", 0.0), (3, 600, 1.0, "Weibull", 0.6)])
    trace = ServeGenTrace(path)
    read = joined(trace.chunks())
    assert trace.adapters == ("client-3", "client-7")
    assert read.adapter.tolist() == [1] * 1200 + [0] * 600
    assert read.time_s[1199] < 600 <= read.time_s[1200]
    assert joined(trace.chunks(650.0)).time_s.tolist() == read.time_s[1200:].tolist(), "a slice skips what lies before"


def test_servegen_clumps_by_its_shape(tmp_path: Path) -> None:
    def variation(pattern: str, shape: float) -> float:
        path = rates(tmp_path / "r.csv", [(0, w * 600, 5.0, pattern, shape) for w in range(4)])
        gaps = np.diff(joined(ServeGenTrace(path, seed=1).chunks()).time_s)
        return float(gaps.std() / gaps.mean())

    assert variation("Gamma", 1.0) == pytest.approx(1.0, abs=0.1), "shape 1 is a Poisson process"
    assert variation("Gamma", 0.25) == pytest.approx(2.0, abs=0.3), "the variation of a Gamma law is shape ** -0.5"
    assert variation("Weibull", 0.6) == pytest.approx(1.76, abs=0.3)


def test_servegen_lengths_follow_the_quantiles_of_their_client_and_window(tmp_path: Path) -> None:
    path = rates(tmp_path / "x.rates.csv", [(0, w * 600, 10.0, "Gamma", 1.0) for w in range(2)])
    head = (
        "model,client_id,window_start_s,in_mean,in_p10,in_p50,in_p90,in_p99,out_mean,out_p10,out_p50,out_p90,out_p99\n"
    )
    lines = "m,0,0,0,100,200,400,800,0,10,20,40,80\nm,0,600,0,1000,2000,4000,8000,0,10,20,40,80\n"
    (tmp_path / "x.token_lengths.csv").write_text(head + lines)
    read = joined(open_trace(path).chunks())
    first, second = read.prompt_tokens[:6000], read.prompt_tokens[6000:]
    assert np.quantile(first, (0.1, 0.5, 0.9, 0.99)) == pytest.approx((100, 200, 400, 800), rel=0.1)
    assert np.median(second) == pytest.approx(2000, rel=0.1)
    assert np.quantile(read.output_tokens, (0.1, 0.5, 0.9)) == pytest.approx((10, 20, 40), rel=0.12)


@pytest.mark.slow
def test_the_real_traces_are_read_whole(shared_data: Path) -> None:
    real = open_trace(shared_data / "azure_llm_2023" / "AzureLLMInferenceTrace_code.csv.gz")
    read = joined(real.chunks())
    assert len(read) == 8819
    assert read.time_s[-1] == pytest.approx(3436, abs=1)
    assert read.prompt_tokens.mean() == pytest.approx(2048, abs=1)
    served = open_trace(shared_data / "servegen" / "m-large.rates.csv.gz")
    assert len(served.adapters) == 162
    hour = joined(shaped(served, start_s=7 * 86_400, duration_s=600, scale=0.05))
    assert hour.time_s[0] >= 0
    assert hour.time_s[-1] < 600
    assert 1_000 < len(hour) < 20_000


def generated(**changes: float | int | tuple[Burst, ...]) -> GeneratedTrace:
    return GeneratedTrace(GeneratorSettings(**{"adapters": 20, "rate_rps": 40.0, **changes}), 5, 600.0)  # type: ignore[arg-type]


def test_the_generator_keeps_its_mean_rate_and_its_skew() -> None:
    read = joined(generated().chunks())
    assert len(read) == pytest.approx(24_000, rel=0.03)
    counts = np.bincount(read.adapter, minlength=20)
    assert counts[0] / counts[9] == pytest.approx(10.0, rel=0.25), "Zipf 1: the first has ten times the tenth"


def test_a_season_begins_at_its_lowest_and_rises_to_its_ratio() -> None:
    times = joined(generated(season_s=600.0, season_ratio=4.0).chunks()).time_s
    low, high = ((times < 60) | (times >= 540)).sum(), ((times >= 240) & (times < 360)).sum()
    assert high / low == pytest.approx(4.0, rel=0.2)


def test_a_burst_is_of_one_adapter_for_its_time() -> None:
    read = joined(generated(bursts=(Burst(3, 200.0, 100.0, 5.0),)).chunks())
    mine = read.time_s[read.adapter == 3]
    during = ((mine >= 200) & (mine < 300)).sum() / 100
    outside = ((mine < 200) | (mine >= 300)).sum() / 500
    assert during / outside == pytest.approx(5.0, rel=0.25)


def test_tenants_switch_off_and_come_and_go() -> None:
    def silent_share(**changes: float) -> float:
        read = joined(generated(rate_rps=400.0, zipf_exponent=0.0, **changes).chunks())
        seen = np.zeros((20, 60), np.bool_)
        seen[read.adapter, (read.time_s // 10).astype(np.int64)] = True
        return float(1 - seen.mean())

    assert silent_share() == 0
    assert silent_share(on_s=60.0, off_s=60.0) == pytest.approx(0.5, abs=0.1)
    assert silent_share(lifetime_s=300.0) > 0.03
    assert silent_share(on_s=60.0, off_s=60.0, always_on=20) == 0


def test_settings_that_cannot_be_drawn_are_refused() -> None:
    for wrong in ({"adapters": 0}, {"rate_rps": 0.0}, {"season_ratio": 0.5}, {"window_s": -1.0}):
        with pytest.raises(TraceError, match=next(iter(wrong))):
            GeneratorSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(GeneratorSettings) if f.name != "bursts"])
def test_settings_that_would_never_end_or_draw_nothing_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value}: it must be a finite number"):
        GeneratorSettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, -1.0])
def test_times_and_factors_that_are_none_are_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="start_s is"):
        next(generated().chunks(value))
    with pytest.raises(ValueError, match="duration_s is"):
        GeneratedTrace(GeneratorSettings(), duration_s=value)
    with pytest.raises(ValueError, match="a burst's factor is"):
        generated(bursts=(Burst(3, 200.0, 100.0, value),))
    for wrong in ({"start_s": value}, {"duration_s": value}, {"scale": value}, {"speed": value}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
            next(shaped(generated(), **wrong))
    with pytest.raises(ValueError, match="rate_rps is"):
        next(steady(generated(), start_s=0.0, span_s=60.0, rate_rps=value, duration_s=60.0))


class Listed:
    """A trace of given times, in chunks of given sizes."""

    adapters = ("a", "b")

    def __init__(self, times: list[float], size: int) -> None:
        self._times, self._size = np.array(sorted(times), np.float64), size

    def chunks(self, start_s: float = 0.0) -> Iterator[Arrivals]:
        for begin in range(0, len(self._times), self._size):
            part = self._times[begin : begin + self._size]
            ones = np.ones(len(part), np.int64)
            yield Arrivals(part, ones * (np.arange(len(part)) % 2), ones, ones)


TIMES = st.lists(st.floats(0, 1000, allow_nan=False), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None)
@given(TIMES, st.integers(1, 30), st.floats(0.1, 3.0), st.floats(0.5, 50.0), st.floats(0, 900), st.floats(1, 1000))
def test_any_slice_scale_and_speed_keeps_order_and_bounds(
    times: list[float], size: int, scale: float, speed: float, start_s: float, duration_s: float
) -> None:
    trace: Trace = Listed(times, size)
    asked = {"start_s": start_s, "duration_s": duration_s, "scale": scale, "speed": speed}
    chunks = list(shaped(trace, **asked))  # type: ignore[arg-type]
    inside = sum(start_s <= t < start_s + duration_s for t in times)
    assert (not chunks) <= (scale < 1 or inside == 0)
    if not chunks:
        return
    read = joined(chunks)
    assert (np.diff(read.time_s) >= 0).all()
    assert read.time_s[0] >= 0
    assert read.time_s[-1] <= duration_s / speed + 1e-9
    assert int(scale) * inside <= len(read) <= (int(scale) + 1) * inside
    again = joined(shaped(trace, **asked))  # type: ignore[arg-type]
    assert np.array_equal(read.time_s, again.time_s)


def test_a_scale_that_means_nothing_is_refused() -> None:
    with pytest.raises(TraceError, match=r"scale is 0\.0"):
        list(shaped(Listed([1.0], 1), scale=0.0))
