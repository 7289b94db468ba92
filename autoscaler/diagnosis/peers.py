"""One replica against its peers: slow under the load that they carry well, or queueing while they are idle.

Both need three replicas (of two, who is to say which is odd), and must last for the policy's window.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from autoscaler.domain.diagnosis import Cause, ReplicaFinding, Term
from autoscaler.domain.fleet import Replica
from autoscaler.domain.signals import Fresh, Signal, value_or

FEWEST = 3
SLOWER = 1.6  # times what the peers need per token, load allowed for: window means of alike replicas differ by a fifth
STILL = 0.75  # of that keeps a replica odd that was, so that noise does not start the window again
FULLER = 2.0  # times the peers' median tokens/s, while they are below half of their targets


@dataclass(frozen=True, slots=True)
class Odd:
    """Replicas that differ from their peers at this tick, each with the sentence that says how."""

    slow: Mapping[str, Term]
    uneven: Mapping[str, Term]


def compare(replicas: Sequence[Replica], findings: Mapping[str, ReplicaFinding], known: Collection[str]) -> Odd:
    """Look at one group's READY replicas. `known`: those that were odd before, which three quarters keep odd."""
    slow: dict[str, Term] = {}
    uneven: dict[str, Term] = {}
    for replica in replicas:
        peers = [r for r in replicas if r.id != replica.id]
        if len(peers) < FEWEST - 1:
            continue
        if (term := _slow(replica, peers, SLOWER * (STILL if replica.id in known else 1.0))) is not None:
            slow[replica.id] = term
        if (term := _uneven(replica, peers, findings)) is not None:
            uneven[replica.id] = term
    return Odd(slow, uneven)


def _slow(replica: Replica, peers: Sequence[Replica], limit: float) -> Term | None:
    """Slower than its peers by more than its load explains: TTFT may grow as fast as load, time per token half."""
    own, theirs = _known(replica.signals.itl_mean_s), _values([p.signals.itl_mean_s for p in peers])
    name, explains = "time per token", 0.5
    if own is None or len(theirs) < FEWEST - 1:
        own, theirs = _known(replica.signals.ttft_mean_s), _values([p.signals.ttft_mean_s for p in peers])
        name, explains = "TTFT", 1.0
    if own is None or len(theirs) < FEWEST - 1:
        return None
    times = own / max(median(theirs), 1e-9)
    load = _load_over_peers(replica, peers)
    explained = 1.0 + explains * max(0.0, load - 1.0)
    if times <= limit * explained:
        return None
    text = f"its {name} is {own:.3g} s, its peers' {median(theirs):.3g} s, at {load:.2f} times their load"
    return Term("slower_than_peers", times / explained, limit, text)


def _load_over_peers(replica: Replica, peers: Sequence[Replica]) -> float:
    """Tokens/s over the peers' median, where that is known, else requests in flight over theirs."""
    own, theirs = _tokens(replica), [t for p in peers if (t := _tokens(p)) is not None]
    if own is not None and theirs and median(theirs) > 0:
        return own / median(theirs)
    running = [value_or(p.signals.running, 0.0) for p in peers]
    return value_or(replica.signals.running, 0.0) / max(median(running), 1.0)


def _uneven(replica: Replica, peers: Sequence[Replica], findings: Mapping[str, ReplicaFinding]) -> Term | None:
    own = findings[replica.id].saturation
    theirs = [findings[p.id].saturation for p in peers if findings[p.id].cause is not Cause.UNKNOWN]
    tokens, others = _tokens(replica), [t for p in peers if (t := _tokens(p)) is not None]
    if own < 1 or len(theirs) < FEWEST - 1 or median(theirs) >= 0.5 or tokens is None or not others:
        return None
    if tokens <= FULLER * median(others):
        return None
    text = f"it gets {tokens:.4g} tokens/s and queues, its peers {median(others):.4g} and do not"
    return Term("fuller_than_peers", tokens / max(median(others), 1e-9), FULLER, text)


def lasting(
    findings: Mapping[str, ReplicaFinding], cause: Cause, seen: Mapping[str, Term], since_s: Mapping[str, float],
    now_s: float, window_s: float,
) -> dict[str, ReplicaFinding]:  # fmt: skip
    """The findings with those renamed that have been odd for the window; thrash and slow stores keep their own name."""
    out = dict(findings)
    for name, term in seen.items():
        found = out[name]
        if now_s - since_s[name] >= window_s and found.cause not in (Cause.THRASH, Cause.SLOW_ADAPTER_STORE):
            out[name] = replace(found, cause=cause, terms=(term, *found.terms))
    return out


def since(seen: Mapping[str, Term], before: Mapping[str, float], now_s: float) -> dict[str, float]:
    """Since when each has been odd."""
    return {name: min(before.get(name, now_s), now_s) for name in sorted(seen)}


def _known(signal: Signal) -> float | None:
    return signal.value if isinstance(signal, Fresh) else None


def _values(signals: Sequence[Signal]) -> list[float]:
    return [s.value for s in signals if isinstance(s, Fresh)]


def _tokens(replica: Replica) -> float | None:
    prompt, generation = _known(replica.signals.prompt_tokens_per_s), _known(replica.signals.generation_tokens_per_s)
    return None if prompt is None or generation is None else prompt + generation
