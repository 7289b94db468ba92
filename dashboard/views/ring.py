"""Ring: who owns what, what the last epochs moved, and why."""

from __future__ import annotations

import streamlit as st

from dashboard import marks, states
from dashboard.api import Json
from dashboard.scene import Scene, live, scene
from dashboard.words import count, plural, rate, seconds, sentence, spaced

PAGE = 25
MOST_MOVES = 12
MOST_MEMBERS = 64


def show() -> None:
    """The page."""
    st.title("Ring")
    st.text_input(
        "Who owns an adapter", key="adapter", bind="query-params", placeholder="part of an adapter's name",
        type="search", live=True, width=320,
    )  # fmt: skip
    live(lambda: _body(scene()))


def _body(scene: Scene) -> None:
    status = states.status(scene)
    if status is None:
        return
    if not status["epoch"]:
        states.empty("No ring yet", "The first epoch comes when the first replica is ready and holds its adapters.")
        return
    snapshot = scene.read("ring").value
    _figures(status, snapshot, scene)
    _owners(scene)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _members(status, snapshot)
    with right:
        _epochs(scene)


def _figures(status: Json, snapshot: Json | None, scene: Scene) -> None:
    behind = [r for r in status["routers"] if r["epoch"] < status["epoch"]]
    with st.container(key="figures_ring"):
        published = "not published yet" if snapshot is None else f"published {snapshot['epoch']}"
        marks.figure(
            "Epoch", f"{status['epoch']}", published, "What should be in force; published is what routers read."
        )
        if snapshot is not None:
            listed = plural(len(snapshot.get("warm") or ()), "adapter")
            marks.figure("Copies of an adapter", f"{snapshot['replication_factor']}", "at least",
                         "Busy adapters have more: replication follows load.")  # fmt: skip
            marks.figure("Exceptions", f"{len(snapshot['exceptions']):,}", f"of {listed}",
                         "Placements that differ from the pure hash.")  # fmt: skip
        marks.figure("Routers behind", f"{len(behind)}", f"of {plural(len(status['routers']), 'router')}")
        marks.figure("Churn budget", count(max(status["churn_budget_remaining"], 0.0)), "moves left")
    if status["mode"] == "advise":
        st.caption("Mode advise: the placement is computed and not published.")
    if any(c["name"] == "RouterLag" for c in status["conditions"]):
        slow = ", ".join(f"{r['router']} at {r['epoch']} ({seconds(r['age_s'])} ago)" for r in behind[:5])
        marks.banner("warn", "Routers are behind", [slow])


def _owners(scene: Scene) -> None:
    search = st.session_state.get("adapter") or ""
    answer = scene.read("adapters", search=search, limit=PAGE)
    page = states.known(answer)
    if page is None:
        return
    if not page["items"]:
        states.empty(f"No adapter matches {search!r}", "A name that is in no list goes to the cold group, or gets 404.")
        return
    marks.table(
        f"Who owns what: {len(page['items'])} of {plural(page['total'], 'adapter')}",
        ["Adapter", "Tier", "Owners, preferred first", "Requests", "Forecast"],
        [_owner_row(a) for a in page["items"]],
        ["keep", "keep", "", "num wide", "num wide"],
    )


def _owner_row(adapter: Json) -> list[str | marks.Cell]:
    return [
        adapter["adapter"],
        marks.Cell(marks.tier(adapter["tier"])),
        marks.Cell("".join(marks.tag(o) for o in adapter["owners"]) or "nobody yet"),
        marks.number(rate(adapter["requests_per_s"], "/s")),
        marks.number(rate(adapter["forecast_mean_tokens_per_s"])),
    ]


def _members(status: Json, snapshot: Json | None) -> None:
    held = {r["replica"]: r["assigned_adapters"] for g in status["groups"] for r in g["replicas"]}
    members = [] if snapshot is None else snapshot["members"]
    if not members:
        states.empty("No member yet", "Slots appear when replicas join the ring.")
        return
    most = max(*(held.get(m["replica"], 0) for m in members), 1)
    rows = []
    for m in members[:MOST_MEMBERS]:
        held_here = held.get(m["replica"])
        state = marks.tag(m["state"], "well" if m["state"] == "active" else "warn")
        share = marks.unknown() if held_here is None else marks.bar(held_here / most, f"{held_here}")
        rows.append([m["slot"], m["replica"] or "nobody", marks.Cell(state), share])
    marks.table(plural(len(members), "slot"), ["Slot", "Replica", "State", "Adapters"], rows, ["keep", "keep", "keep"])


def _epochs(scene: Scene) -> None:
    moved = scene.read("ring/moves", limit=MOST_MOVES)
    decided = scene.read("decisions", subject="ring/epoch", limit=50)
    why = {d["after"]: d for d in decided.items}
    st.markdown("**What the last epochs moved, and why**")
    if not moved.items:
        states.empty("Nothing moved since this controller started", "Each new epoch is shown here with its moves.")
        return
    for index, epoch in enumerate(moved.items):
        head = f"Epoch {epoch['epoch']} · {plural(epoch['moves'], 'move')} · {scene.clock(epoch['published_at'])}"
        with st.expander(head, expanded=index == 0):
            decision = why.get(str(epoch["epoch"]))
            if decision is None:
                st.html('<p class="la-quiet">Why is not kept any more, or another instance decided it.</p>')
            else:
                marks.steps((spaced(s["reason"]), sentence(s["message"])) for s in decision["trail"])
            _moves(epoch)


def _moves(epoch: Json) -> None:
    if not epoch["items"]:
        st.html('<p class="la-quiet">No adapter changed its slot.</p>')
        return
    marks.table(
        "",
        ["Adapter", "Leaves", "Comes to"],
        [[m["adapter"], m["from"] or "nothing", m["to"] or "nothing"] for m in epoch["items"]],
        ["keep", "keep", "keep"],
    )
    if epoch["moves"] > len(epoch["items"]):
        st.caption(f"The first {len(epoch['items'])} of {epoch['moves']:,}.")
