"""The conditions of scale-in, in order: each is a reason to keep what runs, or None.

Scale-in is the expensive direction. A group goes from N to n only where everything is known, nothing is on its way, the
load fits n with margin, the forecast over the horizon fits n, nothing within the stabilisation window needed more, and
the ring's budget of moves allows it. Worked numbers: 5 replicas at KV .5 become 4 at .625; the limit is
.8 x (1 - .1) = .72, so they may; at .6 they would be at .75 and may not.
"""

from __future__ import annotations

from autoscaler.domain.decisions import Reason, Step
from autoscaler.domain.figures import figure
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.words import SlotShortage
from autoscaler.scaling.scene import Scene
from autoscaler.scaling.trend import growth, level


def signals(scene: Scene, n: int) -> Step | None:
    """Every READY replica was heard, or there is trustworthily no traffic."""
    if scene.memory.contradicted_since_s is not None:
        return _keep(scene, Reason.SIGNALS_CONTRADICT, "routers and engines disagree about traffic")
    if scene.idle or scene.readings.complete:
        return None
    return _keep(scene, Reason.SIGNALS_MISSING, "not every ready replica shows its queue and KV use")


def thrash(scene: Scene, n: int) -> Step | None:
    """Fewer replicas would hold the same adapters in fewer slots."""
    if not scene.thrashes:
        return None
    return _keep(scene, Reason.THRASH_NOT_SATURATION, "adapters thrash; fewer replicas would have fewer slots")


def pending(scene: Scene, n: int) -> Step | None:
    """Nothing is on its way, unless the group is idle or what is pending is stuck."""
    if not scene.readings.unready or scene.idle or scene.stuck:
        return None
    return _keep(scene, Reason.PENDING_REPLICAS, f"replicas not ready yet: {scene.readings.unready}")


def load(scene: Scene, n: int) -> Step | None:
    """Today's queue, batch, KV use, wait and demand, spread over n, stay inside their targets with margin."""
    if scene.idle:
        return None
    n = max(1, n - scene.readings.failed)
    scaling, readings = scene.policy.scaling, scene.readings
    margin = scaling.scale_in.margin_ratio
    room = 1.0 - (margin / 2 if _under_way(scene, n) else margin)
    measured = isinstance(scene.capacity.tokens_per_s, Fresh)
    # Compute was never measured: KV use stands in for it, twice as strict, and the batch, eight times as strict.
    kv_room, batch_room = (room, room) if measured else (room / 2, room / 8)
    checks = [
        ("waiting requests per replica", readings.waiting / n, scaling.queue_per_replica * room),
        (
            "running requests per replica",
            readings.running * (1.0 if measured else growth(scene.memory.load, scaling.scale_in_horizon_s)) / n,
            readings.most_running * batch_room,
        ),
        ("KV use", readings.kv_usage / n, scaling.kv_usage_ratio * kv_room),
        ("seconds of wait", _wait_s(scene), scene.policy.ttft_target_s),
    ]
    usable = scene.usable_tokens_per_s
    if isinstance(usable, Fresh):
        now = scene.demand.now_tokens_per_s
        demand = now.value if isinstance(now, Fresh) else None
        line = scene.line
        seen = [x for x in (readings.tokens_per_s, demand if line is None else level(line)) if x is not None]
        checks.append(("tokens/s per replica", max(seen) / n if seen else None, usable.value * room))
    for name, value, limit in checks:
        if value is not None and value > limit:
            text = f"{name} would be {figure(value)} on {n} replicas, limit {figure(limit)}"
            return _keep(scene, Reason.IN_BAND, text)
    return None


def adapter_slots(scene: Scene, n: int) -> Step | None:
    """What was grown for adapter slots is not given back while they are needed."""
    grows = scene.policy.scaling.on_adapter_slot_shortage is SlotShortage.GROW
    if not grows or scene.slot_replicas <= n:
        return None
    text = f"{scene.wanted_adapters} adapters need {scene.slot_replicas} replicas of {scene.slots} adapter slots"
    return _keep(scene, Reason.ADAPTER_SLOTS_SHORT, text)


