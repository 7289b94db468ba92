"""What scaling remembers from tick to tick, per group: recent needs, what is pending since when, measured capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from autoscaler.scaling.batching import Level, Levels
from autoscaler.scaling.starts import Starts
from autoscaler.scaling.trend import LoadMemory, Sayer

MEMORY_VERSION = 1


@dataclass(frozen=True, slots=True)
class CapacityMemory:
    """What one replica was seen to carry, prompt and completion tokens/s.

    Attributes:
        tokens_per_s: moving average of what a replica carries at its targets.
        samples: ticks behind it; it counts from three on.
        proven_tokens_per_s: highest throughput carried without pressure; it fades by half in twelve hours.
        queued_since_s: since when requests have waited for compute on some replica, None while none do.
        at_s: the last update.
        levels: what the mean replica carried at which batch; `fitted_tokens_per_s`: what they told last of the largest
            batch, 0 before they tell anything.
        kv_each: KV pressure of one running request; `most_running`: the batch that KV target and engine allow.
        replicas: the group's READY replicas at the last update; `measured_replicas`: when last at their targets;
            `resized_s`: since when there are as many.
    """

    tokens_per_s: float = 0.0
    samples: int = 0
    proven_tokens_per_s: float = 0.0
    queued_since_s: float | None = None
    at_s: float = 0.0
    levels: Levels = ()
    fitted_tokens_per_s: float = 0.0
    kv_each: float = 0.0
    most_running: float = 0.0
    replicas: int = 0
    measured_replicas: int = 0
    resized_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """One group.

    Attributes:
        first_seen_s: until the stabilisation window is full, nothing shrinks.
        needs: (time, recommended) within the stabilisation window, strictly falling: the first is the highest.
        pending_since_s: since when some replica is not ready, None where all are.
        idle_since_s: since when the count of requests is a trustworthy zero, None where it is not.
        contradicted_since_s: since when routers and engines disagree about there being traffic, None where they agree.
        current: the replica count of the last tick; a change of it is one of the hour's changes.
        desired: what the last tick decided, None before the first; below `current` a departure is under way.
        load: where its load is going.
    """

    first_seen_s: float
    needs: tuple[tuple[float, int], ...] = ()
    pending_since_s: float | None = None
    idle_since_s: float | None = None
    contradicted_since_s: float | None = None
    current: int = 0
    capacity: CapacityMemory = field(default_factory=CapacityMemory)
    desired: int | None = None
    load: LoadMemory = field(default_factory=LoadMemory)


@dataclass(frozen=True, slots=True)
class ScalingMemory:
    """All groups.

    Attributes:
        groups: by name; a group that is gone is forgotten.
        changes_s: times of the last hour's changes of any group's replica count.
        starts: how long replicas of any group took to start.
    """

    groups: Mapping[str, GroupMemory] = field(default_factory=dict)
    changes_s: tuple[float, ...] = ()
    starts: Starts = field(default_factory=Starts)

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON values; a few hundred bytes a group."""
        written = {"version": MEMORY_VERSION, **asdict(self)}
        written["starts"]["answered"] = sorted(self.starts.answered)
        return written

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScalingMemory:
        """Rebuild a memory from `to_json`.

        Raises:
            ValueError: another version or damaged; the caller starts from an empty memory.
        """
        if data.get("version") != MEMORY_VERSION:
            raise ValueError(
                f"scaling memory has version {data.get('version')!r}, this release reads {MEMORY_VERSION}; "
                "start with an empty one"
            )
        try:
            return cls(
                groups={str(name): _group(group) for name, group in data["groups"].items()},
                changes_s=tuple(float(t) for t in data["changes_s"]),
                starts=_starts(data.get("starts", {})),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"scaling memory is damaged ({error!r}); start with an empty one") from error


def _group(data: Mapping[str, Any]) -> GroupMemory:
    needs = tuple((float(t), int(n)) for t, n in data["needs"])
    capacity, load = dict(data["capacity"]), dict(data.get("load", {}))
    capacity["levels"] = tuple(_level(level) for level in capacity.get("levels", ()))
    if "losses" not in load:  # of a release that knew two sayers: it is known again within minutes
        load = {}
    for name, size in (("samples", 2), ("in_flight", 2), ("peaks", 2), ("said", 1 + len(Sayer))):
        load[name] = tuple(_row(row, size) for row in load.get(name, ()))
    if load.get("losses"):
        load["losses"] = _row(load["losses"], len(Sayer))
    return GroupMemory(**{**data, "needs": needs, "capacity": CapacityMemory(**capacity), "load": LoadMemory(**load)})


def _starts(data: Mapping[str, Any]) -> Starts:
    since_s = {str(name): float(at_s) for name, at_s in data.get("since_s", {}).items()}
    took_s = tuple(float(s) for s in data.get("took_s", ()))
    return Starts(since_s, took_s, frozenset(map(str, data.get("answered", ()))))


def _level(data: Mapping[str, Any]) -> Level:
    if "late" in data:  # of a release that told lateness from p99s: the share is known again within minutes
        data = {name: value for name, value in data.items() if name not in ("late", "late_ticks")}
    return Level(**data)


def _row(row: Sequence[float], size: int) -> Any:
    if len(row) != size:
        raise ValueError(
            f"scaling memory is damaged (a row of {len(row)} numbers, not {size}); start with an empty one"
        )
    return tuple(float(value) for value in row)
