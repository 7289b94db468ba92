"""Slots: identities on the ring that outlive the replicas that hold them.

A restart, a crash or a rolling update hands a slot to a successor, so no other replica's adapters move. Only a slot
that nobody holds for `slot_grace_s`, or one that is drained, leaves the ring.

    pending   a replica has the slot and prepares; the ring does not know it yet -> active, gone
    active    its replica serves -> vacant, draining
    vacant    ranked, but its replica is gone or does not serve; an heir may prepare -> active, pending, draining, gone
    draining  finishes what it has, not ranked; goes with its replica -> active (the drain was taken back), gone
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any


class SlotState(StrEnum):
    """Where a slot is in its life; all but `pending` are states of a snapshot's members."""

    PENDING = "pending"
    ACTIVE = "active"
    VACANT = "vacant"
    DRAINING = "draining"


class SlotEvent(StrEnum):
    """What became of a slot in one step."""

    JOINED = "Joined"  # a slot appears on the ring: adapters move to it
    REPLACED = "Replaced"  # a successor took it over: nothing moves
    VACATED = "Vacated"  # its replica does not serve: nothing moves yet
    RETURNED = "Returned"  # the same replica serves again: nothing moves
    DRAINING = "Draining"  # it leaves the ring on purpose: its adapters move
    LEFT = "Left"  # vacant for longer than the grace: its adapters move


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """A replica of the warm group as it is observed.

    Attributes:
        name: unique while it lives; a new process under an old name counts as the same replica.
        serving: its engine answers and its assigned adapters are resident (or their deadline passed).
        leaving: its platform is about to stop it.
        replaces: the name of the older replica whose place it takes in a rolling update, "" if none.
        label: the slot that it is labelled with, "" if none; honoured where that slot is free.
    """

    name: str
    serving: bool
    leaving: bool = False
    replaces: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """One identity. `replica` holds it ("" = nobody); `heir` prepares to take it over ("" = nobody)."""

    slot: str
    state: SlotState
    replica: str
    since_s: float
    heir: str = ""


