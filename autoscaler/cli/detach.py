"""`detach`, through the API."""

from __future__ import annotations

import argparse
import json
from typing import Any

from autoscaler.cli.remote import controller


def run(arguments: argparse.Namespace) -> int:
    """Let go of the fleet, or take it up again. Returns 0. Raises UsageError or RefusedError."""
    with controller(arguments) as server:
        if arguments.undo:
            answer = server.call("DELETE", server.path("detach"))
        else:
            body = {"reason": arguments.reason or "asked for on the command line"}
            answer = server.call("POST", server.path("detach"), body=body)
    if arguments.json:
        print(json.dumps(answer, indent=2))
    elif arguments.undo:
        print(f"{answer['fleet']} is managed again; the next tick decides from what is observed then")
    else:
        print(_text(answer))
    return 0


def _text(answer: Any) -> str:
    lines = [f"{answer['fleet']} is detached by {answer['actor']}; nothing acts on it any more", "", "Done:"]
    lines += [f"  - {sentence}" for sentence in answer["done"]]
    lines += ["", "What remains:"]
    lines += [f"  - {sentence}" for sentence in answer["remains"]]
    return "\n".join([*lines, "", "Back again: lora-autoscaler detach --undo"])
