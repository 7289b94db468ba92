"""One controller process: what freezes it, what a restart remembers, and who else may use its port."""

import asyncio
import dataclasses
import socket
from pathlib import Path

import pytest

from autoscaler.api.auth import TokenTable
from autoscaler.cli.errors import UsageError
from autoscaler.cli.service import Listen, RousedClock, Service, SystemClock
from autoscaler.connectors.routers.hub import RingHub
from autoscaler.controller.loop import FleetController, Wanted
from autoscaler.controller.observe import World
from autoscaler.domain.decisions import Applied, Effect, LoadAdapter, Outcome, Skipped, UnloadAdapter
from autoscaler.domain.fleet import Group, LoadLedger, Replica, ReplicaSignals
from autoscaler.domain.observation import Catalogue, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh
from autoscaler.ports import Metrics
from tests.cli.serving import free_port
from tests.planner import world as planned


class Platform:
    """Actuator, engines and metrics of a fleet that stands still and notes what is done to it."""

    def __init__(self) -> None:
        self.world = planned.World(planned.policy(), planned.catalogue(4))
        self.world.start("warm", 2)
        self.done: list[Effect] = []
        self.let_go = 0

    async def replicas(self) -> tuple[Replica, ...]:
        return self.world.observe().replicas

    async def groups(self) -> dict[str, Group]:
        return dict(self.world.groups)

    async def apply(self, effect: Effect) -> Outcome:
        self.done.append(effect)
        return Applied()

    async def detach(self) -> tuple[str, ...]:
        self.let_go += 1
        return ("opened 2 gates",)

    async def registered(self, replica: Replica) -> frozenset[str] | None:
        return replica.registered

    async def load(self, replica: Replica, effect: LoadAdapter) -> Outcome:
        self.done.append(effect)
        return Applied()

    async def unload(self, replica: Replica, effect: UnloadAdapter) -> Outcome:
        self.done.append(effect)
        return Applied()

    def keep(self, replicas: frozenset[str]) -> None: ...

    def reconsider(self, catalogue: Catalogue) -> None: ...

    def ledger(self) -> LoadLedger:
        return LoadLedger()

    async def read(self, now_s: float, catalogue: Catalogue, replicas) -> Metrics:
        seen = self.world.observe()
        signals: dict[str, ReplicaSignals] = {r.id: r.signals for r in seen.replicas}
        fresh = {"engines": Fresh(0.0), "traffic": Fresh(0.0)}
        traffic: Traffic = seen.traffic
        return Metrics(signals, traffic, PairTraffic.none(), fresh, {})


def service(folder: Path, port: int = 1) -> Service:
    return Service(folder / "state", Listen("127.0.0.1", port), TokenTable(()), SystemClock())


def add(to: Service, platform: Platform, **more: object) -> FleetController:
    to.lease.renew(to.clock.now_s())
    hub = RingHub(60.0)
    world = World(platform, platform, platform, hub, to.stores.overrides)
    return to.add_fleet("fleet", world, hub, lambda: Wanted(platform.world.policy, platform.world.catalogue), **more)


async def test_a_detached_fleet_is_watched_and_not_touched_also_after_a_restart(tmp_path: Path):
    platform = Platform()
    first = service(tmp_path)
    controller = add(first, platform)
    assert (await controller.tick()).frozen == ""
    assert platform.done, "a new fleet has adapters to load"
    first.stores.detachments.detach("fleet", "ann", "uninstalling")
    platform.done.clear()
    view = await controller.tick()
    assert view.frozen == "detached by ann: uninstalling"
    assert {o for _, o in view.report.outcomes} == {Skipped("detached by ann: uninstalling")}
    await first.close()
    second = service(tmp_path)
    controller = add(second, platform)
    assert (await controller.tick()).frozen == "detached by ann: uninstalling"
    assert platform.done == []
    second.stores.detachments.attach("fleet", "ann")
    assert (await controller.tick()).frozen == ""
    assert platform.done
    await second.close()


