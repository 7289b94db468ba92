"""`demo`: the main job on one machine. A fleet suffers, then the controller cures it; everything in it is real but the
engines' GPUs."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import logging
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoscaler.api.auth import Role
from autoscaler.cli.dashboard import start_dashboard
from autoscaler.cli.demo_bench import Bench, Ports, bench
from autoscaler.cli.demo_options import DemoOptions, options_from
from autoscaler.cli.demo_progress import Progress, Standing
from autoscaler.cli.demo_report import (
    WARM_UP_S,
    Tally,
    burst_figures,
    phase_figures,
    phase_sentence,
    scale_events,
    tier_changes,
)
from autoscaler.cli.demo_scenarios import CARRIED_RPS, Phase, Scenario, scenario
from autoscaler.cli.policies import read_policy, shipped_policy
from autoscaler.cli.service import Listen, Service, SystemClock, printed_tokens
from autoscaler.connectors.envoy import Mode as Route
from autoscaler.connectors.routers.fanout import Publishers
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.controller.loop import FleetController, Wanted
from autoscaler.controller.observe import World
from autoscaler.domain.decisions import DecisionRecord
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Mode
from autoscaler.simulator.traffic.load import LoadGenerator
from autoscaler.telemetry import FleetView

_ENGINE_PORTS = 24
_LAG_WARNING_S = 0.1
_SETTLE_S = 30.0  # for the backlog of the sprayed phase to end before the next one is measured


def run(arguments: argparse.Namespace) -> int:
    """Run the demo. Returns 0, or raises UsageError."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    options = options_from(arguments)
    told = scenario(options)
    folder = Path(tempfile.mkdtemp(prefix="lora-autoscaler-demo-"))
    try:
        report = asyncio.run(_Demo(options, told, folder).play())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(report), flush=True)
    return 0


