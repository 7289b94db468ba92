"""`platform: kubernetes`: pods of targets in a cluster; leadership, ring and checkpoints there too."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from autoscaler.api.auth import Principal, Role, TokenTable
from autoscaler.api.parts import SharedStores
from autoscaler.cli.errors import UsageError
from autoscaler.cli.platforms import BuiltFleet, FleetContext, Instance
from autoscaler.cli.service import RousedClock, instance_name, make_token, table_of
from autoscaler.cli.settings import Settings
from autoscaler.cli.sources import FollowingSource
from autoscaler.connectors.engines.client import EngineSettings, HttpEngines
from autoscaler.connectors.engines.dialects import SGLANG, VLLM
from autoscaler.connectors.envoy.resources import Mode as RouterMode
from autoscaler.connectors.kubernetes.access import ClusterAccess
from autoscaler.connectors.kubernetes.acks import SharedAcks
from autoscaler.connectors.kubernetes.cluster import Cluster
from autoscaler.connectors.kubernetes.config_map import ConfigMapRing, OneConfigMap
from autoscaler.connectors.kubernetes.fleet import KubernetesFleet
from autoscaler.connectors.kubernetes.hot_groups import HotTemplate
from autoscaler.connectors.kubernetes.lease import KubernetesLease
from autoscaler.connectors.kubernetes.loads import ConfigMapLoads
from autoscaler.connectors.kubernetes.operators import (
    NotedAudit,
    NotedDetachments,
    NotedPauses,
    NotedProposals,
    OperatorNotes,
)
from autoscaler.connectors.kubernetes.reporting import Reporter
from autoscaler.connectors.kubernetes.state import ClusterDecisions, ConfigMapState
from autoscaler.connectors.kubernetes.targets import GroupTarget
from autoscaler.connectors.kubernetes.tier_overrides import TierOverrides
from autoscaler.connectors.kubernetes.tokens import shared_tokens
from autoscaler.connectors.routers.fanout import Publishers
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.controller.observe import World
from autoscaler.domain.decisions import DecisionRecord
from autoscaler.domain.fleet import ReplicaState, Tier
from autoscaler.planner.views import COLD_GROUP, WARM_GROUP
from autoscaler.policy.groups import Target
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import HotSource, Mode, Preset
from autoscaler.ports import Clock, PermanentError, TemporaryError
from autoscaler.ring.slots import slot_name
from autoscaler.ring.snapshot import Member, RingSnapshot
from autoscaler.telemetry import FleetView

if TYPE_CHECKING:
    from autoscaler.connectors.envoy.discovery import EnvoyDiscovery

_log = logging.getLogger(__name__)
_LOADS_EVERY_S = 5.0  # written only when something was loaded or unloaded


async def join(
    settings: Settings, clock: Clock, fleets: Callable[[], Collection[str]], stack: AsyncExitStack
) -> Instance:
    """Leadership, and what instances share. Raises PermanentError where there is no cluster to ask."""
    cluster = await asyncio.to_thread(_cluster, settings)
    stack.callback(cluster.close)
    namespace, name = _namespace(settings, cluster), settings.kubernetes.lease
    lease = KubernetesLease(cluster, namespace, name, instance_name(), settings.lease_s)
    notes = OperatorNotes(await _ConfigMaps(cluster, namespace, stack).open(f"{name}-operators"), clock.now_s)
    audit = NotedAudit(notes)
    overrides = TierOverrides(cluster, namespace, NotedPauses(notes), audit)
    stack.callback(overrides.close)
    await asyncio.to_thread(overrides.first)
    shared = SharedStores(overrides, ClusterDecisions(), audit, NotedProposals(notes), NotedDetachments(notes))
    if settings.kubernetes.token_review:
        return Instance(lease, shared, ReviewedTokens(ClusterAccess(cluster, namespace), fleets))
    if settings.tokens is not None:
        return Instance(lease, shared)
    return Instance(lease, shared, await asyncio.to_thread(_shared_tokens, cluster, namespace, f"{name}-tokens"))


def _shared_tokens(cluster: Cluster, namespace: str, name: str) -> TokenTable | None:
    """Those of all instances, where the chart has made a place for them."""
    try:
        found = shared_tokens(cluster, namespace, name, [r.name.lower() for r in Role], lambda: make_token()[0])
    except TemporaryError as error:
        _log.warning("tokens are of this process only: %s", error)
        return None
    if found is None:
        return None
    _log.info("tokens `operator` and `reader` are in the Secret %s/%s", namespace, name)
    return table_of(found)


class ReviewedTokens:
    """`Authenticator` that asks the cluster. Who may command one fleet and read another is an operator of the one."""

    def __init__(self, access: ClusterAccess, fleets: Callable[[], Collection[str]]) -> None:
        self._access, self._fleets = access, fleets

    async def identify(self, token: str) -> Principal | None:
        """Whose the token is; None for nobody's, and for somebody's without any right here. Raises TemporaryError."""
        found = await self._access.caller(token, self._fleets())
        if found is None:
            return None
        if found.commands is None or found.commands:
            return Principal(found.name, Role.OPERATOR, found.commands)
        return Principal(found.name, Role.READER, found.reads)


async def build(context: FleetContext, stack: AsyncExitStack) -> BuiltFleet:
    """Follow the fleet's targets. Raises UsageError for settings that do not go together, PermanentError."""
    policy, wiring, settings = context.policy(), context.wiring, context.settings
    leading, overrides, decisions = context.lease, context.shared.overrides, context.shared.decisions
    assert isinstance(leading, KubernetesLease)
    assert isinstance(overrides, TierOverrides)
    assert isinstance(decisions, ClusterDecisions)
    if wiring.envoy is not None:
        raise UsageError(
            f"fleet {policy.name}: `envoy` is fed by files of one machine; in a cluster Envoys ask for the ring "
            f"(`discovery`), and other routers take it from the ConfigMap {policy.name}-ring or from the API"
        )
    cluster = await asyncio.to_thread(_cluster, settings)
    stack.callback(cluster.close)
    namespace = _namespace(settings, cluster)
    maps = _ConfigMaps(cluster, namespace, stack)
    ring, state = await maps.open(f"{policy.name}-ring"), ConfigMapState(await maps.open(f"{policy.name}-state"))
    loads = ConfigMapLoads(await maps.open(f"{policy.name}-loads"))
    decisions.of(policy.name, state)
    clock, loop = RousedClock(context.clock), asyncio.get_running_loop()
    fleet = KubernetesFleet(
        cluster, lambda: targets(context.policy(), namespace), state, wiring.engine_port,
        lambda: _template(context, namespace), lambda: _rouse(loop, clock),
    )  # fmt: skip
    stack.callback(fleet.close)
    hub = RingHub(policy.ring.router_ttl_s)
    discovery = await _discovery(context, stack)
    acks = SharedAcks(await maps.open(f"{policy.name}-routers"), leading)
    heard = tuple(each for each in (hub, discovery) if each is not None)
    publisher = Publishers(ConfigMapRing(ring, leading.fence), (*heard, acks))
    sharing = asyncio.create_task(acks.run(heard, context.clock))
    stack.callback(sharing.cancel)
    loading = policy.engine.loading
    asking = EngineSettings(
        SGLANG if policy.engine.preset is Preset.SGLANG else VLLM, loading.parallel_per_replica, loading.timeout_s,
        backoff_s=loading.backoff_s, resolver=policy.engine.resolver,
        api_key_file=None if wiring.engine_api_key_file is None else settings.path(wiring.engine_api_key_file),
        base_model=policy.base_model,
    )  # fmt: skip
    engines = HttpEngines(policy.name, asking, context.session, context.clock, loads)
    saving = asyncio.create_task(_save(state, loads, engines, context))
    stack.push_async_callback(_saved, saving, state, loads, context)
    metrics = FollowingSource(settings, wiring.routers, context.policy, context.session, context.clock)
    world = World(metrics, fleet, engines, publisher, overrides, metrics)
    reporter = Reporter(cluster, overrides, fleet.reference if settings.kubernetes.events else None)
    telling = asyncio.create_task(reporter.run())
    stack.callback(telling.cancel)
    return BuiltFleet(
        world, hub, frozen=leading.frozen, config_map=maps.catalogue, checkpoints=state, told=_told(policy, namespace),
        subscribers=(reporter.take, *(() if discovery is None else (_Unmanaged(discovery).take,))),
        follow=None if discovery is None else lambda policy: discovery.follow(_routing(policy)),
        conditions=lambda: {**overrides.conditions(context.name), **_refused(discovery)}, clock=clock,
    )  # fmt: skip


