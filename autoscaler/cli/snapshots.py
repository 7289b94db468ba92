"""Ring snapshots from disk, for commands."""

from __future__ import annotations

import zlib
from pathlib import Path

from autoscaler.cli.errors import UsageError, read_bytes
from autoscaler.ring import RingSnapshot, SnapshotError, decode

_GZIP = b"\x1f\x8b"
_MOST_BYTES = 256 << 20  # a snapshot of 100,000 adapters is about 4 MB


def read_snapshot(path: Path) -> RingSnapshot:
    """A valid snapshot. Raises UsageError that names the file and what is wrong with it."""
    body = read_bytes(path, "a ring snapshot (JSON)")
    try:
        return decode(_unpacked(body))
    except SnapshotError as error:
        raise UsageError(f"{path}: {error}") from error
    except (EOFError, zlib.error, ValueError) as error:
        raise UsageError(f"{path}: this is no whole gzip file ({error}); fetch the snapshot again") from error


def _unpacked(body: bytes) -> bytes:
    if not body.startswith(_GZIP):
        return body
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(body, _MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {_MOST_BYTES >> 20} MiB")
    if not unpacker.eof:
        raise EOFError("it ends too early")
    return text
