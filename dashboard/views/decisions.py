"""Decisions: what changed or was held, when, and why; and an explanation of anything that has a name."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard import charts, marks, states
from dashboard.api import Json
from dashboard.picking import note, steady
from dashboard.scene import Scene, first, live, scene
from dashboard.words import instant, plural, sentence, spaced

STEPS = ("tiers", "scale", "ring", "apply")
KINDS = ("tenant", "adapter", "group", "replica", "signal")
MOST = 300
FIRST = 10


def show() -> None:
    """The page."""
    st.title("Decisions")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(
            "Step", STEPS, key="step", bind="query-params", format_func=str.capitalize, help="None chosen: all steps"
        )
        st.text_input(
            "Explain", key="subject", bind="query-params", width=320, type="search",
            placeholder="tenant/NAME, group/warm, replica/NAME ...",
            help=f"KIND/NAME, where KIND is one of {', '.join(KINDS)}. The list shows this subject only.",
        )  # fmt: skip
    live(lambda: _body(scene()))


def _body(scene: Scene) -> None:
    if states.status(scene) is None:
        return
    subject = (st.session_state.get("subject") or "").strip()
    if subject:
        _explanation(scene, subject)
    answer = scene.read("decisions", subject=subject, limit=MOST)
    if states.known(answer) is None:
        return
    step = st.session_state.get("step")
    found = [d for d in reversed(answer.items) if step in (None, d["step"])]
    if not found:
        states.empty(
            "No decision yet" if not (step or subject) else "No decision of this kind is kept",
            "What changes, and what is held for a new reason, is written down here. Nothing is said twice.",
        )
        return
    timeline, listed = st.container(), st.empty()
    first(listed, lambda: _first_rows(found[:FIRST], scene))
    with timeline:
        _timeline(found, scene)
    with listed.container():
        _list(found, scene, f"decisions_{step}_{subject}")


def _first_rows(found: list[Json], scene: Scene) -> None:
    """The newest as plain text, until the browser has loaded the table that can be chosen from."""
    rows = [[scene.clock(d["at"]), d["subject"], _change(d), spaced(d["reason"])] for d in found]
    marks.table("", ["At", "Subject", "Change", "Reason"], rows, ["keep", "", "wide", ""])


def _timeline(found: list[Json], scene: Scene) -> None:
    times = charts.local([t for d in found if (t := instant(d["at"])) is not None], scene.tz)
    frame = pd.DataFrame(
        {
            "at": times,
            "step": [d["step"] for d in found],
            "what": [d["message"] or d["reason"] for d in found],
            "subject": [d["subject"] for d in found],
            "reason": [spaced(d["reason"]) for d in found],
        }
    )
    charts.show(charts.timeline(frame, STEPS), "decisions_time", f"{len(found)} decisions over time, by step", 170)


def _list(newest: list[Json], scene: Scene, key: str) -> None:
    found = steady(key, newest)
    frame = pd.DataFrame(
        {
            "At": [scene.clock(d["at"]) for d in found],
            "Step": [d["step"] for d in found],
            "Subject": [d["subject"] for d in found],
            "Change": [_change(d) for d in found],
            "Reason": [spaced(d["reason"]) for d in found],
            "In words": [sentence(d["message"]) for d in found],
        }
    )
    column = st.column_config
    st.markdown(f"**{plural(len(found), 'decision')}, newest first**")
    event = st.dataframe(
        frame, hide_index=True, key=key, on_select="rerun", selection_mode="single-row",
        height=min(38 + 35 * len(found), 420), alt="decisions with time, step, subject, change and reason",
        column_config={
            "At": column.TextColumn(width=110), "Step": column.TextColumn(width=70),
            "Subject": column.TextColumn(width=170), "Change": column.TextColumn(width=110),
            "Reason": column.TextColumn(width=170), "In words": column.TextColumn(width="large"),
        },
    )  # fmt: skip
    note(key, event, found, "id", "decision")
    wanted = st.query_params.get("decision")
    chosen = next((d for d in (*found, *newest) if d["id"] == wanted), None)
    if chosen is None:
        st.caption("Choose a row to see every step that led to it.")
        return
    st.markdown(f"**{_code(chosen['subject'])} at {scene.clock(chosen['at'])}: how it came about**")
    marks.steps((spaced(s["reason"]), sentence(s["message"])) for s in chosen["trail"])


def _change(decision: Json) -> str:
    before, after = decision["before"], decision["after"]
    if before == after:
        return f"stays {after}" if after else "none"
    return f"{before if before not in ('', 'None') else 'new'} → {after}"


def _explanation(scene: Scene, subject: str) -> None:
    kind, _, name = subject.partition("/")
    if kind not in KINDS or not name:
        if kind != "ring":
            states.empty("Not a subject yet", f"Write KIND/NAME, where KIND is one of {', '.join(KINDS)}.")
        return
    answer = scene.read("explain", subject=subject)
    found = states.known(answer)
    if found is None:
        return
    marks.banner("info", found["summary"], found["facts"])
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Why**")
        marks.steps(("", sentence(w)) for w in found["why"])
    with right:
        st.markdown("**What would change it**")
        marks.steps(("", sentence(c)) for c in found["to_change"])


def _code(text: str) -> str:
    return "`" + text.replace("`", "'") + "`"
