"""One group's replicas, summed up: what is serving, what is on its way, and how hard it works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.domain.fleet import Group, Replica, ReplicaSignals, ReplicaState
from autoscaler.domain.signals import Fresh, Signal, value_or


@dataclass(frozen=True, slots=True)
class Readings:
    """Sums over the READY replicas of one group; replicas on their way are counted, never measured.

    Attributes:
        ready, unready, draining: serving; asked for and not serving yet (pods that do not exist yet included); leaving.
        failed: that do not come up: neither load nor relief, and nothing to wait for.
        unplaced: those of `unready` that have no machine.
        heard: READY replicas whose queue and KV use are both known; sums are over these.
        waiting: requests that wait for compute (waiting less deferred).
        deferred: requests that wait for an adapter slot.
        kv_usage: sum of KV use, 0..1 each.
        running: requests; `most_running`: how many one replica may run, the least of them.
        tokens_per_s: prompt and completion tokens/s; None where some READY replica does not say.
        busy: whether any engine says that it has work.
        ttft_mean_s, ttft_p99_s: weighted by requests; None without traffic.
        queue_time_s: the part of TTFT that is waiting, weighted by requests; None where unknown.
    """

    ready: int = 0
    unready: int = 0
    unplaced: int = 0
    draining: int = 0
    failed: int = 0
    heard: int = 0
    waiting: float = 0.0
    deferred: float = 0.0
    kv_usage: float = 0.0
    running: float = 0.0
    most_running: int = 0
    tokens_per_s: float | None = None
    busy: bool = False
    ttft_mean_s: float | None = None
    ttft_p99_s: float | None = None
    queue_time_s: float | None = None

    @property
    def in_flight(self) -> float | None:
        """Requests in all engines; None unless every READY replica was heard."""
        return self.running + self.waiting + self.deferred if self.complete else None

    @property
    def complete(self) -> bool:
        """Whether every READY replica was heard, and there is one."""
        return 0 < self.ready == self.heard


def capacity_waiting(signals: ReplicaSignals) -> float | None:
    """Requests that wait for compute: waiting less deferred; None where waiting is unknown."""
    if not isinstance(signals.waiting, Fresh):
        return None
    return max(0.0, signals.waiting.value - value_or(signals.deferred, 0.0))


def tokens_per_s(signals: ReplicaSignals) -> float | None:
    """Prompt and completion tokens/s of one engine; None where either is unknown."""
    prompt, generation = signals.prompt_tokens_per_s, signals.generation_tokens_per_s
    if isinstance(prompt, Fresh) and isinstance(generation, Fresh):
        return prompt.value + generation.value
    return None


def read(group: Group, replicas: Sequence[Replica]) -> Readings:
    """Sum up one group. Order does not matter; other groups' replicas are left out."""
    mine = sorted((r for r in replicas if r.group == group.name), key=lambda r: r.id)
    ready = [r.signals for r in mine if r.state is ReplicaState.READY]
    starting = sum(r.state is ReplicaState.STARTING for r in mine)
    pending = sum(r.state is ReplicaState.PENDING for r in mine)
    draining = sum(r.state is ReplicaState.DRAINING for r in mine)
    failed = sum(r.state is ReplicaState.FAILED for r in mine)
    absent = max(0, group.current_replicas - len(ready) - starting - pending - draining - failed)
    heard = [s for s in ready if isinstance(s.waiting, Fresh) and isinstance(s.kv_usage_ratio, Fresh)]
    tokens = [tokens_per_s(s) for s in ready]
    known = [t for t in tokens if t is not None]
    return Readings(
        ready=len(ready),
        unready=starting + pending + absent,
        unplaced=pending + absent,
        draining=draining,
        failed=failed,
        heard=len(heard),
        waiting=sum(capacity_waiting(s) or 0.0 for s in heard),
        deferred=sum(value_or(s.deferred, 0.0) for s in heard),
        kv_usage=sum(value_or(s.kv_usage_ratio, 0.0) for s in heard),
        running=sum(value_or(s.running, 0.0) for s in heard),
        most_running=min((r.limits.max_num_seqs for r in mine if r.state is ReplicaState.READY), default=0),
        tokens_per_s=sum(known) if ready and len(known) == len(tokens) else None,
        busy=any(value_or(s.running, 0.0) > 0 or value_or(s.waiting, 0.0) > 0 for s in ready),
        ttft_mean_s=weighted(ready, [s.ttft_mean_s for s in ready]),
        ttft_p99_s=weighted(ready, [s.ttft_p99_s for s in ready]),
        queue_time_s=weighted(ready, [s.queue_time_mean_s for s in ready]),
    )


def weighted(signals: Sequence[ReplicaSignals], column: Sequence[Signal]) -> float | None:
    """Mean weighted by requests/s; a replica whose rate is unknown weighs as one request per second."""
    pairs = [
        (s.value, value_or(w.requests_per_s, 1.0)) for s, w in zip(column, signals, strict=True) if isinstance(s, Fresh)
    ]
    weight = sum(w for _, w in pairs)
    return sum(v * w for v, w in pairs) / weight if weight > 0 else None
