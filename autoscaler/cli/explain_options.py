"""`explain`: why something is as it is."""

from __future__ import annotations

from typing import Any

from autoscaler.cli.remote_options import add_server_arguments


def register(commands: Any) -> None:
    """Add the command."""
    explain = commands.add_parser(
        "explain",
        help="why a tenant, adapter, group, replica or signal is as it is",
        description="Say in sentences with numbers what was decided, why, and what it would take to change it.",
    )
    explain.add_argument(
        "subject",
        nargs="+",
        metavar="KIND/NAME",
        help="tenant/acme, adapter/acme-v2, group/warm, replica/warm-0001 or signal/traffic (also `tenant acme`)",
    )
    add_server_arguments(explain)
    explain.add_argument("--json", action="store_true", help="print the API's answer")
    explain.set_defaults(module="explain")
