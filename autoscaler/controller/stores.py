"""What a tick reads from stores and keeps in them. A store that fails is a condition, and stops no later tick.

What was read last stands while a store does not answer: an override is not lost, and a detached fleet is not taken
back, because a disk is full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from autoscaler.domain.decisions import DecisionRecord
from autoscaler.planner import PlannerMemory, checkpoint, restored
from autoscaler.ports import CheckpointStore, DecisionLog, PermanentError, TemporaryError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stores:
    """Where decisions and state are kept."""

    decisions: DecisionLog
    checkpoints: CheckpointStore


class StoreRoom:
    """One fleet's stores. `lost` says why a checkpoint was not taken, empty where it was."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._last: dict[str, Any] = {}
        self._trouble: dict[str, str] = {}
        self.lost = ""

    def conditions(self) -> dict[str, str]:
        """What an operator must know of the stores now."""
        failed = {"StoreFailed": "; ".join(self._trouble.values())} if self._trouble else {}
        return failed | ({"CheckpointLost": self.lost} if self.lost else {})

    def ask(self, what: str, ask: Callable[[], T]) -> T:
        """What a store says; where it does not answer, what it said last. Raises its error where it never answered."""
        try:
            answer: T = ask()
        except (TemporaryError, PermanentError) as error:
            if what not in self._last:
                raise
            self._trouble[what] = f"{what} cannot be read, what was read last stands: {error}"
            last: T = self._last[what]
            return last
        self._last[what] = answer
        self._trouble.pop(what, None)
        return answer

    def remembered(self, fleet: str) -> PlannerMemory:
        """The checkpoint's memory; an empty one only makes the controller cautious. Raises where none can be read."""
        text = self._stores.checkpoints.load(fleet)
        try:
            return PlannerMemory() if text is None else restored(text)
        except ValueError as error:
            self.lost = str(error)
            return PlannerMemory()

    def keep(self, fleet: str, records: tuple[DecisionRecord, ...], memory: PlannerMemory) -> None:
        """Keep what must survive. A failure is told as a condition at the next tick."""
        try:
            self._stores.decisions.append(records)
            self._stores.checkpoints.save(fleet, checkpoint(memory))
            self._trouble.pop("kept", None)
        except (TemporaryError, PermanentError) as error:
            self._trouble["kept"] = f"decisions and state are not kept: {error}"
        self.lost = ""
