"""Which adapters an engine can find on its disk, and which its API knows. Registered is not resident."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from autoscaler.simulator.engine.model import BASE_MODEL


class AdapterFiles(Protocol):
    """An engine's disk, as far as adapters go."""

    def rank(self, path: str) -> int | None:
        """The rank of the adapter at `path`; None where there is none."""
        ...

    def resolve(self, name: str) -> str | None:
        """The path that the filesystem resolver finds for `name`; None where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class AdapterTable:
    """A disk that exists only as a table: path -> rank, with the resolver's folder `root`."""

    ranks: Mapping[str, int] = field(default_factory=dict)
    root: str = "/adapters"

    def rank(self, path: str) -> int | None:
        """The rank in the table."""
        return self.ranks.get(path)

    def resolve(self, name: str) -> str | None:
        """`root/name` where the table has it."""
        path = f"{self.root}/{name}"
        return path if path in self.ranks else None


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """Real PEFT folders: an adapter is a folder with an `adapter_config.json` that tells its rank `r`."""

    root: Path

    def rank(self, path: str) -> int | None:
        """The rank in the folder's configuration."""
        try:
            rank = json.loads((Path(path) / "adapter_config.json").read_text())["r"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return rank if isinstance(rank, int) else None

    def resolve(self, name: str) -> str | None:
        """`root/name`, never outside of `root`."""
        path = (self.root / name).resolve()
        inside = path.parent == self.root.resolve()
        return str(path) if inside and self.rank(str(path)) is not None else None


@dataclass(frozen=True, slots=True)
class Registered:
    """An adapter that the API knows: where it was loaded from, and its number in the engine model."""

    name: str
    path: str
    number: int


class Registry:
    """Names to the engine model's numbers; each load gets a new one, since an unload keeps the old weights."""

    def __init__(self, base_model: str, capacity: int) -> None:
        self._base_model, self._capacity = base_model, capacity
        self._known: dict[str, Registered] = {}
        self._names: list[str] = []

    def number(self, name: str) -> int | None:
        """The model's number for a name (the base model's own is BASE_MODEL); None for an unknown one."""
        if name == self._base_model:
            return BASE_MODEL
        known = self._known.get(name)
        return None if known is None else known.number

    def new_number(self, name: str) -> int:
        """A number for an adapter that is about to be loaded. Raises OverflowError when the capacity is used up."""
        if len(self._names) == self._capacity:
            raise OverflowError(f"{self._capacity} adapters were loaded: raise adapter_capacity or restart the engine")
        self._names.append(name)
        return len(self._names) - 1

    def name(self, number: int) -> str:
        """The name that a number was given for."""
        return self._names[number]

    def add(self, name: str, path: str, number: int) -> None:
        """The load was successful: the API knows the name."""
        self._known[name] = Registered(name, path, number)

    def remove(self, name: str) -> bool:
        """Forget the name; False where it is not known."""
        return self._known.pop(name, None) is not None

    @property
    def all(self) -> tuple[Registered, ...]:
        """Every registered adapter, oldest first."""
        return tuple(self._known.values())
