"""`run`: every fleet of a folder of policies in one process, until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp

from autoscaler.api.auth import Authenticator, Role
from autoscaler.cli.credentials import AnyOf, TokensFile
from autoscaler.cli.errors import UsageError, read_bytes
from autoscaler.cli.logs import log_decisions, set_up
from autoscaler.cli.platforms import BuiltFleet, FleetContext, Instance, builder, instance_of
from autoscaler.cli.policy_folder import PolicyFolder
from autoscaler.cli.service import Listen, Service, SystemClock, printed_tokens
from autoscaler.cli.settings import Settings, parse_settings
from autoscaler.controller.loop import FleetController, Wanted
from autoscaler.domain.names import did_you_mean
from autoscaler.ports import PermanentError

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0


def run(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT. Returns 0. Raises UsageError for input that cannot be used."""
    settings = read_settings(arguments.settings)
    set_up(settings.log)
    clock = SystemClock()
    folder = PolicyFolder(arguments.policies, clock.now_s)
    if not folder.look():
        raise UsageError(_nothing_valid(arguments.policies, folder))
    asyncio.run(_Run(settings, folder, clock).serve())
    return 0


def read_settings(path: Path | None) -> Settings:
    """The settings; all defaults where no file is named. Raises UsageError with every error."""
    if path is None:
        return Settings()
    parsed = parse_settings(read_bytes(path, "a settings file"), path)
    if isinstance(parsed, Settings):
        return parsed
    raise UsageError("; ".join(map(str, parsed)))


def _nothing_valid(path: Path, folder: PolicyFolder) -> str:
    errors = [str(e) for found in folder.errors.values() for e in found]
    if not errors:
        return f"{path}: no *.yaml or *.yml in this folder; expected at least one policy"
    more = f" (and {len(errors) - 1} more; `lora-autoscaler policy check {path}` shows all)" if len(errors) > 1 else ""
    return f"no policy in {path} is valid: {errors[0]}{more}"


def unused(settings: Settings, fleets: Collection[str]) -> dict[str, str]:
    """Conditions of settings for fleets that no policy has, most often a misspelling. `fleets`: those with one."""
    return {
        f"SettingsUnused/{name}": f"`fleets.{name}` of the settings is in force for nothing: no valid policy has this "
        f"fleet{did_you_mean(name, fleets) or '; name one that has, or drop it'}"
        for name in settings.fleets
        if name not in fleets
    }


