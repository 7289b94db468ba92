"""A sample of the measured runs, replayed: the model follows real servers within its promised errors."""

from pathlib import Path

import pytest

from benchmarks.calibration import measure


@pytest.mark.slow
def test_a_sample_of_the_measured_runs_is_followed(shared_data: Path) -> None:
    report = measure(shared_data / "vllm_lora_measurements" / "real_server_runs.csv", 24, 0, 1, False)
    assert report["rows"] == 24
    assert report["throughput_mape_not_overloaded"] <= 0.05
    assert report["throughput_mape"] <= 0.10
    assert report["itl_mape"] <= 0.10
    assert report["ttft_order_accuracy"] >= 0.95
    assert report["overload_precision"] >= 0.95
    assert report["overload_recall"] >= 0.95
    assert len(report["per_run"]) == 24


def test_a_table_without_a_usable_run_is_refused(tmp_path: Path) -> None:
    header = "model,scenario,max_loras_gpu,max_lora_rank,adapter_rates,adapter_counts,completed"
    (tmp_path / "runs.csv").write_text(f"{header}\nm,s,8,8,0.1,1,0\n")
    with pytest.raises(ValueError, match=r"no usable run.*nothing completed"):
        measure(tmp_path / "runs.csv", None, 0, 1, False)
