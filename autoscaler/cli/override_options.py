"""`override`: an operator's word on a tenant's tier, which ends."""

from __future__ import annotations

import argparse
import re
from typing import Any

from autoscaler.cli.numbers import whole
from autoscaler.cli.remote_options import add_server_arguments
from autoscaler.domain.fleet import LONGEST_OVERRIDE_S

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def register(commands: Any) -> None:
    """Add the command."""
    override = commands.add_parser(
        "override",
        help="set, clear and list tenants' tiers by hand",
        description="An override beats the policy, not physical limits, and it ends. Who set it is known from the "
        "credential. It is decided within two ticks; a hot one is in force once its group is ready.",
    )
    parts = override.add_subparsers(dest="part", metavar="COMMAND", required=True)
    put = parts.add_parser("set", help="hold a tenant in a tier for a while", description="Set a tenant's override.")
    put.add_argument("tenant", metavar="TENANT", help="the tenant's id")
    put.add_argument("tier", metavar="TIER", choices=("hot", "warm", "cold"), help="hot, warm or cold")
    put.add_argument("--reason", required=True, type=_reason, metavar="R", help="why, for those who find it later")
    put.add_argument("--ttl", required=True, type=duration_s, metavar="D", help="for how long: 30m, 4h, 1h30m, 2d")
    put.add_argument(
        "--if-revision",
        type=whole(0, 2**63 - 1),
        metavar="N",
        help="only over this revision (0: only where there is none)",
    )
    clear = parts.add_parser("clear", help="end a tenant's override", description="Clear a tenant's override.")
    clear.add_argument("tenant", metavar="TENANT", help="the tenant's id")
    clear.add_argument("--if-revision", type=whole(0, 2**63 - 1), metavar="N", help="only this revision")
    listing = parts.add_parser("list", help="all overrides", description="List overrides; expired ones say so.")
    for part in (put, clear, listing):
        add_server_arguments(part)
        part.add_argument("--json", action="store_true", help="print the API's answer")
        part.set_defaults(module="override")


def _reason(text: str) -> str:
    if 3 <= len(text) <= 500:
        return text
    raise argparse.ArgumentTypeError(f"{text[:40]!r} must be 3 to 500 characters that say why")


def duration_s(text: str) -> float:
    """Seconds of `30m`, `1h30m`, `2d`, at most 90 days. Raises ArgumentTypeError that says what is allowed."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(a + b for a, b in parts) != text or not any(float(n) for n, _ in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 30m, 4h, 1h30m or 2d")
    value_s = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if value_s > LONGEST_OVERRIDE_S:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 90d; what should last longer belongs into the policy")
    return value_s
