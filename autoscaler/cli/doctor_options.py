"""`doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoscaler.cli.remote_options import add_server_arguments


def register(commands: Any) -> None:
    """Add the command."""
    doctor = commands.add_parser(
        "doctor",
        help="check policies, metrics, engines and routers; each fault with its remedy",
        description="With --policies, check files before a controller runs: policies, catalogues, settings, tokens, "
        "every metric that the policy needs, found or missing with the nearest name, routers, clocks, and in a cluster "
        "this account's rights, kinds, targets and readiness gates. Without, or with "
        "--server too, ask a running controller what it sees, and probe its engines' adapter endpoints without "
        "changing anything. Exit code 1 where something is wrong.",
    )
    doctor.add_argument("--policies", type=Path, metavar="DIR", help="a folder of policy files, or one file")
    doctor.add_argument("--settings", type=Path, metavar="FILE", help="the settings that go with them")
    doctor.add_argument(
        "--uninstall", action="store_true", help="only: may the controller go, or would pods never become ready again"
    )
    add_server_arguments(doctor)
    doctor.add_argument("--json", action="store_true", help="print [{check, subject, state, message, remedy}]")
    doctor.set_defaults(module="doctor")
