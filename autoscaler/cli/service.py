"""A controller process: fleets' loops, one store, one lease, one API. `run` and `demo` put their worlds into it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import uvicorn

from autoscaler.api import ApiParts, create_app
from autoscaler.api.auth import Authenticator, Principal, Role, TokenTable
from autoscaler.api.parts import SharedStores
from autoscaler.cli.errors import UsageError
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.connectors.stores.lease import FileLease
from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.controller.learning import Learner
from autoscaler.controller.loop import FleetController, Wanted
from autoscaler.controller.observe import World
from autoscaler.controller.stores import Stores
from autoscaler.domain.decisions import DecisionRecord
from autoscaler.planner import FleetPlan
from autoscaler.policy.words import Mode
from autoscaler.ports import CheckpointStore, Clock, Detachable, FleetActuator, Lease, PermanentError, TemporaryError
from autoscaler.telemetry import FleetMetrics, FleetView

_log = logging.getLogger(__name__)
_RENEWALS = 4  # within a lease's duration
_LOOKS = 8  # of who follows, so that a lease that is over is taken within a quarter of its duration
_DETACHED_EVERY_S = 10.0

Subscriber = Callable[[FleetView, tuple[DecisionRecord, ...]], None]


class SystemClock:
    """`Clock` of this machine."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)


class RousedClock:
    """`Clock` of one fleet's loop, whose sleep ends early for what cannot wait for the next tick.

    When this instance begins to lead: with a tick as long as the lease it would else be a third duration of it until
    what the last leader left undone is done. When a replica is taken away: it answers for seconds only. Who is roused
    again sleeps at least a fifth of what was meant, so that many replicas that go cost few ticks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._roused = clock, asyncio.Event()
        self._roused_at_s = -math.inf

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        return self._clock.now_s()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or once roused; at once where that happened since the last sleep."""
        ends = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._roused.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._roused.is_set():
                least_s = seconds / 5
                await self._clock.sleep(min(max(self._roused_at_s + least_s - self.now_s(), 0.0), least_s))
                self._roused_at_s = self.now_s()
        finally:
            self._roused.clear()
            for end in ends:
                end.cancel()

    def rouse(self) -> None:
        """Let the loop go on now."""
        self._roused.set()


def make_token() -> tuple[str, str]:
    """A new bearer token, and the SHA-256 that is kept of it."""
    token = secrets.token_hex(20)  # no letter of it looks like an option to a command line
    return token, hashlib.sha256(token.encode()).hexdigest()


def printed_tokens() -> tuple[dict[Role, str], TokenTable]:
    """A token for each role, good for this process, to be printed once; there is never a default password."""
    tokens = {role: make_token()[0] for role in Role}
    return tokens, table_of({role.name.lower(): token for role, token in tokens.items()})


def table_of(tokens: Mapping[str, str]) -> TokenTable:
    """Who has which token, by the lower-case name of the role."""
    entries = ((hashlib.sha256(tokens[r.name.lower()].encode()).hexdigest(), r) for r in Role)
    return TokenTable((digest, Principal(f"local-{role.name.lower()}", role)) for digest, role in entries)


def instance_name() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class RenewedLease(Lease, Protocol):
    """A `Lease` that a process keeps. Both calls may block for as long as its place takes to answer."""

    def renew(self, now_s: float) -> bool:
        """Take or renew it; False where another holds it."""
        ...

    def release(self) -> None:
        """Give it back at once."""
        ...


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the API listens; with a certificate it speaks TLS. `key`: where it is not in the certificate's file."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        """What clients are told."""
        return f"{'http' if self.certificate is None else 'https'}://{self.host}:{self.port}"


