"""`policy schema`: the JSON Schema of policy files."""

from __future__ import annotations

import argparse

from autoscaler.policy.exports import schema_text


def run(arguments: argparse.Namespace) -> int:
    """Print it. Returns 0."""
    print(schema_text(), end="")
    return 0
