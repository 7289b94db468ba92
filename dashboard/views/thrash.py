"""Adapter thrash: which replicas load, push out and load again, what they hold against their slots, and the cure."""

from __future__ import annotations

from html import escape

import pandas as pd
import streamlit as st

from dashboard import charts, marks, states, words
from dashboard.api import Json
from dashboard.scene import Scene, history, live, scene
from dashboard.words import count, percent, plural, rate, seconds, sentence, value_of, why_missing

MOST_REPLICAS = 24
MOST_ADAPTERS = 48
MOST_PUSHED = 10
_CURES = {"slots": "Adapter slots", "tier": "Tier", "placement": "Placement"}
_HOLDS = {3: "holds", 2: "registered only", 1: "lacks", 0: "not its own"}


def show() -> None:
    """The page."""
    st.title("Adapter thrash")
    live(lambda: _body(scene()))


def _body(scene: Scene) -> None:
    answer = scene.read("adapter-thrash")
    status = states.status(scene)
    if status is None or answer.value is None:
        states.known(answer)
        return
    found = answer.items
    _verdict(status, found)
    if not found:
        states.empty("No replica was looked at yet", "The first findings come with the first signals of the engines.")
        return
    _cures(answer.value.get("cures", []))
    _replicas(status, found)
    _pushed_out(answer.value.get("pushed_out", []))
    _over_time(scene)
    _map(scene, [f["replica"] for f in found[:MOST_REPLICAS]])


def _verdict(status: Json, found: list[Json]) -> None:
    hurt = [f for f in found if f["cause"] == "thrash"]
    if not hurt:
        unknown = [f for f in found if f["cause"] == "unknown"]
        if found and len(unknown) == len(found):
            marks.banner("warn", "Not known", ["No replica shows enough signals for a verdict."])
        elif found:
            marks.banner("well", "No adapter thrash", [f"{plural(len(found), 'replica')} looked at."])
        return
    cures = sorted({g["cure"] for g in status["groups"] if g["cause"] == "thrash" and g["cure"]})
    short = [c["message"] for c in status["conditions"] if c["name"].startswith("AdapterSlotsShort")]
    harm = sum(f["harm"] for f in hurt)
    marks.banner(
        "bad",
        f"{plural(len(hurt), 'replica')} of {len(found)} {'thrashes' if len(hurt) == 1 else 'thrash'}",
        [
            f"Every second adds {seconds(harm)} of lateness beyond the SLO, all requests together.",
            *(f"What cures it: {sentence(c)}" for c in cures),
            *(sentence(s) for s in short),
        ],
        "More replicas alone do not help: adapter slots are short, not compute.",
    )


def _replicas(status: Json, found: list[Json]) -> None:
    by_id = {r["replica"]: r for g in status["groups"] for r in g["replicas"]}
    marks.table(
        "Replicas, worst first",
        ["Replica", "Verdict", "Thrash", "Assigned / slots", "Loads", "Evidence"],
        [_row(f, by_id.get(f["replica"])) for f in found[:MOST_REPLICAS]],
        ["keep", "keep", "", "", "num wide", "wide"],
    )
    if len(found) > MOST_REPLICAS:
        st.caption(f"The {MOST_REPLICAS} worst of {len(found)} replicas.")


def _row(finding: Json, replica: Json | None) -> list[str | marks.Cell]:
    cause, slots = finding["cause"], finding["max_loras"]
    assigned = finding["assigned_adapters"]
    fill = None if not slots else assigned / slots
    loads = None if replica is None else replica["adapter_loads_per_s"]
    return [
        finding["replica"],
        marks.Cell(marks.tag(words.cause(cause), marks.tone(cause))),
        marks.bar(finding["thrash_score"], percent(finding["thrash_score"]), "bad"),
        marks.bar(fill, f"{assigned} / {slots}", "bad" if fill is not None and fill > 1 else "") if slots
        else f"{assigned} / unknown",
        marks.number(rate(value_of(loads), "/s"), why_missing(loads)),
        " ".join(sentence(e) for e in finding["evidence"]),
    ]  # fmt: skip


def _cures(cures: list[Json]) -> None:
    if not cures:
        return
    marks.table(
        "What would cure it, with the estimated effect",
        ["Cure", "Loads an hour", "In words"],
        [_cure_row(c) for c in cures],
        ["keep", "keep", ""],
    )


