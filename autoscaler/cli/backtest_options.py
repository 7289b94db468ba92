"""`backtest`: what a policy would have foreseen and decided on recorded history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoscaler.cli.numbers import POSITIVE


def register(commands: Any) -> None:
    """Add the command."""
    backtest = commands.add_parser(
        "backtest",
        help="what the policy would have foreseen and decided on your recorded history",
        description="Replay recorded request rates through the policy's own forecasts, tiers and replica counts, one "
        "tick a bucket, and compare what was foreseen with what came. Read-only: it asks a Prometheus (or reads a file "
        "of rates) and changes nothing anywhere. The history before --start, as long as the policy's forecast.history, "
        "is learnt from and not judged.",
    )
    backtest.add_argument("--policy", type=Path, required=True, metavar="FILE", help="the policy to try")
    source = backtest.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="where router series are recorded")
    source.add_argument(
        "--rates",
        type=Path,
        metavar="FILE",
        help="or a CSV (also .gz) with client_id, window_start_s, rate_rps; a window without a line is unknown",
    )
    backtest.add_argument(
        "--start", metavar="TIME", help="from when to judge: 2026-05-01T00:00:00Z, or seconds; of a file: its half"
    )
    backtest.add_argument("--end", metavar="TIME", help="until when; default: now, of a file: its end")
    backtest.add_argument(
        "--settings", type=Path, metavar="FILE", help="take credentials, matchers and router from these settings"
    )
    backtest.add_argument("--router", default="envoy", metavar="NAME", help="whose names the routers' series have")
    backtest.add_argument(
        "--capacity",
        type=POSITIVE,
        metavar="TOKENS",
        help="tokens/s that a replica carries, where the policy says `auto`",
    )
    backtest.add_argument("--output", type=Path, metavar="FILE", help="write the report as JSON")
    backtest.add_argument("--html", type=Path, metavar="FILE", help="write it as one page, with nothing to load")
    backtest.add_argument("--json", action="store_true", help="print the report as JSON")
    backtest.set_defaults(module="backtest")
