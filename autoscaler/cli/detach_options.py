"""`detach`: the way out, and back."""

from __future__ import annotations

from typing import Any

from autoscaler.cli.remote_options import add_server_arguments


def register(commands: Any) -> None:
    """Add the command."""
    detach = commands.add_parser(
        "detach",
        help="stop acting on a fleet and let go of it; traffic goes on",
        description="The way out. The controller opens its readiness gates, removes its labels and annotations, "
        "stops acting on the fleet, also after a restart, and says what remains. Routers keep the last ring and "
        "engines their adapters, so no request fails. Observation and advice go on; --undo lets it act again.",
    )
    detach.add_argument("--undo", action="store_true", help="act again, from what is observed then")
    detach.add_argument("--reason", default="", metavar="R", help="why, for the audit")
    add_server_arguments(detach)
    detach.add_argument("--json", action="store_true", help="print the API's answer")
    detach.set_defaults(module="detach")