def _rouse(loop: asyncio.AbstractEventLoop, clock: RousedClock) -> None:
    with contextlib.suppress(RuntimeError):  # the process ends
        loop.call_soon_threadsafe(clock.rouse)


async def _discovery(context: FleetContext, stack: AsyncExitStack) -> EnvoyDiscovery | None:
    """What Envoys ask, where the settings say so. Raises UsageError where its port is taken."""
    told, policy = context.wiring.discovery, context.policy()
    if told is None:
        return None
    # With gRPC, which only those need who serve Envoys.
    from autoscaler.connectors.envoy.ads import AdsServer
    from autoscaler.connectors.envoy.discovery import EnvoyDiscovery

    server = AdsServer(told.host, told.port)
    try:
        await server.start()
    except OSError as error:
        raise UsageError(f"fleet {policy.name}: Envoys cannot ask at {told.host}:{told.port}: {error}") from error
    stack.push_async_callback(server.stop)
    return EnvoyDiscovery(
        server, known=lambda: context.catalogue().ids, mode=_routing(policy), router_ttl_s=policy.ring.router_ttl_s
    )


class _Unmanaged:
    """Lets Envoys reach the warm replicas while a fleet is only advised and no ring was ever published."""

    def __init__(self, discovery: EnvoyDiscovery) -> None:
        self._discovery = discovery
        self._shown: tuple[Member, ...] = ()
        self._showing: asyncio.Task[None] | None = None

    def take(self, view: FleetView, records: tuple[DecisionRecord, ...]) -> None:
        """A tick has ended."""
        seen, policy = view.observation, view.policy
        ready = [r for r in seen.replicas if r.state is ReplicaState.READY and r.group == WARM_GROUP and r.address]
        members = tuple(Member(r.id, r.address, slot=slot_name(number)) for number, r in enumerate(ready))
        if policy.mode is not Mode.ADVISE or seen.ring_body is not None or members == self._shown:
            return
        self._shown = members
        ring = RingSnapshot(
            view.fleet, 0, "", 2, members, warm=seen.catalogue.ids, base_models=(policy.base_model,)
        )  # fmt: skip
        self._showing = asyncio.create_task(self._discovery.show(ring))


