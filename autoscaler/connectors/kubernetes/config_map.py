"""ConfigMaps as small stores: one of them as a whole, and the ring for routers and for the next leader."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Callable

from autoscaler.connectors.kubernetes.cluster import Cluster, ConflictedError, GoneError, Json, config_maps
from autoscaler.connectors.kubernetes.watch import Watched
from autoscaler.connectors.routers.epochs import judged
from autoscaler.domain.decisions import Applied, Failed, Outcome
from autoscaler.domain.fleet import Router
from autoscaler.ports import PermanentError, TemporaryError

COMPRESSED_ABOVE_BYTES = 256 * 1024
MOST_BYTES = 1000 * 1024  # the server refuses 1 MiB, names and the managed fields' share included
RING_KEY, RING_KEY_GZ = "ring.json", "ring.json.gz"
FENCE = "lora-autoscaler.io/fence"
_ATTEMPTS = 4


class OneConfigMap:
    """One ConfigMap, read from a watch and written by compare-and-swap on its resource version."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.name = f"{namespace}/{name}"
        self._cluster, self._collection, self._object = cluster, config_maps(namespace), name
        self._namespace = namespace
        self._watched = Watched(cluster, self._collection, fieldSelector=f"metadata.name={name}")

    def seen(self) -> Json | None:
        """As the watch shows it, None where there is none. Raises TemporaryError."""
        try:
            return self._watched.objects().get(self._object)
        except PermanentError as error:
            raise TemporaryError(str(error)) from error

    async def change(self, edit: Callable[[Json], Outcome | None]) -> Outcome:
        """Let `edit` change the fresh object in place (None: write it), and again over a conflict.

        Raises TemporaryError, PermanentError.
        """
        return await asyncio.to_thread(self.change_now, edit)

    def change_now(self, edit: Callable[[Json], Outcome | None]) -> Outcome:
        """The same, blocking this thread."""
        for _ in range(_ATTEMPTS):
            found = self._fresh()
            outcome = edit(found)
            if outcome is not None:
                return outcome
            exists = "resourceVersion" in found["metadata"]
            path = f"{self._collection}/{self._object}" if exists else self._collection
            try:
                self._watched.seen(self._cluster.now("PUT" if exists else "POST", path, found))
            except ConflictedError:
                continue
            return Applied(f"ConfigMap {self.name}")
        raise TemporaryError(f"ConfigMap {self.name} changes faster than it can be written")

    def first(self) -> None:
        """Block until the first look has worked or failed."""
        self._watched.first()

    def close(self) -> None:
        """End the watch."""
        self._watched.close()

    def _fresh(self) -> Json:
        try:
            return self._cluster.now("GET", f"{self._collection}/{self._object}")
        except GoneError:
            owned = {"app.kubernetes.io/managed-by": "lora-autoscaler"}
            meta = {"name": self._object, "namespace": self._namespace, "labels": owned}
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


class ConfigMapRing:
    """`RingPublisher` in the ConfigMap `<fleet>-ring`: durable, and where routers may watch it.

    Args:
        config_map: the place.
        fence: `<lease>/<number>`; once a higher number of the same lease has written, a lower one may not.
    """

    def __init__(self, config_map: OneConfigMap, fence: Callable[[], str]) -> None:
        self._config_map, self._fence = config_map, fence
        self._ours: tuple[int, bytes] | None = None
        self._read: tuple[str, tuple[int, bytes] | None] = ("", None)

    async def publish(self, epoch: int, body: bytes) -> Outcome:
        """Publish a snapshot if `epoch` is higher and no later leader has written."""
        fence = self._fence()

        def edit(found: Json) -> Outcome | None:
            notes = found["metadata"].setdefault("annotations", {})
            if _later(notes.get(FENCE, ""), fence):
                return Failed(f"epoch {epoch} is refused: a later leader has published already", retry_after_s=0.0)
            outcome = judged(_ring_in(found), epoch, body)
            return outcome if outcome is not None else _put_ring(found, notes, fence, body)

        try:
            outcome = await self._config_map.change(edit)
        except TemporaryError as error:
            return Failed(str(error), retry_after_s=0.0)
        except PermanentError as error:
            return Failed(str(error))
        if isinstance(outcome, Applied):
            self._ours = epoch, body
        return outcome

    async def last(self) -> tuple[int, bytes] | None:
        """What is published; what was written here counts before the watch tells it. Raises TemporaryError."""
        found = self._config_map.seen()
        if found is None:
            return self._ours
        version = found["metadata"]["resourceVersion"]
        if self._read[0] != version:
            self._read = version, await asyncio.to_thread(_ring_in, found)
        seen = self._read[1]
        return max((last for last in (seen, self._ours) if last is not None), key=lambda last: last[0], default=None)

    async def routers(self, now_s: float) -> tuple[Router, ...]:
        """Nobody says that he reads a ConfigMap."""
        return ()


def _later(known: str, fence: str) -> bool:
    """Whether `known` is a later leader's by the same Lease; one that was deleted and made anew counts anew."""
    (lease, _, number), (ours, _, mine) = known.rpartition("/"), fence.rpartition("/")
    return lease == ours and number.isdecimal() and mine.isdecimal() and int(number) > int(mine)


def _ring_in(found: Json) -> tuple[int, bytes] | None:
    packed = (found.get("binaryData") or {}).get(RING_KEY_GZ)
    plain = (found.get("data") or {}).get(RING_KEY)
    if packed is None and plain is None:
        return None
    try:
        body = gzip.decompress(base64.b64decode(packed)) if packed is not None else str(plain).encode()
        return int(json.loads(body)["epoch"]), body
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        name = found["metadata"]["name"]
        raise TemporaryError(
            f"ConfigMap {name} holds no ring snapshot ({error}): put the last good one there, or delete it"
        ) from error


def _put_ring(found: Json, notes: dict[str, str], fence: str, body: bytes) -> Outcome | None:
    size = len(body)
    data = dict(found.get("data") or {})
    binary = dict(found.get("binaryData") or {})
    data.pop(RING_KEY, None)
    binary.pop(RING_KEY_GZ, None)
    if size > COMPRESSED_ABOVE_BYTES:
        packed = gzip.compress(body, mtime=0)
        size = len(packed)
        binary[RING_KEY_GZ] = base64.b64encode(packed).decode()
    else:
        data[RING_KEY] = body.decode()
    if size > MOST_BYTES:
        return Failed(
            f"the ring is {len(body)} bytes, {size} compressed, and a ConfigMap holds {MOST_BYTES}: let routers take "
            "it from the API, or serve fewer adapters by one fleet"
        )
    found["data"], found["binaryData"] = data, binary
    notes[FENCE] = fence
    return None
