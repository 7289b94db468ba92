"""Forecasts walked forward over a rates file as in production, beside persistence and the best EWMA.

Every window is one tick: memory is updated, forecasts are issued, the boosted model is retrained once a day on the past
only. Nothing of the last days is used before it has passed. Definitions are those of docs/forecasting.md.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting import (
    ForecastMemory,
    ForecastSettings,
    NotEnoughHistoryError,
    bursts,
    empty_memory,
    forecast,
    observe,
    train,
)
from autoscaler.forecasting.calibration import ROWS
from autoscaler.policy.model import FleetPolicy
from benchmarks.forecast_cost import cost
from benchmarks.forecast_tiers import Seen, by_policy, by_threshold, figures
from benchmarks.rates import RateWindows, read_windows

Doubles = NDArray[np.float64]
POOL_EDGES_RPS = (0.1, 1.0)
HORIZONS_S = (600.0, 1800.0, 3600.0)
PEER_HALF_LIVES = (0.5, 1.0, 2.0, 4.0, 8.0, 24.0, 144.0)


@dataclass(frozen=True, slots=True)
class Walk:
    """Point and upper forecasts [H, T, S] of one method; row t is made when window t has ended."""

    point: Doubles
    upper: Doubles


def pools_of(rates: RateWindows, train_windows: int) -> dict[str, NDArray[np.bool_]]:
    """Return the pools by mean rate on the training days."""
    mean = np.nan_to_num(np.nanmean(rates.rps[:train_windows], axis=0))
    low, high = POOL_EDGES_RPS
    return {
        "all": np.ones(mean.size, np.bool_),
        "head": mean >= high,
        "middle": (mean >= low) & (mean < high),
        "tail": mean < low,
    }


def settings_for(window_s: float) -> ForecastSettings:
    """Return the default settings on the file's windows; horizons are rounded to whole windows."""
    horizons = sorted({max(1, round(h / window_s)) * window_s for h in HORIZONS_S})
    return ForecastSettings(bucket_s=window_s, horizons_s=tuple(horizons), max_tick_s=window_s)


def actuals(rates: RateWindows, buckets: int) -> Doubles:
    """Return [T, S] the mean of the next ``buckets`` windows; NaN where one is missing or past the end."""
    out = np.full_like(rates.rps, np.nan)
    if len(rates.rps) > buckets:
        windows = np.lib.stride_tricks.sliding_window_view(rates.rps[1:], buckets, axis=0)
        out[: len(windows)] = windows.mean(axis=-1)
    return out


def walk(rates: RateWindows, settings: ForecastSettings, train_windows: int) -> Iterator[ForecastMemory]:
    """Yield the memory after each window; retrain daily from a day before the test on."""
    memory = empty_memory(settings)
    memory = observe(memory, 0.0, rates.clients, np.full(len(rates.clients), np.nan), settings)
    model = None
    for t, row in enumerate(rates.rps):
        ahead = t - (train_windows - settings.day_buckets)
        if ahead >= 0 and ahead % settings.day_buckets == 0:
            try:
                model = train(rates.rps[max(0, t - 7 * settings.day_buckets) : t], settings)
            except NotEnoughHistoryError:
                model = None
        memory = observe(memory, (t + 1) * settings.bucket_s, rates.clients, row, settings, model)
        yield memory


def ours(
    rates: RateWindows, settings: ForecastSettings, train_windows: int
) -> tuple[dict[str, Walk], Seen, ForecastMemory]:
    """Return what was served, beside it the pooled table and the boosted model alone, and what tiering is told."""
    shape = (len(settings.horizons_s), *rates.rps.shape)
    names = {"ours": ("p50", "p90"), "table": ("table50", "table90"), "model": ("model50", "model90")}
    walks = {name: Walk(np.zeros(shape), np.zeros(shape)) for name in names}
    told = FleetPolicy(name="replay", base_model="any")
    ahead_s = (told.forecast.horizon_s, told.scaling.scale_in.horizon_s or max(told.forecast.horizons_s))
    seen = Seen.empty(rates.rps)
    for t, memory in enumerate(walk(rates, settings, train_windows)):
        for h, pending in enumerate(memory.pending):
            for name, (point, upper) in names.items():
                p, u = pending[-1][ROWS.index(point)], pending[-1][ROWS.index(upper)]
                cheap_p, cheap_u = pending[-1][ROWS.index("table50")], pending[-1][ROWS.index("table90")]
                walks[name].point[h, t] = np.where(np.isnan(p), cheap_p, p)
                walks[name].upper[h, t] = np.where(np.isnan(u), cheap_u, u)
        made = forecast(memory, ahead_s, memory.last_tick_s, settings)
        seen.mean[t], (seen.upper[t], seen.later[t]), seen.known[t] = made.mean[0], made.p90, made.known
        seen.burst[t] = bursts(memory, memory.last_tick_s).active
    return walks, seen, memory