def _routing(policy: FleetPolicy) -> RouterMode:
    """Advice changes nothing: a router of ours is then a plain one."""
    return RouterMode.LEAST_REQUESTS if policy.mode is Mode.ADVISE else RouterMode.RING


def _refused(discovery: EnvoyDiscovery | None) -> dict[str, str]:
    said = {} if discovery is None else discovery.refusals()
    text = "; ".join(f"{router} keeps the ring before: {words}" for router, words in sorted(said.items()))
    return {"RouterRefused": text} if text else {}


def targets(policy: FleetPolicy, namespace: str) -> tuple[GroupTarget, ...]:
    """What holds each group's count, with the policy's `auto` filled in."""
    groups = policy.groups
    found = [_target(policy, groups.warm.target, namespace, Tier.WARM, WARM_GROUP)]
    if groups.cold is not None:
        found.append(_target(policy, groups.cold.target, namespace, Tier.COLD, COLD_GROUP))
    if groups.hot is not None and groups.hot.source is HotSource.DECLARED:
        found += [_target(policy, t, namespace, Tier.HOT, "") for t in groups.hot.targets]
    return tuple(found)


def _target(policy: FleetPolicy, told: Target, namespace: str, tier: Tier, group: str) -> GroupTarget:
    name = told.name or f"{policy.name}-{group or tier.value}"
    return GroupTarget(told.api_version, told.kind, told.namespace or namespace, name, tier, group)


