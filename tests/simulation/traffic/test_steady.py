"""A slice's mix at a steady rate: what a replica's capacity is measured on."""

import os
from pathlib import Path

import numpy as np
import pytest

from autoscaler.simulator.strategies.scenario import Traffic
from autoscaler.simulator.traffic import GeneratedTrace, GeneratorSettings, TraceError, sampled, steady

TRACE = GeneratedTrace(GeneratorSettings(adapters=4, rate_rps=50.0, season_s=400.0, season_ratio=3.0))
HEADER = "client_id,window_start_s,rate_rps,cv,pattern,arg1,arg2\n"


def test_a_steady_mix_has_the_rate_asked_for_and_the_slice_s_shares_and_lengths() -> None:
    chunks = list(steady(TRACE, start_s=0.0, span_s=400.0, rate_rps=200.0, duration_s=100.0, seed=3))
    adapter, prompt = (np.concatenate([getattr(c, name) for c in chunks]) for name in ("adapter", "prompt_tokens"))
    whole = sampled(TRACE, start_s=0.0, span_s=400.0)
    assert len(adapter) == pytest.approx(20_000, rel=0.03)
    shares = np.bincount(adapter, minlength=4) / len(adapter)
    assert shares == pytest.approx(np.bincount(whole.adapter, minlength=4) / len(whole), abs=0.02)
    assert prompt.mean() == pytest.approx(whole.prompt_tokens.mean(), rel=0.03)
    assert all((np.diff(c.time_s) >= 0).all() and c.time_s[-1] < 100.0 for c in chunks)


def test_seeds_draw_other_steady_arrivals() -> None:
    first, again, other = (
        next(steady(TRACE, start_s=0.0, span_s=400.0, rate_rps=200.0, duration_s=10.0, seed=s)).time_s[:5].tolist()
        for s in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_sample_is_spread_over_the_slice_and_bounded() -> None:
    few = sampled(TRACE, start_s=100.0, span_s=200.0, most=500)
    assert 250 <= len(few) <= 500
    assert few.time_s[0] < 5
    assert few.time_s[-1] > 195


def test_a_slice_without_requests_is_refused() -> None:
    empty = GeneratedTrace(GeneratorSettings(adapters=1), duration_s=10.0)
    with pytest.raises(TraceError, match="no request from 50 s on for 5 s"):
        sampled(empty, start_s=50.0, span_s=5.0)


def test_a_mix_tells_rate_and_lengths_of_its_own_slice_only(tmp_path: Path) -> None:
    path = tmp_path / "m.rates.csv"
    path.write_text(HEADER + "1,0,2,1,Gamma,1,1\n1,600,8,1,Gamma,1,1\n")
    assert Traffic(path, start_s=600.0).mix(600.0, 0).rate_rps == pytest.approx(8.0, rel=0.01)
    assert Traffic(path, start_s=600.0, scale=0.1).mix(600.0, 0).rate_rps == pytest.approx(8.0, rel=0.01)


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "m.rates.csv"
    for at, rate in enumerate((2, 5)):
        path.write_text(HEADER + f"1,0,{rate},1,Gamma,1,1\n1,600,{rate},1,Gamma,1,1\n")
        os.utime(path, ns=(at, at))
        assert Traffic(path).mix(1200.0, 0).rate_rps == pytest.approx(rate, rel=0.01)


def test_each_seed_draws_other_arrivals_of_a_file_s_rates(tmp_path: Path) -> None:
    path = tmp_path / "m.rates.csv"
    path.write_text(HEADER + "1,0,2,1,Gamma,1,1\n1,600,2,1,Gamma,1,1\n")
    traffic = Traffic(path, scale=0.5)
    drawn = [next(iter(traffic.arrivals(traffic.open(seed), 1200.0, seed))).time_s[:5].tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
