"""What diagnosis remembers: the evidence gathered so far on loud tenants and odd replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autoscaler.diagnosis.residents import ResidentsMemory

MEMORY_VERSION = 2


class Sums(NamedTuple):
    """Weighted sums of one tenant's natural experiment on one replica, fading with time.

    x: its tokens/s there; z: the other tenants' tokens/s there; y: the others' TTFT there less that of replicas it
    does not touch, in seconds. `n` counts independent windows, so overlapping ones weigh less than 1.
    """

    n: float = 0.0
    x: float = 0.0
    z: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xz: float = 0.0
    zz: float = 0.0
    xy: float = 0.0
    zy: float = 0.0
    yy: float = 0.0


@dataclass(frozen=True, slots=True)
class DiagnosisMemory:
    """Evidence so far. Losing it only delays verdicts.

    Attributes:
        last_tick_s: a second look at the same moment adds nothing.
        sums: (tenant, replica) -> its experiment against the replicas that it does not touch; bounded to the loudest.
        owner_sums: the same against its neighbours' own other owners.
        odd_since_s: replica -> since when it has been slower than its peers at no more load.
        uneven_since_s: replica -> since when it has queued while its peers were idle.
        residents: what was in replicas' memory, and what was pushed out of it; not saved, since it is a look at now.
    """

    last_tick_s: float = float("-inf")
    sums: Mapping[tuple[str, str], Sums] = field(default_factory=dict)
    owner_sums: Mapping[tuple[str, str], Sums] = field(default_factory=dict)
    odd_since_s: Mapping[str, float] = field(default_factory=dict)
    uneven_since_s: Mapping[str, float] = field(default_factory=dict)
    residents: ResidentsMemory = field(default_factory=ResidentsMemory)

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON values, at most about 140 KiB."""
        return {
            "version": MEMORY_VERSION,
            "last_tick_s": self.last_tick_s.hex(),
            "sums": _rows(self.sums),
            "owner_sums": _rows(self.owner_sums),
            "odd_since_s": dict(self.odd_since_s),
            "uneven_since_s": dict(self.uneven_since_s),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DiagnosisMemory:
        """Rebuild a memory from `to_json`.

        Raises:
            ValueError: another version or damaged; the caller starts from an empty memory.
        """
        if data.get("version") != MEMORY_VERSION:
            raise ValueError(
                f"diagnosis memory has version {data.get('version')!r}, this release reads {MEMORY_VERSION}; "
                "start with an empty one"
            )
        try:
            return cls(
                last_tick_s=float.fromhex(data["last_tick_s"]),
                sums=_sums(data["sums"]),
                owner_sums=_sums(data["owner_sums"]),
                odd_since_s={str(k): float(v) for k, v in data["odd_since_s"].items()},
                uneven_since_s={str(k): float(v) for k, v in data["uneven_since_s"].items()},
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"diagnosis memory is damaged ({error!r}); start with an empty one") from error


def _rows(sums: Mapping[tuple[str, str], Sums]) -> list[list[Any]]:
    return [[tenant, replica, *values] for (tenant, replica), values in sorted(sums.items())]


def _sums(rows: list[list[Any]]) -> dict[tuple[str, str], Sums]:
    return {(row[0], row[1]): Sums(*(float(v) for v in row[2:])) for row in rows}


def faded(sums: Sums, share: float) -> Sums:
    """The sums with every term at a share of its weight."""
    return Sums(*(value * share for value in sums))


def added(sums: Sums, weight: float, x: float, z: float, y: float) -> Sums:
    """The sums with one more observation."""
    w = weight
    return Sums(
        sums.n + w,
        sums.x + w * x,
        sums.z + w * z,
        sums.y + w * y,
        sums.xx + w * x * x,
        sums.xz + w * x * z,
        sums.zz + w * z * z,
        sums.xy + w * x * y,
        sums.zy + w * z * y,
        sums.yy + w * y * y,
    )
