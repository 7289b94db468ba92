"""What one membership change costs: our placement updated, from scratch, and by peers.

    python -m benchmarks.ring --adapters 100000 --slots 512 [--rates FILE] [--json]

Loads are Zipf 1, or the mean rates of a file's clients. One slot joins, and in another run one leaves; the figures of
the change are the worse of the two. Times are the best of several, since the machine may be shared.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from autoscaler.ring import Limits, Placement, moves_between, place
from benchmarks.rates import read_rates
from benchmarks.ring_peers import (
    Loads,
    bounded_ring,
    keep_whatever_was,
    max_over_mean,
    moved_pairs,
    plain_rendezvous,
    uhashring_plain,
)

LIMITS = Limits(residents_per_slot=1_000_000)
PEERS = {
    "uhashring": uhashring_plain,
    "plain_rendezvous": plain_rendezvous,
    "bounded_consistent_hashing": bounded_ring,
    "keep_whatever_was": keep_whatever_was,
}
_WANDER = 0.2  # forecasts change by a fifth between ticks (one standard deviation, log scale)

Result = TypeVar("Result")


def main() -> None:
    arguments = _arguments()
    if arguments.rates:
        adapters, table = read_rates(arguments.rates)
        loads = table.mean(axis=1)
    else:
        adapters = tuple(f"adapter-{i}" for i in range(arguments.adapters))
        loads = 1.0 / np.arange(1, arguments.adapters + 1)
    slots = tuple(f"s{i:04d}" for i in range(arguments.slots))
    result = measure(adapters, loads, slots)
    result["peers"] = {name: _peer(PEERS[name], adapters, loads, slots) for name in arguments.peers}
    for line in _table(result):
        print(line)
    if arguments.json:
        print(json.dumps(result))


def measure(adapters: tuple[str, ...], loads: Loads, slots: tuple[str, ...]) -> dict[str, Any]:
    """Ours: a few warm ticks, then one slot more or less."""
    rng = np.random.default_rng(0)
    before = place(adapters, loads, slots, limits=LIMITS)
    for _ in range(3):
        wandered = loads * np.exp(_WANDER * rng.standard_normal(len(loads)))
        before = place(adapters, wandered, slots, limits=LIMITS, previous=before)
    tick_s, before = _best(5, lambda: place(adapters, loads, slots, limits=LIMITS, previous=before))
    changes = {"join": (*slots, f"s{len(slots):04d}"), "leave": slots[:-1]}
    results = {name: _change(adapters, loads, after, before) for name, after in changes.items()}
    scratch_s, _ = _best(3, lambda: place(adapters, loads, changes["join"], limits=LIMITS))
    incremental_s = max(result["seconds"] for result in results.values())
    return {
        "adapters": len(adapters),
        "slots": len(slots),
        "tick_s": tick_s,
        "incremental_s": incremental_s,
        "scratch_s": scratch_s,
        "scratch_over_incremental": scratch_s / incremental_s,
        "max_over_mean": max(result["max_over_mean"] for result in results.values()),
        "max_over_mean_allowed": max(result["max_over_mean_allowed"] for result in results.values()),
        "moved_ratio": max(result["moved_ratio"] for result in results.values()),
        "ideal_moved_ratio": 1 / len(slots),
        "exceptions": len(before.exceptions),
        "pairs_over_plain": float(before.copies.sum()) / (2 * len(adapters)),
        "changes": results,
    }


def _change(adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Placement) -> dict[str, float]:
    seconds, after = _best(7, lambda: place(adapters, loads, slots, limits=LIMITS, previous=before))
    return {
        "seconds": seconds,
        "moved_ratio": len(moves_between(before, after, LIMITS)) / float(after.copies.sum()),
        "max_over_mean": float(after.slot_loads.max()) / after.mean,
        "max_over_mean_allowed": LIMITS.bound + float(after.shares.max()) / after.mean,
    }


def _peer(
    place_by: Callable[..., Any], adapters: Sequence[str], loads: Loads, slots: Sequence[str]
) -> dict[str, float]:
    before = place_by(adapters, loads, slots, {})
    after_slots = (*slots, f"s{len(slots):04d}")
    seconds, after = _best(1, lambda: place_by(adapters, loads, after_slots, before))
    by_name = dict(zip(adapters, loads.tolist(), strict=True))
    return {
        "seconds": seconds,
        "moved_ratio": moved_pairs(before, after) / sum(map(len, after.values())),
        "max_over_mean": max_over_mean(after, by_name, after_slots),
    }


def _best(times: int, run: Callable[[], Result]) -> tuple[float, Result]:
    best_s = float("inf")
    for _ in range(times):
        start = perf_counter()
        result = run()
        best_s = min(best_s, perf_counter() - start)
    return best_s, result


def _table(result: dict[str, Any]) -> list[str]:
    head = f"{result['adapters']:,} adapters, {result['slots']} slots; ideally {result['ideal_moved_ratio']:.3%} move"
    lines = [head, f"{'':30}{'seconds':>10}{'moved':>10}{'fullest slot / mean':>22}"]

    def line(name: str, row: dict[str, float]) -> str:
        return f"{name:30}{row['seconds']:10.4f}{row['moved_ratio']:10.3%}{row['max_over_mean']:22.3f}"

    ours = {**result, "seconds": result["incremental_s"]}
    lines += [line("ours, one slot more or less", ours), *(line(*peer) for peer in result["peers"].items())]
    lines.append(f"ours from scratch {result['scratch_s']:.4f} s, a tick without a change {result['tick_s']:.4f} s")
    return lines


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ring", description=__doc__)
    parser.add_argument("--adapters", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--rates", type=Path, help="client_id,window_start_s,rate_rps: one adapter a client")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    if arguments.adapters < 1 or arguments.slots < 2:
        parser.error("at least 1 adapter and 2 slots are needed")
    return arguments


if __name__ == "__main__":
    main()
