"""What diagnosis remembers: the evidence of the last window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MEMORY_VERSION = 1


@dataclass(frozen=True, slots=True)
class DiagnosisMemory:
    """Evidence of the last window. Losing it only delays verdicts."""

    last_tick_s: float = float("-inf")

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON values."""
        return {"version": MEMORY_VERSION, "last_tick_s": self.last_tick_s.hex()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DiagnosisMemory:
        """Rebuild a memory from `to_json`. Raises ValueError on another version."""
        if data.get("version") != MEMORY_VERSION:
            raise ValueError(f"diagnosis memory has version {data.get('version')!r}; start with an empty one")
        return cls(float.fromhex(data["last_tick_s"]))
