"""One replica against its group: slow under the load that its peers carry well, or queueing while they are idle.

What is usual is the group's median, which one odd replica does not move. Both findings need three replicas (of two, who
is to say which is odd), and must last for the policy's window.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from autoscaler.domain.diagnosis import Cause, ReplicaFinding, Term
from autoscaler.domain.figures import figure
from autoscaler.domain.fleet import Replica
from autoscaler.domain.signals import Fresh, Signal, value_or
from autoscaler.policy.model import FleetPolicy

FEWEST = 3
SLOWER = 1.6  # times what is usual, load allowed for: window means of alike replicas differ by a fifth
STILL = 0.75  # of that keeps a replica odd that was, so that noise does not start the window again
FULLER = 2.0  # times the usual tokens/s, while the usual replica is below half of its targets


@dataclass(frozen=True, slots=True)
class Odd:
    """Replicas that differ from their peers at this tick, each with the sentence that says how."""

    slow: Mapping[str, Term]
    uneven: Mapping[str, Term]


@dataclass(frozen=True, slots=True)
class Usual:
    """A group's medians; None where fewer than three replicas tell."""

    itl_s: float | None
    ttft_s: float | None
    tokens_per_s: float | None
    running: float
    saturation: float | None


def compare(replicas: Sequence[Replica], findings: Mapping[str, ReplicaFinding], known: Collection[str]) -> Odd:
    """Look at one group's READY replicas. `known`: those that were odd before, which three quarters keep odd."""
    slow: dict[str, Term] = {}
    uneven: dict[str, Term] = {}
    if len(replicas) < FEWEST:
        return Odd(slow, uneven)
    heard = [findings[r.id].saturation for r in replicas if findings[r.id].cause is not Cause.UNKNOWN]
    usual = Usual(
        itl_s=_median([_known(r.signals.itl_mean_s) for r in replicas]),
        ttft_s=_median([_known(r.signals.ttft_mean_s) for r in replicas]),
        tokens_per_s=_median([_tokens(r) for r in replicas]),
        running=median([value_or(r.signals.running, 0.0) for r in replicas]),
        saturation=_median(heard),
    )
    for replica in replicas:
        if (term := _slow(replica, usual, SLOWER * (STILL if replica.id in known else 1.0))) is not None:
            slow[replica.id] = term
        if (term := _uneven(replica, usual, findings[replica.id].saturation)) is not None:
            uneven[replica.id] = term
    return Odd(slow, uneven)


def _slow(replica: Replica, usual: Usual, limit: float) -> Term | None:
    """Slower than usual by more than its load explains: TTFT may grow as fast as load, time per token half as fast."""
    for name, own, theirs, explains in (
        ("time per token", _known(replica.signals.itl_mean_s), usual.itl_s, 0.5),
        ("TTFT", _known(replica.signals.ttft_mean_s), usual.ttft_s, 1.0),
    ):
        if own is None or theirs is None or theirs <= 0:
            continue
        load = _load(replica, usual)
        times = own / theirs / (1.0 + explains * max(0.0, load - 1.0))
        if times <= limit:
            return None
        text = f"its {name} is {own:.3g} s, its peers' {theirs:.3g} s, at {load:.2f} times their load"
        return Term("slower_than_peers", times, limit, text)
    return None


def _load(replica: Replica, usual: Usual) -> float:
    """Tokens/s over the usual, where that is known, else requests running over the usual."""
    own = _tokens(replica)
    if own is not None and usual.tokens_per_s:
        return own / usual.tokens_per_s
    return value_or(replica.signals.running, 0.0) / max(usual.running, 1.0)


def _uneven(replica: Replica, usual: Usual, saturation: float) -> Term | None:
    tokens = _tokens(replica)
    if saturation < 1 or usual.saturation is None or usual.saturation >= 0.5:
        return None
    if tokens is None or usual.tokens_per_s is None or tokens <= FULLER * usual.tokens_per_s:
        return None
    text = f"it gets {figure(tokens)} tokens/s and queues, its peers {figure(usual.tokens_per_s)} and do not"
    return Term("fuller_than_peers", tokens / max(usual.tokens_per_s, 1e-9), FULLER, text)


def lasting(
    findings: Mapping[str, ReplicaFinding],
    cause: Cause,
    seen: Mapping[str, Term],
    since_s: Mapping[str, float],
    policy: FleetPolicy,
    now_s: float,
) -> dict[str, ReplicaFinding]:
    """The findings with those renamed that have been odd for the window; thrash and slow stores keep their own name."""
    out = dict(findings)
    for name, term in seen.items():
        found = out[name]
        long = now_s - since_s[name] >= policy.diagnosis.window_s
        if long and found.cause not in (Cause.THRASH, Cause.SLOW_ADAPTER_STORE):
            out[name] = replace(found, cause=cause, terms=(term, *found.terms))
    return out


def since(seen: Mapping[str, Term], before: Mapping[str, float], now_s: float) -> dict[str, float]:
    """Since when each has been odd."""
    return {name: min(before.get(name, now_s), now_s) for name in sorted(seen)}


def _known(signal: Signal) -> float | None:
    return signal.value if isinstance(signal, Fresh) else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if len(known) >= FEWEST else None


def _tokens(replica: Replica) -> float | None:
    prompt, generation = _known(replica.signals.prompt_tokens_per_s), _known(replica.signals.generation_tokens_per_s)
    return None if prompt is None or generation is None else prompt + generation
