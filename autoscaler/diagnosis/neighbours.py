"""Noisy neighbours, by natural experiment.

For a loud tenant on one replica, y is the other tenants' TTFT there less that of the group's replicas which it does not
touch: what slows the whole fleet cancels out (difference in differences). A second experiment compares the same
tenants with themselves on their other owners, so that who is there cancels out too. In each, y is regressed on the
tenant's own tokens/s there, x, and on the others', z, so that a replica which simply got busier blames nobody. The
effect is what the tenant's activity (two standard deviations of x) adds, in seconds, with its confidence interval.
Angrist and Pischke, Mostly Harmless Econometrics, chapter 5.

No verdict below the evidence: enough windows, an activity that varied, a replica to compare with; else what is missing
is said. The more precise of the two experiments speaks, unless the other one rules its harm out. A verdict needs the
effect less four standard errors to pass a quarter of the SLO: at two, one in forty loud tenants of a noisy fleet would
be accused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.diagnosis.beside import LONGEST_TTFT_S, Beside
from autoscaler.diagnosis.memory import DiagnosisMemory, Sums, added, faded
from autoscaler.diagnosis.pairs import PairTable
from autoscaler.domain.diagnosis import Effect, TenantFinding, Term
from autoscaler.domain.observation import Observation
from autoscaler.policy.model import FleetPolicy

LOUD_SHARE = 0.2  # of a replica's tokens: who takes less is no aggressor
MOST_CANDIDATES = 256
WINDOWS_KEPT = 4.0  # evidence fades by half in so many `diagnosis.window`s
FEWEST_WINDOWS = 6.0  # effective; two regressors and a mean leave three degrees of freedom
VARIED = 0.1  # standard deviation of x over the replica's mean tokens/s below which nothing varied
FORGOTTEN = 0.02  # of the tokens in memory: a tenant that became as small there is no candidate any more
Z95, STUDENT = 1.96, 2.5  # quantile, and its widening at few degrees of freedom: 1.96 (1 + 2.5 / df)


@dataclass(frozen=True, slots=True)
class Look:
    """One loud tenant on one replica at one moment: the regressions' terms, and what it takes there.

    `y` compares with replicas that it does not touch, `owners_y` with its neighbours' other owners; None = none there.
    """

    tenant: str
    replica: str
    x: float
    z: float
    y: float | None
    owners_y: float | None
    share: float
    held: Mapping[str, float]
    added_s: Mapping[str, float]


Keyed = dict[tuple[str, str], Sums]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Evidence after one tick by (tenant, replica), of both experiments, and what was seen of each candidate at it."""

    sums: Keyed
    owner_sums: Keyed
    looks: Mapping[tuple[str, str], Look]


def gather(
    observation: Observation, pairs: PairTable, memory: DiagnosisMemory, policy: FleetPolicy, now_s: float
) -> Gathered:
    """Take one tick's evidence in; a second look at the same moment adds none."""
    passed_s = now_s - memory.last_tick_s
    looks = {(look.tenant, look.replica): look for look in _looks(observation, pairs, memory)}
    if passed_s <= 0:
        return Gathered(dict(memory.sums), dict(memory.owner_sums), looks)
    window_s = max(observation.traffic.window_s, 1e-9)
    weight = min(1.0, passed_s / window_s)
    share = 0.5 ** (passed_s / (WINDOWS_KEPT * policy.diagnosis.window_s)) if np.isfinite(passed_s) else 0.0
    out: tuple[Keyed, Keyed] = {}, {}
    for key, look in looks.items():
        experiments = ((memory.sums, look.y), (memory.owner_sums, look.owners_y))
        after = [_grown(known.get(key, Sums()), share, weight, look, y) for known, y in experiments]
        if look.share >= LOUD_SHARE or after[0].x > FORGOTTEN * (after[0].x + after[0].z):
            out[0][key], out[1][key] = after
    return Gathered(*out, looks)


def _grown(sums: Sums, share: float, weight: float, look: Look, y: float | None) -> Sums:
    kept = faded(sums, share)
    return kept if y is None else added(kept, weight, look.x, look.z, y)


