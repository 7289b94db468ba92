"""`explain KIND/NAME`, through the API."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from autoscaler.cli.errors import UsageError
from autoscaler.cli.remote import controller

_WIDTH = 100
_PARTS = (("why", "Why"), ("facts", "What is known"), ("to_change", "What would change it"))


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation. Returns 0. Raises UsageError or RefusedError."""
    subject = "/".join(arguments.subject)
    if len(arguments.subject) > 2 or "/" not in subject:
        raise UsageError(f"{' '.join(arguments.subject)!r} is no subject; write KIND/NAME, such as tenant/acme")
    with controller(arguments) as server:
        answer = server.get(server.path("explain"), subject=subject)
    print(json.dumps(answer, indent=2) if arguments.json else _text(answer))
    return 0


def _text(answer: Any) -> str:
    lines = [textwrap.fill(answer["summary"], _WIDTH)]
    for key, heading in _PARTS:
        if answer[key]:
            lines += ["", f"{heading}:"]
            lines += [textwrap.fill(s, _WIDTH, initial_indent="  - ", subsequent_indent="    ") for s in answer[key]]
    return "\n".join(lines)
