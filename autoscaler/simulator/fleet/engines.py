"""A fleet of engines as an object: places that start and stop, windows that run, copies to come back to.

It knows nothing of groups, controllers or metrics; it counts every request and refuses to lose one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscaler.simulator.engine import kernel
from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.engine.layout import NONE, PS_PER_S, EngineState, empty_state, with_more_rows
from autoscaler.simulator.engine.model import configure
from autoscaler.simulator.engine.profile import EngineLimits, EngineProfile
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core import loop
from autoscaler.simulator.fleet.core.layout import FleetState, Ints, Table, empty_fleet, with_more_open
from autoscaler.simulator.fleet.stream import ArrivalStream

_ROWS = 4096


class PlacesFullError(ValueError):
    """More engines at a time than the fleet was made for."""


class LostRequestError(AssertionError):
    """Arrivals are not finished + in flight + refused: the simulation is wrong."""


@dataclass(frozen=True, slots=True)
class FleetShape:
    """What a fleet is made for.

    Attributes:
        places: most engines at a time.
        routers: each sees only its own requests in flight.
        target_ttft_s: what counts as in time.
        most_in_flight: requests in the whole fleet beyond which routers refuse; bounds memory.
        parallel_loads: adapter loads that a controller keeps under way on one engine.
        loads_are_free: adapters come at no cost (for a bound that no system can pass).
        one_each: every engine serves one adapter, and its books have one row.
    """

    places: int
    adapters: int
    routers: int = 2
    target_ttft_s: float = 1.0
    most_in_flight: int = 50_000
    parallel_loads: int = 2
    loads_are_free: bool = False
    one_each: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """A copy of everything that a run changes."""

    engines: EngineState
    fleet: FleetState
    now: int
    gone_loads: int


class EngineFleet:
    """Engines behind routers. Times go up; calls with an earlier one raise ValueError."""

    def __init__(self, profile: EngineProfile, limits: EngineLimits, shape: FleetShape, seed: int = 0) -> None:
        """`limits` are the largest of all engines that will start."""
        self.profile, self.limits, self.shape = profile, limits, shape
        rows = 1 if shape.one_each else shape.adapters
        self._engines = empty_state(
            shape.places, rows, limits.max_num_seqs, limits.max_loras, limits.max_cpu_loras, _ROWS
        )
        self._fleet = empty_fleet(shape.places, shape.adapters, shape.routers, _ROWS, one_each=shape.one_each)
        total = self._fleet.total
        total[b.TARGET_PS] = round(shape.target_ttft_s * PS_PER_S)
        total[b.MOST_IN_FLIGHT] = shape.most_in_flight
        total[b.DRAWS] = (seed + 1) * 1_000_003
        self._now = 0
        self._gone_loads = 0
        self._table = blank_table(shape.adapters)

    @property
    def engines(self) -> EngineState:
        """The engines' arrays, to read."""
        return self._engines

    @property
    def fleet(self) -> FleetState:
        """The routers' and the fleet's arrays, to read."""
        return self._fleet

    @property
    def now_s(self) -> float:
        """How far it has run."""
        return self._now / PS_PER_S

    def measure_from(self, at_s: float) -> None:
        """Requests that arrive from `at_s` on are measured."""
        self._fleet.total[b.MEASURED_FROM] = round(at_s * PS_PER_S)

    def try_from_now(self) -> None:
        """Count first tokens, and those in time, of requests that arrive from now on (T_FIRST, T_IN_TARGET)."""
        total = self._fleet.total
        total[b.TRIED_FROM], total[b.T_FIRST], total[b.T_IN_TARGET] = self._now, 0, 0

    def start(self, limits: EngineLimits, unless: Set[int] = frozenset()) -> int:
        """A new engine with empty memory at the lowest free place, one that is not in `unless` where there is one.

        Raises PlacesFullError."""
        free = sorted(np.flatnonzero(self._fleet.place == b.EMPTY).tolist(), key=lambda place: place in unless)
        if not len(free):
            raise PlacesFullError(f"all {self.shape.places} engine places are taken: make the fleet with more")
        e, s, f = free[0], self._engines, self._fleet
        s.number[e], s.real[e], s.adapter[e, :, : a.A_ORDER] = 0, 0.0, 0
        s.adapter[e, :, [a.A_HEAD, a.A_TAIL, a.A_ACTIVE, a.A_GPU, a.A_HOST]] = NONE
        s.number[e, [a.HEAD, a.TAIL, a.STEP_END]] = NONE
        s.number[e, a.JUMPING] = 1
        s.number[e, a.CLOCK] = s.number[e, a.SINCE] = self._now
        configure(s, e, self.profile, limits, {})
        if self.shape.loads_are_free:
            s.adapter[e, :, [a.A_GPU_LOAD, a.A_DISK_LOAD, a.A_FIRST_LOAD]] = 0
        f.place[e], f.due[e], f.first[e], f.first_us[e], f.load[e] = b.SERVING, NONE, 0, 0, 0
        f.load[e, b.L_PARALLEL] = self.shape.parallel_loads
        if not self.shape.one_each:
            f.known[e], f.pair[e] = 0, 0
        return e

    def warm(self, e: int, adapters: Sequence[int] | Ints) -> None:
        """Fill an idle engine's memory with these adapters at no cost, as far as they fit; the first are last to go."""
        s, number = self._engines, self._engines.number[e]
        order = np.asarray(adapters, np.int64)[: int(number[a.HOST_SLOTS])]
        if self.shape.one_each:
            order = order[:1] * 0
        books = s.adapter[e]
        books[:, [a.A_GPU, a.A_HOST]] = NONE
        number[a.STAMP] += a.MOST_ADAPTERS
        books[order, a.A_STAMP] = number[a.STAMP] - np.arange(len(order))
        books[order, a.A_FIRST_LOAD] = 0
        for which, place, count, most in (
            (a.HOST, a.A_HOST, a.HOST_RESIDENT, len(order)),
            (a.GPU, a.A_GPU, a.GPU_RESIDENT, min(len(order), int(number[a.SLOTS]))),
        ):
            s.lists[e, which, :most] = order[:most]
            books[order[:most], place] = np.arange(most)
            number[count] = most

    def register(self, e: int, adapters: Ints) -> None:
        """Make names known to an engine's API, as if they had been loaded there long ago."""
        self._fleet.known[e, adapters] = 1

    def load(self, e: int, adapter: int) -> bool:
        """Ask an engine for an adapter, now; False: too many are asked for already."""
        return bool(loop.ask_load(self._engines, self._fleet, e, self._now, adapter))

    def forget(self, e: int, adapter: int) -> None:
        """Take the adapter's name from an engine's API; its memory stays until it is evicted."""
        self._fleet.known[e, adapter] = 0

    def known(self, e: int) -> Ints:
        """Adapters that an engine's API lists."""
        return np.flatnonzero(self._fleet.known[e])

    def idle(self, e: int) -> bool:
        """Whether no request is open on an engine."""
        return int(self._fleet.in_flight[:, :, e].sum()) == 0

    def stop(self, e: int) -> int:
        """End an engine; what it still had is refused. How many requests that were."""
        dropped = int(loop.drop_all(self._engines, self._fleet, e))
        self._gone_loads += int(self._engines.number[e, a.GPU_LOADS])
        self._fleet.place[e], self._fleet.due[e] = b.EMPTY, NONE
        return dropped

    def stall(self, e: int, seconds: float) -> None:
        """An engine stands still for so long from now on: its step ends later, and an idle one begins none."""
        number, span = self._engines.number[e], round(seconds * PS_PER_S)
        if number[a.STEP_END] != NONE:
            number[a.STEP_END] += span
        else:
            number[a.CLOCK] = max(int(number[a.CLOCK]), self._now) + span
        self._fleet.due[e] = kernel.next_event(self._engines, e)

    def route(self, table: Table) -> None:
        """From now on routers choose by this table."""
        self._table = table

    def run(self, stream: ArrivalStream, until_s: float) -> None:
        """Take the arrivals before `until_s` and run to it. Raises LostRequestError."""
        until = round(until_s * PS_PER_S)
        if until < self._now:
            raise ValueError(f"time went back: {until_s} s after {self.now_s} s; call in order of time")
        for (at, adapter, prompt, output), row in stream.ahead(until):
            taken, code = loop.run_window(
                self._engines, self._fleet, self._table, at, adapter, prompt, output, row, until
            )
            stream.read(taken)
            if code == loop.NEEDS_OPEN:
                self._fleet = with_more_open(self._fleet, len(self._fleet.open))
            elif code == loop.NEEDS_ROWS:
                self._engines = with_more_rows(self._engines, len(self._engines.request))
        loop.advance_due(self._engines, self._fleet, until)
        self._now = until
        self.check()

    def check(self) -> None:
        """Raises LostRequestError unless arrivals = finished + in flight + refused, by two counts."""
        t = self._fleet.total
        if t[b.ARRIVED] != t[b.FINISHED] + t[b.IN_FLIGHT] + t[b.REFUSED] or t[b.IN_FLIGHT] != self._open_on_engines():
            raise LostRequestError(
                f"{t[b.ARRIVED]} arrived, {t[b.FINISHED]} finished, {t[b.IN_FLIGHT]} in flight "
                f"({self._open_on_engines()} on engines), {t[b.REFUSED]} refused"
            )

    def _open_on_engines(self) -> int:
        mine = self._engines.number[self._fleet.place == b.SERVING]
        return int(mine[:, a.RUNNING].sum() + mine[:, a.WAITING].sum())

    def adapter_loads(self) -> int:
        """Loads to a GPU since the start, of engines that ended too."""
        return self._gone_loads + int(self._engines.number[self._fleet.place == b.SERVING, a.GPU_LOADS].sum())

    def save(self) -> Saved:
        """A copy of everything, to `restore`."""
        return Saved(_copied(self._engines), _copied(self._fleet), self._now, self._gone_loads)

    def hold(self) -> Saved:
        """Everything as it is, for `resume` after a `restore`; what runs before that changes it."""
        return Saved(self._engines, self._fleet, self._now, self._gone_loads)

    def resume(self, held: Saved) -> None:
        """Go on from what was held, which is given up."""
        self._engines, self._fleet = held.engines, held.fleet
        self._now, self._gone_loads = held.now, held.gone_loads

    def restore(self, saved: Saved) -> None:
        """Go back to a copy, which may be used again. The stream of arrivals is rewound by its owner."""
        self.resume(Saved(_copied(saved.engines), _copied(saved.fleet), saved.now, saved.gone_loads))


def _copied(state: Any) -> Any:
    return type(state)(*(array.copy() for array in state))


def blank_table(adapters: int) -> Table:
    """A table with nobody in it: every request is refused."""
    zero = np.zeros(adapters, np.int64)
    return Table(
        rule=np.zeros(b.RULES, np.int64), pool=np.zeros(0, np.int64), mode=zero, cluster=zero,
        candidate=np.full((adapters, 1), NONE, np.int64), owners=zero, listed=zero, point=np.zeros(1, np.int64),
        start=zero, weight=np.zeros(3),
    )  # fmt: skip
