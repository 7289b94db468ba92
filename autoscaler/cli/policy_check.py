"""`policy check`: all that is wrong with policy files and the catalogues that they name."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from autoscaler.cli.errors import UsageError, read_bytes
from autoscaler.cli.policies import catalogue_path, parse_folder
from autoscaler.policy.catalogue import parse_catalogue
from autoscaler.policy.loading import PolicySet
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import PolicyError

_SUFFIXES = (".yaml", ".yml")


def run(arguments: argparse.Namespace) -> int:
    """Print every error of every file. Returns 1 where there is any. Raises UsageError for files that are not there."""
    contents = {str(p): read_bytes(p, "a policy file") for p in policy_files(arguments.files)}
    checked = parse_folder(contents)
    told = [file for file in contents if file in checked.policies or file in checked.errors]
    errors = {file: checked.errors.get(file, ()) for file in told} | catalogue_errors(checked.policies)
    if arguments.json:
        print(json.dumps({file: [e.as_json() for e in found] for file, found in errors.items()}, indent=2))
    else:
        _tell(checked, errors)
    return 1 if any(errors.values()) else 0


def policy_files(named: list[Path]) -> list[Path]:
    """Files as named, folders as their *.yaml and *.yml files. Raises UsageError for a folder without any."""
    files: dict[Path, None] = {}
    for path in named:
        if not path.is_dir():
            files[path] = None
            continue
        inside = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and p.is_file())
        if not inside:
            raise UsageError(f"{path}: no *.yaml or *.yml in this folder; expected policy files")
        files |= dict.fromkeys(inside)
    return list(files)


def catalogue_errors(policies: Mapping[str, FleetPolicy]) -> dict[str, tuple[PolicyError, ...]]:
    """Errors of the catalogue files that are there; one that is not may lie on another machine, and is only told."""
    found: dict[str, tuple[PolicyError, ...]] = {}
    for file, policy in policies.items():
        path = catalogue_path(file, policy)
        if path is None:
            continue
        if not path.is_file():
            print(f"{file}: spec.adapters.file: {path} is not on this machine, so it was not checked", file=sys.stderr)
            continue
        parsed = parse_catalogue(read_bytes(path, "a catalogue file"), str(path), policy)
        found[str(path)] = parsed if isinstance(parsed, tuple) else ()
    return found


def _tell(checked: PolicySet, errors: Mapping[str, tuple[PolicyError, ...]]) -> None:
    for file, found in errors.items():
        for error in found:
            print(error)
            if error.allowed and error.allowed not in error.message:
                print(f"    found: {error.found or 'nothing'}; allowed: {error.allowed}")
        if not found:
            policy = checked.policies.get(file)
            print(f"{file}: fine" + (f" (fleet {policy.name}, {policy.mode.value})" if policy else ""))
    wrong = sum(map(len, errors.values()))
    if wrong:
        bad = sum(1 for found in errors.values() if found)
        print(f"{wrong} error{'' if wrong == 1 else 's'} in {bad} of {len(errors)} files", file=sys.stderr)
