"""What `calibrate` can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoscaler.cli.numbers import whole


def register(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "calibrate",
        help="an engine profile fitted to your own replicas",
        description="Read what a Prometheus has kept of your replicas and scale a shipped engine profile to it: the "
        "fixed part of a step, what grows with the batch, prefill, LoRA. `simulate --profile FILE` takes the result. "
        "Read-only. The more the load has varied in the time that is read, the more is known: take a busy day.",
    )
    command.add_argument("--prometheus", required=True, metavar="URL", help="where engine and router series are kept")
    command.add_argument(
        "--start", metavar="TIME", help="from when: 2026-05-01T00:00:00Z, or seconds (default: 6 hours before --end)"
    )
    command.add_argument("--end", metavar="TIME", help="until when (default: now)")
    command.add_argument(
        "--profile", metavar="NAME",
        help="the shipped profile, or file, to scale (default: the one that predicts your replicas best)",
    )  # fmt: skip
    command.add_argument(
        "--policy", type=Path, metavar="FILE", help="take engine, labels, matchers and limits from it (default: vLLM's)"
    )
    command.add_argument(
        "--settings", type=Path, metavar="FILE", help="take credentials, matchers and router from these settings"
    )
    command.add_argument("--router", default="envoy", metavar="NAME", help="whose names the routers' series have")
    command.add_argument(
        "--max-loras", type=whole(1, 4096), metavar="N", help="adapter slots (default: as the engines show)"
    )
    command.add_argument(
        "--max-lora-rank", type=whole(1, 4096), metavar="N", help="highest rank (default: the policy's, else 16)"
    )
    command.add_argument("--name", default="own", help="of the new profile (default: own)")
    command.add_argument("--output", type=Path, metavar="FILE", help="write the profile (default: NAME.json)")
    command.add_argument("--json", action="store_true", help="print what was found as JSON")
    command.set_defaults(module="calibrate")