@dataclass(slots=True)
class _Run:
    settings: Settings
    folder: PolicyFolder
    clock: SystemClock
    controllers: dict[str, FleetController] = field(default_factory=dict)
    built: dict[str, BuiltFleet] = field(default_factory=dict)

    async def serve(self) -> None:
        """Start everything; end everything, whatever happens in between."""
        ends = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ends.set)
        listen = self._listen()
        state = self.settings.path(self.settings.state)
        async with contextlib.AsyncExitStack() as stack:
            instance = await self._join(stack)
            authenticator, told = self._authenticator(instance)
            service = Service(
                state, listen, authenticator, self.clock, self.settings.lease_s, instance.lease, instance.shared
            )
            stack.push_async_callback(service.close)
            session = await stack.enter_async_context(aiohttp.ClientSession())
            if not await done_before(ends, self._add_new(service, session, stack)):
                say("ended before every fleet was started")
                return
            for why in unused(self.settings, self.controllers).values():
                _log.warning("%s", why)
            say(f"API and documentation at {listen.url}/docs")
            for line in told:
                say(line)
            await self._until(ends, service, session, stack)
        say("ended; engines that this process did not start, and routers, go on")

    def _listen(self) -> Listen:
        told, path = self.settings.listen, self.settings.path
        for name, file in (("listen.certFile", told.cert_file), ("listen.keyFile", told.key_file)):
            if file is not None:
                read_bytes(path(file), f"{name}, in PEM")
        certificate = None if told.cert_file is None else path(told.cert_file)
        return Listen(told.host, told.port, certificate, None if told.key_file is None else path(told.key_file))

    async def _until(
        self, ends: asyncio.Event, service: Service, session: aiohttp.ClientSession, stack: contextlib.AsyncExitStack
    ) -> None:
        """Serve, and look for new policies, until the end is asked for. Raises what serving raises."""
        serving = asyncio.create_task(service.serve())
        ending = asyncio.create_task(ends.wait())
        try:
            while not ending.done():
                await asyncio.wait((serving, ending), timeout=_LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
                await done_before(ends, self._add_new(service, session, stack))
        finally:
            for task in (serving, ending):
                task.cancel()
            await asyncio.gather(serving, ending, return_exceptions=True)

    async def _add_new(
        self, service: Service, session: aiohttp.ClientSession, stack: contextlib.AsyncExitStack
    ) -> None:
        """Start fleets whose policy is new, and let the routers of the others follow theirs."""
        for name in self.folder.look():
            if name not in self.controllers:
                await self._add(name, service, session, stack)
            elif (follow := self.built[name].follow) is not None:
                await follow(self.folder.policy(name))

    async def _add(
        self, name: str, service: Service, session: aiohttp.ClientSession, stack: contextlib.AsyncExitStack
    ) -> None:
        self._wanted(name)  # so that the catalogue is there when the platform asks for it
        context = FleetContext(
            lambda: self.folder.policy(name), lambda: self.folder.catalogue(name), self.settings, service.stores,
            service.shared, session, self.clock, service.lease,
        )  # fmt: skip
        try:
            built = await builder(self.settings.platform)(context, stack)
        except PermanentError as error:
            raise UsageError(f"fleet {name}: {error}") from error
        if built.config_map is not None:
            self.folder.reads_config_maps(name, built.config_map)
        self.built[name] = built
        self.controllers[name] = service.add_fleet(
            name,
            built.world,
            built.hub,
            lambda: self._wanted(name),
            (log_decisions, *built.subscribers),
            built.frozen,
            built.checkpoints,
            built.clock,
        )
        policy = self.folder.policy(name)
        parts = (f"mode {policy.mode.value}", f"{len(self.folder.catalogue(name).ids)} adapters", *built.told)
        say(f"fleet {name}: {', '.join(parts)}")

    def _wanted(self, name: str) -> Wanted:
        wanted, built = self.folder.wanted(name, self._seen(name)), self.built.get(name)
        own = {} if built is None else built.conditions()
        return replace(wanted, conditions={**wanted.conditions, **unused(self.settings, self.controllers), **own})

    def _seen(self, name: str) -> Mapping[str, str]:
        """Adapters that the fleet's engines listed at the last tick; their sources are the policy's template."""
        controller = self.controllers.get(name)
        view = None if controller is None else controller.latest
        replicas = () if view is None else view.observation.replicas
        return dict.fromkeys((a for r in replicas for a in sorted(r.registered or ())), "")

    async def _join(self, stack: contextlib.AsyncExitStack) -> Instance:
        try:
            return await instance_of(self.settings, self.clock, lambda: self.controllers, stack)
        except PermanentError as error:
            raise UsageError(str(error)) from error

    def _authenticator(self, instance: Instance) -> tuple[Authenticator, tuple[str, ...]]:
        """Who may ask; and the tokens of this process where nobody else knows any."""
        known: list[Authenticator] = []
        told: tuple[str, ...] = ()
        if self.settings.tokens is not None:
            known.append(TokensFile(self.settings.path(self.settings.tokens), self.clock.now_s))
        if instance.callers is not None:
            known.append(instance.callers)
        if not known:
            tokens, table = printed_tokens()
            known.append(table)
            told = (f"tokens of this process: operator {tokens[Role.OPERATOR]}   reader {tokens[Role.READER]}",)
        return AnyOf(known), told


async def done_before(ends: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Whether the work was done before the end was asked for; else it is cancelled. Raises what it raises."""
    working, ending = asyncio.create_task(work), asyncio.create_task(ends.wait())
    await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    done = working.done()
    for task in (working, ending):
        task.cancel()
    await asyncio.gather(working, ending, return_exceptions=True)
    if done:
        working.result()
    return done


def say(text: str) -> None:
    """A line for the operator, on standard error."""
    print(text, file=sys.stderr, flush=True)
