"""Where fleets run: what a platform makes of a fleet's policy and settings, so that the same loop drives each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module

import aiohttp

from autoscaler.api.auth import Authenticator
from autoscaler.api.parts import SharedStores
from autoscaler.cli.service import RenewedLease, RousedClock, Subscriber
from autoscaler.cli.settings import FleetWiring, Platform, Settings
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.controller.observe import World
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.ports import CheckpointStore, Clock, Lease

PLATFORMS: Mapping[Platform, str] = {
    Platform.LOCAL: "autoscaler.cli.platform_local",
    Platform.KUBERNETES: "autoscaler.cli.platform_kubernetes",
}
"""Platform -> the module whose `build(context, stack)` is its Builder; imported where it is used."""


@dataclass(frozen=True, slots=True)
class FleetContext:
    """What a platform is told of one fleet.

    Attributes:
        policy, catalogue: the last valid ones, now.
        shared: what operators say, and what was decided.
    """

    policy: Callable[[], FleetPolicy]
    catalogue: Callable[[], Catalogue]
    settings: Settings
    stores: SqliteStores
    shared: SharedStores
    session: aiohttp.ClientSession
    clock: Clock
    lease: Lease

    @property
    def name(self) -> str:
        """The fleet's name."""
        return self.policy().name

    @property
    def wiring(self) -> FleetWiring:
        """The fleet's own settings."""
        return self.settings.fleet(self.name)


@dataclass(frozen=True, slots=True)
class BuiltFleet:
    """One fleet on its platform.

    Attributes:
        world: what it is seen and changed through.
        hub: its ring, as the API shows it.
        follow: called before each tick with the policy of that tick, for routers whose mode follows it.
        frozen: why nothing may be done, empty where something may.
        config_map: a ConfigMap's text, for catalogues that live in one.
        checkpoints: where its state is saved; None: in the process's own stores.
        told: sentences for the operator at the start.
        subscribers: called with each tick's view and records.
        conditions: what an operator must know of the platform: name -> sentence.
        clock: its loop's, where the platform may end a sleep early; None: the process's own.
    """

    world: World
    hub: RingHub
    follow: Callable[[FleetPolicy], Awaitable[None]] | None = None
    frozen: Callable[[], str] = lambda: ""
    config_map: Callable[[str], bytes | None] | None = None
    checkpoints: CheckpointStore | None = None
    told: tuple[str, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    conditions: Callable[[], Mapping[str, str]] = dict
    clock: RousedClock | None = None


Builder = Callable[[FleetContext, AsyncExitStack], Awaitable[BuiltFleet]]
"""Makes a fleet; what must end with the process is pushed on the stack. Raises UsageError, PermanentError."""


def builder(platform: Platform) -> Builder:
    """The builder of a platform."""
    found: Builder = import_module(PLATFORMS[platform]).build
    return found


@dataclass(frozen=True, slots=True)
class Instance:
    """What all instances of a controller share, and who else may ask them, by their platform.

    Attributes:
        lease, shared: None: files of this machine.
        callers: knows tokens that no file of ours has; None: nobody does.
    """

    lease: RenewedLease | None = None
    shared: SharedStores | None = None
    callers: Authenticator | None = None


Joining = Callable[[Settings, Clock, Callable[[], Collection[str]], AsyncExitStack], Awaitable[Instance]]


async def instance_of(
    settings: Settings, clock: Clock, fleets: Callable[[], Collection[str]], stack: AsyncExitStack
) -> Instance:
    """The platform's own, where it has any; `fleets`: the fleets' names, now. Raises PermanentError."""
    join: Joining | None = getattr(import_module(PLATFORMS[settings.platform]), "join", None)
    return Instance() if join is None else await join(settings, clock, fleets, stack)
