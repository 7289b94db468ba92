"""Publishes ring snapshots to one stock Envoy by files, and hears from its admin port which epoch it applies.

A file is complete before it is renamed to where Envoy looks, one assignment a file, so a reader sees the old membership
or the new one. The snapshot itself is kept beside them (`ring.json`): a publisher that starts again goes on from there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from autoscaler.connectors.envoy.bootstrap import CLUSTERS, LIMITS, ROUTES, EnvoySettings, bootstrap
from autoscaler.connectors.envoy.clusters import ASSIGNMENTS, LEAST, clusters
from autoscaler.connectors.envoy.fairness import limits
from autoscaler.connectors.envoy.resources import (
    Mode,
    candidates,
    endpoints,
    endpoints_file,
    files_in,
    least_names,
    response,
    routes,
    subset_names,
    traffic_clusters,
)
from autoscaler.domain.decisions import Applied, Failed, Outcome
from autoscaler.domain.fleet import Router
from autoscaler.ring.codec import decode, digest, to_document
from autoscaler.ring.snapshot import Member, MemberState, RingSnapshot, SnapshotError

_RING = "ring.json"
_NOBODY = RingSnapshot("", 0, "", 1, ())
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class _Written:
    """What lies in the files now: the snapshot, its bytes, and the version texts that Envoy must show."""

    snapshot: RingSnapshot
    body: bytes
    version: str
    routes_version: str
    targets: tuple[str, ...]


class EnvoyFilePublisher:
    """`autoscaler.ports.RingPublisher` for one Envoy.

    Its files are `endpoints-*.json`, `routes.json`, `clusters.json` and `ring.json` in the settings' directory.
    """

    def __init__(
        self,
        settings: EnvoySettings,
        *,
        known: Callable[[], Iterable[str]] = tuple,
        mode: Mode = Mode.RING,
        apply_timeout_s: float = 2.0,
    ) -> None:
        """`known` gives the catalogue's adapter ids: they get series of their own, COLD ones included.

        `apply_timeout_s` bounds the wait for a cluster's endpoints before routes are turned to it.
        """
        self.settings = settings
        self._known, self._mode, self._apply_timeout_s = known, mode, apply_timeout_s
        self._lock = asyncio.Lock()
        self._written: _Written | None = None
        self._heard: Router | None = None
        self._heard_at_s = 0.0

    @property
    def mode(self) -> Mode:
        """How requests are routed now."""
        return self._mode

    def prepare(self) -> Path:
        """Write the bootstrap, and the watched files where there are none yet; returns the bootstrap's path.

        Until the first epoch is published Envoy has no members and answers 503. Call it before Envoy starts.
        """
        directory = self.settings.directory
        directory.mkdir(parents=True, exist_ok=True)
        first: dict[Path, bytes] = {
            directory / CLUSTERS: response("0", clusters(files_in(directory), _NOBODY, {})),
            directory / ROUTES: routes("0", _NOBODY, (), {}, self._mode),
            directory / LIMITS: response("0", [limits(_NOBODY, ())]),
        }
        for name in ASSIGNMENTS:
            first[endpoints_file(directory, name)] = response("0", [endpoints(name, _NOBODY, {})])
        for path, content in first.items():
            if not path.exists():
                _replace(path, content)
        path = directory / "bootstrap.json"
        _replace(path, json.dumps(bootstrap(self.settings), indent=1).encode())
        return path

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Write the snapshot's resources, if `epoch` is higher than what is there and somebody in it can serve."""
        snapshot = servable(epoch, body)
        if isinstance(snapshot, Failed):
            return snapshot
        async with self._lock:
            current = self._current()
            if current is not None and epoch <= current.snapshot.epoch:
                return Failed(f"epoch {epoch} is not published: epoch {current.snapshot.epoch} is already there")
            try:
                await self._write(snapshot, body)
            except OSError as error:
                return Failed(f"epoch {epoch} is not published: {error}", retry_after_s=1.0)
        return Applied(f"epoch {epoch} written for {len(snapshot.members)} members")

    async def last(self) -> tuple[int, bytes] | None:
        """The published epoch and snapshot, None where there is none."""
        async with self._lock:
            current = self._current()
        return None if current is None else (current.snapshot.epoch, current.body)

    async def set_mode(self, mode: Mode) -> None:
        """Route by the ring, or blind to adapters; in force at once for new requests. The epoch does not change."""
        async with self._lock:
            self._mode = mode
            current = self._current()
            if current is not None:
                known = frozenset(self._known())
                found = candidates(current.snapshot, subset_names(current.snapshot, known))
                await self._write_routes(current.snapshot, current.body, found, known)

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """This Envoy with the epoch that it applies by its own word; nobody where it was never heard."""
        async with self._lock:
            current = self._current()
        shown = await self._versions()
        if shown is not None:
            self._heard = Router(self.settings.node, _applied_epoch(current, shown), 0.0)
            self._heard_at_s = now_s
        if self._heard is None:
            return ()
        return (Router(self._heard.id, self._heard.epoch, max(0.0, now_s - self._heard_at_s)),)

    async def _write(self, snapshot: RingSnapshot, body: bytes) -> None:
        """In a thread where it takes long: 10,000 adapters on 64 replicas are two seconds of work."""
        directory, known = self.settings.directory, frozenset(self._known())
        version = _version_text(snapshot)
        before = None if self._written is None else self._written.snapshot
        found, files = await asyncio.to_thread(_membership, directory, snapshot, before, version, known)
        for name in (CLUSTERS, LIMITS):
            _replace_changed(directory / name, files.pop(directory / name))
        for path, content in files.items():
            _replace(path, content)
        await self._write_routes(snapshot, body, found, known)
        _replace(directory / _RING, body)

    async def _write_routes(
        self, snapshot: RingSnapshot, body: bytes, found: Mapping[str, tuple[Member, ...]], known: frozenset[str]
    ) -> None:
        """Routes change only when names, rejection, preferences or targets do, and only to a cluster with members."""
        path, version = self.settings.directory / ROUTES, _version_text(snapshot)
        names = (found.keys() | known) - set(snapshot.base_models)
        targets = traffic_clusters(snapshot, self._mode)
        if self._written is not None:
            new = [target for target in targets if target not in self._written.targets]
            if not least_names(snapshot) <= least_names(self._written.snapshot):
                new.append(LEAST)
            for target in new:
                await self._wait_for(target, version)
        _replace_changed(path, await asyncio.to_thread(routes, version, snapshot, names, found, self._mode))
        self._written = _Written(snapshot, body, version, _version_of(path.read_bytes()), targets)

    def _current(self) -> _Written | None:
        """What is published; read from the files once, after a restart."""
        path = self.settings.directory / _RING
        if self._written is None and path.exists():
            try:
                body = path.read_bytes()
                snapshot = decode(body)
                routes_version = _version_of((self.settings.directory / ROUTES).read_bytes())
            except (OSError, ValueError, KeyError):
                return None
            targets = traffic_clusters(snapshot, self._mode)
            self._written = _Written(snapshot, body, _version_text(snapshot), routes_version, targets)
        return self._written

    async def _wait_for(self, target: str, version: str) -> None:
        for _ in range(int(self._apply_timeout_s / _POLL_S)):
            shown = await self._versions()
            if shown is None or shown.get(target) == version:
                return
            await asyncio.sleep(_POLL_S)

    async def _versions(self) -> dict[str, str] | None:
        """Version texts by cluster, and `routes`; None where Envoy does not answer."""
        try:
            timeout = aiohttp.ClientTimeout(total=2.0)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self.settings.admin_url}/stats?filter=version_text$") as answer,
            ):
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return None
        shown = {}
        for line in text.splitlines():
            name, _, value = line.partition(": ")
            kind, _, rest = name.partition(".")
            key = rest.removesuffix(".version_text") if kind == "cluster" else "routes" if ".rds." in name else ""
            shown[key] = value.strip().strip('"')
        return shown


