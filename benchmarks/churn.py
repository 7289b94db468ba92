"""How often a placement changes its mind on traffic that flickers, and what balance it keeps meanwhile.

    python -m benchmarks.churn --workload zipf-poisson|alternating [--rates FILE] [--seeds N] [--json]

Two workloads that a peer publishes (NVIDIA Dynamo's `lora_simulation`), or the windows of a file of rates:

    zipf-poisson  32 adapters, 8 workers of 4 adapter slots, 100 ticks of 3 s, Zipf 1, 40 requests a tick in all
    alternating   4 adapters that swap hot and cold every tick, 4 workers of 2 adapter slots, 40 ticks of 3 s

A change is an (adapter, worker) pair that appears or goes, the first placement included. Every strategy places by what
it has seen up to and with a tick, and is measured on that tick's requests, shared evenly by an adapter's targets; those
of an adapter without a target go to the least loaded worker and are counted as unplaced. Peers place the adapters that
have requests in the tick, as they do at home; ours follows a smoothed rate. Figures are means over the seeds, which
draw both the requests and the names of the adapters.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler.ring import Limits, Placement, place, resolve_replication
from benchmarks.rates import read_rates
from benchmarks.ring_peers import Loads, Owners, bounded_ring, keep_whatever_was, plain_rendezvous, uhashring_plain

HALF_LIFE_S = 900.0
"""Our rate is smoothed over a quarter of an hour, corrected for its age: a mean of all, in runs of five minutes."""

YOUNG_TICKS = 3
_HOT, _COLD = 18.0, 2.0  # requests a tick in `alternating`; the peer's own figures are not published


@dataclass(frozen=True)
class Workload:
    """What arrives: `loads` (ticks, adapters) for one seed, on `workers` of `slots` adapter slots each."""

    workers: int
    slots: int
    tick_s: float
    loads: Callable[[np.random.Generator], Loads]


Strategy = Callable[[Sequence[str], Loads, Sequence[str], Owners], Owners]


def zipf_poisson() -> Workload:
    popularity = 1.0 / np.arange(1, 33)
    return Workload(8, 4, 3.0, lambda rng: rng.poisson(40 * popularity / popularity.sum(), (100, 32)).astype(float))


def alternating() -> Workload:
    even = np.array([_HOT, _HOT, _COLD, _COLD])
    return Workload(4, 2, 3.0, lambda rng: np.array([even if tick % 2 == 0 else even[::-1] for tick in range(40)]))


def recorded(path: Path, workers: int, slots: int, ticks: int) -> Workload:
    _, table = read_rates(path)
    return Workload(workers, slots, 600.0, lambda rng: table.T[:ticks])


class Ours:
    """The product's placement on a smoothed rate; it holds all adapters ever seen, as far as slots allow."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._limits = Limits(residents_per_slot=workload.slots)
        self._decay = 0.5 ** (workload.tick_s / HALF_LIFE_S)
        self._sums, self._weight, self._ticks = np.zeros(0), 0.0, 0
        self._previous: Placement | None = None

    def __call__(self, adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Owners) -> Owners:
        """Place by the smoothed rate with this tick's requests in it."""
        self._sums = loads if self._ticks == 0 else self._decay * self._sums + loads
        self._weight, self._ticks = self._decay * self._weight + 1.0, self._ticks + 1
        rates = self._sums / self._weight
        replication = resolve_replication(
            "auto",
            rates,
            len(slots),
            max_loras=self._workload.slots,
            residents_per_slot=self._workload.slots,
            previous=None if self._previous is None else self._previous.replication,
        )
        young = np.full(len(adapters), self._ticks <= YOUNG_TICKS)
        self._previous = place(
            adapters, rates, slots, limits=self._limits, replication=replication, previous=self._previous, young=young
        )  # fmt: skip
        return {adapter: self._previous.owners(adapter) for adapter in adapters}


def of_active(place_by: Strategy) -> Strategy:
    """A peer as it is at home: targets for the adapters that have requests now, none for the others."""

    def strategy(adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Owners) -> Owners:
        active = np.flatnonzero(loads > 0)
        return place_by([adapters[i] for i in active.tolist()], loads[active], slots, before)

    return strategy


def uhashring_once() -> Strategy:
    """`uhashring` with its look-ups kept: its slots never change here, so neither do its answers."""
    known: Owners = {}

    def strategy(adapters: Sequence[str], loads: Loads, slots: Sequence[str], before: Owners) -> Owners:
        new = [adapter for adapter in adapters if adapter not in known]
        known.update(uhashring_plain(new, loads, slots, before) if new else {})
        return {adapter: known[adapter] for adapter in adapters}

    return strategy


