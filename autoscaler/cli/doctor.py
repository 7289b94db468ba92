"""`doctor`: every check, each fault with its remedy."""

from __future__ import annotations

import argparse
import json
import textwrap
from dataclasses import asdict

from autoscaler.cli.doctor_files import check_files, check_gates
from autoscaler.cli.doctor_server import check_server
from autoscaler.cli.errors import UsageError
from autoscaler.cli.findings import Finding, State
from autoscaler.cli.remote import controller

_MARK = {State.FINE: "fine ", State.NOTE: "note ", State.WRONG: "WRONG"}


def run(arguments: argparse.Namespace) -> int:
    """Print what was found. Returns 1 where something is wrong. Raises UsageError for input that is not there."""
    findings: list[Finding] = []
    if arguments.uninstall and arguments.policies is None:
        raise UsageError("--uninstall needs --policies: which targets are they?")
    if arguments.uninstall:
        return _told(check_gates(arguments.policies, arguments.settings), arguments)
    if arguments.policies is not None or arguments.settings is not None:
        findings += check_files(arguments.policies, arguments.settings)
    if arguments.server or not findings:
        with controller(arguments) as server:
            findings += check_server(server, arguments.fleet)
    return _told(findings, arguments)


def _told(findings: list[Finding], arguments: argparse.Namespace) -> int:
    faults = [f for f in findings if f.state is State.WRONG]
    if arguments.json:
        print(json.dumps([asdict(f) for f in findings], indent=2))
    else:
        for finding in findings:
            print(_text(finding))
        print(f"{len(findings)} checks, {len(faults)} wrong")
    return 1 if faults else 0


def _text(finding: Finding) -> str:
    line = f"{_MARK[finding.state]}  {finding.check} {finding.subject}: {finding.message}"
    if not finding.remedy:
        return line
    return line + "\n" + textwrap.fill(finding.remedy, 110, initial_indent="       -> ", subsequent_indent="          ")
