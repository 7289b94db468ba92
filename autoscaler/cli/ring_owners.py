"""`ring owners`: who serves each adapter by a snapshot."""

from __future__ import annotations

import argparse
import json
import sys

from autoscaler.cli.snapshots import read_snapshot
from autoscaler.cli.tables import table
from autoscaler.ring import Ring


def run(arguments: argparse.Namespace) -> int:
    """Print the owners. Returns 1 where an adapter has none. Raises UsageError for a snapshot that cannot be used."""
    snapshot = read_snapshot(arguments.snapshot)
    adapters = list(dict.fromkeys(arguments.adapters))
    found = dict(zip(adapters, Ring(snapshot).owners_many(adapters), strict=True))
    if arguments.json:
        print(json.dumps({a: {"owners": list(o.names), "via": o.via.value} for a, o in found.items()}, indent=2))
    else:
        rows = ((a, o.via.value, ", ".join(o.names) or "nobody") for a, o in found.items())
        print(table(("ADAPTER", "VIA", "OWNERS"), rows))
    nobody = [a for a, o in found.items() if not o.names]
    for adapter in nobody:
        why = "this ring rejects names that it does not list" if found[adapter].rejected else "no member is active"
        print(f"{adapter!r} has no owner: {why}", file=sys.stderr)
    return 1 if nobody else 0
