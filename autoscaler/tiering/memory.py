"""What tiering remembers from tick to tick: each tenant's tier, since when, and how long it has been quiet."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from autoscaler.domain.observation import Floats

MEMORY_VERSION = 1
TIER_COLD, TIER_WARM, TIER_HOT, TIER_NEW = 0, 1, 2, -1

Codes = npt.NDArray[np.int8]
Counts = npt.NDArray[np.uint16]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Displaced:
    """What an override put aside, to come back when it ends: a tier code and since when it held."""

    tier: int
    since_s: float


@dataclass(frozen=True, slots=True, eq=False)
class TieringMemory:
    """State of T tenants, ascending by key. Arrays are never written to once they are in a memory.

    Attributes:
        keys: XXH64 of each tenant's id (T): memory stays small however long the ids are.
        tier: 0 cold, 1 warm, 2 hot, -1 never seen (T).
        since_s: when the tier began (T).
        quiet_since_s: since when it has been below the demotion threshold, infinite where it is not (T).
        quiet_ticks: ticks in a row below it (T).
        missed_ticks: ticks in a row in which the SLO was missed (T).
        wrong: demotions that a promotion proved wrong; each doubles the quiet that the next one needs (T).
        reason: index in `Reason` of what set the tier, or last confirmed it (T).
        displaced: tenant id -> what its override put aside.
        slots: adapter slots of the ring that count, None before they were known.
        fewer_since_s: since when fewer were seen, infinite where not.
        last_tick_s: a second decision at the same moment counts no tick.
        ids: the ids behind the keys, in the caller's order; None after JSON, until the next tick.
    """

    keys: Keys = field(default_factory=lambda: np.zeros(0, np.uint64))
    tier: Codes = field(default_factory=lambda: np.zeros(0, np.int8))
    since_s: Floats = field(default_factory=lambda: np.zeros(0))
    quiet_since_s: Floats = field(default_factory=lambda: np.zeros(0))
    quiet_ticks: Counts = field(default_factory=lambda: np.zeros(0, np.uint16))
    missed_ticks: Counts = field(default_factory=lambda: np.zeros(0, np.uint16))
    wrong: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    reason: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))
    displaced: Mapping[str, Displaced] = field(default_factory=dict)
    slots: int | None = None
    fewer_since_s: float = float("inf")
    last_tick_s: float = float("-inf")
    ids: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON scalars; 20,000 tenants take less than half a MiB."""
        columns = {name: _pack(getattr(self, name)) for name in _COLUMNS}
        return {
            "version": MEMORY_VERSION,
            "columns": columns,
            "displaced": {t: [d.tier, d.since_s] for t, d in sorted(self.displaced.items())},
            "slots": self.slots,
            "fewer_since_s": self.fewer_since_s.hex(),
            "last_tick_s": self.last_tick_s.hex(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TieringMemory:
        """Rebuild a memory from `to_json`.

        Raises:
            ValueError: another version or a damaged column; the caller starts from an empty memory.
        """
        if data.get("version") != MEMORY_VERSION:
            raise ValueError(
                f"tiering memory has version {data.get('version')!r}, this release reads {MEMORY_VERSION}; "
                "start with an empty one"
            )
        try:
            columns: dict[str, Any] = {name: _unpack(data["columns"][name], dtype) for name, dtype in _COLUMNS.items()}
            displaced = {str(t): Displaced(int(v[0]), float(v[1])) for t, v in data["displaced"].items()}
            slots = None if data["slots"] is None else int(data["slots"])
            last_tick_s, fewer_since_s = (float.fromhex(data[name]) for name in ("last_tick_s", "fewer_since_s"))
        except (KeyError, TypeError, IndexError, AttributeError, zlib.error) as error:
            raise ValueError(f"tiering memory is damaged ({error!r}); start with an empty one") from error
        if len({column.size for column in columns.values()}) != 1:
            raise ValueError("tiering memory is damaged (columns of different lengths); start with an empty one")
        return cls(
            **columns, displaced=displaced, slots=slots, fewer_since_s=fewer_since_s, last_tick_s=last_tick_s
        )  # fmt: skip


_COLUMNS: dict[str, str] = {
    "keys": "<u8",
    "tier": "<i1",
    "since_s": "<f8",
    "quiet_since_s": "<f8",
    "quiet_ticks": "<u2",
    "missed_ticks": "<u2",
    "wrong": "<u1",
    "reason": "<i2",
}


def _pack(column: npt.NDArray[Any]) -> str:
    """Compress a column; times and codes repeat, so only the keys cost their full size."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(column).tobytes(), 6)).decode("ascii")


def _unpack(text: str, dtype: str) -> npt.NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.dtype(dtype))


def realign(memory: TieringMemory, ids: tuple[str, ...]) -> TieringMemory:
    """The memory over `ids` in their order; new tenants are TIER_NEW, those gone are forgotten.

    Nothing is done where `ids` is the very object of last time. Hashing 100,000 ids costs about 20 ms.
    """
    if memory.ids is ids:
        return memory
    keys = np.fromiter((xxhash.xxh64_intdigest(i.encode()) for i in ids), np.uint64, len(ids))
    order = np.argsort(memory.keys, kind="stable")
    known = memory.keys[order]
    place = np.searchsorted(known, keys)
    found = np.zeros(len(ids), np.bool_)
    inside = place < known.size
    found[inside] = known[place[inside]] == keys[inside]
    source = order[place[found]]

    def gather(column: npt.NDArray[Any], blank: float) -> npt.NDArray[Any]:
        out = np.full(len(ids), blank, column.dtype)
        out[found] = column[source]
        return out

    present = set(ids)
    return replace(
        memory,
        keys=keys,
        tier=gather(memory.tier, TIER_NEW),
        since_s=gather(memory.since_s, 0),
        quiet_since_s=gather(memory.quiet_since_s, np.inf),
        quiet_ticks=gather(memory.quiet_ticks, 0),
        missed_ticks=gather(memory.missed_ticks, 0),
        wrong=gather(memory.wrong, 0),
        reason=gather(memory.reason, -1),
        displaced={t: d for t, d in memory.displaced.items() if t in present},
        ids=ids,
    )