def _told(policy: FleetPolicy, namespace: str) -> tuple[str, ...]:
    told = [f"{target} is {target.group or 'free for a hot group'}" for target in targets(policy, namespace)]
    if policy.groups.hot is not None and policy.groups.hot.source is HotSource.TEMPLATE:
        told.append(f"hot groups are made from {told[0].partition(' is ')[0]}")
    return tuple(told)


def _template(context: FleetContext, namespace: str) -> HotTemplate | None:
    policy = context.policy()
    hot = policy.groups.hot
    if hot is None or hot.source is not HotSource.TEMPLATE:
        return None

    def adapters(tenant: str) -> tuple[str, ...]:
        known = context.catalogue()
        return tuple(a for a, owner in zip(known.ids, known.tenant_of, strict=True) if owner == tenant)

    warm = _target(policy, policy.groups.warm.target, namespace, Tier.WARM, WARM_GROUP)
    loading_s = policy.ring.residency_deadline_s
    return HotTemplate(policy.name, warm, hot.template, hot.merged_checkpoints, adapters, loading_s)


def _cluster(settings: Settings) -> Cluster:
    file = settings.kubernetes.kubeconfig
    return Cluster(None if file is None else settings.path(file))


def _namespace(settings: Settings, cluster: Cluster) -> str:
    return settings.kubernetes.namespace or cluster.namespace


async def _save(state: ConfigMapState, loads: ConfigMapLoads, engines: HttpEngines, context: FleetContext) -> None:
    """While this instance leads, keep its state now and then; while it follows, follow what the leader loads."""
    every_s, saved_at_s = context.settings.kubernetes.checkpoint_every_s, context.clock.now_s()
    while True:
        await context.clock.sleep(min(every_s, _LOADS_EVERY_S))
        if not context.lease.held(context.clock.now_s()):
            engines.recall()
            continue
        await loads.flush()
        if context.clock.now_s() - saved_at_s >= every_s:
            saved_at_s = context.clock.now_s()
            await state.flush()


async def _saved(
    saving: asyncio.Task[None], state: ConfigMapState, loads: ConfigMapLoads, context: FleetContext
) -> None:
    """The last state, for who leads next."""
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    if context.lease.held(context.clock.now_s()):
        await loads.flush()
        await state.flush()


class _ConfigMaps:
    """ConfigMaps of one namespace, each followed once."""

    def __init__(self, cluster: Cluster, namespace: str, stack: AsyncExitStack) -> None:
        self._cluster, self._namespace, self._stack = cluster, namespace, stack
        self._catalogues: dict[str, OneConfigMap] = {}

    async def open(self, name: str) -> OneConfigMap:
        """Follow one, and wait until it was looked at."""
        found = self._follow(name)
        await asyncio.to_thread(found.first)
        return found

    def catalogue(self, name: str) -> bytes | None:
        """The adapters in a ConfigMap, None while they cannot be read."""
        if name not in self._catalogues:
            self._catalogues[name] = self._follow(name)
        try:
            text = ((self._catalogues[name].seen() or {}).get("data") or {}).get("adapters.yaml")
        except (TemporaryError, PermanentError) as error:
            _log.warning("%s", error)
            return None
        return None if text is None else str(text).encode()

    def _follow(self, name: str) -> OneConfigMap:
        found = OneConfigMap(self._cluster, self._namespace, name)
        self._stack.callback(found.close)
        return found
