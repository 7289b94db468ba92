"""Fitting a profile to a user's own replicas: recovers what is there, and admits what it cannot see."""

from dataclasses import replace

import numpy as np
import pytest

from autoscaler.simulator.calibration.series import ReplicaSeries, fit_from_series
from autoscaler.simulator.engine.profile import EngineLimits, LoraCost, load_profile

LIMITS = EngineLimits(32, 64)
SHIPPED = load_profile("llama-3.1-8b-h100-80gb-recent")
SHIPPED = replace(SHIPPED, lora=LoraCost(fixed_ms=3.0, per_adapter_ms=0.3))


def series(
    count: int, *, fixed: float = 1.0, batch: float = 1.0, lora: float = 1.0, noise: float = 0.02
) -> ReplicaSeries:
    """Samples of replicas whose groups cost so many times what is shipped."""
    rng = np.random.default_rng(0)
    running = rng.uniform(1, 200, count)
    adapters = np.minimum(running, rng.uniform(1, 32, count))
    usage = running * 350 / SHIPPED.kv_tokens(LIMITS)
    prompt, requests = running * 20.0, running / 10.0
    step = SHIPPED.step
    rest = step.per_prefill_token_ms * prompt + step.per_admission_ms * requests
    base = fixed * step.fixed_ms + batch * running * (step.per_sequence_ms + step.per_context_token_ms * 350)
    itl_ms = (base + lora * (3.0 + 0.3 * adapters)) / (1 - rest / 1e3) * rng.normal(1, noise, count)
    return ReplicaSeries(
        running, usage, itl_ms / 1e3, 3 * itl_ms / 1e3, requests, prompt, running / itl_ms * 1e3, adapters
    )


def test_a_dearer_server_is_found_out() -> None:
    fit = fit_from_series(series(400, fixed=1.5, batch=2.0, lora=0.5), SHIPPED, LIMITS, "mine")
    factor = fit.confidence.factor
    assert factor["fixed"] == pytest.approx(1.5, rel=0.1)
    assert factor["batch"] == pytest.approx(2.0, rel=0.1)
    assert factor["lora"] == pytest.approx(0.5, abs=0.1)
    assert fit.profile.step.fixed_ms == pytest.approx(SHIPPED.step.fixed_ms * factor["fixed"])
    assert fit.confidence.held_out_error < 0.05 < fit.confidence.shipped_error
    assert (fit.profile.name, fit.confidence.samples) == ("mine", 400)


def test_the_shipped_profile_is_kept_where_it_fits() -> None:
    fit = fit_from_series(series(400), SHIPPED, LIMITS, "mine")
    assert list(fit.confidence.factor.values()) == pytest.approx([1.0] * 4, abs=0.1)


def test_without_adapters_in_the_samples_lora_stays_as_shipped_and_uninformed() -> None:
    plain = replace(series(200), adapters=np.zeros(200))
    fit = fit_from_series(plain, SHIPPED, LIMITS, "mine")
    assert fit.confidence.informed["lora"] == pytest.approx(0.0, abs=1e-9)
    assert fit.confidence.factor["lora"] == pytest.approx(1.0)
    assert fit.confidence.informed["fixed"] > 0.5


def test_idle_and_unknown_samples_are_dropped_and_counted() -> None:
    mixed = series(100)
    running = mixed.running.copy()
    running[:30] = 0.0
    itl = mixed.itl_s.copy()
    itl[30:40] = np.nan
    fit = fit_from_series(replace(mixed, running=running, itl_s=itl), SHIPPED, LIMITS, "mine")
    assert (fit.confidence.samples, fit.confidence.dropped) == (60, 40)


def test_a_few_wild_samples_do_not_move_the_fit() -> None:
    clean = series(300, fixed=1.5)
    itl = clean.itl_s.copy()
    itl[::30] *= 10
    fit = fit_from_series(replace(clean, itl_s=itl), SHIPPED, LIMITS, "mine")
    assert fit.confidence.factor["fixed"] == pytest.approx(1.5, rel=0.15)


def test_too_few_samples_are_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="take a longer range"):
        fit_from_series(series(10), SHIPPED, LIMITS, "mine")


def test_uneven_series_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        fit_from_series(replace(series(50), ttft_s=np.ones(3)), SHIPPED, LIMITS, "mine")