class Service:
    """Everything of one process that is not a fleet's own world."""

    def __init__(
        self,
        state: Path,
        listen: Listen,
        authenticator: Authenticator,
        clock: Clock,
        lease_s: float = 15.0,
        lease: RenewedLease | None = None,
        shared: SharedStores | None = None,
    ) -> None:
        """`lease` and `shared`: of the platform; None: files'. Raises UsageError where the state cannot be opened."""
        self.clock, self.listen, self.metrics = clock, listen, FleetMetrics()
        try:
            state.mkdir(parents=True, exist_ok=True)
            self.stores = SqliteStores(state / "state.db", clock.now_s)
            self.lease: RenewedLease = lease or FileLease(state / "lease.json", instance_name(), lease_s)
        except (OSError, PermanentError, TemporaryError) as error:
            raise UsageError(f"the state folder {state} cannot be used: {error}") from error
        own = self.stores
        self.shared = shared or SharedStores(own.overrides, own.decisions, own.audit, own.proposals, own.detachments)
        self._lease_s = lease_s
        self._authenticator = authenticator
        self._controllers: dict[str, FleetController] = {}
        self._hubs: dict[str, RingHub] = {}
        self._actuators: dict[str, FleetActuator] = {}
        self._clocks: list[RousedClock] = []
        self._running: asyncio.TaskGroup | None = None

    def add_fleet(
        self,
        name: str,
        world: World,
        hub: RingHub,
        wanted: Callable[[], Wanted],
        subscribers: Sequence[Subscriber] = (),
        frozen: Callable[[], str] = lambda: "",
        checkpoints: CheckpointStore | None = None,
        clock: RousedClock | None = None,
    ) -> FleetController:
        """Run a fleet by what `wanted` says at each tick; also while `serve` runs. `frozen` says why not to act."""
        stores = Stores(self.shared.decisions, checkpoints or self.stores.checkpoints)
        clock = clock or RousedClock(self.clock)
        self._clocks.append(clock)
        controller = FleetController(
            world,
            stores,
            self.lease,
            clock,
            lambda: self._with_conditions(wanted()),
            self._approvals,
            (self.metrics.update, *subscribers),
            lambda: self._detached(name) or frozen(),
            partial(self.metrics.observed_load, name),
            Learner(self.clock, self.stores.checkpoints, world.history),
        )
        self._controllers[name], self._hubs[name], self._actuators[name] = controller, hub, world.actuator
        if self._running is not None:
            self._running.create_task(controller.run())
        return controller

    def views(self) -> dict[str, FleetView]:
        """The last view of each fleet that was observed."""
        return {name: c.latest for name, c in self._controllers.items() if c.latest is not None}

    async def serve(self) -> None:
        """Lead if nobody else does, tick every fleet, answer the API; until cancelled.

        Raises UsageError where the API cannot listen.
        """
        _check_free(self.listen)
        server = self._server()
        try:
            async with asyncio.TaskGroup() as self._running:
                self._running.create_task(self._renew())
                self._running.create_task(_answer(server))
                self._running.create_task(self._stay_detached())
                for controller in self._controllers.values():
                    self._running.create_task(controller.run())
        except BaseExceptionGroup as group:
            usage = group.subgroup(UsageError)
            raise usage.exceptions[0] if usage is not None else group from None
        finally:
            self._running = None

    async def let_go(self, fleet: str) -> tuple[str, ...]:
        """Open the fleet's gates and remove our marks, where its platform has any; a sentence for each thing done."""
        actuator = self._actuators[fleet]
        return await actuator.detach() if isinstance(actuator, Detachable) else ()

    async def close(self) -> None:
        """Stop acting and let go of the lease, so that another instance goes on at once."""
        for controller in self._controllers.values():
            await controller.close()
        await asyncio.to_thread(self.lease.release)
        self.stores.close()

    def _with_conditions(self, wanted: Wanted) -> Wanted:
        """What is wanted, with what an operator must know of the store."""
        return replace(wanted, conditions={**wanted.conditions, **self.stores.conditions})

    def _detached(self, fleet: str) -> str:
        """Why nothing is done to a detached fleet, empty where it is managed."""
        found = self.shared.detachments.read(fleet)
        return f"detached by {found.actor}: {found.reason}" if found else ""

    async def _stay_detached(self) -> None:
        """Replicas that start after a fleet was detached must not wait for a gate that nobody opens."""
        while True:
            await self.clock.sleep(_DETACHED_EVERY_S)
            for fleet in list(self._actuators):
                try:
                    if self._detached(fleet):
                        await self.let_go(fleet)
                except (TemporaryError, PermanentError) as error:
                    _log.warning("the fleet %s cannot be let go of, if it is detached: %s", fleet, error)

    def _approvals(self, last: FleetPlan | None) -> frozenset[str]:
        """Keys of approved changes; what the last plan proposed is offered first."""
        if last is None or last.mode is not Mode.PROPOSE:
            return frozenset()
        self.shared.proposals.propose(last.fleet, last.proposals)
        return self.shared.proposals.approvals(last.fleet)

    async def _renew(self) -> None:
        leads = False
        while True:
            led, leads = leads, await self._renewed()
            if leads and not led:
                for clock in self._clocks:
                    clock.rouse()
            await self.clock.sleep(self._lease_s / (_RENEWALS if leads else _LOOKS))

    async def _renewed(self) -> bool:
        try:
            return await asyncio.to_thread(self.lease.renew, self.clock.now_s())
        except (OSError, TemporaryError, PermanentError) as error:
            # What is not renewed ends by its own time; until then, and after, routers are served.
            _log.warning("the lease cannot be renewed: %s", error)
            return False

    def _server(self) -> uvicorn.Server:
        parts = ApiParts(
            views=self.views,
            hubs=self._hubs,
            overrides=self.shared.overrides,
            decisions=self.shared.decisions,
            audit=self.shared.audit,
            proposals=self.shared.proposals,
            detachments=self.shared.detachments,
            let_go=self.let_go,
            authenticator=self._authenticator,
            metrics=self.metrics.registry,
            now_s=self.clock.now_s,
            ready=self._not_ready,
        )
        config = uvicorn.Config(
            create_app(parts), self.listen.host, self.listen.port, log_level="warning", access_log=False,
            lifespan="off", timeout_graceful_shutdown=2, server_header=False,
            ssl_certfile=self.listen.certificate, ssl_keyfile=self.listen.key,
        )  # fmt: skip
        try:
            config.load()
        except OSError as error:
            raise UsageError(f"listen.certFile {self.listen.certificate} cannot be used: {error}") from error
        return uvicorn.Server(config)

    def _not_ready(self) -> str:
        waiting = sorted(set(self._controllers) - set(self.views()))
        return f"not observed yet: {', '.join(waiting)}" if waiting else ""


def _check_free(listen: Listen) -> None:
    with socket.socket(socket.AF_INET6 if ":" in listen.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen.host, listen.port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(
                f"the API cannot listen on {listen.host}:{listen.port}: {reason}; stop what uses it, or choose another "
                "one (`listen.port` in the settings)"
            ) from error


async def _answer(server: uvicorn.Server) -> None:
    """Serve without uvicorn's own signal handlers: who composed this process decides when it ends."""
    try:
        await server._serve()
    except SystemExit as error:
        raise UsageError(
            f"the API cannot listen on {server.config.host}:{server.config.port}: is the port in use? "
            "choose another one"
        ) from error
    finally:
        for listener in getattr(server, "servers", ()):
            listener.close()
