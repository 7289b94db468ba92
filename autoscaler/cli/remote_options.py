"""How commands are told which controller, which credential and which fleet."""

from __future__ import annotations

import argparse
from pathlib import Path

ENV_URL = "LORA_AUTOSCALER_URL"
ENV_TOKEN = "LORA_AUTOSCALER_TOKEN"
DEFAULT_URL = "http://127.0.0.1:8080"


def add_server_arguments(command: argparse.ArgumentParser, what: str = "") -> None:
    """`--server`, `--token`, `--token-file`, `--fleet`. `what`: why an optional server helps."""
    told = what or f"the controller's URL (default: ${ENV_URL}, else {DEFAULT_URL})"
    command.add_argument("--server", metavar="URL", help=told)
    secret = command.add_mutually_exclusive_group()
    secret.add_argument("--token", metavar="TOKEN", help=f"bearer token (default: ${ENV_TOKEN})")
    secret.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a file with the token, which the process list does not show"
    )
    command.add_argument("--fleet", metavar="NAME", help="which fleet (default: the only one there is)")
