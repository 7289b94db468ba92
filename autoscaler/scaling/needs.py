"""How many replicas each measure asks for. Rules in order; the highest answer is the recommendation.

Queue and KV use speak of the READY replicas alone: those on their way are no load and no relief yet. Worked numbers:
4 ready replicas with 30 waiting in all against a target of 5 each are at 1.5 of the target, so 6 are needed; at 1.08
they are within the tolerance of .1 and nothing changes.
"""

from __future__ import annotations

import math

from autoscaler.domain.decisions import Reason, Step
from autoscaler.domain.figures import figure
from autoscaler.domain.fleet import Tier
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.words import SlotShortage
from autoscaler.scaling.capacity import IN_TIME
from autoscaler.scaling.scene import Scene
from autoscaler.scaling.trend import growth, level, rises

EPSILON = 1e-9
BATCH_PART = 6.0
MOST_BY_QUEUE = 2.0
"""Where it is unknown what a replica carries, a queue asks for twice as many at most."""
LASTING_WINDOWS = 2.0
"""A queue that has lasted so long although the load should fit says that capacity is less than was thought."""


def unwanted(scene: Scene) -> Step | None:
    """A hot group whose tenant lives elsewhere now needs nothing."""
    if scene.wanted:
        return None
    return Step(Reason.GROUP_NOT_NEEDED, 0, f"tenant {scene.group.tenant or '?'} is not HOT any more: 0 replicas")


def dedicated(scene: Scene) -> Step | None:
    """A hot group has at least one replica while its tenant is HOT."""
    if scene.group.tier is not Tier.HOT:
        return None
    return Step(
        Reason.GROUP_FOR_TENANT, max(1, scene.bounds.least), f"tenant {scene.group.tenant} has a group of its own"
    )


def woken(scene: Scene) -> Step | None:
    """A cold pool wakes on the first request and sleeps when there was none for `idleAfter`."""
    cold = scene.policy.groups.cold
    if scene.group.tier is not Tier.COLD or cold is None:
        return None
    requests = scene.demand.requests_per_s
    if isinstance(requests, Fresh) and requests.value > 0:
        return Step(Reason.FIRST_REQUEST, 1, f"{requests.value:.3g} requests/s for cold adapters: at least 1 replica")
    if scene.asleep:
        return Step(Reason.IDLE, 0, f"no request for at least idleAfter, {cold.idle_after_s:.0f} s")
    return Step(Reason.IN_BAND, min(1, scene.current), "the last request is too recent to sleep, or unknown")


def idle(scene: Scene) -> Step | None:
    """No traffic is a measurement: averages without requests are "no traffic", not "unknown"."""
    if not scene.idle or scene.group.tier is Tier.COLD:
        return None
    return Step(Reason.IDLE, 0, "routers saw 0 requests/s and no engine has work")


def queue(scene: Scene) -> Step | None:
    """Requests waiting for compute, per READY replica, over the target."""
    readings, target = scene.readings, scene.policy.scaling.queue_per_replica
    if not readings.heard or scene.thrashes:
        return None
    mean = readings.waiting / readings.heard
    text = f"{mean:.3g} requests wait for compute per ready replica, target {target:.3g}"
    if mean <= target * (1 + scene.policy.scaling.tolerance_ratio):
        return _pressure(scene, mean / target, text)
    by_share = _pressure(scene, min(mean / target, MOST_BY_QUEUE), text)
    by_load, since_s = _backlog(scene, text), scene.memory.capacity.queued_since_s
    if by_load is None:
        return by_share
    lasting = since_s is not None and scene.now_s - since_s >= LASTING_WINDOWS * scene.policy.signals.window_s
    return by_share if lasting and int(by_share.value) > int(by_load.value) else by_load


def _backlog(scene: Scene, text: str) -> Step | None:
    """What the load needs, and the queue with it until new replicas would serve; None where either is unknown.

    A queue is work left over, no load: 300 requests of 650 tokens, gone within a start of 325 s, are 600 tokens/s.
    """
    usable, line = scene.usable_tokens_per_s, scene.memory.load
    now = level(line)
    if isinstance(usable, Missing) or now is None or line.samples[-1][0] != scene.now_s:
        return None
    backlog = scene.readings.waiting * scene.demand.tokens_per_request / scene.lead_s
    ready = scene.readings.ready
    need = max(math.ceil((now + backlog) / usable.value - EPSILON), ready)
    load = f"{figure(now)} tokens/s and the queue's {figure(backlog)} over {figure(usable.value)} a replica"
    return Step(Reason.SATURATION if need > ready else Reason.IN_BAND, need, f"{text}; {load}: {need}")


