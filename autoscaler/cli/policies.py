"""Policy files from disk, for commands; and those that are shipped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import autoscaler
from autoscaler.cli.errors import UsageError, read_bytes
from autoscaler.policy.loading import PolicySet, parse_policies, parse_policy
from autoscaler.policy.model import FleetPolicy


def shipped_policy(name: str) -> Path:
    """A shipped policy's file: beside the package in a checkout, inside it once installed."""
    package = Path(autoscaler.__file__).parent
    for folder in (package / "policies", package.parent / "policies"):
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise UsageError(f"the shipped policy {name}.yaml is missing from this installation; install it again")


def parse_folder(contents: Mapping[str, bytes]) -> PolicySet:
    """Files as policies, without those that a policy among them names as its catalogue."""
    read = parse_policies(contents)
    named = {catalogue_path(f, p) for f, p in read.policies.items()}
    return PolicySet(read.policies, {f: errors for f, errors in read.errors.items() if Path(f).resolve() not in named})


def catalogue_path(file: str | Path, policy: FleetPolicy) -> Path | None:
    """The catalogue file that a policy names, relative to its own folder; None where it names none."""
    name = policy.adapters.file
    return None if name is None else (Path(file).parent / name).resolve()


def read_policy(path: Path) -> FleetPolicy:
    """A valid policy. Raises UsageError with every error where it is not."""
    parsed = parse_policy(read_bytes(path, "a policy file"), str(path))
    if isinstance(parsed, FleetPolicy):
        return parsed
    raise UsageError("; ".join(map(str, parsed)))
