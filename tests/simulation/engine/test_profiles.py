"""Profile files: all of them load, say where they come from, and refuse nonsense."""

import csv
import json
from pathlib import Path

import pytest

from autoscaler.simulator.engine.profile import (
    EngineLimits,
    EngineProfile,
    ProfileError,
    available_profiles,
    load_profile,
    parse_profile,
)


@pytest.mark.parametrize("name", available_profiles())
def test_a_shipped_profile_loads_and_survives_a_round_trip(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.kernels == name.rsplit("-", 1)[1]
    assert profile.provenance["source"]
    assert parse_profile(profile.to_json()).to_json() == profile.to_json()
    assert profile.kv_tokens(EngineLimits(8)) > 50_000


def test_there_is_a_measured_and_a_recent_variant_of_each() -> None:
    stems = {name.rsplit("-", 1)[0] for name in available_profiles()}
    assert {f"{stem}-{kernels}" for stem in stems for kernels in ("measured", "recent")} == set(available_profiles())
    assert {"llama-3.1-8b-h100-64gb", "qwen-2.5-7b-h100-64gb"} <= stems


@pytest.mark.parametrize("stem", ["llama-3.1-8b-h100-64gb", "llama-3.1-8b-h100-80gb", "qwen-2.5-7b-h100-64gb"])
def test_recent_kernels_are_cheaper_for_many_adapters(stem: str) -> None:
    assert _step_ms(load_profile(f"{stem}-recent"), 64, 60) < _step_ms(load_profile(f"{stem}-measured"), 64, 60)


def _step_ms(profile: EngineProfile, slots: int, adapters: int) -> float:
    lora, running = profile.lora, 60
    plain = profile.step.fixed_ms + profile.step.per_sequence_ms * running
    plain *= lora.factor + lora.factor_per_adapter * adapters
    return plain + lora.fixed_ms + lora.per_slot_ms * slots + lora.per_adapter_ms * adapters


def _model_profile(model: str) -> EngineProfile:
    return load_profile(f"{model.removesuffix('-instruct')}-h100-64gb-measured")


def test_kv_capacity_follows_the_measured_table_at_every_rank(shared_data: Path) -> None:
    with (shared_data / "vllm_lora_measurements" / "kv_capacity_and_startup.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kv_cache_tokens"]]
    for row in rows:
        slots, rank = int(row["max_loras"]), int(row["max_lora_rank"])
        profile = _model_profile(row["model"])
        tokens = profile.kv_tokens(EngineLimits(slots, max_lora_rank=rank))
        assert abs(tokens - float(row["kv_cache_tokens"])) < 0.02 * profile.kv.tokens, (slots, rank)
    assert {row["max_lora_rank"] for row in rows} == {"8", "16", "32"}


def test_slots_that_leave_no_kv_cache_are_refused_with_the_most_that_fit() -> None:
    profile = load_profile("llama-3.1-8b-h100-64gb-measured")
    with pytest.raises(ProfileError, match="lower max_loras below 2"):
        profile.kv_tokens(EngineLimits(400, max_lora_rank=32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema must be 1"),
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"step": {"fixed_ms": 1.0}}, "step: .*missing"),
        ({"kv": None}, "kv: an object is needed"),
        ({"load": {"host_to_gpu_ms": "fast"}}, "load"),
    ],
)
def test_a_file_that_is_not_a_profile_is_refused(change: dict[str, object], message: str) -> None:
    data = json.loads(load_profile("llama-3.1-8b-h100-80gb-recent").to_json())
    with pytest.raises(ProfileError, match=message):
        parse_profile(json.dumps({**data, **change}), "mine.json")


def test_numbers_must_be_finite() -> None:
    text = load_profile("llama-3.1-8b-h100-80gb-recent").to_json()
    with pytest.raises(ProfileError, match=r"step\.fixed_ms is not a finite number"):
        parse_profile(text.replace('"fixed_ms": 7.98', '"fixed_ms": NaN', 1))


def test_an_unknown_name_lists_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="there are llama"):
        load_profile("gpt-5")
    with pytest.raises(ProfileError, match="No such file"):
        load_profile(tmp_path / "none.json")
