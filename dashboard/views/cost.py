"""Cost: replica-hours by group and tenant, with a price where one is told, against what a simple peer would use."""

from __future__ import annotations

import streamlit as st

from dashboard import marks, states
from dashboard.api import Json
from dashboard.scene import Scene, live, scene, settings
from dashboard.words import count, percent, plural

HOURS_OF_A_MONTH = 730
MOST_TENANTS = 25


def show() -> None:
    """The page."""
    st.title("Cost")
    told = settings()
    st.number_input(
        f"Price of a replica-hour, {told.currency}", min_value=0.0, value=told.price, step=0.1, key="price",
        bind="query-params", placeholder="not told", width=260,
        help="What one replica costs per hour, accelerators included. Left empty, replica-hours are shown.",
    )  # fmt: skip
    live(lambda: _body(scene()))


def _body(scene: Scene) -> None:
    if states.status(scene) is None:
        return
    answer = scene.read("costs")
    costs = states.known(answer)
    if costs is None:
        return
    price: float | None = st.session_state.get("price") or None
    _figures(costs, price)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _groups(costs, price)
    with right:
        _tenants(costs, price)


def _money(amount: float) -> str:
    sign = settings().currency
    return f"{sign}{amount:,.0f}" if amount >= 100 else f"{sign}{amount:,.2f}"


def _figures(costs: Json, price: float | None) -> None:
    per_hour = sum(costs["replica_hours_per_hour"].values())
    peer = costs["deployment_per_tenant_replicas"]
    with st.container(key="figures_cost"):
        marks.figure("Replica-hours per hour", count(per_hour), None, "Replicas in the spec now.")
        if price is None:
            marks.figure("Cost per hour", "unknown", None, "No price was told: enter one above.")
        else:
            marks.figure("Cost per hour", _money(per_hour * price))
            marks.figure("Per month at this size", _money(per_hour * price * HOURS_OF_A_MONTH))
        marks.figure("One deployment per tenant", plural(peer, "replica"), None,
                     "The simplest way to isolate tenants: a replica for each that is active.")  # fmt: skip
    if peer > per_hour > 0:
        saved = peer - per_hour
        money = "" if price is None else f", {_money(saved * price)} an hour"
        marks.banner(
            "well",
            f"{percent(saved / peer)} fewer replicas than one deployment per tenant",
            [f"{plural(peer, 'tenant')} with demand share {plural(per_hour, 'replica')}: {count(saved)} fewer{money}."],
            "The same fleet without affinity is not compared here: its size cannot be known from what is seen, only "
            "simulated (lora-autoscaler simulate).",
        )
    elif per_hour > 0:
        marks.banner(
            "info",
            "No fewer replicas than one deployment per tenant",
            [f"{plural(peer, 'tenant')} with demand, {plural(per_hour, 'replica')}."],
        )


def _groups(costs: Json, price: float | None) -> None:
    hours = costs["replica_hours_per_hour"]
    total = sum(hours.values()) or 1
    heads = ["Group", "Replicas", "Share", *(["Per hour"] if price else [])]
    rows = [
        [name, count(h), marks.bar(h / total, percent(h / total)), *([_money(h * price)] if price else [])]
        for name, h in sorted(hours.items(), key=lambda item: -item[1])
    ]
    marks.table("By group", heads, rows, ["keep", "num", "", *(["num"] if price else [])])


def _tenants(costs: Json, price: float | None) -> None:
    tenants = [t for t in costs["tenants"] if t["share_ratio"] > 0]
    if not tenants:
        states.empty("No tenant has demand", "Shares appear with the first forecast above zero.")
        return
    heads = ["Tenant", "Share of tokens", "Replicas", *(["Per hour"] if price else [])]
    rows = [
        [
            t["tenant"],
            marks.bar(t["share_ratio"], percent(t["share_ratio"])),
            f"{t['replica_hours_per_hour']:.2f}",
            *([_money(t["replica_hours_per_hour"] * price)] if price else []),
        ]
        for t in tenants[:MOST_TENANTS]
    ]
    marks.table("By tenant, largest first", heads, rows, ["keep", "", "num", *(["num"] if price else [])])
    rest = 1.0 - sum(t["share_ratio"] for t in tenants[:MOST_TENANTS])
    if rest > 0.0005:
        st.caption(f"All other tenants: {percent(rest)}.")
