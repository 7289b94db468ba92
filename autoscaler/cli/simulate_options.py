"""What `simulate` can be told."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from autoscaler.cli.numbers import NOT_NEGATIVE, POSITIVE, SEED, whole

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
        "fleet beside it: replica-hours, latency, adapter loads, and why each decision was made. Nothing is started. "
        "Traces: Azure 2023, ServeGen rates, Mooncake JSONL, BurstGPT CSV, rates that were recorded, a range of a "
        "Prometheus, or generated ones.",
    )
    _traffic(command)
    _fleet(command)
    _failures(command)
    command.add_argument(
        "--strategy", nargs="+", choices=STRATEGIES, default=list(USUAL), metavar="NAME",
        help=f"any of {', '.join(STRATEGIES)} (default: {' '.join(USUAL)})",
    )  # fmt: skip
    command.add_argument(
        "--tune", action="store_true", help="search each one's cheapest setting that keeps the SLO, not its usual one"
    )
    command.add_argument("--seed", type=SEED, default=1, help="of everything that is drawn (default: 1)")
    command.add_argument("--jobs", type=whole(1, 1024), default=1, help="runs at a time (default: 1)")
    command.add_argument("--results", type=Path, metavar="FILE", help="keep the search's runs: a stopped one goes on")
    command.add_argument("--output", type=Path, metavar="FILE", help="write everything as JSON")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a report to look at, in one file")
    command.set_defaults(module="simulate")


def _traffic(command: argparse.ArgumentParser) -> None:
    command.add_argument("--policy", type=Path, metavar="FILE", help="your policy (default: the shipped default.yaml)")
    command.add_argument(
        "--trace", metavar="FILE|URL",
        help="Azure 2023, ServeGen rates, Mooncake, BurstGPT or recorded rates (client_id, window_start_s, rate_rps, "
        "and perhaps prompt_tokens, output_tokens), also as .gz; or the URL of a Prometheus that has recorded your "
        "routers (default: generated traffic)",
    )  # fmt: skip
    command.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="keep what a Prometheus gave, for --trace and for `backtest --rates`",
    )
    command.add_argument(
        "--settings", type=Path, metavar="FILE",
        help="take the Prometheus' credentials, matchers and router from these settings",
    )  # fmt: skip
    command.add_argument(
        "--router", default="envoy", metavar="NAME", help="whose names the routers' series in a Prometheus have"
    )
    command.add_argument("--lengths", type=Path, metavar="FILE", help="token lengths of a ServeGen trace")
    command.add_argument(
        "--start", metavar="TIME",
        help="where to begin: seconds into a file; of a Prometheus 2026-05-01T00:00:00Z, or seconds (default: so that "
        "the range ends now)",
    )  # fmt: skip
    command.add_argument("--hours", type=POSITIVE, default=2.0, metavar="H", help="of simulated time (default: 2)")
    command.add_argument("--scale", type=POSITIVE, default=1.0, metavar="K", help="share of the trace's requests")
    command.add_argument("--speed", type=POSITIVE, default=1.0, metavar="X", help="trace time per simulated time")
    command.add_argument(
        "--adapters", type=whole(1, 1_000_000), default=200, metavar="N",
        help="of generated traffic, or to draw for a trace that names none (default: 200)",
    )  # fmt: skip
    command.add_argument(
        "--rate", type=POSITIVE, default=40.0, metavar="RPS", help="mean requests/s of generated traffic (default: 40)"
    )
    command.add_argument(
        "--generate", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="more of generated traffic: zipf_exponent, on and off (mean spells of a tenant: 25m), always_on (so many "
        "never switch off), season, season_ratio, lifetime (of a tenant), bursts=ADAPTER:START:FOR:FACTOR (such as "
        "5:30m:10m:5; several times), prompt_tokens, output_tokens (medians), tokens_spread, window (default: a season "
        "that doubles the load once); zipf_exponent also says how adapters are drawn for a trace that names none",
    )  # fmt: skip


def _failures(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--fail", nargs="+", action="extend", default=[], metavar="TIME:KIND[:FOR]",
        help="30m:kill (a replica dies), 1h:hang:2m (one answers nothing), 1h:scrapes:10m (Prometheus scrapes "
        "nothing), 1h:routers:10m (routers follow no new configuration), 1h:machines:20m (none is free for a start)",
    )  # fmt: skip
    command.add_argument(
        "--scrape-loss", type=float, default=0.0, metavar="RATIO", help="share of scrapes that fail (default: 0)"
    )
    command.add_argument(
        "--scrape-delay", type=NOT_NEGATIVE, default=1.0, metavar="S", help="until a scrape can be read (default: 1)"
    )


def _fleet(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--profile", default="llama-3.1-8b-h100-64gb-measured", metavar="NAME",
        help="the engines: a shipped profile or a .json file of `calibrate` (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--replicas", type=whole(1, 4096), default=6, metavar="N", help="at the start (default: 6)")
    command.add_argument(
        "--max-loras", type=whole(1, 4096), metavar="N", help="adapter slots (default: the policy's, else 32)"
    )
    command.add_argument(
        "--max-cpu-loras",
        type=whole(1, 100_000),
        metavar="N",
        help="adapters in host memory (default: the policy's, else as slots)",
    )
    command.add_argument(
        "--startup", type=NOT_NEGATIVE, metavar="S", help="until a new replica serves (default: what the profile says)"
    )
    command.add_argument(
        "--routers", choices=("envoy", "exact"), default="envoy",
        help="ours follow the ring as stock Envoy does, or exactly as it is specified (default: envoy)",
    )  # fmt: skip
