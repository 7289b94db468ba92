"""The race over many regimes: which, and a row of a Markdown table for each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.fleet_race import BOUND, HASHED, OURS, SHIPPED, TURNS

_NAMES = {
    TURNS: "round robin", HASHED: "bounded hashing", "least-request-hpa": "least requests",
    "rendezvous-predictive": "rendezvous", "affinity-saturation": "affinity",
}  # fmt: skip
_HEADINGS = (
    "adapters, host cache, kernels", "requests/s", "ours as shipped, GPU-hours (in time)", "ours tuned",
    "best peer, tuned", "round robin", "bounded hashing", "shipped / best peer", "tuned / best peer",
    "tuned / round robin", "tuned / bounded hashing", "tuned / bound",
)  # fmt: skip
HEAD = f"| {' | '.join(_HEADINGS)} |\n|{'---|' * len(_HEADINGS)}"


def lines(which: str, rates: Path | None, lengths: Path | None, start_s: float) -> Iterator[str]:
    """The regimes' flags, one line each: of a file of such lines (`#` begins a comment), or all.

    All are 100, 1,000 and 10,000 adapters of the generator and, with `rates`, two hours of them from `start_s` on, each
    with every host cache and both kernels.
    """
    if which != "all":
        yield from (line for raw in Path(which).read_text().splitlines() if (line := raw.partition("#")[0].strip()))
        return
    traffic = [f"--adapters {count}" for count in (1_000, 100, 10_000)]
    if rates is not None:
        beside = "" if lengths is None else f" --lengths '{lengths}'"
        traffic.insert(0, f"--rates '{rates}'{beside} --start {start_s:.0f} --hours 2")
    for one, host, kernels in product(traffic, ("slots", "128", "all"), ("recent", "measured")):
        yield f"{one} --host {host} --kernels {kernels}"


def row(result: dict[str, Any]) -> str:
    """One regime's row."""
    told, ratios, peer = result["strategies"], result["ratios"], result["best_peer"]
    cells = (
        result["name"],
        f"{result['rate_rps']:.0f}",
        _cost(told[SHIPPED]),
        f"{_setting(told[OURS])}: {_cost(told[OURS])}",
        f"{_NAMES[peer]}, {_setting(told[peer])}: {_cost(told[peer])}",
        *(_cost(told[name]) for name in (TURNS, HASHED)),
        _ratio(ratios[f"{SHIPPED} / {peer}"]),
        *(_ratio(ratios[f"{OURS} / {other}"]) for other in (peer, TURNS, HASHED)),
        _share(ratios[f"{OURS} / {BOUND}"][0]),  # of two seeds: their interval says nothing
    )
    return f"| {' | '.join(cells)} |"


def _cost(told: dict[str, Any]) -> str:
    return f"{told['gpu_hours']:.2f} ({100 * told['slo_attainment']:.2f} %)"


def _setting(told: dict[str, Any]) -> str:
    settings = dict(told["settings"])
    slots = settings.pop("max_loras")
    parts = [f"{key} {_short(value)}" for key, value in settings.items() if key in _TOLD]
    return ", ".join((f"{slots} slots", *parts))


_TOLD = (
    "utilisation",
    "capacity_tokens_per_s",
    "queue",
    "least",
    "choices",
    "active",
    "window_s",
    "fill",
    "interval_s",
    "affinity",
    "kv_trigger",
)


def _short(value: float) -> str:
    text = f"{value:g}"
    return text.removeprefix("0") if text.startswith("0.") else text


def _ratio(values: list[float]) -> str:
    middle, low, high = map(_share, values)
    return middle if math.isnan(values[1]) else f"{middle} ({low} to {high})"


def _share(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")
