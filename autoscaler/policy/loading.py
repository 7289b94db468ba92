"""Texts to policies: the room's door. Everything that is wrong comes back at once, and nothing is ever raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoscaler.policy.catalogue import check_entries
from autoscaler.policy.fields import Section, homes
from autoscaler.policy.model import FleetPolicy, PolicyDocument
from autoscaler.policy.nodes import PolicyError, Report
from autoscaler.policy.reading import read_yaml
from autoscaler.policy.rules import RULES, Fault, groups_of

DOCUMENT = Section(PolicyDocument)
HOMES = homes(PolicyDocument)


def parse_policy(content: str | bytes, file: str) -> FleetPolicy | tuple[PolicyError, ...]:
    """A policy file's content as a policy, or everything that is wrong with it. `file` is only named in errors."""
    report = Report(file, HOMES)
    node = read_yaml(content, report)
    if node is None:
        return report.sorted()
    document = DOCUMENT.read(node, "", report)
    if isinstance(document, PolicyDocument) and isinstance(document.spec, FleetPolicy):
        name = document.metadata.name if document.metadata is not None else ""
        policy = replace(document.spec, name=name)
        _rules(policy, report)
        if not report.errors:
            return policy
    return report.sorted()


def _rules(policy: FleetPolicy, report: Report) -> None:
    wrong = [error.path for error in report.errors]
    faults = [fault for rule in RULES for fault in rule(policy)]
    for fault in faults:
        if not any(_touches(path, f"spec.{used}") for path in wrong for used in (fault.path, *fault.uses)):
            _blame(fault, report)
    if not any(_touches(path, "spec.adapters") or _touches(path, "spec.baseModel") for path in wrong):
        check_entries(policy.adapters.list or (), policy, "spec.adapters.list", report)


def _blame(fault: Fault, report: Report) -> None:
    path = f"spec.{fault.path}"
    nearest_line = next((line for p in _upwards(path) if (line := report.lines.get(p)) is not None), None)
    report.add(path, fault.found, fault.allowed, fault.message, nearest_line)


def _upwards(path: str) -> list[str]:
    """The path and those above it: a key that was left out is blamed on its section's line."""
    cuts = [i for i, c in enumerate(path) if c in ".["]
    return [path, *(path[:i] for i in reversed(cuts))]


def _touches(wrong: str, used: str) -> bool:
    """Whether an error's path is the used one, above it, or below it."""
    short, long = sorted((wrong, used), key=len)
    return long.startswith(short) and (long == short or not short or long[len(short)] in ".[")


@dataclass(frozen=True, slots=True)
class PolicySet:
    """A folder of policies: what each file holds, or what is wrong with it. A file is in one of the two."""

    policies: Mapping[str, FleetPolicy]
    errors: Mapping[str, tuple[PolicyError, ...]]


def parse_policies(contents: Mapping[str, str | bytes]) -> PolicySet:
    """File name -> content, as policies. Two files may not name one fleet, nor scale one target."""
    policies: dict[str, FleetPolicy] = {}
    errors: dict[str, tuple[PolicyError, ...]] = {}
    owners: dict[str, str] = {}
    for file in sorted(contents):
        parsed = parse_policy(contents[file], file)
        if not isinstance(parsed, FleetPolicy):
            errors[file] = parsed
            continue
        clashes = tuple(_clash(what, path, owners[what], file) for what, path in _claims(parsed) if what in owners)
        if clashes:
            errors[file] = clashes
            continue
        policies[file] = parsed
        owners |= {what: file for what, _ in _claims(parsed)}
    return PolicySet(policies, errors)


def _claims(policy: FleetPolicy) -> list[tuple[str, str]]:
    """What only one policy may have, with the path that claims it."""
    claims = [(f"fleet {policy.name}", "metadata.name")]
    for _, path, group in groups_of(policy):
        targets = getattr(group, "targets", None) or (() if not hasattr(group, "target") else (group.target,))
        for target in targets:
            name = policy.target_name(path.removeprefix("groups."), target)
            claims.append((f"{target.kind} {target.namespace or ''}/{name}", f"spec.{path}"))
    return claims


def _clash(what: str, path: str, other: str, file: str) -> PolicyError:
    message = f"{what.replace(' /', ' ')} is already claimed by {other}; one policy per fleet and target"
    return PolicyError(path, what, "a name of its own", message, file)
