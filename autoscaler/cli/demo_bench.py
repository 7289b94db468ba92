"""The demo's world on one machine: simulated engines over real HTTP, Envoy, Prometheus where there is one, traffic."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from autoscaler.cli.errors import UsageError
from autoscaler.cli.local_engines import first_ring, start_engines, start_envoy, vllm_settings
from autoscaler.cli.service import SystemClock
from autoscaler.connectors.engines.client import HttpEngines
from autoscaler.connectors.envoy import EnvoyFilePublisher, EnvoySettings, Mode
from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.connectors.metrics.direct import DirectScrape, ScrapeSettings
from autoscaler.connectors.metrics.presets import VLLM
from autoscaler.connectors.metrics.prometheus import PrometheusSource, SourceSettings
from autoscaler.connectors.metrics.router_presets import ENVOY
from autoscaler.domain.observation import Catalogue
from autoscaler.policy.model import FleetPolicy
from autoscaler.ports import MetricsSource
from autoscaler.simulator.http.adapters import AdapterTable
from autoscaler.simulator.http.pump import Pump
from autoscaler.simulator.local.fleet import LocalFleet


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports in a row: router, its admin, API, dashboard, Prometheus, then the engines'."""

    base: int

    @property
    def router(self) -> int:
        """Where clients send."""
        return self.base

    @property
    def router_admin(self) -> int:
        """Envoy's admin."""
        return self.base + 1

    @property
    def api(self) -> int:
        """The controller's API."""
        return self.base + 2

    @property
    def dashboard(self) -> int:
        """Streamlit."""
        return self.base + 3

    @property
    def prometheus(self) -> int:
        """Prometheus."""
        return self.base + 4

    @property
    def engines(self) -> int:
        """The first engine's."""
        return self.base + 10

    def check_free(self, engines: int) -> None:
        """Raises UsageError that names the busy port and the remedy."""
        for port in (*range(self.base, self.base + 5), *range(self.engines, self.engines + engines)):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    raise UsageError(
                        f"port {port} on 127.0.0.1 is in use; stop what uses it, or choose others with --port-base"
                    ) from error


@dataclass(slots=True)
class Bench:
    """Everything that runs besides the controller."""

    fleet: LocalFleet
    pump: Pump
    envoy: EnvoyFilePublisher
    envoy_settings: EnvoySettings
    engines: HttpEngines
    metrics: MetricsSource
    metrics_from: str

    async def loads(self) -> dict[str, int]:
        """Adapter loads from host to GPU, preloads included, of each engine that runs."""
        engines = {r.id: self.fleet.engine(r.id) for r in await self.fleet.replicas()}
        return {name: e.calls.live.model.gauges().gpu_loads for name, e in engines.items() if e.running}

    async def route(self, mode: Mode) -> None:
        """Let Envoy route by the ring, or blind to adapters."""
        await self.envoy.set_mode(mode)


@contextlib.asynccontextmanager
async def bench(
    policy: FleetPolicy, catalogue: Catalogue, replicas: int, ports: Ports, folder: Path
) -> AsyncIterator[Bench]:
    """Start everything; end everything, whatever happens in between."""
    async with contextlib.AsyncExitStack() as stack:
        pump = Pump()
        files = AdapterTable(dict.fromkeys(catalogue.sources, 16))
        fleet = await start_engines(policy, files, pump, ports.engines, replicas, stack)
        settings = EnvoySettings(directory=folder / "envoy", port=ports.router, admin_port=ports.router_admin)
        envoy = await start_envoy(settings, lambda: catalogue.ids, Mode.SPRAY, stack)
        await envoy.publish(1, first_ring(policy, catalogue, await fleet.replicas()))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        engines = HttpEngines(policy.name, vllm_settings(policy), session, SystemClock())
        metrics, origin = await _metrics(stack, policy, ports, folder, settings, session, fleet)
        yield Bench(fleet, pump, envoy, settings, engines, metrics, origin)


async def _metrics(
    stack: contextlib.AsyncExitStack,
    policy: FleetPolicy,
    ports: Ports,
    folder: Path,
    envoy: EnvoySettings,
    session: aiohttp.ClientSession,
    fleet: LocalFleet,
) -> tuple[MetricsSource, str]:
    """Real Prometheus where it is on the machine, direct scraping otherwise: the decisions are the same."""
    binary = shutil.which("prometheus")
    engine, base = VLLM.timed(policy.ttft_target_s), frozenset({policy.base_model})
    if binary is None:
        urls = {envoy.node: f"{envoy.admin_url}/stats/prometheus"}
        scrape = ScrapeSettings(
            engine, ENVOY, urls, base, window_s=policy.signals.window_s, max_age_s=policy.signals.max_age_s
        )
        return DirectScrape(scrape, session, SystemClock()), "direct scraping"
    await _start_prometheus(stack, binary, ports, folder, envoy)
    targets = asyncio.create_task(_keep_targets(folder / "engines.json", fleet))
    stack.callback(targets.cancel)
    connection = PrometheusConnection(PrometheusSettings(f"http://127.0.0.1:{ports.prometheus}"))
    source = SourceSettings(engine, ENVOY, policy.signals, base)
    return PrometheusSource(source, connection), f"Prometheus at http://127.0.0.1:{ports.prometheus}"


async def _start_prometheus(
    stack: contextlib.AsyncExitStack, binary: str, ports: Ports, folder: Path, envoy: EnvoySettings
) -> None:
    (folder / "engines.json").write_text("[]")
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": "engines",
                "file_sd_configs": [{"files": [str(folder / "engines.json")], "refresh_interval": "1s"}],
            },
            {
                "job_name": "envoy",
                "metrics_path": "/stats/prometheus",
                "static_configs": [{"targets": [f"127.0.0.1:{envoy.admin_port}"], "labels": {"router": envoy.node}}],
            },
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            binary, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{ports.prometheus}", stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    stack.push_async_callback(_stop, process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 5.0)
        except TimeoutError:
            process.kill()


async def _keep_targets(path: Path, fleet: LocalFleet) -> None:
    """Write the engines that listen for Prometheus to find, as a platform's discovery does."""
    while True:
        groups = [{"targets": [r.address], "labels": {"pod": r.id}} for r in await fleet.replicas() if r.address]
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(groups))
        fresh.rename(path)
        await asyncio.sleep(0.5)
