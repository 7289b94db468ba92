"""One deployment per tenant, the anti-pattern: every adapter has replicas of its own, at least one, scaled by queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autoscaler.simulator.engine import layout as a
from autoscaler.simulator.fleet import tables
from autoscaler.simulator.fleet.core import layout as b
from autoscaler.simulator.fleet.core.layout import Table
from autoscaler.simulator.fleet.platform import Member
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.run import Progress, Stage
from autoscaler.simulator.strategies.scalers import Bounds, QueueHpa, Remembered, Seen
from autoscaler.simulator.strategies.scenario import Scenario

MOST_TENANTS = 2_000
"""More engines than that are not simulated: their replica-hours are known without it."""
_SPARE = 64


def run_dedicated(
    scenario: Scenario, name: str, settings: dict[str, Any], progress: Progress = lambda share: None
) -> Outcome:
    """Simulate it. Raises ValueError above MOST_TENANTS adapters, and where counts are fixed."""
    tenants = len(scenario.trace.adapters)
    if tenants > MOST_TENANTS:
        raise ValueError(f"{tenants} adapters need at least {tenants} replicas; {MOST_TENANTS} are simulated at most")
    wide = replace(
        scenario, replicas=tenants, most=tenants + _SPARE, limits=replace(scenario.limits, max_loras=1, max_cpu_loras=1)
    )
    stage = Stage(wide, one_each=True)
    platform, names = stage.platform, stage.names
    scaler, memory = QueueHpa(settings["queue"]), [Remembered()] * tenants
    for tenant in range(tenants):
        platform.resize(f"hot-{tenant}", 1, now=True)
    resizes = 0

    def follow() -> None:
        platform.route(_table(platform.serving(), len(names)))

    def scale() -> None:
        nonlocal resizes
        by_group: dict[str, list[Member]] = {}
        for member in platform.serving():
            by_group.setdefault(member.group, []).append(member)
        waiting = stage.engines.engines.number[:, a.WAITING]
        for tenant in range(tenants):
            group = f"hot-{tenant}"
            ready = by_group.get(group, [])
            queue = tuple(float(waiting[m.place]) for m in ready)
            current = platform.specs[group].replicas
            if not memory[tenant].recommended and not any(queue) and current == 1:
                continue
            seen = Seen(platform.now_s, current, len(ready), queue, (0.0,) * len(queue), 0.0, 0, 0.0)
            wanted, memory[tenant] = scaler.decide(seen, memory[tenant], Bounds(1, _SPARE))
            resizes += int(wanted != current)
            if wanted > current and len(platform.members) + wanted - current <= wide.most:
                platform.resize(group, wanted)
            elif wanted < current:
                platform.shrink(group, wanted)

    platform.changed = follow
    stage.engines.route(_table(platform.serving(), len(names)))
    platform.calendar.every(scaler.interval_s, scaler.interval_s, scale)
    stage.play(progress)
    return stage.recorder.outcome(name, settings, moves=0, tier_changes=0, resizes=resizes)


def _table(members: Sequence[Member], tenants: int) -> Table:
    owners: list[list[int]] = [[] for _ in range(tenants)]
    for member in members:
        owners[int(member.group.removeprefix("hot-"))].append(member.place)
    table = tables.among_owners([m.place for m in members], owners)
    return table._replace(mode=np.full(tenants, b.AMONG, np.int64))
