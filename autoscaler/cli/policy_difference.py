"""`policy diff`: what a change of policy would do to tiers, replicas and ring, before it is merged."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

from autoscaler.cli.errors import UsageError
from autoscaler.cli.policies import read_policy
from autoscaler.cli.rehearsal import MOST_TICKS, Rehearsal
from autoscaler.cli.rehearsal_stage import stage_of, unknowns
from autoscaler.cli.remote import controller
from autoscaler.cli.snapshots import read_snapshot
from autoscaler.cli.tables import table
from autoscaler.planner import FleetPlan
from autoscaler.policy.differences import diff
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import Actuation, Mode
from autoscaler.ring import RingSnapshot, decode, ring_diff

_SHOWN = 40
_FEW = 5
_ADAPTERS = "spec.adapters.list"
_RULES = ("replication_factor", "choice", "request_bound_percent", "request_floor", "overflow", "standby_count")


def run(arguments: argparse.Namespace) -> int:
    """Print the differences. Returns 0. Raises UsageError for input that cannot be used."""
    old, new = read_policy(arguments.old), read_policy(arguments.new)
    snapshot = read_snapshot(arguments.snapshot)
    if snapshot.fleet not in (old.name, new.name):
        raise UsageError(
            f"{arguments.snapshot} is of fleet {snapshot.fleet!r}, the policies are of {old.name!r} and {new.name!r}: "
            "take a snapshot of the policy's fleet"
        )
    with contextlib.ExitStack() as stack:
        arguments.fleet = arguments.fleet or snapshot.fleet
        server = stack.enter_context(controller(arguments)) if arguments.server else None
        before = Rehearsal(stage_of(snapshot, old, arguments.old, server), old, time.time())
        after = Rehearsal(stage_of(snapshot, new, arguments.new, server), new, time.time())
        unknown = unknowns(new, server)
    plans = before.rehearse(), after.rehearse()
    unknown += [
        f"the {w} policy had not settled after {MOST_TICKS} ticks"
        for w, p in zip(("old", "new"), plans, strict=True)
        if not p[2]
    ]
    report = {
        "changes": [{"path": c.path, "old": c.old, "new": c.new, "effect": c.effect} for c in diff(old, new)],
        "tiers": _tiers(before, plans[0][0], plans[1][0]),
        "replicas": _replicas(after, plans[0][0], plans[1][0]),
        "ring": _ring(snapshot, decode(plans[0][1]), decode(plans[1][1])),
        "notes": _notes(new),
        "unknown": unknown,
    }  # fmt: skip
    print(json.dumps(report, indent=2) if arguments.json else _text(report))
    return 0


def _tiers(rehearsal: Rehearsal, old: FleetPlan, new: FleetPlan) -> list[dict[str, Any]]:
    """Tenants that end in another tier."""
    now = rehearsal.stage.tiers
    rows = []
    for tenant in sorted({*old.tiers.ids, *new.tiers.ids}):
        ends = [p.tiers.explain(tenant) if tenant in p.tiers.ids else None for p in (old, new)]
        tiers = [e.after.value if e else None for e in ends]
        if tiers[0] != tiers[1]:
            reason = ends[1].reason.value if ends[1] else "no longer in the catalogue"
            at = now[tenant].value if tenant in now else "cold"
            rows.append({"tenant": tenant, "now": at, "old": tiers[0], "new": tiers[1], "reason": reason})  # fmt: skip
    return rows


def _replicas(rehearsal: Rehearsal, old: FleetPlan, new: FleetPlan) -> list[dict[str, Any]]:
    """Groups that end with another number of replicas."""
    groups = rehearsal.stage.groups
    rows = []
    for name in sorted({*groups, *old.scale.decisions, *new.scale.decisions}):
        ends = [p.scale.decisions.get(name) for p in (old, new)]
        counts = [d.desired if d else 0 for d in ends]
        if counts[0] != counts[1]:
            now = groups[name].current_replicas if name in groups else 0
            kept = ends[1].reason.value if ends[1] else "the group goes"
            reason = rehearsal.reasons.get(name, kept)
            rows.append({"group": name, "now": now, "old": counts[0], "new": counts[1], "reason": reason})
    return rows


def _ring(now: RingSnapshot, old: RingSnapshot, new: RingSnapshot) -> dict[str, Any]:
    """Moves from the ring that is in force to each end, those between the ends, and the rules that differ."""
    between = ring_diff(old, new)
    return {
        "moves_old": len(ring_diff(now, old)), "moves_new": len(ring_diff(now, new)), "moves_between": len(between),
        "adapters": sorted({m.adapter for m in between}),
        "rules": {n: [getattr(old, n), getattr(new, n)] for n in _RULES if getattr(old, n) != getattr(new, n)},
    }  # fmt: skip


def _notes(new: FleetPolicy) -> list[str]:
    notes = []
    if new.mode is not Mode.ENFORCE:
        notes.append(f"the new policy's mode is {new.mode.value}: this is what it would do in enforce")
    if new.actuation is Actuation.EXPORT:
        notes.append("the new policy exports replica counts: whoever reads them does the scaling")
    return notes


def _text(report: dict[str, Any]) -> str:
    parts = [f"{len(report['changes'])} keys differ"]
    parts += [f"  {line}" for line in _changes(report["changes"])]
    tiers, ring = report["tiers"], report["ring"]
    parts += ["", f"Tiers: {len(tiers)} tenants end elsewhere than under the old policy"]
    parts += _rows(("TENANT", "NOW", "OLD", "NEW", "WHY"), tiers)
    parts += ["", f"Replicas: {len(report['replicas'])} groups end with another number"]
    parts += _rows(("GROUP", "NOW", "OLD", "NEW", "WHY"), report["replicas"])
    parts += [
        "",
        f"Ring: {ring['moves_between']} moves of {len(ring['adapters'])} adapters apart; from now, the old policy "
        f"makes {ring['moves_old']} moves and the new one {ring['moves_new']}",
    ]
    parts += [f"  {name}: {a} -> {b}" for name, (a, b) in ring["rules"].items()]
    for heading, key in (("Note", "notes"), ("Not known", "unknown")):
        parts += ["", *(f"{heading}: {sentence}" for sentence in report[key])] if report[key] else []
    return "\n".join(parts)


def _changes(changes: list[dict[str, Any]]) -> list[str]:
    """A line a key; adapters that come and go are a line together, and long lists their counts."""
    whole = [c for c in changes if _whole_adapter(c)]
    lines = [f"{c['path']}: {_change(c['old'], c['new'])}  ({c['effect']})" for c in changes if not _whole_adapter(c)]
    if whole:
        come, gone = ([c[end] for c in whole if c[end] is not None] for end in ("new", "old"))
        lines.insert(0, f"{_ADAPTERS}: {_counted(come, gone)}  ({whole[0]['effect']})")
    more = [f"... and {len(lines) - _SHOWN} more (--json has all)"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]


def _whole_adapter(change: dict[str, Any]) -> bool:
    """Whether an entry of the list comes or goes, and is not changed."""
    return change["path"].startswith((f"{_ADAPTERS}.", f"{_ADAPTERS}[")) and None in (change["old"], change["new"])


def _change(old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list) and max(len(old), len(new)) > _FEW:
        come, gone = [v for v in new if v not in old], [v for v in old if v not in new]
        return f"{len(old)} -> {len(new)} entries, {_counted(come, gone)}"
    return f"{_value(old)} -> {_value(new)}"


def _value(value: Any) -> str:
    long = isinstance(value, list) and len(value) > _FEW
    return f"{len(value)} entries ({_first(value)})" if long else json.dumps(value)


def _counted(come: list[Any], gone: list[Any]) -> str:
    told = (f"{len(found)} {word} ({_first(found)})" for found, word in ((come, "added"), (gone, "removed")) if found)
    return ", ".join(told) or "in another order"


def _first(values: list[Any]) -> str:
    """The first few by their id where they have one."""
    names = [str(v.get("id", json.dumps(v))) if isinstance(v, dict) else str(v) for v in values[:_FEW]]
    return ", ".join(names) + (", ..." if len(values) > _FEW else "")


def _rows(headings: tuple[str, ...], rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = table(headings, ([v if v is not None else "-" for v in r.values()] for r in rows[:_SHOWN])).split("\n")
    more = [f"... and {len(rows) - _SHOWN} more (--json has all)"] if len(rows) > _SHOWN else []
    return [f"  {line}" for line in (*lines, *more)]
