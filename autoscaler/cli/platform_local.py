"""`platform: local`: simulated engines of this process, behind a stock Envoy where the settings name one."""

from __future__ import annotations

from contextlib import AsyncExitStack

from autoscaler.cli.errors import UsageError
from autoscaler.cli.local_engines import CatalogueFiles, first_ring, start_engines, start_envoy, vllm_settings
from autoscaler.cli.platforms import BuiltFleet, FleetContext
from autoscaler.cli.settings import Envoy
from autoscaler.cli.sources import FollowingSource
from autoscaler.connectors.engines.client import HttpEngines
from autoscaler.connectors.envoy import EnvoyFilePublisher, EnvoySettings, Mode
from autoscaler.connectors.routers.fanout import Publishers
from autoscaler.connectors.routers.file import FilePublisher
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.controller.observe import World
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import CatalogueKind
from autoscaler.policy.words import Mode as PolicyMode
from autoscaler.ports import PermanentError, TemporaryError
from autoscaler.simulator.http.pump import Pump

_SEEN = (CatalogueKind.PATH_TEMPLATE, CatalogueKind.ENGINE)


async def build(context: FleetContext, stack: AsyncExitStack) -> BuiltFleet:
    """Start the fleet's engines and its Envoy. Raises UsageError where a port or a folder cannot be used."""
    policy, wiring = context.policy(), context.wiring
    files = CatalogueFiles(context.catalogue, any_name=policy.adapters.kind in _SEEN)
    replicas = max(wiring.local.replicas, policy.groups.warm.min_replicas)
    fleet = await start_engines(policy, files, Pump(), wiring.local.port_base, replicas, stack)
    rings = context.settings.path(context.settings.state) / "rings"
    rings.mkdir(parents=True, exist_ok=True)
    hub = RingHub(policy.ring.router_ttl_s)
    durable, routers = FilePublisher(rings / f"{policy.name}.json"), dict(wiring.routers)
    told = [f"{len(await fleet.replicas())} simulated engines"]
    if wiring.envoy is None:
        publisher, follow = Publishers(durable, (hub,)), None
    else:
        envoy = await _envoy(context, wiring.envoy, stack)
        routers.setdefault(envoy.settings.node, f"{envoy.settings.admin_url}/stats/prometheus")
        publisher = Publishers(durable, (envoy, hub))
        told.append(f"Envoy at {envoy.settings.url}")

        async def follow(now: FleetPolicy) -> None:
            await envoy.set_mode(_mode(now))

    # The engines are as new as this process, whatever ring the last one left: it names nobody who answers.
    last = await publisher.last()
    epoch = 1 if last is None else last[0] + 1
    await publisher.publish(epoch, first_ring(policy, context.catalogue(), await fleet.replicas(), epoch))
    engines = HttpEngines(policy.name, vllm_settings(policy), context.session, context.clock, context.stores.loads)
    metrics = FollowingSource(context.settings, routers, context.policy, context.session, context.clock)
    world = World(metrics, fleet, engines, publisher, context.shared.overrides, metrics)
    return BuiltFleet(world, hub, follow, told=tuple(told))


async def _envoy(context: FleetContext, told: Envoy, stack: AsyncExitStack) -> EnvoyFilePublisher:
    directory = context.settings.path(told.directory)
    node = f"envoy-{context.name}"
    settings = EnvoySettings(directory, told.port, told.admin_port, told.host, node)
    mode = _mode(context.policy())
    try:
        return await start_envoy(settings, lambda: context.catalogue().ids, mode, stack, process=told.start)
    except (OSError, PermanentError, TemporaryError) as error:
        raise UsageError(f"Envoy of fleet {context.name}: {error}") from error


def _mode(policy: FleetPolicy) -> Mode:
    """Advice must not change where requests go."""
    return Mode.LEAST_REQUESTS if policy.mode is PolicyMode.ADVISE else Mode.RING