@dataclass(slots=True)
class _Demo:
    options: DemoOptions
    scenario: Scenario
    folder: Path
    records: list[DecisionRecord] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    loads_seen: dict[str, int] = field(default_factory=dict)
    managed: bool = False
    ends: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self) -> dict[str, Any]:
        """Everything, from start to end; returns the report."""
        policy = self._policy()
        catalogue = self._catalogue(policy)
        ports = Ports(self.options.port_base)
        ports.check_free(_ENGINE_PORTS)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self.ends.set)
        say(f"starting {self.scenario.replicas} engines, Envoy and the controller ...")
        async with bench(policy, catalogue, self.scenario.replicas, ports, self.folder) as world:
            tokens, table = printed_tokens()
            service = Service(self.folder / "state", Listen("127.0.0.1", ports.api), table, SystemClock())
            controller = self._add_fleet(service, world, policy, catalogue)
            serving = asyncio.create_task(service.serve())
            dashboard = await self._dashboard(ports, tokens)
            try:
                return await self._phases(world, controller, ports, tokens, serving)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
                await service.close()
                if dashboard is not None:
                    dashboard.terminate()
                    await dashboard.wait()

    def _policy(self) -> FleetPolicy:
        policy = read_policy(shipped_policy("local"))
        if self.options.scenario == "rise" and self.options.trace is None:
            # A rise is about the warm group alone: a dedicated group would take one of its replicas.
            return replace(policy, slo=replace(policy.slo, tenants={}), groups=replace(policy.groups, hot=None))
        # The two phases are compared at equal replicas: seven on the ring and one that a tenant was promised.
        warm = replace(policy.groups.warm, min_replicas=policy.budget.max_replicas_total - 1)
        return replace(policy, groups=replace(policy.groups, warm=warm))

    def _catalogue(self, policy: FleetPolicy) -> Catalogue:
        template = policy.adapters.path_template or "/adapters/{id}"
        return Catalogue.of({a: (a, template.replace("{id}", a), "", 16) for a in self.scenario.adapters})

    def _add_fleet(self, service: Service, world: Bench, policy: FleetPolicy, catalogue: Catalogue) -> FleetController:
        hub = RingHub(policy.ring.router_ttl_s)
        publisher = Publishers(world.envoy, (hub,))
        advise = replace(policy, mode=Mode.ADVISE)
        return service.add_fleet(
            policy.name,
            World(world.metrics, world.fleet, world.engines, publisher, service.stores.overrides),
            hub,
            lambda: Wanted(policy if self.managed else advise, catalogue),
            (self._note,),
        )

    def _note(self, view: FleetView, records: tuple[DecisionRecord, ...]) -> None:
        if self.managed:
            self.records.extend(records)
        if not self.epochs or self.epochs[-1] != view.observation.ring_epoch:
            self.epochs.append(view.observation.ring_epoch)

    async def _phases(
        self,
        world: Bench,
        controller: FleetController,
        ports: Ports,
        tokens: dict[Role, str],
        serving: asyncio.Task[None],
    ) -> dict[str, Any]:
        urls = self._say_where(world, ports, tokens)
        began_s = time.time()
        figures: dict[str, Any] = {}
        burst: dict[str, Any] | None = None
        with Progress(self.options.json) as progress:
            for phase in self.scenario.phases:
                self.managed = phase.managed
                await world.route(Route.RING if phase.managed else Route.SPRAY)
                tally = await self._one(phase, world, controller, progress, serving)
                figures[phase.name] = phase_figures(tally, phase.seconds)
                if phase.burst is not None:
                    index = self.scenario.adapters.index(self.scenario.burst_adapter)
                    burst = burst_figures(tally, index, self.scenario.burst_adapter, phase.burst)
                if self.ends.is_set():
                    break
        self._say_result(figures, burst)
        return {
            "phases": figures,
            "epochs": self.epochs,
            "tier_changes": tier_changes(self.records, began_s),
            "scale_events": scale_events(self.records, began_s),
            "overrides": [o.tenant for o in (controller.latest.overrides if controller.latest else ())],
            "burst": burst,
            "adapters": len(self.scenario.adapters),
            "max_loras": read_policy(shipped_policy("local")).engine.limits.max_loras,
            "urls": urls,
        }

    async def _one(
        self, phase: Phase, world: Bench, controller: FleetController, progress: Progress, serving: asyncio.Task[None]
    ) -> Tally:
        """Send one phase's requests and gather what became of them."""
        tally = Tally.empty()
        client = LoadGenerator(world.envoy_settings.url, self.scenario.adapters, seed=self.options.seed)
        sending = asyncio.create_task(client.run(phase.arrivals, drain_s=_SETTLE_S))
        stopping = asyncio.create_task(self.ends.wait())
        started_s = time.monotonic()
        while not sending.done() and not stopping.done():
            await asyncio.wait((sending, stopping, serving), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            elapsed_s = time.monotonic() - started_s
            await self._sample(tally, world, client, min(elapsed_s, phase.seconds))
            progress.show(
                Standing(phase, elapsed_s, tally, controller.latest, client.in_flight, sum(self.loads_seen.values()))
            )
        stopping.cancel()
        if sending.done():
            tally.results.append(client.take())
        else:
            interrupt(tally, client, time.monotonic() - started_s)
            sending.cancel()
        await asyncio.gather(sending, stopping, return_exceptions=True)
        return tally

    async def _sample(self, tally: Tally, world: Bench, client: LoadGenerator, elapsed_s: float) -> None:
        loads = await world.loads()
        self.loads_seen |= {name: max(count, self.loads_seen.get(name, 0)) for name, count in loads.items()}
        total = sum(self.loads_seen.values())
        if tally.loads_from is None and elapsed_s >= WARM_UP_S:
            tally.loads_from = total
        tally.loads_to = total
        batch = client.take()
        tally.results.append(batch)
        tally.replicas.append(len(loads))
        tally.lag_s.append(max(batch.lag_p99_s, world.pump.lag.p99_s()))

    def _say_where(self, world: Bench, ports: Ports, tokens: dict[Role, str]) -> dict[str, str]:
        urls = {
            "router": world.envoy_settings.url,
            "api": f"http://127.0.0.1:{ports.api}",
            "dashboard": f"http://127.0.0.1:{ports.dashboard}" if self.options.dashboard else "",
            "envoy_admin": world.envoy_settings.admin_url,
        }
        say(f"router     {urls['router']}")
        say(f"API        {urls['api']}/docs")
        if urls["dashboard"]:
            say(f"dashboard  {urls['dashboard']}")
        say(f"tokens     operator {tokens[Role.OPERATOR]}   reader {tokens[Role.READER]}")
        say(f"metrics by {world.metrics_from}")
        return {name: url for name, url in urls.items() if url}

    async def _dashboard(self, ports: Ports, tokens: dict[Role, str]) -> asyncio.subprocess.Process | None:
        if not self.options.dashboard:
            return None
        if importlib.util.find_spec("streamlit") is None:
            say("the dashboard is not installed: pip install 'lora-autoscaler[dashboard]'")
            return None
        return await start_dashboard(ports.dashboard, f"http://127.0.0.1:{ports.api}", tokens[Role.READER])

    def _say_result(self, figures: dict[str, Any], burst: dict[str, Any] | None) -> None:
        for name, f in figures.items():
            say(phase_sentence(name, f))
            if f["event_loop_lag_p99_s"] > _LAG_WARNING_S:
                say(
                    f"  warning: this test bench's own event loop lagged {f['event_loop_lag_p99_s'] * 1000:.0f} ms "
                    f"(p99), which latencies include; about {CARRIED_RPS:.0f} requests/s are carried here: use --scale"
                )
        if burst is not None:
            before, during = (burst[f"others_ttft_p99_{k}_s"] for k in ("before", "during"))
            who = burst["adapter"]
            say(f"the burst of {who}: others' p99 TTFT {before or 0:.2f} s before, {during or 0:.2f} s during")


def interrupt(tally: Tally, client: LoadGenerator, elapsed_s: float) -> None:
    """Note what stands before the client is cancelled: what it has to give up then is no error of the fleet."""
    tally.results.append(client.take())
    tally.ended_s, tally.in_flight = elapsed_s, client.in_flight


def say(text: str) -> None:
    """Tell people; standard output is for the JSON."""
    print(text, file=sys.stderr, flush=True)
