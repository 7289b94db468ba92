"""Reading measured runs: what a row says, what makes it unusable, what enters a simulation."""

from pathlib import Path

import numpy as np
import pytest

from autoscaler.simulator.calibration.lengths import MOST_PROMPT, MOST_TOTAL, sample_lengths
from autoscaler.simulator.calibration.runs import Outcome, arrivals_of, client_gap_s, read_runs
from autoscaler.simulator.calibration.score import score

HEADER = (
    "model,scenario,max_loras_gpu,n_adapters_cpu,max_lora_rank,adapter_rates,adapter_counts,completed,duration_s,"
    "total_in_tok,total_out_tok,out_tok_per_s,ttft_mean_ms,itl_mean_ms,tpot_mean_ms,mean_num_running,mean_num_waiting"
)
GOOD = "m,rate_0.4-0.05-0.0125_size_8-16-32,8,16,32,0.0125;0.05;0.4,2;3;1,1000,3600,200000,190000,52.8,40,15,14.5,2,0"


def table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_row_becomes_rates_ranks_and_mean_lengths(tmp_path: Path) -> None:
    runs, skipped = read_runs(table(tmp_path, GOOD))
    run = runs[0]
    assert skipped == {}
    assert run.rates.tolist() == [0.0125, 0.0125, 0.05, 0.05, 0.05, 0.4]
    assert run.ranks.tolist() == [32, 32, 16, 16, 16, 8]
    assert (run.mean_prompt, run.mean_output, run.overloaded) == (200.0, 190.0, False)


def test_every_unusable_row_is_counted_with_its_reason(tmp_path: Path) -> None:
    nothing = GOOD.replace(",1000,3600", ",0,3600")
    blank = GOOD.replace(",15,14.5", ",,14.5")
    absurd = GOOD.replace(",52.8,", ",nan,")
    uneven = GOOD.replace("2;3;1", "2;3")
    runs, skipped = read_runs(table(tmp_path, nothing, blank, absurd, uneven, GOOD))
    assert len(runs) == 1
    assert skipped == {"nothing completed": 1, "a value is missing or not a number": 3}


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("model,scenario\n")
    with pytest.raises(ValueError, match="column 'adapter_counts' is missing"):
        read_runs(path)


def test_arrivals_are_poisson_at_each_adapters_rate_and_repeat_by_seed(tmp_path: Path) -> None:
    run = read_runs(table(tmp_path, GOOD))[0][0]
    arrivals = arrivals_of(run, 100_000.0, seed=1)
    counts = np.bincount(arrivals.adapter, minlength=6)
    assert counts / 100_000 == pytest.approx(run.rates, rel=0.1)
    assert (np.diff(arrivals.time_s) >= 0).all()
    assert arrivals_of(run, 100_000.0, seed=1).time_s.tobytes() == arrivals.time_s.tobytes()


def test_lengths_have_the_means_and_the_bounds_of_the_workload() -> None:
    prompt, output = sample_lengths(np.random.default_rng(0), 50_000, 222.0, 194.0)
    assert prompt.mean() == pytest.approx(222, rel=0.01)
    assert output.mean() == pytest.approx(194, rel=0.01)
    assert (prompt.min() >= 4, prompt.max() <= MOST_PROMPT) == (True, True)
    assert (prompt + output).max() <= MOST_TOTAL
    # What a running request holds on average, weighted by how long it runs: 354 tokens in the measured runs.
    held = (output * (prompt + output / 2)).sum() / output.sum()
    assert held == pytest.approx(354, rel=0.03)


def test_no_arrivals_have_no_lengths() -> None:
    prompt, output = sample_lengths(np.random.default_rng(0), 0, 222.0, 194.0)
    assert (len(prompt), len(output)) == (0, 0)


def outcome(tokens: float, ttft: float, itl: float, waiting: float) -> Outcome:
    return Outcome(tokens, ttft, itl, itl, 1.0, waiting, 0.1, 1.0, 0.0, 0, 3600.0)


def test_scores_are_what_their_names_say(tmp_path: Path) -> None:
    slow = GOOD.replace(",40,15,", ",4000,30,").replace(",2,0", ",9,600")
    runs, _ = read_runs(table(tmp_path, GOOD, slow))
    right = score(runs, [outcome(52.8, 50, 15, 0.0), outcome(50.16, 9000, 33, 700.0)])
    assert right.throughput_mape == pytest.approx(0.025)
    assert right.throughput_mape_not_overloaded == pytest.approx(0.0)
    assert right.itl_mape == pytest.approx(0.05)
    assert (right.ttft_order_accuracy, right.overload_precision, right.overload_recall) == (1.0, 1.0, 1.0)
    wrong = score(runs, [outcome(52.8, 50, 15, 6.0), outcome(50.16, 40, float("nan"), 0.0)])
    assert (wrong.ttft_order_accuracy, wrong.overload_precision, wrong.overload_recall) == (0.0, 0.0, 0.0)
    assert wrong.itl_mape == pytest.approx(0.5)


def test_a_small_metrics_page_does_not_stretch_gaps() -> None:
    assert client_gap_s(0.045, 0) == 0.045
    assert client_gap_s(0.045, 2_000) == 0.045  # holds the stream for 40 ms, less than a gap


def test_a_page_of_30_000_series_stretches_gaps_by_a_sixth() -> None:
    # Stalls grow from 0 to .6 s: (.6 - .045)^2 / (2 x .6) = .257 s of each 2.04 s are merged away.
    assert client_gap_s(0.045, 30_000) == pytest.approx(0.045 / (1 - 0.2567 / 2.04), rel=1e-3)
    assert client_gap_s(0.045, 60_000) > client_gap_s(0.045, 30_000)
