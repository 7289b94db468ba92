"""What must survive of a fleet, in the ConfigMap `<fleet>-state`: checkpoint, counts that were ours, last decisions."""

from __future__ import annotations

import asyncio
import base64
import binascii
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence

from autoscaler.connectors.kubernetes.cluster import Json
from autoscaler.connectors.kubernetes.config_map import MOST_BYTES, OneConfigMap
from autoscaler.connectors.stores.decisions import read_record, written
from autoscaler.domain.decisions import DecisionRecord, Outcome
from autoscaler.ports import PermanentError, TemporaryError

MOST_RECORDS = 200
"""Of one fleet, some 30 kB compressed; all of them are in the log."""
_CHECKPOINT, _DECISIONS, _COUNTS = "checkpoint.json.gz", "decisions.json.gz", "counts.json"


class ConfigMapState:
    """`CheckpointStore` and `CountMemory` of one fleet, with its last decisions.

    A checkpoint is kept with the next `flush`: it changes with each tick, and what is a little old only makes the next
    leader a little cautious. A failed flush is told at the next `save`.
    """

    def __init__(self, config_map: OneConfigMap) -> None:
        self._config_map = config_map
        self._text: str | None = None
        self._records: dict[str, DecisionRecord] = {}
        self._told: tuple[str, dict[str, DecisionRecord]] = ("", {})
        self._failure: TemporaryError | PermanentError | None = None

    def load(self, fleet: str) -> str | None:
        """The last checkpoint, None where there is none or it cannot be read."""
        try:
            return _unpacked(self._config_map.seen() or {}, _CHECKPOINT)
        except TemporaryError:
            return None

    def save(self, fleet: str, text: str) -> None:
        """Keep it with the next `flush`. Raises what the last one failed with."""
        self._text = text
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def append(self, records: Iterable[DecisionRecord]) -> None:
        """Show these at once, and keep them with the next `flush`."""
        self._records |= {r.id: r for r in records}
        self._records = dict(list(self._records.items())[-MOST_RECORDS:])

    def decisions(self, fleet: str) -> tuple[DecisionRecord, ...]:
        """The newest, oldest first: those of every leader that are kept, and this instance's own."""
        return _merged(self._kept(fleet), self._records)

    async def flush(self) -> None:
        """Write the newest checkpoint and decisions, if they are not there yet."""
        text, self._text = self._text, None
        if text is None:
            return
        try:
            await asyncio.to_thread(self._write, text, dict(self._records))
        except (TemporaryError, PermanentError) as error:
            self._text = self._text or text
            self._failure = error

    def counts(self) -> Mapping[str, int]:
        """Counts that this controller set last, by target. Raises TemporaryError."""
        said = ((self._config_map.seen() or {}).get("data") or {}).get(_COUNTS, "{}")
        try:
            return {str(k): int(v) for k, v in json.loads(said).items()}
        except (ValueError, AttributeError, TypeError):
            return {}

    async def remember(self, target: str, count: int) -> None:
        """Keep the count that was just set."""

        def edit(found: Json) -> Outcome | None:
            data = dict(found.get("data") or {})
            try:
                counts = dict(json.loads(data.get(_COUNTS, "{}")))
            except (ValueError, TypeError):
                counts = {}
            data[_COUNTS] = json.dumps({**counts, target: count}, sort_keys=True)
            found["data"] = data
            return None

        await self._config_map.change(edit)

    def _write(self, text: str, records: Mapping[str, DecisionRecord]) -> None:
        packed = gzip.compress(text.encode(), mtime=0)
        if len(packed) > MOST_BYTES:
            raise PermanentError(f"the checkpoint is {len(packed)} bytes, a ConfigMap holds {MOST_BYTES}")

        def edit(found: Json) -> Outcome | None:
            tail = _merged(_records_in(found, ""), records)
            decisions = gzip.compress(
                json.dumps([[r.fleet, r.id, r.subject, written(r)] for r in tail]).encode(), mtime=0
            )
            binary = {**(found.get("binaryData") or {}), _CHECKPOINT: base64.b64encode(packed).decode()}
            if len(packed) + len(decisions) <= MOST_BYTES:
                binary[_DECISIONS] = base64.b64encode(decisions).decode()
            found["binaryData"] = binary
            return None

        self._config_map.change_now(edit)

    def _kept(self, fleet: str) -> dict[str, DecisionRecord]:
        try:
            found = self._config_map.seen() or {}
        except TemporaryError:
            return self._told[1]
        version = str(found.get("metadata", {}).get("resourceVersion", ""))
        if self._told[0] != version:
            self._told = version, _records_in(found, fleet)
        return self._told[1]


class ClusterDecisions:
    """`DecisionLog` of every fleet of this process: the tail that is in the cluster, whoever led."""

    def __init__(self) -> None:
        self._states: dict[str, ConfigMapState] = {}

    def of(self, fleet: str, state: ConfigMapState) -> None:
        """A fleet's state."""
        self._states[fleet] = state

    def append(self, records: Sequence[DecisionRecord]) -> None:
        """Keep these."""
        for fleet in {r.fleet for r in records}:
            self._states[fleet].append(r for r in records if r.fleet == fleet)

    def read(self, fleet: str, since: str = "", subject: str = "", limit: int = 100) -> tuple[DecisionRecord, ...]:
        """Ascending: the newest `limit`, or with `since` the first `limit` after that record."""
        state = self._states.get(fleet)
        found = () if state is None else state.decisions(fleet)
        after = next((number + 1 for number, r in enumerate(found) if r.id == since), 0)
        wanted = [r for r in found[after:] if not subject or r.subject == subject]
        return tuple(wanted[:limit] if since else wanted[-limit:])


def _merged(kept: Mapping[str, DecisionRecord], own: Mapping[str, DecisionRecord]) -> tuple[DecisionRecord, ...]:
    return tuple(sorted({**kept, **own}.values(), key=lambda r: (r.at_s, r.id)))[-MOST_RECORDS:]


def _records_in(found: Json, fleet: str) -> dict[str, DecisionRecord]:
    """The records in a ConfigMap, of one fleet where given; none where they cannot be read."""
    try:
        rows = json.loads(_unpacked(found, _DECISIONS) or "[]")
        return {row[1]: read_record(*row) for row in rows if not fleet or row[0] == fleet}
    except (ValueError, TypeError, KeyError):
        return {}


def _unpacked(found: Json, key: str) -> str | None:
    packed = (found.get("binaryData") or {}).get(key)
    try:
        return None if packed is None else gzip.decompress(base64.b64decode(packed)).decode()
    except (OSError, EOFError, ValueError, binascii.Error):
        return None
