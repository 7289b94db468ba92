"""The catalogue as the policy wants it: its own list, a watched file or text, or the ids that were seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from autoscaler.connectors.files.watched import WatchedFile
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.catalogue import catalogue_of, catalogue_of_seen, parse_catalogue
from autoscaler.policy.model import FleetPolicy

# An id that was seen once stays for a week: an idle adapter is still one of the fleet's.
KEPT_S = 7 * 86400.0
MOST_SEEN = 200_000
INVALID = "CatalogueInvalid"
UNFIT = "CatalogueIdsUnfit"


class CatalogueReader:
    """Reads one fleet's catalogue; the same object is given while nothing has changed.

    Args:
        folder: the policy's own, which a relative file name starts from.
        clock_s: the controller's clock.
        wall_s: the clock of the file system's times.
        config_map: a ConfigMap's name -> its text now, None while it cannot be read; None outside Kubernetes.
    """

    def __init__(
        self,
        folder: Path,
        clock_s: Callable[[], float],
        wall_s: Callable[[], float],
        config_map: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self._folder = folder
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._config_map = config_map
        self._policy: FleetPolicy | None = None
        self._file: WatchedFile[Catalogue] | None = None
        self._text: bytes | None = None
        self._seen: dict[str, tuple[str, float]] = {}
        self._catalogue: Catalogue | None = None
        self.conditions: dict[str, str] = {}

    def look(self, policy: FleetPolicy, seen: Mapping[str, str]) -> Catalogue | None:
        """The catalogue now; None where there never was a valid one. `conditions` say what is wrong.

        Args:
            policy: the fleet's, now.
            seen: adapter id -> source (empty: the path template) of what engines list and routers saw answered; used
                where the policy has no catalogue of its own.
        """
        changed = policy is not self._policy
        self._policy = policy
        match policy.adapters.kind:
            case "list":
                if changed:
                    self._catalogue = catalogue_of(policy.adapters.list or (), policy)
                    self.conditions = {}
            case "file":
                self._catalogue = self._from_file(policy, policy.adapters.file or "", changed=changed)
            case "configMap":
                self._from_config_map(policy, policy.adapters.config_map or "", changed=changed)
            case kind:
                self._from_seen(policy, seen, changed=changed, from_engines=kind == "engine")
        return self._catalogue

    def _from_file(self, policy: FleetPolicy, name: str, *, changed: bool) -> Catalogue | None:
        path = self._folder / name
        if self._file is None or self._file.path != path:
            self._file = WatchedFile(path, lambda content: parse_catalogue(content, str(path), policy), self._wall_s)
        elif changed:
            self._file.parse_again(lambda content: parse_catalogue(content, str(path), policy))
        read = self._file.look()
        self.conditions = {INVALID: self._file.trouble} if self._file.trouble else {}
        # Another file that is not yet valid does not empty the fleet.
        return self._catalogue if read is None else read

    def _from_config_map(self, policy: FleetPolicy, name: str, *, changed: bool) -> None:
        text = self._config_map(name) if self._config_map else None
        if text is None:
            self.conditions = {INVALID: f"the ConfigMap {name} cannot be read; the last valid catalogue stands"}
            return
        if text == self._text and not changed:
            return
        self._text = text
        parsed = parse_catalogue(text, f"ConfigMap {name}", policy)
        if isinstance(parsed, Catalogue):
            self._catalogue, self.conditions = parsed, {}
            return
        more = f" (and {len(parsed) - 1} more)" if len(parsed) > 1 else ""
        self.conditions = {INVALID: f"{parsed[0]}{more}; the last valid one stands"}

    def _from_seen(self, policy: FleetPolicy, seen: Mapping[str, str], *, changed: bool, from_engines: bool) -> None:
        now_s = self._clock_s()
        before = {a: source for a, (source, _) in self._seen.items()}
        self._seen |= {a: (source if from_engines else "", now_s) for a, source in seen.items()}
        kept = sorted(self._seen.items(), key=lambda e: -e[1][1])[:MOST_SEEN]
        self._seen = {a: e for a, e in kept if now_s - e[1] <= KEPT_S}
        sources = {a: source for a, (source, _) in self._seen.items()}
        if sources == before and not changed and self._catalogue is not None:
            return
        self._catalogue, unfit = catalogue_of_seen(sources, policy)
        more = f" (and {len(unfit) - 1} more)" if len(unfit) > 1 else ""
        self.conditions = {UNFIT: f"{unfit[0].message}{more}"} if unfit else {}