def servable(epoch: int, body: bytes) -> RingSnapshot | Failed:
    """The snapshot, if it is that epoch's and somebody in it can serve: Envoy would obey an empty one."""
    try:
        snapshot = decode(body)
    except SnapshotError as error:
        return Failed(f"epoch {epoch} is not published: {error}")
    if snapshot.epoch != epoch:
        return Failed(f"epoch {epoch} is not published: the snapshot says that it is epoch {snapshot.epoch}")
    if not any(member.state is MemberState.ACTIVE and member.address for member in snapshot.members):
        return Failed(
            f"epoch {epoch} is not published: none of its {len(snapshot.members)} members is active with an address"
        )
    return snapshot


def _applied_epoch(current: _Written | None, shown: dict[str, str]) -> int:
    """The lowest epoch among what the traffic passes: its cluster's endpoints, and the route table."""
    if current is None:
        return 0
    epoch = current.snapshot.epoch
    epochs = [_epoch_of(shown.get(target, ""), current.version, epoch) for target in current.targets]
    if shown.get("routes") != current.routes_version:
        epochs.append(_epoch_of(shown.get("routes", ""), current.routes_version, epoch))
    return min(epochs)


def _epoch_of(text: str, wanted: str, epoch: int) -> int:
    if text == wanted:
        return epoch
    # The same epoch with another digest is an unfinished write of another leader, not this snapshot.
    number = text.partition(".")[0]
    return min(int(number), epoch - 1) if number.isdigit() else 0


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    beside.replace(path)


def _replace_changed(path: Path, content: bytes) -> None:
    """Rename a new file into place if its resources differ from what is there; else its version text stays."""
    if not path.exists() or _resources(path.read_bytes()) != _resources(content):
        _replace(path, content)


def _resources(content: bytes) -> bytes:
    return content.partition(b',"resources":')[2]


def _version_of(content: bytes) -> str:
    """The version text of a watched file, without reading its resources."""
    return str(json.loads(content.partition(b',"resources":')[0] + b"}")["version_info"])


def _version_text(snapshot: RingSnapshot) -> str:
    return f"{snapshot.epoch}.{digest(to_document(snapshot))}"


def _membership(
    directory: Path, snapshot: RingSnapshot, before: RingSnapshot | None, version: str, known: frozenset[str]
) -> tuple[dict[str, tuple[Member, ...]], dict[Path, bytes]]:
    """The candidates of every adapter with a subset, and the files that say so."""
    found = candidates(snapshot, subset_names(snapshot, known))
    files = {
        endpoints_file(directory, name): response(version, [endpoints(name, snapshot, found, before)])
        for name in ASSIGNMENTS
    }
    files[directory / CLUSTERS] = response(version, clusters(files_in(directory), snapshot, found))
    names = found.keys() | known | set(snapshot.base_models)
    files[directory / LIMITS] = response(version, [limits(snapshot, names)])
    return found, files
