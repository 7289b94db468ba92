"""How soon onsets are seen at the controller's tick, and how often arrivals alone raise a false alarm.

A rates file says how many requests a window had and how uneven their gaps were (`cv`). Requests are drawn from that, a
Gamma renewal process per client and window, counted in ticks of 15 seconds and shown to the detector as in production.
The truth is the window's own rate. It is an onset where that rate is past the detector's threshold at the window's
start. An alarm is false where the window's rate is not even above the band: the arrivals' noise raised it. A hot alarm
is one loud enough to make the tenant HOT; it is false where the window's rate was not.
"""

import argparse
import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.forecasting import ForecastMemory, ForecastSettings, bursts, empty_memory, observe
from autoscaler.forecasting.bursts import RATIO
from benchmarks.forecast import settings_for
from benchmarks.forecast_tiers import HOT_RPS
from benchmarks.rates import RateWindows, read_windows

Doubles = NDArray[np.float64]
TICK_S = 15.0
LEAST_REQUESTS = 10.0
"""Onsets of fewer requests in the whole window cannot be told from chance by anybody and are not asked for."""


def gap_variation(path: Path, rates: RateWindows) -> Doubles:
    """Return [T, S] the coefficient of variation of the gaps; 1, as of Poisson arrivals, where the file has none."""
    out = np.ones(rates.rps.shape)
    column = {name: i for i, name in enumerate(rates.clients)}
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        told = [
            (column[f"client-{r['client_id']}"], float(r["window_start_s"]), r.get("cv")) for r in csv.DictReader(lines)
        ]
    first_s = min(start_s for _, start_s, _ in told)
    for client, start_s, cv in told:
        value = float(cv or "nan")
        if np.isfinite(value) and value > 0:
            out[round((start_s - first_s) / rates.window_s), client] = value
    return out


def counted(rate_rps: float, cv: float, ticks: int, rng: np.random.Generator) -> Doubles:
    """Return [ticks] the rates that a renewal process of this mean and gap variation shows, tick by tick."""
    length_s = ticks * TICK_S
    expected = rate_rps * length_s
    if not expected > 0:
        return np.zeros(ticks)
    shape = 1.0 / max(cv, 0.05) ** 2
    gaps = rng.gamma(shape, 1.0 / (shape * rate_rps), int(expected + 8 * cv * np.sqrt(expected) + 20))
    gaps[0] *= rng.random()
    at_s = np.cumsum(gaps)
    return np.bincount((at_s[at_s < length_s] // TICK_S).astype(np.int64), minlength=ticks) / TICK_S


def measured(rates: RateWindows, cv: Doubles, from_window: int, windows: int, seed: int) -> dict[str, Any]:
    """Return what the detector did over the windows given; those before warm its memory, one tick each."""
    settings, rng = settings_for(rates.window_s), np.random.default_rng(seed)
    ticks = max(1, round(rates.window_s / TICK_S))
    memory = _warmed(rates, from_window, settings)
    delays: list[int] = []
    hot_delays: list[int] = []
    missed = alarms = false = hot = false_hot = hot_missed = 0
    for window in range(from_window, from_window + windows):
        truth, expected = rates.rps[window], memory.expected.astype(np.float64)
        real = _onset(truth, expected, rates.window_s)
        columns = [counted(r, c, ticks, rng) for r, c in zip(np.nan_to_num(truth), cv[window], strict=True)]
        drawn = np.where(np.isnan(truth), np.nan, np.stack(columns, axis=1))
        fired, loud = np.full(len(truth), -1), np.zeros(len(truth), np.bool_)
        for tick in range(ticks):
            now_s = window * rates.window_s + (tick + 1) * TICK_S
            memory = observe(memory, now_s, rates.clients, drawn[tick], settings)
            if tick < ticks - 1:  # the last one ends the window, and the band is another
                active = bursts(memory, now_s).active
                fired = np.where((fired < 0) & active, tick, fired)
                loud |= active & (np.nan_to_num(memory.ticks).mean(axis=0) > HOT_RPS)
        delays += (fired[real & (fired >= 0)] + 1).tolist()
        missed += int((real & (fired < 0)).sum())
        hot_delays += (fired[real & (truth > HOT_RPS) & (fired >= 0)] + 1).tolist()
        hot_missed += int((real & (truth > HOT_RPS) & (fired < 0)).sum())
        alarms += int((fired >= 0).sum())
        false += int(((fired >= 0) & ~(truth > expected)).sum())
        hot += int(loud.sum())
        false_hot += int((loud & ~(truth > HOT_RPS)).sum())
    days = np.isfinite(rates.rps[from_window : from_window + windows]).sum() * rates.window_s / 86_400.0
    return _delays(delays, missed) | {
        "hot": _delays(hot_delays, hot_missed),
        "alarms_per_tenant_day": float(alarms / days),
        "false_alarms_per_tenant_day": float(false / days),
        "hot_alarms_per_tenant_day": float(hot / days),
        "false_hot_alarms_per_tenant_day": float(false_hot / days),
        "tenant_days": float(days),
    }


def _delays(delays: list[int], missed: int) -> dict[str, Any]:
    onsets = len(delays) + missed
    return {
        "onsets": onsets,
        "seen_ratio": len(delays) / onsets if onsets else None,
        "seen_within_two_ticks_ratio": sum(d <= 2 for d in delays) / onsets if onsets else None,
        "delay_ticks_p50": float(np.median(delays)) if delays else None,
        "delay_ticks_p90": float(np.quantile(delays, 0.9)) if delays else None,
    }


def _onset(truth: Doubles, expected: Doubles, window_s: float) -> NDArray[np.bool_]:
    return np.asarray((truth > RATIO * expected) & (truth * window_s >= LEAST_REQUESTS))


def _warmed(rates: RateWindows, windows: int, settings: ForecastSettings) -> ForecastMemory:
    memory = observe(empty_memory(settings), 0.0, rates.clients, np.full(len(rates.clients), np.nan), settings)
    for window in range(windows):
        memory = observe(memory, (window + 1) * rates.window_s, rates.clients, rates.rps[window], settings)
    return memory


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast_onsets", description=__doc__)
    parser.add_argument("--rates", type=Path, required=True, help="client_id,window_start_s,rate_rps,cv")
    parser.add_argument("--from-day", type=float, default=6.0, help="where drawing begins; days before warm the memory")
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="accepted by every benchmark; the output is JSON anyway")
    given = parser.parse_args()
    rates = read_windows(given.rates)
    per_day = 86_400.0 / rates.window_s
    first = min(round(given.from_day * per_day), len(rates.rps) - 1)
    windows = min(round(given.days * per_day), len(rates.rps) - first)
    print(json.dumps(measured(rates, gap_variation(given.rates, rates), first, windows, given.seed)))


if __name__ == "__main__":
    main()
