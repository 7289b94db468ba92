"""What `demo` can be told."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.cli.errors import refuse_unused
from autoscaler.cli.numbers import NOT_NEGATIVE, POSITIVE, SEED, whole

SCENARIOS = ("thrash", "burst", "rise")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """One run of the demo.

    Attributes:
        scenario: `thrash`, `burst` or `rise`.
        duration_s: of all phases together.
        trace, lengths, start_s, scale, speed: real arrivals instead of generated ones.
        port_base: the first of about 30 ports in a row.
    """

    scenario: str
    duration_s: float
    trace: Path | None
    lengths: Path | None
    start_s: float
    scale: float | None
    speed: float
    dashboard: bool
    port_base: int
    seed: int
    json: bool


def register(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "demo",
        help="a fleet on this machine that suffers, and is cured",
        description="Start simulated engines, Envoy, traffic, the controller, its API and the dashboard on this "
        "machine. First every request is sprayed over all replicas; then the controller takes over. Ctrl-C ends it.",
    )
    _add_arguments(command)
    command.set_defaults(module="demo")


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--scenario", choices=SCENARIOS, default="thrash",
        help="thrash: 50 adapters sprayed over 8 replicas, then managed; burst: one adapter at five times its rate; "
        "rise: demand doubles and falls (default: thrash)",
    )  # fmt: skip
    command.add_argument("--duration", type=POSITIVE, default=180.0, metavar="S", help="seconds in all (default: 180)")
    command.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="real arrivals: Azure 2023, ServeGen rates, Mooncake or BurstGPT, also as .gz",
    )  # fmt: skip
    command.add_argument(
        "--lengths", type=Path, metavar="FILE", help="token lengths of a ServeGen trace (default: the file beside it)"
    )
    command.add_argument("--start", type=NOT_NEGATIVE, metavar="S", help="where in the trace to begin")
    command.add_argument(
        "--scale",
        type=POSITIVE,
        metavar="K",
        help="share of the trace's requests to send (default: what this machine carries)",
    )
    command.add_argument("--speed", type=POSITIVE, metavar="X", help="trace time per real time (default: 1)")
    command.add_argument("--no-dashboard", action="store_true", help="do not start the dashboard")
    command.add_argument(
        "--port-base", type=whole(1, 65_000), default=18080, metavar="P", help="first port (default: 18080)"
    )
    command.add_argument("--seed", type=SEED, default=1, help="of everything that is drawn (default: 1)")
    command.add_argument("--json", action="store_true", help="one JSON object as the last line of standard output")


def options_from(arguments: argparse.Namespace) -> DemoOptions:
    """What the command line said. Raises UsageError for what says how to replay a trace where none is given."""
    told = {"--lengths": arguments.lengths, "--start": arguments.start, "--scale": arguments.scale}
    if arguments.trace is None:
        refuse_unused("without a --trace", **told, **{"--speed": arguments.speed})
    return DemoOptions(
        arguments.scenario, arguments.duration, arguments.trace, arguments.lengths, arguments.start or 0.0,
        arguments.scale, arguments.speed or 1.0, not arguments.no_dashboard,
        arguments.port_base, arguments.seed, arguments.json,
    )  # fmt: skip
