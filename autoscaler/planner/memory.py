"""What the planner carries from tick to tick, and the small part of it that survives a restart."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscaler.diagnosis import DiagnosisMemory
from autoscaler.planner.demand import DemandMemory
from autoscaler.planner.departures import Departure
from autoscaler.planner.homes import Home
from autoscaler.planner.shapes import misfit
from autoscaler.ring import Choice, Placement, RingSnapshot, SlotTable
from autoscaler.scaling import ScalingMemory
from autoscaler.tiering import TieringMemory

CHECKPOINT_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class RingMemory:
    """The ring's state.

    Attributes:
        placement: over the slots that are and will be; None before the first.
        saved: a placement's state from a checkpoint, until the first tick turns it into `placement`.
        choice: what routers prefer; kept for its hysteresis.
        slots: identities and who holds them.
        published: the last snapshot that was decided, with its epoch; what is observed goes before it.
        body: its wire form, by which it is known again when it is read back.
        published_at_s: when that epoch was decided.
        epoch_floor: the highest epoch known of; the next one is above it, also where what was published is lost.
        expected: replica id -> adapters that it should hold, as of the last tick.
        joining_since_s: replica id -> when it was first seen ready without its adapters.
        departures: replicas on their way out.
        budget: moves left, in pairs of average load; below zero after an overdraft. `budget_at_s`: as of when.
    """

    placement: Placement | None = None
    saved: Mapping[str, Any] | None = None
    choice: Choice | None = None
    slots: SlotTable = field(default_factory=SlotTable)
    published: RingSnapshot | None = None
    body: bytes | None = None
    published_at_s: float = 0.0
    epoch_floor: int = 0
    expected: Mapping[str, frozenset[str]] = field(default_factory=dict)
    joining_since_s: Mapping[str, float] = field(default_factory=dict)
    departures: Mapping[str, Departure] = field(default_factory=dict)
    budget: float | None = None
    budget_at_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PlannerMemory:
    """All of it. An empty memory is valid: it only makes decisions cautious."""

    demand: DemandMemory | None = None
    diagnosis: DiagnosisMemory = field(default_factory=DiagnosisMemory)
    tiering: TieringMemory = field(default_factory=TieringMemory)
    scaling: ScalingMemory = field(default_factory=ScalingMemory)
    ring: RingMemory = field(default_factory=RingMemory)
    conditions_s: Mapping[str, float] = field(default_factory=dict)
    full_at_s: float | None = None
    homes: Mapping[str, Home] = field(default_factory=dict)


def checkpoint(memory: PlannerMemory) -> str:
    """JSON of what must survive: tiers, scaling's windows, slots, exceptions, departures, budget, epoch's floor.

    Forecasts are not in it: they refill from the metrics' history.
    """
    ring = memory.ring
    return json.dumps(
        {
            "version": CHECKPOINT_VERSION,
            "tiering": memory.tiering.to_json(),
            "scaling": memory.scaling.to_json(),
            "ring": {
                "epoch": ring.epoch_floor,
                "choice": ring.choice,
                "placement": ring.saved if ring.placement is None else ring.placement.state(),
                "slots": ring.slots.state(),
                "joining_since_s": dict(ring.joining_since_s),
                "departures": {name: dataclasses.asdict(d) for name, d in ring.departures.items()},
                "budget": ring.budget,
                "budget_at_s": ring.budget_at_s,
            },
        },
        separators=(",", ":"),
        sort_keys=True,
    )


def restored(text: str) -> PlannerMemory:
    """The memory that `checkpoint` kept.

    Raises:
        ValueError: another version, or damaged; the caller starts with an empty memory and says so.
    """
    try:
        data = json.loads(text)
        if data["version"] != CHECKPOINT_VERSION:
            raise ValueError(
                f"the checkpoint has version {data['version']!r}, this release reads {CHECKPOINT_VERSION}; "
                "run the release that wrote it, or delete it: the controller then starts cautiously"
            )
        ring = data["ring"]
        found = PlannerMemory(
            tiering=TieringMemory.from_json(data["tiering"]),
            scaling=ScalingMemory.from_json(data["scaling"]),
            ring=RingMemory(
                epoch_floor=int(ring["epoch"]),
                saved=None if ring["placement"] is None else _placement(ring["placement"]),
                choice=None if ring["choice"] is None else Choice(ring["choice"]),
                slots=SlotTable.from_state(ring["slots"]),
                joining_since_s=ring["joining_since_s"],
                departures={name: Departure(**d) for name, d in ring["departures"].items()},
                budget=ring["budget"],
                budget_at_s=ring["budget_at_s"],
            ),
        )
        wrong = misfit(found.scaling, "scaling") or misfit(found.ring, "ring")
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"the checkpoint is damaged ({error!r}); the controller starts cautiously without it"
        ) from error
    if wrong is not None:
        raise ValueError(f"the checkpoint is damaged ({wrong}); the controller starts cautiously without it")
    return found


def _placement(data: Mapping[str, Any]) -> dict[str, Any]:
    """A placement's saved state, if it is one. Raises TypeError."""
    replication, slots, exceptions = data["replication"], data["slots"], data["exceptions"]
    known = {slot for slot in slots if isinstance(slot, str)}
    owners = [owner for listed in exceptions.values() for owner in listed]
    if type(replication) is not int or replication < 1 or len(known) != len(slots) or not known.issuperset(owners):
        raise TypeError("its placement names slots that it does not have, or is none")
    return {"replication": replication, "slots": slots, "exceptions": exceptions}