async def test_a_platform_may_freeze_a_fleet_too(tmp_path: Path):
    platform, own = Platform(), service(tmp_path)
    controller = add(own, platform, frozen=lambda: "frozen by the lease's annotation")
    assert (await controller.tick()).frozen == "frozen by the lease's annotation"
    await own.close()


async def test_letting_go_asks_the_platform_and_one_without_marks_has_nothing_to_do(tmp_path: Path):
    platform, own = Platform(), service(tmp_path)
    add(own, platform)
    assert await own.let_go("fleet") == ("opened 2 gates",)
    assert platform.let_go == 1
    await own.close()


async def test_successful_loads_are_timed(tmp_path: Path):
    platform, own = Platform(), service(tmp_path)
    await add(own, platform).tick()
    loads = [e for e in platform.done if isinstance(e, LoadAdapter)]
    name = "lora_autoscaler_adapter_load_seconds_count"
    assert own.metrics.registry.get_sample_value(name, {"fleet": "fleet"}) == len(loads) > 0
    await own.close()


async def test_whoever_begins_to_lead_waits_for_no_tick(tmp_path: Path):
    """A tick is an hour here: the successor's first one ends when it takes the lease."""
    first, platform = service(tmp_path), Platform()
    assert first.lease.renew(first.clock.now_s())
    second = Service(
        tmp_path / "state", Listen("127.0.0.1", free_port()), TokenTable(()), SystemClock(), lease_s=1.0
    )  # fmt: skip
    policy = dataclasses.replace(platform.world.policy, tick_interval_s=3600.0)
    world = World(platform, platform, platform, RingHub(60.0), second.stores.overrides)
    wanted, led = Wanted(policy, platform.world.catalogue), asyncio.Queue()
    second.add_fleet("fleet", world, RingHub(60.0), lambda: wanted, (lambda view, _: led.put_nowait(view.leader),))
    serving = asyncio.create_task(second.serve())
    async with asyncio.timeout(60):
        assert not await led.get()
        await first.close()
        assert await led.get()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await second.close()


async def test_who_is_roused_again_and_again_sleeps_a_fifth_of_what_was_meant():
    now_s, slept = [100.0], []

    class Still:
        def now_s(self) -> float:
            return now_s[0]

        async def sleep(self, seconds: float) -> None:
            if seconds == 15.0:
                await asyncio.Event().wait()
            slept.append(seconds)
            now_s[0] += seconds

    clock = RousedClock(Still())
    for _ in range(2):
        clock.rouse()
        await clock.sleep(15.0)
    assert slept == [0.0, 3.0]


async def test_a_fleet_that_is_added_while_serving_ticks_as_well(tmp_path: Path):
    own = service(tmp_path, free_port())
    serving = asyncio.create_task(own.serve())
    await asyncio.sleep(0.2)
    ticked = asyncio.Event()
    platform = Platform()
    own.lease.renew(own.clock.now_s())
    world = World(platform, platform, platform, RingHub(60.0), own.stores.overrides)
    wanted = Wanted(platform.world.policy, platform.world.catalogue)
    controller = own.add_fleet("fleet", world, RingHub(60.0), lambda: wanted, (lambda view, records: ticked.set(),))
    async with asyncio.timeout(60):
        await ticked.wait()
    assert own.views()["fleet"] is controller.latest
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await own.close()


async def test_a_port_in_use_is_one_sentence(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        own = service(tmp_path, taken.getsockname()[1])
        with pytest.raises(UsageError, match=r"cannot listen on 127.0.0.1:\d+: address already in use; stop what uses"):
            await own.serve()
        await own.close()


def test_a_state_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(UsageError, match=r"the state folder .* cannot be used"):
        service(tmp_path)


async def test_what_is_wrong_with_the_store_is_a_condition_of_every_fleet(tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096)
    own = service(tmp_path)
    view = await add(own, Platform()).tick()
    assert "StoreSetAside" in {c.name for c in view.conditions}
    await own.close()
