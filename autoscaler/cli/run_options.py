"""`run`: the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def register(commands: Any) -> None:
    """Add the command."""
    run = commands.add_parser(
        "run",
        help="the controller: observe, forecast, decide, act, explain",
        description="Run every fleet of a folder of policies, and answer the API. Policies and catalogues are read "
        "again within a tick of a change; an invalid one keeps the old and raises a condition. A policy's mode is "
        "`advise` unless it says otherwise: nothing is changed. SIGTERM or Ctrl-C ends it; traffic goes on.",
    )
    run.add_argument("--policies", type=Path, required=True, metavar="DIR", help="a folder of policy files")
    run.add_argument(
        "--settings", type=Path, metavar="FILE", help="how this process is wired (default: simulated engines, scraped)"
    )
    run.set_defaults(module="run")
