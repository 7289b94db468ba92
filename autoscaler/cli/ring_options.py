"""`ring`: the ring specification on the command line. Needs nothing but the core install."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def register(commands: Any) -> None:
    """Add the command."""
    ring = commands.add_parser(
        "ring",
        help="who serves an adapter, and what differs between two rings",
        description="Read ring snapshots as any router must: the same owners from the same file. Snapshots come from "
        "GET /v1/fleets/FLEET/ring, from the file that the controller publishes, or from the ConfigMap FLEET-ring.",
    )
    parts = ring.add_subparsers(dest="part", metavar="COMMAND", required=True)
    owners = parts.add_parser(
        "owners",
        help="who serves these adapters, and by which rule",
        description="Print the owners of each adapter, the preferred one first, and the rule that named them: hot, "
        "exception, hash, fallback, base or cold. Exit code 1 where an adapter has no owner.",
    )
    owners.add_argument("--snapshot", type=Path, required=True, metavar="FILE", help="a ring snapshot (JSON, or .gz)")
    owners.add_argument("adapters", nargs="+", metavar="ADAPTER", help="adapter ids, as requests name them")
    owners.add_argument("--json", action="store_true", help='print {ADAPTER: {"owners": [...], "via": RULE}}')
    owners.set_defaults(module="ring_owners")
    diff = parts.add_parser(
        "diff",
        help="which adapters move between two snapshots",
        description="Print each (adapter, slot) pair that appears or goes from snapshot A to snapshot B. Another order "
        "of the same owners is no move, and neither is a slot that stands vacant.",
    )
    diff.add_argument("before", type=Path, metavar="A", help="the older snapshot (JSON, or .gz)")
    diff.add_argument("after", type=Path, metavar="B", help="the newer snapshot")
    diff.add_argument("--json", action="store_true", help='print {"moves": [{adapter, from, to}], "epochs": [a, b]}')
    diff.set_defaults(module="ring_difference")