def _looks(observation: Observation, pairs: PairTable, memory: DiagnosisMemory) -> list[Look]:
    """Candidates: who is loud now, and who was and still has evidence; the loudest where there are too many."""
    tenants, replicas = observation.catalogue.tenants, observation.replicas
    row = observation.catalogue.tenant_row
    index = {replica.id: i for i, replica in enumerate(replicas)}
    share = pairs.loud_tokens_per_s / np.maximum(pairs.tokens_per_s[pairs.loud_replica], 1e-9)
    loud = np.flatnonzero(share >= LOUD_SHARE)
    loud = loud[np.argsort(-pairs.loud_tokens_per_s[loud], kind="stable")][:MOST_CANDIDATES]
    keys = [(int(pairs.loud_tenant[i]), int(pairs.loud_replica[i])) for i in loud]
    remembered = [(row[t], index[r]) for t, r in sorted(memory.sums) if t in row and r in index]
    keys = list(dict.fromkeys(keys + remembered))[:MOST_CANDIDATES]
    place = {(int(t), int(r)): i for i, (t, r) in enumerate(zip(pairs.loud_tenant, pairs.loud_replica, strict=True))}
    control = _Control(observation, pairs, [t for t, _ in keys])
    beside = Beside(pairs, len(replicas), len(tenants))
    out = []
    for t, r in keys:
        i = place.get((t, r))
        x = float(pairs.loud_tokens_per_s[i]) if i is not None else 0.0
        others, weight, later_s = beside.later_s(t, r, control.touched(t, r))
        out.append(
            Look(
                tenants[t],
                replicas[r].id,
                x=x,
                z=max(0.0, float(pairs.tokens_per_s[r]) - x),
                y=_outcome(pairs, control, t, r, i),
                owners_y=float(weight @ later_s) / float(weight.sum()) if others.size else None,
                share=float(share[i]) if i is not None else 0.0,
                held=beside.held(t, r),
                added_s={tenants[o]: s for o, s in zip(others.tolist(), later_s.tolist(), strict=True)},
            )
        )
    return out


class _Control:
    """TTFT of the replicas of a group that a tenant does not touch: the group's sums less those that it touches."""

    def __init__(self, observation: Observation, pairs: PairTable, tenants: list[int]) -> None:
        names = sorted({replica.group for replica in observation.replicas})
        self._group = np.array([names.index(r.group) for r in observation.replicas], np.int64)
        self._requests = np.bincount(self._group, pairs.requests_per_s)
        self._ttft_sum = np.bincount(self._group, pairs.ttft_sum)
        self._pairs = pairs
        self._touched: dict[int, set[int]] = {tenant: set() for tenant in tenants}
        mine = np.isin(pairs.tenant, tenants)
        for tenant, replica in zip(pairs.tenant[mine].tolist(), pairs.replica[mine].tolist(), strict=True):
            self._touched[tenant].add(replica)

    def touched(self, tenant: int, replica: int) -> set[int]:
        """Replicas with requests of a tenant, and this one."""
        return self._touched[tenant] | {replica}

    def ttft_s(self, tenant: int, replica: int) -> float | None:
        """Mean over the untouched replicas of the replica's group; None where there is none with traffic."""
        group = self._group[replica]
        touched = [r for r in self.touched(tenant, replica) if self._group[r] == group]
        requests = float(self._requests[group] - self._pairs.requests_per_s[touched].sum())
        if requests <= 1e-9:
            return None
        return float(self._ttft_sum[group] - self._pairs.ttft_sum[touched].sum()) / requests


def _outcome(pairs: PairTable, control: _Control, tenant: int, replica: int, loud: int | None) -> float | None:
    """The others' TTFT beside the tenant, less the control's; None where either is unknown."""
    own_requests = 0.0 if loud is None else float(pairs.loud_requests_per_s[loud])
    own_sum = 0.0 if loud is None else float(pairs.loud_ttft_sum[loud])
    requests = float(pairs.requests_per_s[replica]) - own_requests
    elsewhere = control.ttft_s(tenant, replica)
    if requests <= 1e-9 or elsewhere is None:
        return None
    beside = (float(pairs.ttft_sum[replica]) - own_sum) / requests
    return min(beside, LONGEST_TTFT_S) - min(elsewhere, LONGEST_TTFT_S)


def effect(sums: Sums) -> Effect:
    """What a tenant's activity adds to the others' TTFT, by least squares of y on x and z."""
    if sums.n < FEWEST_WINDOWS:
        more = max(1, math.ceil(FEWEST_WINDOWS - sums.n))
        text = f"{more} more window{'s' * (more > 1)} beside other tenants"
        return Effect(samples=int(sums.n), missing=text)
    n, mx, mz, my = sums.n, sums.x / sums.n, sums.z / sums.n, sums.y / sums.n
    xx, zz, xz = sums.xx - n * mx * mx, sums.zz - n * mz * mz, sums.xz - n * mx * mz
    xy, zy, yy = sums.xy - n * mx * my, sums.zy - n * mz * my, sums.yy - n * my * my
    deviation = (max(xx, 0.0) / n) ** 0.5
    if deviation < VARIED * max(mx + mz, 1e-9):
        return Effect(samples=int(n), missing="its activity did not vary: nothing to compare")
    through_z, of_z = (xz / zz, zy * zy / zz) if zz > 1e-9 * max(xx, 1.0) else (0.0, 0.0)
    free = xx - through_z * xz
    if free < 0.1 * xx:
        return Effect(samples=int(n), missing="its activity moves with the others': they cannot be told apart")
    slope = (xy - through_z * zy) / free
    explained = of_z + slope * (xy - through_z * zy)
    degrees = max(n - 3.0, 1.0)
    error = (max(yy - explained, 0.0) / degrees / free) ** 0.5
    mean, half = slope * 2 * deviation, Z95 * (1 + STUDENT / degrees) * error * 2 * deviation
    return Effect(mean, mean - half, mean + half, int(n))