def tiers_of(rates: RateWindows, seen: Seen, settings: ForecastSettings, test: slice) -> dict[str, dict[str, Any]]:
    """Return churn and recall of the default policy and of two naive thresholds."""
    next_rate = actuals(rates, 1)[test]
    last = np.nan_to_num(rates.rps)
    hour = ewma(rates.rps, 3600.0 / settings.bucket_s)
    tiers = {"ours": by_policy(rates.clients, seen, settings.bucket_s)}
    for name, level in (("last_value", last), ("ewma_1h", hour)):
        tiers[f"threshold_{name}"] = by_threshold(level)
        tiers[f"threshold_{name}_two_tiers"] = by_threshold(level, cold=False)
    made = {name: figures(t[test], next_rate, settings.day_buckets) for name, t in tiers.items()}
    return {key: {name: f[key] for name, f in made.items()} for key in ("tier_churn_per_day_ratio", "hot_recall")}


def onsets_of(rates: RateWindows, seen: Seen, settings: ForecastSettings, test: slice) -> dict[str, float]:
    """Return alarms per tenant and day, and the share of alarms whose next window is back at half the alarm's rate."""
    alarm, next_rate = seen.burst[test], actuals(rates, 1)[test]
    fell = alarm & (next_rate < 0.5 * np.nan_to_num(rates.rps[test]))
    days = alarm.size / settings.day_buckets
    return {
        "alarms_per_tenant_day": float(alarm.sum() / days),
        "false_alarms_per_tenant_day": float(fell.sum() / days),
        "false_ratio": float(fell.sum() / max(1, alarm.sum())),
    }


def ewma(rates: Doubles, half_life: float) -> Doubles:
    """Return [T, S] EWMAs corrected for age; a missing window changes nothing."""
    keep = 0.5 ** (1 / half_life)
    total, weight = np.zeros(rates.shape[1]), np.zeros(rates.shape[1])
    out = np.zeros_like(rates)
    for t, row in enumerate(rates):
        known = ~np.isnan(row)
        total = np.where(known, keep * total + (1 - keep) * np.nan_to_num(row), total)
        weight = np.where(known, keep * weight + (1 - keep), weight)
        out[t] = total / np.maximum(weight, 1e-12)
    return out


def peers(rates: RateWindows, settings: ForecastSettings, train_windows: int, pools: dict[str, Any]) -> dict[str, Walk]:
    """Return persistence and the EWMA that was best on the training days, as they are and with a band fitted there.

    As they are, the upper value is the value itself; the fitted band is the ratio per pool of least pinball loss.
    """
    last = rates.rps.copy()
    for t in range(1, len(last)):
        last[t] = np.where(np.isnan(last[t]), last[t - 1], last[t])
    last = np.nan_to_num(last)
    bank = [ewma(rates.rps, half_life) for half_life in PEER_HALF_LIVES]
    names = ("last_value", "ewma", "last_value_banded", "ewma_banded")
    fitted: dict[str, list[tuple[Doubles, Doubles]]] = {name: [] for name in names}
    for buckets in settings.horizon_buckets:
        y = actuals(rates, buckets)
        past = slice(0, max(1, train_windows - buckets))
        errors = [np.nansum(np.abs(y[past] - e[past])) for e in bank]
        for name, point in (("last_value", last), ("ewma", bank[int(np.argmin(errors))])):
            fitted[name].append((point, point))
            fitted[f"{name}_banded"].append((point, point * _band_ratio(y[past], point[past], pools)))
    return {n: Walk(np.stack([p for p, _ in f]), np.stack([u for _, u in f])) for n, f in fitted.items()}


def _band_ratio(y: Doubles, point: Doubles, pools: dict[str, Any]) -> Doubles:
    """Return [S] the ratio per pool that has the least pinball loss at .9 on the training days."""
    ratio = np.ones(y.shape[1])
    grid = np.linspace(1.0, 4.0, 61)
    for name in ("head", "middle", "tail"):
        mine = pools[name]
        if mine.any():
            losses = [np.nansum(pinball90(y[:, mine], point[:, mine] * r)) for r in grid]
            ratio[mine] = grid[int(np.argmin(losses))]
    return ratio