def _cure_row(cure: Json) -> list[str | marks.Cell]:
    before, after = cure["loads_per_hour"], cure["loads_per_hour_after"]
    helps = after < before
    return [
        _CURES.get(cure["kind"], str(cure["kind"])),
        f"{count(before)} → {count(after)}" if helps else f"{count(before)}, no fewer",
        marks.Cell(marks.prose(f"{cure['group']}: {cure['message']}.")),
    ]


def _pushed_out(found: list[Json]) -> None:
    if not found:
        return
    marks.table(
        "Who is pushed out, how often and by whom",
        ["Adapter", "Pushed out", "By whom", "Known by", "Served elsewhere (HOT or COLD)"],
        [_pushed_row(p) for p in found[:MOST_PUSHED]],
        ["keep", "num", "", "keep wide", "wide"],
    )
    st.caption(
        "Per hour, over all replicas of an adapter. Estimated: from request rates and adapter slots, where engines do "
        "not say whom they push out. Seen: it left memory while others came in, at least so often."
    )


def _pushed_row(found: Json) -> list[str | marks.Cell]:
    by = "".join(marks.tag(f"{b['adapter'] or 'several at once'} {percent(b['share_ratio'])}") for b in found["by"][:3])
    before, after = found["loads_per_hour"], found["loads_per_hour_without"]
    where = "" if found["place"] == "slot" else marks.tag("from memory", "warn")
    return [
        marks.Cell(escape(found["adapter"]) + " " + where, "keep"),
        f"{count(found['per_hour'])}/h",
        marks.Cell(by or "not known"),
        found["basis"],
        "not known" if before is None else f"loads on its replicas {count(before)} → {count(after)} an hour",
    ]


def _over_time(scene: Scene) -> None:
    samples = history(scene.fleet).samples()
    if len(samples) < 2:
        return
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Waiting for an adapter slot**")
        columns = {"waiting": "waiting", "deferred": "of these, for an adapter slot"}
        charts.show(
            charts.lines(samples, columns, scene.tz, "requests", None), "thrash_wait", "waiting requests over time", 190
        )
    with right:
        st.markdown("**Adapter loads**")
        if history(scene.fleet).column("loads_per_s"):
            chart = charts.lines(samples, {"loads_per_s": "loads"}, scene.tz, "loads/s", None)
            charts.show(chart, "thrash_loads", "adapter loads per second over time", 190)
        else:
            states.empty(
                "Loads are unknown", "These engines do not count adapter loads; waiting for slots tells instead."
            )


def _map(scene: Scene, replicas: list[str]) -> None:
    held = states.known(scene.read("residency", replica=replicas))
    if held is None:
        return
    rows = held["items"]
    often: dict[str, int] = {}
    for row in rows:
        for adapter in row["assigned"]:
            often[adapter] = often.get(adapter, 0) + 1
        for adapter in row["missing"]:
            often[adapter] = often.get(adapter, 0) + 100
    adapters = sorted(sorted(often), key=lambda a: -often[a])[:MOST_ADAPTERS]
    cells = [_cell(row, adapter) for row in rows for adapter in sorted(adapters)]
    if not cells:
        states.empty("No adapter is assigned yet", "The map appears with the first ring.")
        return
    st.markdown("**Who should hold what, and does**")
    charts.show(
        charts.states_map(pd.DataFrame(cells), list(_HOLDS.values())),
        "thrash_map",
        f"{len(rows)} replicas by {len(adapters)} adapters: what each holds and lacks",
        150 + 24 * len(rows),
    )
    shown = (
        f"{len(adapters)} of {len(often)} adapters, those that are lacked first. " if len(often) > len(adapters) else ""
    )
    st.caption(
        f"{shown}Holds: in the engine's memory, or registered where engines do not show their memory. "
        "Lacks: assigned, not loaded yet. Registered only: known to the engine's API, no longer in its memory."
    )


def _cell(row: Json, adapter: str) -> Json:
    return {"replica": row["replica"], "adapter": adapter, "state": _HOLDS[_state(row, adapter)]}


def _state(row: Json, adapter: str) -> int:
    if adapter not in row["assigned"]:
        return 0
    if adapter in row["missing"]:
        return 1
    return 2 if row["resident"] is not None and adapter not in row["resident"] else 3
