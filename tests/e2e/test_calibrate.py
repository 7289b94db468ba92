"""`calibrate` on a real Prometheus: the prices of replicas that are dearer than any shipped profile are found again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscaler.cli import main
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.simulator.engine.profile import EngineLimits, load_profile
from autoscaler.simulator.http.adapters import Registry
from autoscaler.simulator.http.live import LiveEngine
from autoscaler.simulator.http.options import EngineOptions
from autoscaler.simulator.http.page import MetricsPage
from tests.e2e.parts.processes import need
from tests.e2e.parts.prometheus import PrometheusServer

START_S, MINUTES, SCRAPE_S, LOOK_S = 1_767_225_600.0, 60, 15.0, 0.5
SHIPPED = load_profile("llama-3.1-8b-h100-64gb-measured")
DEARER = 1.4
LIMITS = EngineLimits(max_loras=16, max_cpu_loras=32)
KEPT = frozenset(VLLM.metric_names()) - {"vllm:lora_requests_info"}
ADAPTERS, REPLICAS = 24, ("127.0.9.1:8000", "127.0.9.2:8000")


def dearer() -> EngineOptions:
    """Engines whose every step costs more than those of the shipped profile, and with another KV cache."""
    fixed, eager = SHIPPED.step.fixed_ms * DEARER, SHIPPED.step.eager_ms * DEARER
    step = replace(SHIPPED.step, fixed_ms=fixed, eager_ms=eager)
    profile = replace(SHIPPED, step=step, kv=replace(SHIPPED.kv, tokens=SHIPPED.kv.tokens * 0.8))
    return EngineOptions(profile=profile, limits=LIMITS, adapter_capacity=ADAPTERS)


def scraped(address: str, seed: int, counted: dict[tuple[str, str], int]) -> Iterator[tuple[str, float]]:
    """Pages of one engine under load that rises and falls, each with its time. Requests are counted as routers do."""
    rng, live = np.random.default_rng(seed), LiveEngine(dearer())
    registry, page = Registry("base", ADAPTERS), MetricsPage("base", START_S)
    for i in range(ADAPTERS):
        registry.new_number(f"t{i:02d}")
    share = 1 / np.arange(1, ADAPTERS + 1)
    share /= share.sum()
    for look in range(round(MINUTES * 60 / LOOK_S)):
        now_s = look * LOOK_S
        rate = 1.0 + 7.0 * np.sin(np.pi * now_s / (MINUTES * 60)) ** 2
        for adapter in rng.choice(ADAPTERS, rng.poisson(rate * LOOK_S), p=share).tolist():
            live.submit(now_s, adapter, int(rng.integers(20, 500)), int(rng.integers(20, 300)), streamed=False)
            name = f"t{adapter:02d}"
            counted[name, address] = counted.get((name, address), 0) + 1
        live.run_to(now_s)
        if now_s % SCRAPE_S == 0:
            yield page.text(live, registry, START_S + now_s), START_S + now_s


def history() -> str:
    """All that was scraped, as OpenMetrics: each family in one piece, every sample with its time."""
    families: dict[str, list[str]] = {}
    for seed, address in enumerate(REPLICAS):
        counted: dict[tuple[str, str], int] = {}
        own = f'instance="{address}",job="engines",pod="engine-{seed}"'
        for text, at_s in scraped(address, seed, counted):
            for line in text.splitlines():
                name = line.partition("{")[0]
                if name not in KEPT:
                    continue
                labels, value = line.removeprefix(f"{name}{{").rsplit("} ", 1)
                families.setdefault(name, []).append(f"{name}{{{labels},{own}}} {value} {at_s:.0f}")
            for (adapter, upstream), count in counted.items():
                labels = f'adapter="{adapter}",instance="envoy-{seed}:9901",job="envoy",upstream="{upstream}"'
                families.setdefault("envoy_llm_requests", []).append(
                    f"envoy_llm_requests{{{labels}}} {count} {at_s:.0f}"
                )
    lines = [line for name, samples in families.items() for line in (f"# TYPE {name} unknown", *samples)]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    folder = tmp_path_factory.mktemp("calibrate")
    text, data = folder / "history.om", folder / "prometheus" / "data"
    text.write_text(history())
    data.mkdir(parents=True)
    made = [need("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    with PrometheusServer(folder / "prometheus", [], retention="100y") as server:
        yield server


def asked(server: PrometheusServer, *more: str) -> list[str]:
    span = ["--start", f"{START_S:.0f}", "--end", f"{START_S + MINUTES * 60:.0f}"]
    return ["calibrate", "--prometheus", server.url, *span, *more]


def test_prices_of_dearer_replicas_are_found_again(
    recorded: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.json"
    shape = ["--profile", SHIPPED.name, "--max-loras", "16", "--name", "mine", "--output", str(mine)]
    assert main([*asked(recorded, *shape), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["replicas"], found["moments"]) == (2, 60)
    assert found["kv_tokens"] == dearer().profile.kv_tokens(LIMITS) // 16 * 16, "whole blocks, as engines show"
    assert found["factor"]["fixed"] == pytest.approx(DEARER, rel=0.12)
    assert found["informed"]["batch"] < 0.5, "a few dozen running requests say little of what one costs"
    assert found["factor"]["batch"] == pytest.approx(1.0, rel=0.3), "so it stays about as shipped"
    assert found["held_out_error"] < 0.06 < found["shipped_error"]
    assert found["notes"] == ["the policy has no list of adapters: the 24 that routers counted are taken"]
    fitted = load_profile(mine)
    assert fitted.name == "mine"
    assert fitted.kv_tokens(LIMITS) == pytest.approx(found["kv_tokens"], abs=2)


def test_the_nearest_shipped_profile_is_taken_where_none_is_named(
    recorded: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "own.json"
    assert main(asked(recorded, "--max-loras", "16", "--output", str(mine))) == 0
    said = capsys.readouterr().out
    assert "samples of 2 replicas" in said
    assert f"lora-autoscaler simulate --profile {mine}" in said
    assert load_profile(mine).name == "own"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "give --max-loras"),
        (("--max-loras", "16", "--profile", "no-such"), "no profile 'no-such'; there are llama-3.1"),
        (("--max-loras", "16", "--start", f"{START_S - 7200:.0f}", "--end", f"{START_S - 3600:.0f}"), "holds no vllm"),
        (("--start", "2027-01-01", "--end", "2026-01-01"), "--start must lie before --end"),
        (("--router", "none-such"), "there is no router preset 'none-such'"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_said_so(
    recorded: PrometheusServer, more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*asked(recorded), "--output", str(tmp_path / "own.json"), *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "own.json").exists()
