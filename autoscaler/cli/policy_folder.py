"""A folder of policies and their catalogues, read again when they change; what is invalid keeps what was."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoscaler.cli.errors import UsageError
from autoscaler.cli.policies import catalogue_path, parse_folder
from autoscaler.connectors.files.catalogue import CatalogueReader
from autoscaler.connectors.files.watched import WatchedFile
from autoscaler.controller.loop import Wanted
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import PolicyError
from autoscaler.policy.words import Mode

_log = logging.getLogger(__name__)
_SUFFIXES = (".yaml", ".yml")


@dataclass(slots=True)
class _Fleet:
    """One fleet's last valid policy, where it was, and why a newer one was not taken."""

    policy: FleetPolicy
    path: Path
    reader: CatalogueReader
    catalogue: Catalogue = field(default_factory=Catalogue)
    trouble: str = ""


class PolicyFolder:
    """All policies of one folder.

    Args:
        folder: with `*.yaml` and `*.yml`; other files are left alone.
        now_s: the clock of the controller and of the file system's times.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float]) -> None:
        self._folder, self._now_s = folder, now_s
        self._files: dict[Path, WatchedFile[bytes]] = {}
        self._contents: dict[str, bytes] = {}
        self._fleets: dict[str, _Fleet] = {}
        self._refused: dict[str, str] = {}
        self.errors: Mapping[str, tuple[PolicyError, ...]] = {}

    def look(self) -> tuple[str, ...]:
        """Read what has changed; the fleets that have or had a valid policy, ascending. Raises UsageError at first.

        A fleet whose file is gone keeps its last policy: a deleted file is more often a mistake than a wish, and
        `detach` is how a fleet is let go.
        """
        contents = self._read()
        if contents != self._contents or not self._fleets:
            self._contents = contents
            self._take(contents)
        return tuple(sorted(self._fleets))

    def policy(self, fleet: str) -> FleetPolicy:
        """The last valid policy."""
        return self._fleets[fleet].policy

    def catalogue(self, fleet: str) -> Catalogue:
        """The last valid catalogue."""
        return self._fleets[fleet].catalogue

    def reads_config_maps(self, fleet: str, config_map: Callable[[str], bytes | None]) -> None:
        """Let the fleet's catalogue live in a ConfigMap, which `config_map` reads."""
        known = self._fleets[fleet]
        known.reader = CatalogueReader(known.path.parent, self._now_s, self._now_s, config_map)

    def wanted(self, fleet: str, seen: Mapping[str, str]) -> Wanted:
        """What operators want of a fleet now. `seen`: adapters that engines list, for policies without a catalogue.

        A file that no fleet has its policy from, and that is refused, is a condition of every fleet: nobody else tells.
        """
        self.look()
        known = self._fleets[fleet]
        found = known.reader.look(known.policy, seen)
        conditions = dict(known.reader.conditions)
        if known.trouble:
            conditions["PolicyInvalid"] = known.trouble
        conditions |= self._refused
        if found is None:
            # No list of adapters at all is not an empty one: nothing may be unloaded or moved for it.
            return Wanted(replace(known.policy, mode=Mode.ADVISE), Catalogue(), conditions)
        known.catalogue = found
        return Wanted(known.policy, found, conditions)

    def _read(self) -> dict[str, bytes]:
        """Content by file name; a file that is being written counts as it was."""
        try:
            paths = sorted(p for p in self._folder.iterdir() if p.suffix in _SUFFIXES and p.is_file())
        except OSError as error:
            if self._fleets:
                return self._contents
            raise UsageError(
                f"{self._folder}: {(error.strerror or str(error)).lower()}; expected a folder of policies"
            ) from error
        self._files = {p: self._files.get(p) or WatchedFile(p, _as_it_is, self._now_s) for p in paths}
        contents = {str(p): file.look() for p, file in self._files.items()}
        # A catalogue changes on its own, which its reader sees; it is no policy.
        catalogues = {catalogue_path(f.path, f.policy) for f in self._fleets.values()}
        return {
            name: text for name, text in contents.items() if text is not None and Path(name).resolve() not in catalogues
        }

    def _take(self, contents: Mapping[str, bytes]) -> None:
        """Each fleet keeps its file while that is there: a second one never takes its place, whatever is wrong."""
        read = parse_folder(contents)
        self.errors = read.errors
        refused = {file: _first_of(found) for file, found in read.errors.items()}
        valid = set()
        for file, policy in read.policies.items():
            known = self._fleets.get(policy.name)
            if known is None:
                reader = CatalogueReader(Path(file).parent, self._now_s, self._now_s)
                self._fleets[policy.name] = _Fleet(policy, Path(file), reader)
            elif Path(file) != known.path and str(known.path) in contents:
                refused[file] = f"{file}: metadata.name: fleet {policy.name} is already claimed by {known.path}"
                continue
            else:
                if known.policy != policy:
                    _log.info("the policy of fleet %s has changed: %s", policy.name, file)
                known.policy, known.path = policy, Path(file)
            valid.add(policy.name)
        for name, fleet in self._fleets.items():
            fleet.trouble = "" if name in valid else _trouble(fleet, refused.pop(str(fleet.path), ""))
            if fleet.trouble:
                _log.warning("fleet %s: %s", name, fleet.trouble)
        before, self._refused = (
            self._refused,
            {
                f"PolicyRefused/{Path(file).name}": f"{why}; nothing of this file is in force"
                for file, why in refused.items()
            },
        )
        for name, why in self._refused.items() - before.items():
            _log.warning("%s: %s", name, why)


def _as_it_is(content: bytes) -> bytes:
    return content


def _trouble(fleet: _Fleet, refused: str) -> str:
    if not refused:
        return f"{fleet.path} is gone; the last valid policy stands (`lora-autoscaler detach` lets go of a fleet)"
    return f"{refused}; the last valid policy stands"


def _first_of(errors: tuple[PolicyError, ...]) -> str:
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0]}{more}"