def batch(scene: Scene) -> Step | None:
    """Before it is known what a replica carries, a batch may be a sixth of what limits allow when growth would serve.

    A queue comes too late by a start: with many adapters in few slots replicas saturate at a quarter of their limits. A
    load that does not rise is carried already, whatever the batch.
    """
    line, most = scene.memory.load, scene.memory.capacity.most_running / BATCH_PART
    if isinstance(scene.capacity.tokens_per_s, Fresh) or most <= 0 or scene.thrashes:
        return None
    if not line.in_flight or line.in_flight[-1][0] != scene.now_s or not rises(line):
        return None
    grows, ready = growth(line, scene.lead_s), scene.readings.ready
    mean = sum(n for _, n in line.in_flight) / len(line.in_flight) / max(ready, 1)
    then, tolerance = mean * grows, scene.policy.scaling.tolerance_ratio
    if grows <= 1 + tolerance or mean <= most / 2 or then <= most * (1 + tolerance):
        return None
    need = math.ceil(ready * min(then / most, MOST_BY_QUEUE) - EPSILON)
    text = (
        f"{then:.3g} requests in flight per ready replica {scene.lead_s:.0f} s on, {most:.3g} until capacity is known"
    )
    return Step(Reason.SATURATION, need, f"{text}: {need}")


def kv_usage(scene: Scene) -> Step | None:
    """KV cache use over the target."""
    readings, target = scene.readings, scene.policy.scaling.kv_usage_ratio
    if not readings.heard:
        return None
    mean = readings.kv_usage / readings.heard
    return _pressure(scene, mean / target, f"KV use {mean:.2f}, target {target:.2f}")


def ttft(scene: Scene) -> Step | None:
    """Slow first tokens ask for one more replica, only where the wait is for compute.

    TTFT is not proportional to replicas, so it never asks for more than one at a time; without a queue or half-filled
    targets, more replicas would not shorten it.
    """
    readings, target = scene.readings, scene.policy.ttft_target_s
    seen = readings.ttft_mean_s
    if seen is None or seen <= target * (1 + scene.policy.scaling.tolerance_ratio) or not readings.heard:
        return None
    queued = readings.queue_time_s is not None and readings.queue_time_s > seen / 2
    half_full = readings.kv_usage / readings.heard > scene.policy.scaling.kv_usage_ratio / 2
    if scene.thrashes or readings.waiting <= 0 or not (queued or half_full):
        return None
    text = f"mean TTFT {seen:.3g} s over {target:.3g} s, and {readings.waiting:.0f} requests wait for compute"
    return Step(Reason.SATURATION, max(scene.current, readings.ready + 1), text)


def forecast(scene: Scene) -> Step | None:
    """Demand when a replica asked for now would serve, over what a replica carries."""
    demand, by = scene.load_ahead(scene.lead_s, scene.demand.now_tokens_per_s)
    usable = scene.usable_tokens_per_s
    if isinstance(demand, Missing) or isinstance(usable, Missing) or scene.asleep:
        return None
    need = math.ceil(demand.value / usable.value - EPSILON)
    each = f"{figure(usable.value / scene.utilisation)} a replica{' in time' * (scene.capacity.source == IN_TIME)}"
    text = f"{figure(demand.value)} tokens/s ({by}) over {each} at {scene.utilisation:.2f}"
    return Step(Reason.FORECAST_DEMAND, need, f"{text}: {need}")


def adapter_slots(scene: Scene) -> Step | None:
    """Adapter count never drives replicas, unless the policy says `onAdapterSlotShortage: grow`."""
    if scene.policy.scaling.on_adapter_slot_shortage is not SlotShortage.GROW or not scene.unplaced_adapters:
        return None
    text = f"{scene.slot_replicas} replicas hold every adapter that has demand (onAdapterSlotShortage: grow)"
    return Step(Reason.ADAPTER_SLOTS_SHORT, scene.slot_replicas, text)


def thrash(scene: Scene) -> Step | None:
    """Poor latency for want of adapter slots: the count is held, and said so."""
    if not scene.thrashes:
        return None
    return Step(Reason.THRASH_NOT_SATURATION, scene.current, scene.cause_message or "adapters thrash, compute is spare")


def unheard(scene: Scene) -> Step | None:
    """What is not known cannot lower the count: the need is at least what runs."""
    readings = scene.readings
    if scene.idle or readings.complete or scene.current == 0:
        return None
    if not readings.ready:
        return Step(Reason.SIGNALS_MISSING, scene.current, "no replica is ready, so there is nothing to measure")
    silent = readings.ready - readings.heard
    text = f"{silent} of {readings.ready} ready replicas do not show their queue and KV use"
    return Step(Reason.SIGNALS_MISSING, scene.current, text)


RULES = (unheard, thrash, idle, woken, dedicated, queue, batch, kv_usage, ttft, forecast, adapter_slots)


def recommend(scene: Scene) -> Step:
    """The highest need, before any limit; the earlier rule on ties. Without any measure: what runs."""
    gone = unwanted(scene)
    if gone is not None:
        return gone
    steps = [step for rule in RULES if (step := rule(scene)) is not None]
    if not steps:
        return Step(Reason.SIGNALS_MISSING, scene.current, "no measure of load is known")
    return max(steps, key=lambda step: int(step.value))


def _pressure(scene: Scene, ratio: float, text: str) -> Step:
    """The count at which a pressure per READY replica would be at its target."""
    tolerance = scene.policy.scaling.tolerance_ratio
    ready = scene.readings.ready
    if abs(ratio - 1.0) <= tolerance:
        return Step(Reason.WITHIN_TOLERANCE, ready, f"{text}: within {tolerance:.0%}")
    need = math.ceil(ready * ratio - EPSILON)
    reason = Reason.SATURATION if need > ready else Reason.HEADROOM if need < ready else Reason.IN_BAND
    return Step(reason, need, f"{text}: {need}")
