"""Fleet: is it well, would replicas help, what did the controller do about it. The answer comes first."""

from __future__ import annotations

from html import escape

import streamlit as st

from dashboard import charts, marks, states, words
from dashboard.api import Json
from dashboard.history import total
from dashboard.scene import Scene, history, live, scene
from dashboard.words import (
    WOULD_REPLICAS_HELP,
    count,
    instant,
    percent,
    plural,
    rate,
    seconds,
    sentence,
    spaced,
    value_of,
    why_missing,
)

_TITLES = {
    "well": "The fleet is well",
    "attention": "Something needs attention",
    "unknown": "Not known: signals are missing",
    "saturation": "The fleet is saturated",
    "thrash": "Adapter thrash",
    "noisy-neighbour": "A noisy neighbour",
    "bad-replica": "A bad replica",
    "router-imbalance": "The router is imbalanced",
    "slow-adapter-store": "The adapter store is slow",
}
_MODES = {
    "advise": "It only advises: nothing is changed.",
    "propose": "Changes wait for approval.",
    "enforce": "Changes are made.",
}


def show() -> None:
    """The page."""
    st.title("Fleet")
    live(lambda: _body(scene()))


def _body(scene: Scene) -> None:
    status = states.status(scene)
    if status is None:
        return
    _health(status, scene)
    _figures(status, scene)
    _lines(status, scene)
    _groups(status)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _conditions(status, scene)
    with right:
        _signals(status)


def _health(status: Json, scene: Scene) -> None:
    state = status["health"]["state"]
    frozen = status["frozen"]
    marks.banner(
        marks.tone(state),
        _TITLES.get(state, spaced(state)),
        [
            sentence(status["health"]["sentence"]),
            f"Would more replicas help? {WOULD_REPLICAS_HELP[state]}" if state in WOULD_REPLICAS_HELP else "",
            f"Nothing is done: {sentence(frozen)}" if frozen else "",
        ],
        f"Mode {status['mode']}. {_MODES.get(status['mode'], '')} Last tick {scene.clock(status['at'])}.",
    )


def _figures(status: Json, scene: Scene) -> None:
    groups, seen = status["groups"], history(scene.fleet)
    replicas = [r for g in groups for r in g["replicas"]]
    slo_s, ttft_s = status["slo_ttft_s"], status["ttft_p99_s"]
    current, desired = (sum(g[f"{k}_replicas"] for g in groups) for k in ("current", "desired"))
    waiting, deferred = total(replicas, "waiting"), total(replicas, "deferred")
    saturation = [g["saturation"] for g in groups if g["saturation"] is not None]
    tiers = status["tenants"]
    with st.container(key="figures_fleet"):
        marks.figure(
            "TTFT p99, worst adapter", seconds(ttft_s), _against(ttft_s, slo_s),
            f"Time to first token. The fleet's SLO is {seconds(slo_s)}; tenants may have their own.",
            "" if ttft_s is None else "bad" if ttft_s > slo_s else "well", seen.column("ttft_p99_s"),
        )  # fmt: skip
        marks.figure(
            "Saturation", percent(max(saturation)) if saturation else "unknown", "of target",
            "Queue and KV pressure of the worst group over its target; at 100 % more replicas are needed.",
        )  # fmt: skip
        marks.figure(
            "Waiting requests", count(waiting), None if deferred is None else f"{count(deferred)} for an adapter slot",
            "Requests that wait for an adapter slot are thrash: replicas alone do not help them.", "",
            seen.column("waiting"),
        )  # fmt: skip
        marks.figure(
            "Requests", rate(status["requests_per_s"], "/s"), "seen by routers", None, "", seen.column("requests_per_s")
        )
        marks.figure(
            "Replicas", f"{current}", "as desired" if desired == current else f"{desired} desired",
            "Current in the spec; desired after all limits.",
        )  # fmt: skip
        marks.figure("Ring epoch", f"{status['epoch']}", _following(status),
                     "The version of the placement; routers say which one they apply.")  # fmt: skip
        marks.figure(
            "Churn budget", count(max(status["churn_budget_remaining"], 0.0)), "moves left",
            "Moves of adapters between replicas that may still be made now; it refills over the hour.",
        )  # fmt: skip
        marks.figure(
            "Tenants", count(sum(tiers.values())), ", ".join(f"{tiers[t]:,} {t}" for t in ("hot", "warm", "cold")),
            "HOT has a group of its own, WARM is on the ring, COLD is loaded on first use.",
        )  # fmt: skip


def _against(ttft_s: float | None, slo_s: float) -> str | None:
    if ttft_s is None:
        return None
    return f"{seconds(abs(ttft_s - slo_s))} {'over' if ttft_s > slo_s else 'under'} SLO"


def _following(status: Json) -> str:
    if not status["routers"]:
        return "no router seen"
    behind = max(status["epoch"] - r["epoch"] for r in status["routers"])
    return "routers follow" if behind <= 0 else f"a router is {behind} behind"


