"""Noisy neighbours, by natural experiment.

For a loud tenant on one replica, y is the other tenants' TTFT there less that of the group's replicas which it does not
touch: what slows the whole fleet cancels out (difference in differences). y is regressed on the tenant's own tokens/s
there, x, and on the others', z, so that a replica which simply got busier blames nobody. The effect is what the
tenant's activity (two standard deviations of x) adds, in seconds, with its confidence interval. Angrist and Pischke,
Mostly Harmless Econometrics, chapter 5.

No verdict below the evidence: enough windows, an activity that varied, a replica to compare with; else what is missing
is said. A verdict needs the effect less four standard errors to pass a quarter of the SLO: at two, one in forty loud
tenants of a noisy fleet would be accused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

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
LONGEST_TTFT_S = 60.0  # later ones are cut: one request that hung is not a neighbour's doing
FORGOTTEN = 0.02  # of the tokens in memory: a tenant that became as small there is no candidate any more
Z95, STUDENT = 1.96, 2.5  # quantile, and its widening at few degrees of freedom: 1.96 (1 + 2.5 / df)


@dataclass(frozen=True, slots=True)
class Look:
    """One loud tenant on one replica at one moment: the regression's terms, its share and who else is there."""

    tenant: str
    replica: str
    x: float
    z: float
    y: float | None
    share: float


def gather(
    observation: Observation, pairs: PairTable, memory: DiagnosisMemory, policy: FleetPolicy, now_s: float
) -> tuple[dict[tuple[str, str], Sums], dict[tuple[str, str], Look]]:
    """Evidence after one tick, and what was seen of each candidate at it."""
    passed_s = now_s - memory.last_tick_s
    looks = {(look.tenant, look.replica): look for look in _looks(observation, pairs, memory)}
    if passed_s <= 0:
        return dict(memory.sums), looks
    window_s = max(observation.traffic.window_s, 1e-9)
    weight = min(1.0, passed_s / window_s)
    share = 0.5 ** (passed_s / (WINDOWS_KEPT * policy.diagnosis.window_s)) if np.isfinite(passed_s) else 0.0
    out: dict[tuple[str, str], Sums] = {}
    for key, look in looks.items():
        sums = faded(memory.sums.get(key, Sums()), share)
        if look.y is not None:
            sums = added(sums, weight, look.x, look.z, look.y)
        if look.share >= LOUD_SHARE or sums.x > FORGOTTEN * (sums.x + sums.z):
            out[key] = sums
    return out, looks


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
    return [
        Look(
            tenants[t],
            replicas[r].id,
            x=(x := float(pairs.loud_tokens_per_s[i]) if (i := place.get((t, r))) is not None else 0.0),
            z=max(0.0, float(pairs.tokens_per_s[r]) - x),
            y=_outcome(pairs, control, t, r, i),
            share=float(share[i]) if i is not None else 0.0,
        )
        for t, r in keys
    ]


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

    def ttft_s(self, tenant: int, replica: int) -> float | None:
        """Mean over the untouched replicas of the replica's group; None where there is none with traffic."""
        group = self._group[replica]
        touched = [r for r in self._touched[tenant] | {replica} if self._group[r] == group]
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
        return Effect(samples=int(sums.n), missing=f"{FEWEST_WINDOWS - sums.n:.0f} more windows beside other tenants")
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


def findings(
    observation: Observation,
    pairs: PairTable,
    sums: Mapping[tuple[str, str], Sums],
    looks: Mapping[tuple[str, str], Look],
    policy: FleetPolicy,
) -> dict[str, TenantFinding]:
    """Aggressors and their victims. A tenant's score is that of the replica where it is worst."""
    out: dict[str, TenantFinding] = {}
    beside: dict[str, str] = {}
    for key in sorted(sums):
        look = looks.get(key)
        if look is None:
            continue
        found = effect(sums[key])
        worst = score(found, policy.slo.ttft_s)
        if look.tenant not in out or worst > out[look.tenant].aggressor:
            out[look.tenant] = TenantFinding(
                look.tenant, aggressor=worst, effect=found, share=look.share, terms=_terms(look, found, policy)
            )
            beside[look.tenant] = look.replica
    guilty = [t for t in sorted(out) if out[t].aggressor >= policy.diagnosis.noisy_score_ratio]
    for tenant in guilty:
        hurt = _victims(observation, pairs, tenant, beside[tenant], policy)
        harm = sum(hurt.values())
        out[tenant] = replace(out[tenant], others=tuple(hurt)[:10], harm=harm)
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


def _terms(look: Look, found: Effect, policy: FleetPolicy) -> tuple[Term, ...]:
    share = Term(
        "token_share_ratio", look.share, LOUD_SHARE, f"it takes {look.share:.0%} of the tokens of {look.replica}"
    )
    if found.missing:
        return (share, Term("windows", found.samples, FEWEST_WINDOWS, f"no verdict: {found.missing}"))
    text = (
        f"its activity on {look.replica} adds {found.mean_s:.3g} s to the others' first tokens "
        f"(95 %: {found.low_s:.3g} to {found.high_s:.3g}, {found.samples} windows)"
    )
    return share, Term("ttft_effect_s", found.mean_s, policy.slo.ttft_s / 4, text)
