"""`policy`: validate policies, export their schema, and foresee what a change of one would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoscaler.cli.remote_options import add_server_arguments


def register(commands: Any) -> None:
    """Add the command."""
    policy = commands.add_parser(
        "policy",
        help="check policy files, print their schema, foresee a change",
        description="What can be known of a policy before a controller reads it.",
    )
    parts = policy.add_subparsers(dest="part", metavar="COMMAND", required=True)
    check = parts.add_parser(
        "check",
        help="everything that is wrong with policy files, at once",
        description="Check policy files, or a folder of them, and the catalogue files that they name. Every error is "
        "told with its file, line and path, what was found and what is allowed. Exit code 1 where there is any.",
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a policy file, or a folder with *.yaml")
    check.add_argument("--json", action="store_true", help="print {FILE: [{path, found, allowed, message}]}")
    check.set_defaults(module="policy_check")
    schema = parts.add_parser(
        "schema",
        help="the JSON Schema of policy files, for editors",
        description="Print the JSON Schema (draft 2020-12) of a policy file: keys, types, bounds, defaults, meanings.",
    )
    schema.set_defaults(module="policy_schema")
    diff = parts.add_parser(
        "diff",
        help="what a change of policy would do to tiers, replicas and ring",
        description="Compare two policies key by key, then let both decide over the fleet of a ring snapshot, in a "
        "rehearsal in which every effect succeeds at once, and compare where they end. A snapshot tells who serves "
        "what; demand, engine limits and load come from a running controller (--server), and without one the answer "
        "says what it cannot know. Nothing is changed anywhere.",
    )
    diff.add_argument("old", type=Path, metavar="OLD", help="the policy in force")
    diff.add_argument("new", type=Path, metavar="NEW", help="the policy that would be merged")
    diff.add_argument("--snapshot", type=Path, required=True, metavar="FILE", help="a ring snapshot of the fleet")
    add_server_arguments(diff, "take demand, limits and groups from this controller")
    diff.add_argument("--json", action="store_true", help="print one JSON object")
    diff.set_defaults(module="policy_difference")