def _lines(status: Json, scene: Scene) -> None:
    samples = history(scene.fleet).samples()
    if len(samples) < 2:
        st.caption("Lines over time appear here after the next tick.")
        return
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**TTFT p99 against its SLO**")
        slo_s = status["slo_ttft_s"]
        chart = charts.lines(samples, {"ttft_p99_s": "TTFT p99"}, scene.tz, "seconds", (slo_s, f"SLO {seconds(slo_s)}"))
        charts.show(chart, "fleet_ttft", f"TTFT p99 over time against {slo_s} s", 190)
    with right:
        st.markdown("**Why requests wait**")
        what = {"waiting": "waiting", "deferred": "of these, for an adapter slot", "running": "running"}
        chart = charts.lines(samples, what, scene.tz, "requests", None)
        charts.show(chart, "fleet_waiting", "requests that wait or run, over time", 190)


def _groups(status: Json) -> None:
    marks.table(
        "Groups",
        ["Group", "State", "Replicas", "Saturation", "Thrash", "Capacity", "Why this many"],
        [_group_row(g) for g in status["groups"]],
        ["keep", "keep", "num", "", "", "num wide", "wide"],
    )
    with st.expander(f"{plural(sum(len(g['replicas']) for g in status['groups']), 'replica')}, one by one"):
        marks.table(
            "Replicas",
            ["Replica", "Slot", "State", "Running", "Waiting", "For a slot", "KV use", "TTFT p99", "Adapters / slots"],
            [_replica_row(r) for g in status["groups"] for r in g["replicas"]],
            ["keep", "wide", "keep", "num", "num", "num wide", "", "num", "num wide"],
        )


def _group_row(group: Json) -> list[str | marks.Cell]:
    current, desired, ready = (group[f"{k}_replicas"] for k in ("current", "desired", "ready"))
    size = f"{current}" if current == desired else f"{current} → {desired}"
    size += "" if ready == current else f" ({ready} ready)"
    capacity = group["capacity_tokens_per_s"]
    carried = value_of(capacity)
    paused = "" if group["pause"] == "none" else f" Paused: {group['pause']}."
    why = sentence(group["blocked"] or (group["trail"][-1]["message"] if group["trail"] else "")) + paused
    cause = group["cause"]
    return [
        group["group"],
        marks.Cell(marks.tag(words.cause(cause), marks.tone(cause))),
        size,
        marks.bar(group["saturation"], percent(group["saturation"])),
        marks.bar(group["thrash_score"], percent(group["thrash_score"]), "bad"),
        marks.number(rate(carried, "tokens/s a replica"), why_missing(capacity)),
        f"{spaced(group['reason'])}: {why}",
    ]


def _replica_row(replica: Json) -> list[str | marks.Cell]:
    def cell(name: str, text: str) -> marks.Cell:
        return marks.number(text, why_missing(replica[name]))

    kv = value_of(replica["kv_usage_ratio"])
    cause, state = replica["cause"], "leaving" if replica["leaving"] else replica["state"]
    return [
        replica["replica"],
        replica["slot"] or "none",
        marks.Cell(
            marks.tag(state, "well" if state == "ready" else "warn")
            + (marks.tag(words.cause(cause), "bad") if marks.tone(cause) == "bad" else "")
        ),
        cell("running", count(value_of(replica["running"]))),
        cell("waiting", count(value_of(replica["waiting"]))),
        cell("deferred", count(value_of(replica["deferred"]))),
        marks.bar(kv, percent(kv)) if kv is not None else marks.unknown(why_missing(replica["kv_usage_ratio"])),
        cell("ttft_p99_s", seconds(value_of(replica["ttft_p99_s"]))),
        f"{replica['assigned_adapters']} / {replica['max_loras']}",
    ]  # fmt: skip


def _conditions(status: Json, scene: Scene) -> None:
    conditions = status["conditions"]
    if not conditions:
        st.markdown("**Conditions**")
        st.html('<p class="la-quiet">None: nothing waits for an operator.</p>')
        return
    marks.table(
        "Conditions",
        ["Condition", "What it says", "Since"],
        [[spaced(c["name"]), sentence(c["message"]), scene.clock(c["since"])] for c in conditions],
        ["keep", "", "keep wide"],
    )


def _signals(status: Json) -> None:
    routers = [
        [f"router {r['router']}", f"epoch {r['epoch']}", seconds(r["age_s"])]
        for r in sorted(status["routers"], key=lambda r: r["epoch"])[:20]
    ]
    marks.table(
        "Freshness",
        ["Source", "State", "Age"],
        [*(_signal_row(n, s) for n, s in status["signals"].items()), *routers],
        ["keep", "", "num"],
    )
    tick_s = sum(status["steps_s"].values())
    at = instant(status["at"])
    st.html(f'<p class="la-quiet">The last tick took {seconds(tick_s)}{"" if at else ", its time is not known"}.</p>')


def _signal_row(name: str, signal: Json) -> list[str | marks.Cell]:
    if "missing" in signal:
        return [name, marks.Cell(marks.tag("missing", "bad") + " " + escape(signal["missing"])), marks.unknown()]
    return [name, marks.Cell(marks.tag("fresh", "well")), seconds(signal["age_s"])]