@dataclass(frozen=True, slots=True)
class SlotTable:
    """All slots, ascending by id, and the replicas that handed theirs over and have yet to go."""

    slots: tuple[Slot, ...] = ()
    displaced: tuple[str, ...] = ()

    def ranked(self) -> tuple[str, ...]:
        """The slots that take part in the ranking: active and vacant."""
        return tuple(s.slot for s in self.slots if s.state in (SlotState.ACTIVE, SlotState.VACANT))

    def vacant(self) -> tuple[str, ...]:
        """The slots that wait for a replica."""
        return tuple(s.slot for s in self.slots if s.state is SlotState.VACANT)

    def slot_of(self, replica: str) -> Slot | None:
        """The slot that a replica holds or is the heir of."""
        return next((s for s in self.slots if replica and replica in (s.replica, s.heir)), None)

    def state(self) -> dict[str, Any]:
        """JSON that `from_state` reads."""
        return {"slots": [asdict(slot) for slot in self.slots], "displaced": list(self.displaced)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "SlotTable":
        """What `state` kept. Raises KeyError, TypeError or ValueError for anything else."""
        slots = (Slot(**{**slot, "state": SlotState(slot["state"])}) for slot in state["slots"])
        return cls(tuple(slots), tuple(state["displaced"]))


def advance(
    table: SlotTable,
    seen: Sequence[SeenReplica],
    *,
    now_s: float,
    slot_grace_s: float,
    drain: Collection[str] = (),
) -> tuple[SlotTable, tuple[tuple[str, SlotEvent], ...]]:
    """One step: what each slot becomes, and which slots changed how.

    `seen` are the warm group's replicas now; `drain` the slots that are to leave, named on every tick until they have.
    A clock that runs back only makes a vacancy last longer.
    """
    living = {replica.name: replica for replica in seen}
    events: list[tuple[str, SlotEvent]] = []
    slots: list[Slot] = []
    displaced = [name for name in table.displaced if name in living]
    for before in table.slots:
        after = _advanced(before, living, now_s, slot_grace_s, before.slot in drain)
        if after is not None:
            slots.append(after)
            if after.replica != before.replica and before.replica in living:
                displaced.append(before.replica)
        events += _events(before, after)
    held = {name for slot in slots for name in (slot.replica, slot.heir)} | set(displaced)
    for replica in sorted(seen, key=lambda replica: (not replica.replaces, not replica.label, replica.name)):
        if replica.name not in held and not replica.leaving:
            events += _seat(slots, displaced, replica, living, now_s)
    slots.sort(key=lambda slot: slot.slot.encode())
    return SlotTable(tuple(slots), tuple(sorted(displaced))), tuple(events)


def _advanced(
    before: Slot, living: Mapping[str, SeenReplica], now_s: float, grace_s: float, drain: bool
) -> Slot | None:
    """The slot after this step, None if it is gone."""
    holder, heir = living.get(before.replica), living.get(before.heir)
    slot = before if heir is not None and not heir.leaving else replace(before, heir="")
    if drain and before.state is not SlotState.PENDING:
        return None if holder is None else _in_state(slot, SlotState.DRAINING, now_s)
    if slot.heir and heir is not None and heir.serving:
        return Slot(slot.slot, SlotState.ACTIVE, slot.heir, now_s)
    if holder is not None and holder.serving and not holder.leaving:
        return _in_state(slot, SlotState.ACTIVE, now_s)
    if before.state is SlotState.DRAINING:
        return None if holder is None else slot
    slot = slot if holder is not None else replace(slot, replica="")
    if before.state is SlotState.PENDING:
        return slot if slot.replica and not (holder and holder.leaving) else None
    slot = _in_state(slot, SlotState.VACANT, now_s)
    if now_s - slot.since_s < grace_s:
        return slot
    # Off the ring; whoever prepares for it keeps the identity, and joins with it.
    waiting = slot.heir or (slot.replica if holder is not None and not holder.leaving else "")
    return Slot(slot.slot, SlotState.PENDING, waiting, now_s) if waiting else None


def _in_state(slot: Slot, state: SlotState, now_s: float) -> Slot:
    return slot if slot.state is state else replace(slot, state=state, since_s=now_s)


def _events(before: Slot, after: Slot | None) -> Iterable[tuple[str, SlotEvent]]:
    on_ring = (SlotState.ACTIVE, SlotState.VACANT)
    if after is None or after.state is SlotState.PENDING:
        if before.state in on_ring:
            yield before.slot, SlotEvent.LEFT
    elif after.state is SlotState.ACTIVE and before.state is SlotState.ACTIVE:
        if after.replica != before.replica:
            yield before.slot, SlotEvent.REPLACED
    elif after.state is SlotState.ACTIVE and before.state is SlotState.VACANT:
        yield before.slot, SlotEvent.RETURNED if after.replica == before.replica else SlotEvent.REPLACED
    elif after.state is SlotState.ACTIVE:
        yield before.slot, SlotEvent.JOINED
    elif after.state is not before.state:
        yield before.slot, SlotEvent.VACATED if after.state is SlotState.VACANT else SlotEvent.DRAINING


def _seat(
    slots: list[Slot], displaced: list[str], replica: SeenReplica, living: Mapping[str, SeenReplica], now_s: float
) -> Iterable[tuple[str, SlotEvent]]:
    """Give a replica without a slot the place of the one it replaces, else its label's, the lowest vacant, the next."""
    index = _place_for(slots, replica, living)
    if index is None:
        slot = _free_name(slots, replica.label)
        state = SlotState.ACTIVE if replica.serving else SlotState.PENDING
        slots.append(Slot(slot, state, replica.name, now_s))
        return [(slot, SlotEvent.JOINED)] if replica.serving else []
    slot_before = slots[index]
    if not replica.serving:
        slots[index] = replace(slot_before, heir=replica.name)
        return []
    slots[index] = Slot(slot_before.slot, SlotState.ACTIVE, replica.name, now_s)
    if slot_before.replica:
        displaced.append(slot_before.replica)
    return [(slot_before.slot, SlotEvent.REPLACED)]


def _place_for(slots: Sequence[Slot], replica: SeenReplica, living: Mapping[str, SeenReplica]) -> int | None:
    wants_heir = [i for i, s in enumerate(slots) if not s.heir and s.state in (SlotState.ACTIVE, SlotState.VACANT)]
    for i in wants_heir:
        if replica.replaces and slots[i].replica == replica.replaces:
            return i
    nobody = [i for i in wants_heir if slots[i].state is SlotState.VACANT and slots[i].replica not in living]
    labelled = (i for i in nobody if slots[i].slot == replica.label)
    return next(labelled, min(nobody, key=lambda i: slots[i].slot.encode(), default=None))


def _free_name(slots: Sequence[Slot], label: str) -> str:
    """The label if it is a slot's name that is not in use, else the lowest number that is not."""
    used = {slot.slot for slot in slots}
    if len(label) == len(slot_name(0)) and label[0] == "s" and label[1:].isdecimal() and label not in used:
        return label
    return next(name for number in range(len(used) + 1) if (name := slot_name(number)) not in used)


def slot_name(number: int) -> str:
    """`s0007` for 7: four digits at least, so that the order of ids is the order of numbers up to 9999."""
    return f"s{number:04d}"
