"""`EngineClient` over HTTP: bounded in time and in parallel, patient with what may pass, final with what will not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from autoscaler.connectors.bodies import bounded_text
from autoscaler.connectors.engines.answers import (
    Answer,
    Verdict,
    adapters_listed,
    load_answer,
    merged_listed,
    unload_answer,
)
from autoscaler.connectors.engines.dialects import Dialect
from autoscaler.connectors.engines.ledger import LoadBook, LoadMemory, NoMemory
from autoscaler.domain.decisions import Applied, Failed, LoadAdapter, Outcome, Skipped, UnloadAdapter
from autoscaler.domain.fleet import LoadLedger, Replica
from autoscaler.domain.observation import Catalogue
from autoscaler.ports import Clock

MOST_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How engines are asked.

    Attributes:
        dialect: of these engines.
        parallel_per_replica: loads in flight on one replica; each stalls the requests on it.
        load_timeout_s: a load that takes longer has failed.
        list_timeout_s: the same for a list or an unload.
        backoff_s: wait after the first failed load of an adapter on a replica; it doubles with each.
        resolver: whether engines load unknown adapters by themselves, so that such are not foreign.
        api_key_file: holds the engines' API key; read at each call, so that it may be changed.
        base_model: the fleet's, which is no adapter where an engine lists it.
    """

    dialect: Dialect
    parallel_per_replica: int = 2
    load_timeout_s: float = 60.0
    list_timeout_s: float = 5.0
    backoff_s: float = 10.0
    resolver: bool = False
    api_key_file: Path | None = None
    base_model: str = ""


@dataclass(slots=True)
class _Gate:
    """What is under way on one replica."""

    places: asyncio.Semaphore
    busy: set[str] = field(default_factory=set)