def horizon(scene: Scene, n: int) -> Step | None:
    """The forecast's upper band over the scale-in horizon fits n."""
    demand, usable = scene.demand.horizon_tokens_per_s, scene.usable_tokens_per_s
    stated, span = scene.policy.scaling.scale_in.horizon_s, scene.policy.scaling.scale_in_horizon_s
    by = scene.demand.horizon_by
    if scene.asleep:
        return None
    if isinstance(demand, Missing):
        return None if scene.idle else _keep(scene, Reason.SIGNALS_MISSING, f"no forecast ({demand.why})")
    if stated is None and not by:
        # Where nobody stated a horizon, whoever foresees better speaks; a season that has proven itself always does.
        demand, by = scene.load_ahead(span, demand)
    if isinstance(usable, Missing) or isinstance(demand, Missing) or demand.value <= usable.value * n:
        return None
    by = f" ({by})" if by else ""
    text = f"{figure(demand.value)} tokens/s within {span:.0f} s{by} do not fit {n} replicas of {figure(usable.value)}"
    return _keep(scene, Reason.FORECAST_DEMAND, text)


def stabilised(scene: Scene, n: int) -> Step | None:
    """Nothing within the window needed more than n, and the window is full."""
    if scene.asleep:
        return None
    window = scene.policy.scaling.scale_in.stabilisation_s
    seen = scene.now_s - scene.memory.first_seen_s
    if seen < window:
        text = f"observed for {seen:.0f} s of the {window:.0f} s that a scale-in needs"
        return _keep(scene, Reason.STABILISING, text)
    highest = max((need for _, need in scene.memory.needs), default=n)
    if highest <= n:
        return None
    return _keep(scene, Reason.STABILISING, f"the last {window:.0f} s needed up to {highest}")


def churn(scene: Scene, n: int) -> Step | None:
    """The ring's budget of moves and the hour's changes allow it; shrinking may use half of the changes.

    What has begun is brought to its end: taking a departure back costs the same moves again.
    """
    if _under_way(scene, n):
        return None
    if not scene.churn_left:
        return _keep(scene, Reason.CHURN_BUDGET, "the ring's budget of moves is spent")
    if scene.changes_left <= scene.policy.budget.max_changes_per_hour // 2:
        return _keep(scene, Reason.BUDGET, "half of budget.maxChangesPerHour is spent; the rest is for growth")
    return None


CONDITIONS = (signals, thrash, pending, load, horizon, adapter_slots, stabilised, churn)


def shrink(scene: Scene, recommended: int) -> tuple[Step, ...]:
    """The steps from what runs to fewer: as few as every condition allows, one step at a time, or what holds it."""
    step = scene.policy.scaling.scale_in.max_step_replicas
    lowest = max(recommended, scene.current - step)
    held: Step | None = None
    for n in range(max(lowest, 0), scene.current):
        held = next((found for rule in CONDITIONS if (found := rule(scene, max(n, 1))) is not None), None)
        if held is None:
            limited = (Step(Reason.STEP_LIMIT, n, f"at most {step} fewer in a tick"),) if n > recommended else ()
            return (*limited, _fits(scene, n))
    return () if held is None else (held,)


def _under_way(scene: Scene, n: int) -> bool:
    """Whether the last tick decided on as few, and the replica has not gone yet."""
    desired = scene.memory.desired
    return desired is not None and desired <= n < scene.current


def _fits(scene: Scene, n: int) -> Step:
    if scene.idle:
        return Step(Reason.IDLE, n, "no traffic, and nothing within the window needed more")
    text = f"load, forecast and the last {scene.policy.scaling.scale_in.stabilisation_s:.0f} s fit {n} with margin"
    return Step(Reason.HEADROOM, n, text)


def _wait_s(scene: Scene) -> float | None:
    """Time in the queue, or TTFT where engines do not tell it: long prompts are slow on any number of replicas."""
    queue_s = scene.readings.queue_time_s
    return scene.readings.ttft_mean_s if queue_s is None else queue_s


def _keep(scene: Scene, reason: Reason, text: str) -> Step:
    return Step(reason, scene.current, f"{text}: stays at {scene.current}")
