"""What `simulate` can be told."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

STRATEGIES = (
    "ours", "round-robin-hpa", "least-request-hpa", "bounded-hash-active-requests", "rendezvous-predictive",
    "affinity-saturation", "group-per-tenant", "oracle",
)  # fmt: skip
USUAL = ("ours", "round-robin-hpa", "bounded-hash-active-requests", "oracle")


def register(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "simulate",
        help="a policy on a trace, beside what others would do, on a virtual clock",
        description="Run your policy's own controller over a trace on simulated engines, and other ways to run the "
        "fleet beside it: replica-hours, latency, adapter loads, and why each decision was made. Nothing is started.",
    )
    _traffic(command)
    _fleet(command)
    command.add_argument(
        "--strategy", nargs="+", choices=STRATEGIES, default=list(USUAL), metavar="NAME",
        help=f"any of {', '.join(STRATEGIES)} (default: {' '.join(USUAL)})",
    )  # fmt: skip
    command.add_argument(
        "--tune", action="store_true", help="search each one's cheapest setting that keeps the SLO, not its usual one"
    )
    command.add_argument("--seed", type=int, default=1, help="of everything that is drawn (default: 1)")
    command.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    command.add_argument("--results", type=Path, metavar="FILE", help="keep the search's runs: a stopped one goes on")
    command.add_argument("--output", type=Path, metavar="FILE", help="write everything as JSON")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a report to look at, in one file")
    command.set_defaults(module="simulate")


def _traffic(command: argparse.ArgumentParser) -> None:
    command.add_argument("--policy", type=Path, metavar="FILE", help="your policy (default: the shipped default.yaml)")
    command.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="Azure 2023, ServeGen rates, Mooncake or BurstGPT, also as .gz (default: generated traffic)",
    )  # fmt: skip
    command.add_argument("--lengths", type=Path, metavar="FILE", help="token lengths of a ServeGen trace")
    command.add_argument("--start", type=float, default=0.0, metavar="S", help="where in the trace to begin")
    command.add_argument("--hours", type=float, default=2.0, metavar="H", help="of simulated time (default: 2)")
    command.add_argument("--scale", type=float, default=1.0, metavar="K", help="share of the trace's requests")
    command.add_argument("--speed", type=float, default=1.0, metavar="X", help="trace time per simulated time")
    command.add_argument(
        "--adapters", type=int, default=200, metavar="N",
        help="of generated traffic, or to draw for a trace that names none (default: 200)",
    )  # fmt: skip
    command.add_argument(
        "--rate", type=float, default=40.0, metavar="RPS", help="mean requests/s of generated traffic (default: 40)"
    )


def _fleet(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--profile", default="llama-3.1-8b-h100-64gb-measured", metavar="NAME",
        help="the engines: a shipped profile or a .json file of `calibrate` (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--replicas", type=int, default=6, metavar="N", help="at the start (default: 6)")
    command.add_argument("--max-loras", type=int, metavar="N", help="adapter slots (default: the policy's, else 32)")
    command.add_argument(
        "--max-cpu-loras", type=int, metavar="N", help="adapters in host memory (default: the policy's, else as slots)"
    )
    command.add_argument(
        "--startup", type=float, metavar="S", help="until a new replica serves (default: what the profile says)"
    )
    command.add_argument(
        "--routers", choices=("envoy", "exact"), default="envoy",
        help="ours follow the ring as stock Envoy does, or exactly as it is specified (default: envoy)",
    )  # fmt: skip
