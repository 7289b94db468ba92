"""A folder of policy files, read again when they change; one that becomes invalid keeps its last valid content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autoscaler.connectors.files.watched import WatchedFile
from autoscaler.policy.loading import parse_policies, parse_policy
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import PolicyError

INVALID = "PolicyInvalid"


class PolicyFolder:
    """The policies of one folder, by file name. The same policy object is given while its file has not changed.

    Args:
        folder: holds `*.yaml` and `*.yml`; others are not looked at.
        wall_s: the clock of the file system's times.
    """

    def __init__(self, folder: Path, wall_s: Callable[[], float]) -> None:
        self._folder = folder
        self._wall_s = wall_s
        self._files: dict[str, WatchedFile[bytes]] = {}
        self._contents: dict[str, bytes] = {}
        self._policies: dict[str, FleetPolicy] = {}
        self._clashes: dict[str, str] = {}
        self.conditions: dict[str, str] = {}

    def look(self) -> dict[str, FleetPolicy]:
        """Policies now, by file name. `conditions` are `PolicyInvalid/FILE`; a folder that is gone keeps all."""
        try:
            names = {p.name: p for p in self._folder.iterdir() if p.suffix in (".yaml", ".yml")}
        except OSError as error:
            self.conditions = {INVALID: f"{self._folder} cannot be read: {error.strerror or error}"}
            return dict(self._policies)
        for name, path in names.items():
            self._files.setdefault(name, WatchedFile(path, _checked(name), self._wall_s))
        self._files = {name: file for name, file in self._files.items() if name in names}
        contents = {name: value for name, file in sorted(self._files.items()) if (value := file.look()) is not None}
        if contents != self._contents:
            self._take(contents)
        troubles = {name: file.trouble for name, file in self._files.items() if file.trouble}
        self.conditions = {f"{INVALID}/{name}": why for name, why in (self._clashes | troubles).items()}
        return dict(self._policies)

    def _take(self, contents: dict[str, bytes]) -> None:
        """Take what goes together; a file that has changed and now clashes with another keeps what it had."""
        found = parse_policies(contents)
        unchanged = {n for n in self._policies if contents.get(n) == self._contents.get(n)}
        if robbed := found.errors.keys() & unchanged:
            clash = found.errors[min(robbed)][0]
            self._clashes = dict.fromkeys(contents.keys() - unchanged, f"{clash}; the last valid one stands")
            self._policies = {n: p for n, p in self._policies.items() if n in contents}
            return
        self._clashes = {name: f"{errors[0]}; the last valid one stands" for name, errors in found.errors.items()}
        policies = dict(found.policies)
        for name in found.errors.keys() & self._policies.keys():
            policies[name] = self._policies[name]
        self._policies = {n: self._policies[n] if n in unchanged else policy for n, policy in policies.items()}
        self._contents = contents


def _checked(name: str) -> Callable[[bytes], bytes | tuple[PolicyError, ...]]:
    """The content itself, once it is a valid policy."""

    def check(content: bytes) -> bytes | tuple[PolicyError, ...]:
        parsed = parse_policy(content, name)
        return content if isinstance(parsed, FleetPolicy) else parsed

    return check