class HttpEngines:
    """`EngineClient` for vLLM and SGLang. Given a memory, its ledger survives a restart of the controller."""

    def __init__(
        self,
        fleet: str,
        settings: EngineSettings,
        session: aiohttp.ClientSession,
        clock: Clock,
        memory: LoadMemory | None = None,
    ) -> None:
        self._settings = settings
        self._session = session
        self._clock = clock
        self._book = LoadBook(fleet, memory or NoMemory(), settings.backoff_s)
        self._gates: dict[str, _Gate] = {}
        self._roots: dict[str, dict[str, str]] = {}

    def ledger(self) -> LoadLedger:
        """What this controller loaded on which replica, what failed, and what others loaded."""
        return self._book.ledger()

    def recall(self) -> None:
        """Take over what another instance has loaded meanwhile; the next lists say whether it is still there."""
        self._book.recall()

    def keep(self, replicas: frozenset[str]) -> None:
        """Forget replicas that are gone from the platform."""
        self._book.keep(replicas)
        self._roots = {r: roots for r, roots in self._roots.items() if r in replicas}
        self._gates = {r: gate for r, gate in self._gates.items() if r in replicas or gate.busy}

    def reconsider(self, catalogue: Catalogue) -> None:
        """Give adapters whose source or revision has changed a new trial."""
        wanted = zip(catalogue.sources, catalogue.revisions, strict=True)
        self._book.reconsider(dict(zip(catalogue.ids, wanted, strict=True)))

    def listed(self) -> dict[str, str]:
        """Adapter id -> source, of every list that an engine gave last: the catalogue of a fleet that states none."""
        return {adapter: root for roots in self._roots.values() for adapter, root in roots.items()}

    async def registered(self, replica: Replica) -> frozenset[str] | None:
        """Adapter ids that the engine's API knows; None where it does not answer with a list in time."""
        asked_at_s = self._clock.now_s()
        status, body = await self._call("GET", replica, self._settings.dialect.list_path, self._settings.list_timeout_s)
        listed = adapters_listed(body) if status == 200 else None
        if listed is None:
            return None
        resolved = frozenset(a for a, root in listed.items() if self._settings.resolver and _named_after(a, root))
        self._roots[replica.id] = listed
        self._book.listed(replica, frozenset(listed), resolved, asked_at_s)
        merged = merged_listed(body, self._settings.base_model) if _is_hot(replica) else frozenset()
        return frozenset(listed) | merged

    async def load(self, replica: Replica, effect: LoadAdapter) -> Outcome:
        """Load an adapter. `already loaded` is Applied; what cannot succeed is Failed without retry."""
        adapter, now_s = effect.adapter, self._clock.now_s()
        refusal = self._book.refusal(replica, adapter, effect.source, effect.revision)
        if refusal is not None and refusal.retry_at_s > now_s:
            if refusal.retry_at_s == float("inf"):
                return Failed(refusal.error)
            return Skipped(f"the next attempt is in {refusal.retry_at_s - now_s:.0f} s: {refusal.error}")
        gate = self._gates.setdefault(replica.id, _Gate(asyncio.Semaphore(self._settings.parallel_per_replica)))
        if adapter in gate.busy:
            return Skipped("a load of it is under way on this replica")
        gate.busy.add(adapter)
        try:
            async with gate.places:
                return await self._load(replica, effect)
        finally:
            gate.busy.discard(adapter)

    async def unload(self, replica: Replica, effect: UnloadAdapter) -> Outcome:
        """Unload an adapter; an unknown name is Applied, one that this controller did not load is left alone."""
        if self._book.revision(replica, effect.adapter) is None:
            return Skipped("this controller did not load it")
        answer = await self._unload(replica, effect.adapter)
        match answer.verdict:
            case Verdict.DONE | Verdict.UNKNOWN:
                self._book.unloaded(replica, effect.adapter)
                return Applied(answer.words)
            case Verdict.BUSY:
                return Failed(answer.words, retry_after_s=self._settings.backoff_s)
            case _:
                return Failed(answer.words)

    async def _load(self, replica: Replica, effect: LoadAdapter) -> Outcome:
        before = self._book.revision(replica, effect.adapter)
        replace = before is not None and before != effect.revision
        self._book.begin(replica, effect.adapter, effect.revision)
        answer = await self._send_load(replica, effect, replace=replace)
        if replace and answer.verdict is Verdict.ALREADY:
            # No way to replace in place: the name has to go first. Requests in between get 404 from this replica.
            if (await self._unload(replica, effect.adapter)).verdict in (Verdict.DONE, Verdict.UNKNOWN):
                self._book.unloaded(replica, effect.adapter)
            answer = await self._send_load(replica, effect, replace=False)
        return self._settle(replica, effect, answer, ours=before is not None)

    def _settle(self, replica: Replica, effect: LoadAdapter, answer: Answer, *, ours: bool) -> Outcome:
        adapter, now_s = effect.adapter, self._clock.now_s()
        match answer.verdict:
            case Verdict.DONE:
                self._book.loaded(replica, adapter, effect.revision, now_s)
                return Applied(answer.words)
            case Verdict.ALREADY if ours:
                self._book.loaded(replica, adapter, effect.revision, now_s)
                return Applied(answer.words)
            case Verdict.ALREADY:
                self._book.not_ours(replica, adapter)
                return Applied(f"registered already, and not by this controller: {answer.words}")
        again = answer.verdict is Verdict.BUSY
        failure = self._book.failed(replica, adapter, effect.source, effect.revision, answer.words, now_s, again=again)
        return Failed(answer.words, retry_after_s=failure.retry_at_s - now_s if again else None)

    async def _send_load(self, replica: Replica, effect: LoadAdapter, *, replace: bool) -> Answer:
        dialect = self._settings.dialect
        # A hot group's adapter must not be evicted.
        body = dialect.load_body(effect.adapter, effect.source, replace=replace, pin=_is_hot(replica))
        status, words = await self._call("POST", replica, dialect.load_path, self._settings.load_timeout_s, body)
        return Answer(Verdict.BUSY, words) if status is None else load_answer(status, words)

    async def _unload(self, replica: Replica, adapter: str) -> Answer:
        path = self._settings.dialect.unload_path
        status, words = await self._call("POST", replica, path, self._settings.list_timeout_s, {"lora_name": adapter})
        return Answer(Verdict.BUSY, words) if status is None else unload_answer(status, words)

    async def _call(
        self, method: str, replica: Replica, path: str, timeout_s: float, body: object = None
    ) -> tuple[int | None, str]:
        """(status, body); the status is None where no answer came, and the text then says why."""
        url = f"http://{replica.address}{path}"
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(method, url, json=body, headers=self._headers(), allow_redirects=False) as answer,
            ):
                return answer.status, await bounded_text(answer, MOST_BODY_BYTES)
        except TimeoutError:
            return None, f"{url} took longer than {timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return None, f"{url} cannot be reached: {error or type(error).__name__}"

    def _headers(self) -> dict[str, str]:
        if self._settings.api_key_file is None:
            return {}
        return {"Authorization": f"Bearer {self._settings.api_key_file.read_text().strip()}"}


def _is_hot(replica: Replica) -> bool:
    """A hot group is named `hot-<adapter or tenant>`."""
    return replica.group.startswith("hot-")


def _named_after(adapter: str, root: str) -> bool:
    """Whether the root is a folder of the adapter's name, as a resolver finds it."""
    return root.rstrip("/").rsplit("/", 1)[-1] == adapter