def pinball90(y: Doubles, upper: Doubles) -> Doubles:
    """Return the pinball loss at .9."""
    return np.maximum(0.9 * (y - upper), 0.1 * (upper - y))


def score(y: Doubles, point: Doubles, upper: Doubles) -> dict[str, float | None]:
    """Return the figures of one method, horizon and pool; null where nothing was asked."""
    ok = ~np.isnan(y)
    y, point, upper = y[ok], point[ok], upper[ok]
    volume, judged = float(y.sum()), (y > 0) | (upper > 0)
    per_volume = {
        "wape": np.abs(y - point).sum(), "pinball90": pinball90(y, upper).sum(), "provisioned_ratio": upper.sum(),
    }  # fmt: skip
    out: dict[str, float | None] = {k: float(v) / volume if volume > 0 else None for k, v in per_volume.items()}
    out["coverage90"] = float((y <= upper)[judged].mean()) if judged.any() else None
    return out


def report(rates: RateWindows, train_days: float) -> dict[str, Any]:
    """Return the benchmark's JSON object."""
    settings = settings_for(rates.window_s)
    train_windows = min(round(train_days * settings.day_buckets), len(rates.rps) - 1)
    pools = pools_of(rates, train_windows)
    started_s = time.perf_counter()
    walks, seen, memory = ours(rates, settings, train_windows)
    took_s = time.perf_counter() - started_s
    walks |= peers(rates, settings, train_windows, pools)
    test = slice(train_windows - 1, None)
    methods: dict[str, Any] = {name: {} for name in walks}
    for h, (horizon_s, buckets) in enumerate(zip(settings.horizons_s, settings.horizon_buckets, strict=True)):
        y = actuals(rates, buckets)[test]
        for name, w in walks.items():
            methods[name][f"{horizon_s:g}"] = {
                pool: score(y[:, mine], w.point[h, test][:, mine], w.upper[h, test][:, mine])
                for pool, mine in pools.items()
            }
    return {
        "methods": methods,
        "pools": {name: int(mine.sum()) for name, mine in pools.items()},
        "windows": {"train": train_windows, "test": len(rates.rps) - train_windows, "window_s": rates.window_s},
        **tiers_of(rates, seen, settings, test),
        "onsets": onsets_of(rates, seen, settings, test),
        "missing_ratio": float(np.isnan(rates.rps).mean()),
        "live_coverage90": dict(
            zip((f"{h:g}" for h in settings.horizons_s), memory.calibration.coverage(), strict=True)
        ),
        "serving": memory.calibration.serving.tolist(),
        "band_score": memory.calibration.z.round(2).tolist(),
        "run_s": took_s,
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__)
    parser.add_argument(
        "--rates", type=Path, required=True, help="ServeGen rates: client_id,window_start_s,rate_rps,..."
    )
    parser.add_argument("--train-days", type=float, default=7.0)
    parser.add_argument("--cost-tenants", type=int, default=0, help="also time the room at so many tenants; 0: not")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    given = parser.parse_args()
    rates = read_windows(given.rates)
    result = report(rates, given.train_days)
    if given.cost_tenants > 0:
        result["cost"] = cost(rates.rps, given.cost_tenants, settings_for(rates.window_s))
    if not given.json:
        print_table(result)
    print(json.dumps(result))


def print_table(result: dict[str, Any]) -> None:
    """Print one line per horizon, pool and method."""
    print(f"{'horizon':>8} {'pool':<7} {'method':<18} {'wape':>7} {'pinball90':>10} {'coverage90':>11} {'given':>12}")
    for horizon_s in next(iter(result["methods"].values())):
        for pool in result["pools"]:
            for name, by_horizon in result["methods"].items():
                s = by_horizon[horizon_s][pool]
                cells = [f"{s[k]:.4f}" if s[k] is not None else "-" for k in
                         ("wape", "pinball90", "coverage90", "provisioned_ratio")]  # fmt: skip
                print(f"{horizon_s:>8} {pool:<7} {name:<18} {cells[0]:>7} {cells[1]:>10} {cells[2]:>11} {cells[3]:>12}")


if __name__ == "__main__":
    main()