def strategies(workload: Workload) -> Iterator[tuple[str, Strategy]]:
    yield "ours", Ours(workload)
    yield "plain_rendezvous_r2", of_active(plain_rendezvous)
    yield "uhashring_r2", of_active(uhashring_once())
    yield "bounded_consistent_hashing_r2", of_active(bounded_ring)
    yield "keep_whatever_was_r2", of_active(keep_whatever_was)


def measure(workload: Workload, seed: int) -> dict[str, dict[str, float]]:
    """One seed: the figures of every strategy."""
    rng = np.random.default_rng(seed)
    ticks = workload.loads(rng)
    adapters = tuple(f"adapter-{seed}-{number}" for number in range(ticks.shape[1]))
    slots = tuple(f"s{i:04d}" for i in range(workload.workers))
    return {name: _run(strategy, adapters, ticks, slots, workload) for name, strategy in strategies(workload)}


def _run(
    strategy: Strategy, adapters: Sequence[str], ticks: Loads, slots: Sequence[str], workload: Workload
) -> dict[str, float]:
    owners: Owners = {}
    additions = removals = over_slots = 0
    fullest, unplaced, targets = [], [], []
    for loads in ticks:
        before, owners = owners, strategy(adapters, loads, slots, owners)
        had, has = _pairs(before), _pairs(owners)
        additions, removals = additions + len(has - had), removals + len(had - has)
        residents = [sum(slot == name for _, slot in has) for name in slots]
        over_slots += max(residents) > workload.slots
        targets.append(len(has))
        balance, without = _balance(owners, adapters, loads, slots)
        unplaced.append(without)
        if loads.any():
            fullest.append(balance)
    return {
        "changes": additions + removals,
        "additions": additions,
        "removals": removals,
        "max_over_mean": float(np.mean(fullest)),
        "ticks_over_slots": over_slots,
        "unplaced": float(np.mean(unplaced)),
        "targets": float(np.mean(targets)),
    }


def _pairs(owners: Owners) -> set[tuple[str, str]]:
    return {(adapter, slot) for adapter, own in owners.items() for slot in own}


def _balance(owners: Owners, adapters: Sequence[str], loads: Loads, slots: Sequence[str]) -> tuple[float, int]:
    """(load of the fullest slot over the mean, adapters with requests and no target)."""
    carried, homeless = dict.fromkeys(slots, 0.0), []
    for adapter, load in zip(adapters, loads.tolist(), strict=True):
        own = owners.get(adapter, ())
        for slot in own:
            carried[slot] += load / len(own)
        if load > 0 and not own:
            homeless.append(load)
    for load in homeless:
        carried[min(carried, key=carried.__getitem__)] += load
    return max(carried.values()) * len(slots) / max(sum(carried.values()), 1e-12), len(homeless)


def main() -> None:
    arguments = _arguments()
    if arguments.rates:
        workload = recorded(arguments.rates, arguments.workers, arguments.slots, arguments.ticks)
    else:
        workload = {"zipf-poisson": zipf_poisson, "alternating": alternating}[arguments.workload]()
    runs = [measure(workload, seed) for seed in range(arguments.seeds)]
    means = {name: {key: float(np.mean([run[name][key] for run in runs])) for key in runs[0][name]} for name in runs[0]}
    result: dict[str, Any] = {**means.pop("ours"), "seeds": arguments.seeds, "peers": means}
    columns = ("changes", "additions", "removals", "max_over_mean", "ticks_over_slots", "unplaced", "targets")
    print(f"{'mean of ' + str(arguments.seeds) + ' seeds':32}" + "".join(f"{column:>18}" for column in columns))
    for name, row in {"ours": result, **means}.items():
        print(f"{name:32}" + "".join(f"{row[column]:18.2f}" for column in columns))
    if arguments.json:
        print(json.dumps(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", choices=["zipf-poisson", "alternating"], default="zipf-poisson")
    parser.add_argument("--rates", type=Path, help="client_id,window_start_s,rate_rps in place of a workload")
    parser.add_argument("--workers", type=int, default=16, help="with --rates")
    parser.add_argument("--slots", type=int, default=64, help="adapter slots of a worker, with --rates")
    parser.add_argument("--ticks", type=int, default=288, help="windows to replay, with --rates")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    if min(arguments.seeds, arguments.workers, arguments.slots, arguments.ticks) < 1:
        parser.error("seeds, workers, slots and ticks must be at least 1")
    return arguments


if __name__ == "__main__":
    main()