def score(found: Effect, slo_s: float) -> float:
    """0..1: the effect less four standard errors, over half of the SLO."""
    if found.missing:
        return 0.0
    cautious = found.mean_s - 2.0 * (found.mean_s - found.low_s)
    return min(1.0, max(0.0, cautious / (0.5 * slo_s)))


def judged(against_replicas: Effect, against_owners: Effect, slo_s: float) -> Effect:
    """The more precise experiment's effect; none where the other one rules out a quarter of the SLO."""
    told = sorted((e for e in (against_replicas, against_owners) if not e.missing), key=lambda e: e.high_s - e.low_s)
    if not told:
        return against_replicas
    if any(e.high_s < slo_s / 4 for e in told[1:]):
        return Effect(samples=told[0].samples, missing="the two comparisons contradict each other")
    return told[0]


def findings(
    observation: Observation, pairs: PairTable, gathered: Gathered, policy: FleetPolicy
) -> dict[str, TenantFinding]:
    """Aggressors and their victims. A tenant's score is that of the replica where it is worst."""
    out: dict[str, TenantFinding] = {}
    worst_at: dict[str, Look] = {}
    for key in sorted(gathered.sums):
        look = gathered.looks.get(key)
        if look is None:
            continue
        both = effect(gathered.sums[key]), effect(gathered.owner_sums.get(key, Sums()))
        found = judged(*both, policy.slo.ttft_s)
        worst = score(found, policy.slo.ttft_s)
        if look.tenant not in out or worst > out[look.tenant].aggressor:
            out[look.tenant] = TenantFinding(
                look.tenant, aggressor=worst, effect=found, share=look.share, terms=_terms(look, found, both[1], policy)
            )
            worst_at[look.tenant] = look
    guilty = [t for t in sorted(out) if out[t].aggressor >= policy.diagnosis.noisy_score_ratio]
    for tenant in guilty:
        hurt = _victims(observation, pairs, tenant, worst_at[tenant].replica, policy)
        shown = tuple(hurt)[:10]
        pair_s = tuple(worst_at[tenant].added_s.get(v, float("nan")) for v in shown)
        out[tenant] = replace(out[tenant], others=shown, added_s=pair_s, harm=sum(hurt.values()))
        for victim, lateness in hurt.items():
            known = out.get(victim, TenantFinding(victim))
            if lateness > known.harm or not known.victim:
                out[victim] = replace(
                    known, victim=out[tenant].aggressor, others=(*known.others, tenant), harm=max(known.harm, lateness)
                )
    return out


def _victims(
    observation: Observation, pairs: PairTable, tenant: str, replica: str, policy: FleetPolicy
) -> dict[str, float]:
    """Tenants beside it that are late now -> seconds of lateness per second, worst first."""
    row = observation.catalogue.tenant_row[tenant]
    index = next(i for i, r in enumerate(observation.replicas) if r.id == replica)
    here = (pairs.replica == index) & (pairs.tenant != row) & np.isfinite(pairs.ttft_s)
    late: dict[str, float] = {}
    for i in np.flatnonzero(here):
        name = observation.catalogue.tenants[pairs.tenant[i]]
        excess = float(pairs.ttft_s[i]) - policy.slo.ttft_of(name)
        if excess > 0:
            late[name] = late.get(name, 0.0) + excess * float(pairs.requests[i])
    return dict(sorted(late.items(), key=lambda item: (-item[1], item[0])))


def _terms(look: Look, found: Effect, owners: Effect, policy: FleetPolicy) -> tuple[Term, ...]:
    share = Term(
        "token_share_ratio", look.share, LOUD_SHARE, f"it takes {look.share:.0%} of the tokens of {look.replica}"
    )
    words = {"batch": "of the requests that run there at once", "kv": "of their KV cache"}
    held = tuple(
        Term(f"{name}_share_ratio", value, None, f"about {value:.0%} {words[name]} by rate, length and time per token")
        for name, value in look.held.items()
    )
    if found.missing:
        return (share, *held, Term("windows", found.samples, FEWEST_WINDOWS, f"no verdict: {found.missing}"))
    twice = (
        f"against the same tenants on their other owners: {owners.mean_s:.3g} s "
        f"(95 %: {owners.low_s:.3g} to {owners.high_s:.3g}, {owners.samples} windows)"
    )
    if owners.missing:
        twice = f"against the same tenants on their other owners: not known, {owners.missing}"
    text = (
        f"its activity on {look.replica} adds {found.mean_s:.3g} s to the others' first tokens "
        f"(95 %: {found.low_s:.3g} to {found.high_s:.3g}, {found.samples} windows)"
    )
    limit_s = policy.slo.ttft_s / 4
    return (
        share,
        *held,
        Term("ttft_effect_on_owners_s", owners.mean_s, limit_s, twice),
        Term("ttft_effect_s", found.mean_s, limit_s, text),
    )
