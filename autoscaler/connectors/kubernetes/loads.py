"""Which adapters this controller loaded into which process, in the ConfigMap `<fleet>-loads`, for who leads next.

Without it adapters that an earlier leader loaded would count as somebody else's, and nobody would unload them.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import Sequence

from autoscaler.connectors.engines.ledger import LoadEntry
from autoscaler.connectors.kubernetes.cluster import Json
from autoscaler.connectors.kubernetes.config_map import MOST_BYTES, OneConfigMap
from autoscaler.domain.decisions import Failed, Outcome
from autoscaler.ports import PermanentError, TemporaryError

_log = logging.getLogger(__name__)
_KEY = "loads.json.gz"


class ConfigMapLoads:
    """`LoadMemory` of one fleet. Changes are written with the next `flush`, and only if there are any."""

    def __init__(self, config_map: OneConfigMap) -> None:
        self._config_map = config_map
        self._entries: dict[str, dict[str, LoadEntry]] = {}
        self._changed = False

    def loads(self, fleet: str) -> Sequence[LoadEntry]:
        """What is in the cluster now, kept from here on; what was kept before where it cannot be read."""
        try:
            packed = ((self._config_map.seen() or {}).get("binaryData") or {}).get(_KEY)
            rows = [] if packed is None else json.loads(gzip.decompress(base64.b64decode(packed)))
            entries = [LoadEntry(replica, at, a, r) for replica, at, held in rows for a, r in held.items()]
        except TemporaryError:
            return [entry for held in self._entries.values() for entry in held.values()]
        except (OSError, EOFError, ValueError, TypeError) as error:
            _log.warning("what an earlier leader has loaded cannot be read, and counts as somebody else's: %s", error)
            entries = []
        self._entries, self._changed = {}, False
        for entry in entries:
            self._entries.setdefault(entry.replica, {})[entry.adapter] = entry
        return entries

    def remember_load(self, fleet: str, entry: LoadEntry) -> None:
        """Keep one; it replaces the replica's entry of that adapter."""
        held = self._entries.setdefault(entry.replica, {})
        self._changed = self._changed or held.get(entry.adapter) != entry
        held[entry.adapter] = entry

    def forget_loads(self, fleet: str, replica: str, adapter: str = "") -> None:
        """Drop one adapter's entry, or all of a replica."""
        held = self._entries if not adapter else self._entries.get(replica, {})
        self._changed = held.pop(adapter or replica, None) is not None or self._changed

    async def flush(self) -> None:
        """Write what has changed. What fails is tried with the next one."""
        if not self._changed:
            return
        self._changed = False
        rows = [
            [replica, next(iter(held.values())).started_at_s, {a: e.revision for a, e in sorted(held.items())}]
            for replica, held in sorted(self._entries.items()) if held
        ]  # fmt: skip
        try:
            await asyncio.to_thread(self._write, rows)
        except (TemporaryError, PermanentError) as error:
            self._changed = True
            _log.warning("which adapters were loaded is not kept: %s", error)

    def _write(self, rows: Sequence[object]) -> None:
        packed = gzip.compress(json.dumps(rows, separators=(",", ":")).encode(), mtime=0)

        def edit(found: Json) -> Outcome | None:
            if len(packed) > MOST_BYTES:
                return Failed(f"{len(packed)} bytes of loads, a ConfigMap holds {MOST_BYTES}")
            found["binaryData"] = {_KEY: base64.b64encode(packed).decode()}
            return None

        outcome = self._config_map.change_now(edit)
        if isinstance(outcome, Failed):
            raise PermanentError(outcome.error)
