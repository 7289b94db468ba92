"""`ring diff`: the moves between two snapshots."""

from __future__ import annotations

import argparse
import json

from autoscaler.cli.errors import UsageError
from autoscaler.cli.snapshots import read_snapshot
from autoscaler.cli.tables import table
from autoscaler.ring import ring_diff


def run(arguments: argparse.Namespace) -> int:
    """Print the moves. Returns 0. Raises UsageError for snapshots that cannot be used or compared."""
    before, after = read_snapshot(arguments.before), read_snapshot(arguments.after)
    if before.fleet != after.fleet:
        raise UsageError(
            f"{arguments.before} is of fleet {before.fleet!r} and {arguments.after} of {after.fleet!r}: "
            "compare two snapshots of one fleet"
        )
    moves = ring_diff(before, after)
    if arguments.json:
        listed = [{"adapter": m.adapter, "from": m.source, "to": m.target} for m in moves]
        print(json.dumps({"moves": listed, "epochs": [before.epoch, after.epoch]}, indent=2))
        return 0
    if moves:
        print(table(("ADAPTER", "FROM", "TO"), ((m.adapter, m.source or "-", m.target or "-") for m in moves)))
    print(f"{len(moves)} moves of {len({m.adapter for m in moves})} adapters, epoch {before.epoch} to {after.epoch}")
    return 0
