"""How peers count replicas: small pure functions over what their metrics show. Memory in, memory out.

Each follows its named original in rule and defaults; what an operator sets there is a field here, and the comparison
tunes it. None of them sees more than its original would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Seen:
    """One pool at one moment.

    Attributes:
        current: replicas in the spec; `ready`: that serve.
        waiting, kv_usage: of each ready replica that was heard.
        active: requests in flight in all, as routers count them; those that wait are among them.
        arrived: requests since the start, as frontends count them.
        tokens_per_request: mean of prompt and answer together, 0 before the first answer.
        heard: whether Prometheus shows anything fresh. Who reads it keeps its count where it does not.
    """

    now_s: float
    current: int
    ready: int
    waiting: tuple[float, ...]
    kv_usage: tuple[float, ...]
    active: float
    arrived: int
    tokens_per_request: float
    heard: bool = True


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a scaler carries: what was recommended when, and samples of its own measure, each with its time."""

    recommended: tuple[tuple[float, int], ...] = ()
    samples: tuple[tuple[float, float], ...] = ()
    lower_since_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most replicas."""

    least: int
    most: int

    def hold(self, count: int) -> int:
        """The nearest allowed count."""
        return max(self.least, min(self.most, count))


@dataclass(frozen=True, slots=True)
class QueueHpa:
    """Kubernetes HPA v2 on waiting requests a replica (`AverageValue`).

    Tolerance .1; growth by at most 4 or double in 15 s; the highest recommendation of the last 300 s holds shrinking.
    """

    target: float
    stabilisation_s: float = 300.0
    interval_s: float = 15.0

    def decide(self, seen: Seen, memory: Remembered, bounds: Bounds) -> tuple[int, Remembered]:
        """Replicas to ask for."""
        return _hpa(sum(seen.waiting), self.target, self.stabilisation_s, seen, memory, bounds)


@dataclass(frozen=True, slots=True)
class ActiveHpa:
    """The same on requests in flight a replica, as routers or engines count them."""

    target: float
    stabilisation_s: float = 300.0
    interval_s: float = 15.0

    def decide(self, seen: Seen, memory: Remembered, bounds: Bounds) -> tuple[int, Remembered]:
        """Replicas to ask for."""
        return _hpa(seen.active, self.target, self.stabilisation_s, seen, memory, bounds)


@dataclass(frozen=True, slots=True)
class ActiveRequests:
    """KubeAI: the mean of active requests over a time window, over a target a replica, every 10 s.

    Fewer replicas must be right for `scale_down_delay_s` (30 s there) before it shrinks; growth is at once.
    """

    target: float
    window_s: float = 600.0
    scale_down_delay_s: float = 30.0
    interval_s: float = 10.0

    def decide(self, seen: Seen, memory: Remembered, bounds: Bounds) -> tuple[int, Remembered]:
        """Replicas to ask for."""
        kept = (*(s for s in memory.samples if s[0] > seen.now_s - self.window_s), (seen.now_s, seen.active))
        mean = sum(value for _, value in kept) / len(kept)
        wanted = bounds.hold(math.ceil(mean / self.target))
        if wanted >= seen.current:
            return wanted, Remembered(samples=kept)
        since_s = min(memory.lower_since_s, seen.now_s)
        late = seen.now_s - since_s >= self.scale_down_delay_s
        return wanted if late else seen.current, Remembered(samples=kept, lower_since_s=since_s)


@dataclass(frozen=True, slots=True)
class Predictive:
    """NVIDIA Dynamo's planner in throughput mode: next interval's load over a replica's profiled capacity.

    The prediction is the last interval's load plus its trend, never below the last; capacity is profiled beforehand,
    in tokens/s within the SLO, and `fill` says how much of it the operator plans with.
    """

    capacity_tokens_per_s: float
    fill: float
    interval_s: float = 60.0

    def decide(self, seen: Seen, memory: Remembered, bounds: Bounds) -> tuple[int, Remembered]:
        """Replicas to ask for."""
        kept = (*memory.samples[-2:], (seen.now_s, float(seen.arrived)))
        if not seen.heard:
            return seen.current, memory
        rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(kept) if b[0] > a[0]]
        if not rates or seen.tokens_per_request <= 0:
            return seen.current, replace(memory, samples=kept)
        trend = rates[-1] - rates[0] if len(rates) > 1 else 0.0
        tokens_per_s = (rates[-1] + max(trend, 0.0)) * seen.tokens_per_request
        wanted = math.ceil(tokens_per_s / (self.capacity_tokens_per_s * self.fill))
        return bounds.hold(wanted), replace(memory, samples=kept)


@dataclass(frozen=True, slots=True)
class Saturation:
    """llm-d's workload-variant-autoscaler in saturation mode.

    Spare capacity is the mean over unsaturated replicas of what is left to `kv_threshold` and `queue_threshold`. One
    more replica where either is below its trigger, one fewer where N - 1 replicas would keep both above; nothing while
    replicas are on their way.
    """

    kv_trigger: float = 0.1
    queue_trigger: float = 3.0
    kv_threshold: float = 0.8
    queue_threshold: float = 5.0
    interval_s: float = 30.0

    def decide(self, seen: Seen, memory: Remembered, bounds: Bounds) -> tuple[int, Remembered]:
        """Replicas to ask for."""
        if not seen.waiting or seen.ready < seen.current:
            return bounds.hold(seen.current), memory
        pairs = [
            (self.kv_threshold - kv, self.queue_threshold - queue)
            for kv, queue in zip(seen.kv_usage, seen.waiting, strict=True)
            if kv < self.kv_threshold and queue < self.queue_threshold
        ]
        if not pairs:
            return bounds.hold(seen.current + 1), memory
        spare_kv, spare_queue = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        if spare_kv < self.kv_trigger or spare_queue < self.queue_trigger:
            return bounds.hold(seen.current + 1), memory
        fewer = len(pairs) - 1
        if fewer < 1:
            return bounds.hold(seen.current), memory
        spread = len(pairs) / fewer
        kv_then = self.kv_threshold - (self.kv_threshold - spare_kv) * spread
        queue_then = self.queue_threshold - (self.queue_threshold - spare_queue) * spread
        shrink = kv_then >= self.kv_trigger and queue_then >= self.queue_trigger
        return bounds.hold(seen.current - int(shrink)), memory


Scaler = QueueHpa | ActiveHpa | ActiveRequests | Predictive | Saturation


def _hpa(
    total: float, target: float, stabilisation_s: float, seen: Seen, memory: Remembered, bounds: Bounds
) -> tuple[int, Remembered]:
    """HPA: replicas that are not ready yet count as idle ones, so that a start is not answered twice.

    The count that it finds at first is its first recommendation, as there: it does not shrink before it knows anything.
    """
    if not seen.heard:
        return seen.current, memory
    count = max(seen.current, 1)
    wanted = seen.current
    if seen.ready and abs(total / (target * seen.ready) - 1) > 0.1:
        wanted = math.ceil(total / target)
        growing = total / seen.ready > target
        if growing and wanted <= count:
            wanted = seen.current
    wanted = min(wanted, max(count + 4, 2 * count))
    wanted = bounds.hold(wanted)
    known = memory.recommended or ((seen.now_s, seen.current),)
    kept = (*(r for r in known if r[0] > seen.now_s - stabilisation_s), (seen.now_s, wanted))
    if wanted < seen.current:
        wanted = min(seen.current, max(count for _, count in kept))
    return wanted, replace(memory, recommended=kept)
